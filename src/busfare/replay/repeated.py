"""Copies whose bytes stand there already, sent once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.replay.changes import Applied, Setting
from busfare.replay.edit import without_operations
from busfare.replay.selection import bytes_of
from busfare.replay.timeline import Timeline

__all__ = ["Dedupe", "repeated_copies"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Dedupe:
    """Buffers that are sent again unchanged are sent once."""

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
        return Applied(
            without_operations(timeline, repeated),
            int(repeated.sum()),
            bytes_of(timeline, repeated),
            ["nothing on the GPU writes into these buffers between the copies"],
        )


def repeated_copies(operations: pl.DataFrame) -> Mask | None:
    """Copies to the GPU whose bytes already stand where they go; None where the trace has no fingerprints."""
    needed = ("fingerprint", "destination_address")
    if (
        any(name not in operations.columns for name in needed)
        or operations["fingerprint"].drop_nulls().is_empty()
    ):
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & pl.col("fingerprint").is_not_null()
    place = ["process", "device", "destination_address", "bytes"]
    frame = operations.with_row_index("at").filter(into)
    repeated = frame.filter(
        (pl.col("fingerprint") == pl.col("fingerprint").shift(1).over(place)).fill_null(False)
    )
    mask = np.zeros(operations.height, bool)
    mask[repeated["at"].to_numpy()] = True
    return mask
