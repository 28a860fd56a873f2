"""Copies whose bytes were sent before, sent once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.timeline.changes.change import Applied, Setting
from busfare.timeline.edit import without_operations
from busfare.timeline.model import Timeline
from busfare.timeline.prices import packing_nanoseconds
from busfare.timeline.selection import bytes_of

__all__ = ["Dedupe", "Repeated", "repeated_copies"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Repeated:
    """Copies to the GPU whose bytes were sent before. Shape (operations,).

    `again`: such copies. `elsewhere`: those of them whose place on the GPU held other bytes meanwhile, or that went to
    another. `rewritten`: those whose source held other bytes meanwhile, so that the host wrote these there again.
    """

    again: Mask
    elsewhere: Mask
    rewritten: Mask


@dataclass(frozen=True)
class Dedupe:
    """Buffers that are sent again unchanged are sent once, and stay on the GPU."""

    @property
    def title(self) -> str:
        return "send unchanged buffers once"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        repeated = repeated_copies(timeline.operations)
        if repeated is None:
            raise InputError(
                f"{timeline.trace.path}: the trace does not say what was in the copied buffers; "
                "record it with `busfare record --fingerprint`"
            )
        again = repeated.again
        rests_on = ["nothing on the GPU writes into these buffers between the copies"]
        if repeated.elsewhere.any():
            kept = timeline.operations.filter(pl.Series(repeated.elsewhere)).unique(["bytes", "fingerprint"])
            megabytes = int(kept["bytes"].sum()) / 1e6
            rests_on.append(f"the GPU has room to keep {megabytes:.3g} MB of them")
        return Applied(
            without_operations(_not_written(timeline, repeated.rewritten, setting), again),
            int(again.sum()),
            bytes_of(timeline, again),
            rests_on,
        )


def _not_written(timeline: Timeline, rewritten: Mask, setting: Setting) -> Timeline:
    """The host no longer writes the sources of the copies `rewritten` before their calls."""
    columns = timeline.columns
    called = rewritten & (columns["operation_launched"] != 0)
    sizes = timeline.operations["bytes"].to_numpy()[called].astype(np.float64)
    writing = np.zeros(len(columns["call_gap"]))
    np.add.at(writing, columns["operation_call"][called], packing_nanoseconds(sizes, setting.recorded_on))
    gap = columns["call_gap"]
    return timeline.with_columns(
        call_gap=gap - np.minimum(np.rint(writing), np.maximum(gap, 0)).astype(np.int64)
    )


def repeated_copies(operations: pl.DataFrame) -> Repeated | None:
    """None where the trace has no fingerprints."""
    needed = ("fingerprint", "source_address", "destination_address")
    if (
        any(name not in operations.columns for name in needed)
        or operations["fingerprint"].drop_nulls().is_empty()
    ):
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & pl.col("fingerprint").is_not_null()
    here = ["process", "bytes", "source_address"]
    there = ["process", "device", "bytes", "destination_address"]
    frame = (
        operations.with_row_index("at")
        .filter(into)
        .with_columns(
            again=pl.int_range(pl.len()).over("process", "device", "bytes", "fingerprint") > 0,
            stands=_held_before(there) == pl.col("fingerprint"),
            rewritten=_held_before(here) != pl.col("fingerprint"),
        )
        .filter("again")
        .with_columns(pl.col("stands", "rewritten").fill_null(False))
    )
    at = frame["at"].to_numpy()

    def marked(chosen: NDArray[np.bool_]) -> Mask:
        mask = np.zeros(operations.height, bool)
        mask[at[chosen]] = True
        return mask

    return Repeated(
        marked(np.ones(len(at), bool)),
        marked(~frame["stands"].to_numpy()),
        marked(frame["rewritten"].to_numpy()),
    )


def _held_before(place: list[str]) -> pl.Expr:
    """The fingerprint that `place`, columns of which the last is an address, held at the copy before; null if unknown."""
    return pl.when(pl.col(place[-1]).is_not_null()).then(pl.col("fingerprint").shift(1).over(place))
