"""Copies of bytes that are on the GPU already: sent before, or brought back from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Node
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.edit import bytes_of, without_operations
from busfare.timeline.model import Timeline
from busfare.timeline.prices import packing_nanoseconds
from busfare.trace.totals import union_of

__all__ = [
    "KNOWN_BY",
    "OPTIONS",
    "PLACE",
    "Dedupe",
    "KeepOnGpu",
    "Repeated",
    "asked",
    "repeated_copies",
    "returned_copies",
]

Mask = NDArray[np.bool_]
#: Smaller ones are flags and counters, which the host looks at and sets.
SMALLEST_BYTES = 64 * 1024
#: What shows that two copies carry the same bytes, the surest first, and how that is put.
KNOWN_BY = {
    "fingerprint": "their bytes",
    "address": "their sizes, order and addresses",
    "bytes": "their sizes and order",
}
PLACE = 30
OPTIONS = (
    Option("--dedupe", "Send unchanged buffers once."),
    Option("--keep-on-gpu", "What comes back and goes in again stays on the GPU."),
)


def asked(options: Asked) -> list[Change]:
    """Unchanged buffers sent once, and those that return kept."""
    changes: list[Change] = [Dedupe()] if options.flag("dedupe") else []
    return changes + ([KeepOnGpu()] if options.flag("keep_on_gpu") else [])


@dataclass(frozen=True)
class Repeated:
    """Copies to the GPU whose bytes were sent before. Shape (operations,).

    `again`: such copies. `elsewhere`: those of them whose place on the GPU held other bytes meanwhile, or that went to
    another.
    """

    again: Mask
    elsewhere: Mask


@dataclass(frozen=True)
class Dedupe:
    """Buffers that are sent again unchanged are sent once, and stay on the GPU."""

    @property
    def title(self) -> str:
        return "send unchanged buffers once"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--dedupe",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        repeated = repeated_copies(timeline.operations)
        if repeated is None:
            raise InputError(
                f"{timeline.trace.path}: the trace does not say what was in the copied buffers; "
                "record it with `busfare record --fingerprint`"
            )
        rests_on = ["nothing on the GPU writes into these buffers between the copies"]
        if repeated.elsewhere.any():
            kept = timeline.operations.filter(pl.Series(repeated.elsewhere)).unique(["bytes", "fingerprint"])
            megabytes = int(kept["bytes"].sum()) / 1e6
            rests_on.append(f"the GPU has room to keep {megabytes:.3g} MB of them")
        again = repeated.again
        return Applied(
            without_operations(timeline, again), int(again.sum()), bytes_of(timeline, again), rests_on
        )


def repeated_copies(operations: pl.DataFrame) -> Repeated | None:
    """None where the trace has no fingerprints."""
    needed = ("fingerprint", "destination_address")
    if (
        any(name not in operations.columns for name in needed)
        or operations["fingerprint"].drop_nulls().is_empty()
    ):
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & pl.col("fingerprint").is_not_null()
    there = ["process", "device", "bytes", "destination_address"]
    held = pl.when(pl.col("destination_address").is_not_null()).then(
        pl.col("fingerprint").shift(1).over(there)
    )
    frame = (
        operations.with_row_index("at")
        .filter(into)
        .with_columns(
            again=pl.int_range(pl.len()).over("process", "device", "bytes", "fingerprint") > 0,
            elsewhere=(held != pl.col("fingerprint")).fill_null(True),
        )
        .filter("again")
    )
    again, elsewhere = np.zeros(operations.height, bool), np.zeros(operations.height, bool)
    again[frame["at"].to_numpy()] = True
    elsewhere[frame.filter("elsewhere")["at"].to_numpy()] = True
    return Repeated(again, elsewhere)


@dataclass(frozen=True)
class KeepOnGpu:
    """Copies back whose bytes go in again, and those that bring them in, are gone: the last state comes back once."""

    @property
    def title(self) -> str:
        return "keep on the GPU what goes in again"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--keep-on-gpu",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        returned, known_by = returned_copies(timeline.operations, setting.recorded_on)
        if not returned.any():
            return Applied(timeline, 0)
        rests_on = [
            "the host does not look at these buffers between the copies, and the GPU has room to keep them"
        ]
        if known_by != "fingerprint":
            rests_on.insert(0, f"what goes in is what came back, which {KNOWN_BY[known_by]} alone show here")
        return Applied(
            without_operations(timeline, returned),
            int(returned.sum()),
            bytes_of(timeline, returned),
            rests_on,
        )


def returned_copies(operations: pl.DataFrame, node: Node | None) -> tuple[NDArray[np.bool_], str]:
    """Copies back whose bytes went in again and the copies that took them there, shape (operations,); and what shows it.

    Where no fingerprint shows it, a pair is one whose copy in begins before the host, free between the two, could have
    written the buffer anew.
    """
    to_host = pl.col("direction") == "d2h"
    into = pl.col("direction") == "h2d"
    mask = np.zeros(operations.height, bool)
    given = {
        name: name in operations.columns and operations[name].count() > 0
        for name in ("fingerprint", "source_address")
    }
    known_by = "fingerprint" if given["fingerprint"] else "address" if given["source_address"] else "bytes"
    columns = ["process", "device", "bytes", "direction", "start_ns", "end_ns"]
    keys = ["process", "device", "bytes"]
    copies = operations.with_row_index("at").filter(
        (pl.col("kind") == "copy") & (to_host | into) & (pl.col("bytes") > SMALLEST_BYTES)
    )
    if known_by == "address":
        host = pl.when(to_host).then("destination_address").otherwise("source_address")
        copies = copies.with_columns(address=host)
    if known_by != "bytes":
        keys.append(known_by)
        copies = copies.drop_nulls(known_by)
    copies = copies.select("at", *dict.fromkeys([*columns, *keys])).sort("start_ns", "at")
    # Those that came back wait in a line of their key; one that goes in takes the first of it, where there is one.
    waiting = pl.when(to_host).then(1).otherwise(-1).cum_sum().over(keys)
    least = pl.min_horizontal(waiting.cum_min().over(keys), 0)
    matched = into & (least == least.shift(1).over(keys).fill_null(0))
    number = pl.when(to_host).then(to_host.cum_sum().over(keys)).otherwise(matched.cum_sum().over(keys))
    paired = copies.with_columns(number=number, matched=matched)
    pairs = paired.filter(to_host).join(
        paired.filter("matched"), [*keys, "number"], suffix="_in", nulls_equal=True
    )
    if known_by != "fingerprint" and pairs.height:
        begin, end = pairs["end_ns"].to_numpy(), pairs["start_ns_in"].to_numpy()
        free = (end - begin) - union_of(copies).covered_within(begin, np.maximum(begin, end))
        sizes = pairs["bytes"].to_numpy().astype(np.float64)
        pairs = pairs.filter(pl.Series(free < packing_nanoseconds(sizes, node)))
    mask[pairs["at"].to_numpy()] = True
    mask[pairs["at_in"].to_numpy()] = True
    return mask, known_by
