"""Buffers that come back from the GPU and go in again: kept there, they are neither."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.node import Node
from busfare.timeline.changes.change import Applied, Setting
from busfare.timeline.edit import without_operations
from busfare.timeline.model import Timeline
from busfare.timeline.prices import packing_nanoseconds
from busfare.timeline.selection import bytes_of
from busfare.trace.totals import union_of

__all__ = ["TOLD_BY", "KeepOnGpu", "returned_copies"]

#: Smaller ones are flags and counters, which the host looks at and sets.
SMALLEST_BYTES = 64 * 1024
#: What tells that two copies carry the same bytes, the surest first, and how that is said.
TOLD_BY = {
    "fingerprint": "their bytes",
    "address": "their sizes, order and addresses",
    "bytes": "their sizes and order",
}


@dataclass(frozen=True)
class KeepOnGpu:
    """Copies back whose bytes go in again, and those that bring them in, are gone: the last state comes back once."""

    @property
    def title(self) -> str:
        return "keep on the GPU what goes in again"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        returned, told_by = returned_copies(timeline.operations, setting.recorded_on)
        if not returned.any():
            return Applied(timeline, 0)
        rests_on = [
            "the host does not look at these buffers between the copies, and the GPU has room to keep them"
        ]
        if told_by != "fingerprint":
            rests_on.insert(0, f"what goes in is what came back, which {TOLD_BY[told_by]} alone tell here")
        return Applied(
            without_operations(timeline, returned),
            int(returned.sum()),
            bytes_of(timeline, returned),
            rests_on,
        )


def returned_copies(operations: pl.DataFrame, node: Node | None) -> tuple[NDArray[np.bool_], str]:
    """Copies back whose bytes went in again and the copies that took them there, shape (operations,); and what tells.

    Where no fingerprint tells, a pair is one whose copy in begins before the host, free between the two, could have
    written the buffer anew.
    """
    to_host = pl.col("direction") == "d2h"
    into = pl.col("direction") == "h2d"
    mask = np.zeros(operations.height, bool)
    given = {
        name: name in operations.columns and operations[name].count() > 0
        for name in ("fingerprint", "source_address")
    }
    told_by = "fingerprint" if given["fingerprint"] else "address" if given["source_address"] else "bytes"
    columns = ["process", "device", "bytes", "direction", "start_ns", "end_ns"]
    keys = ["process", "device", "bytes"]
    copies = operations.with_row_index("at").filter(
        (pl.col("kind") == "copy") & (to_host | into) & (pl.col("bytes") > SMALLEST_BYTES)
    )
    if told_by == "address":
        host = pl.when(to_host).then("destination_address").otherwise("source_address")
        copies = copies.with_columns(address=host)
    if told_by != "bytes":
        keys.append(told_by)
        copies = copies.drop_nulls(told_by)
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
    if told_by != "fingerprint" and pairs.height:
        begin, end = pairs["end_ns"].to_numpy(), pairs["start_ns_in"].to_numpy()
        free = (end - begin) - union_of(copies).covered_within(begin, np.maximum(begin, end))
        sizes = pairs["bytes"].to_numpy().astype(np.float64)
        pairs = pairs.filter(pl.Series(free < packing_nanoseconds(sizes, node)))
    mask[pairs["at"].to_numpy()] = True
    mask[pairs["at_in"].to_numpy()] = True
    return mask, told_by
