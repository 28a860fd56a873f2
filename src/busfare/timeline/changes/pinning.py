"""What pinning takes the host besides the copies: to pin memory that is copied once, as no later copy makes up for that; and
what a loader's thread could take over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.nodes import Node
from busfare.nodes.contention import published
from busfare.statements import Words, statement
from busfare.timeline.model import Mask, Timeline
from busfare.trace import Trace

__all__ = ["Pinning", "loading_seconds", "pinning_of"]

NS = 1e-9
#: What PyTorch calls the fetching of a batch from worker processes.
LOADER = r"^enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter"


class Pinning(NamedTuple):
    """Pinning so many bytes, s: measured on the node, or between the lowest and the highest published rate."""

    bytes: int
    seconds: float
    low: float
    high: float

    @classmethod
    def of(cls, bytes_: int, node: Node | None) -> Pinning:
        cost = None if node is None else node.call_cost("allocate-pinned")
        if cost is not None:
            return cls(bytes_, *[cost.seconds(bytes_)] * 3)
        rates = published("pinning")
        return cls(bytes_, bytes_ / (rates.low * rates.high) ** 0.5, bytes_ / rates.high, bytes_ / rates.low)

    def stated(self) -> Words:
        """That it counts in the run, as an assumption."""
        figures = {"bytes": self.bytes, "low_seconds": self.low, "high_seconds": self.high}
        return statement("assumes.pinning-counted", **figures)

    def before_calls(self, timeline: Timeline, pinned: Mask) -> Timeline:
        """The run in which the call of each copy `pinned`, shape (operations,), pins its bytes first."""
        columns, rows = timeline.columns, np.flatnonzero(pinned)
        share = timeline.sizes[rows] / max(1, self.bytes)
        gap = columns["call_gap"].astype(np.float64)
        np.add.at(gap, columns["operation_call"][rows], share * self.seconds / NS)
        return timeline.with_columns(call_gap=np.rint(gap).astype(np.int64))


def pinning_of(copies: pl.DataFrame, node: Node | None) -> Pinning | None:
    """Of the host ranges of `copies`, where each of them is copied once; None where one is copied again, or their addresses
    were not recorded.
    """
    if copies.is_empty() or "source_address" not in copies.columns:
        return None
    host = pl.when(pl.col("direction") == "h2d").then("source_address").otherwise("destination_address")
    ranges = copies.select("process", "bytes", address=host)
    if (
        ranges.null_count().sum_horizontal().item()
        or ranges.select("process", "address").is_duplicated().any()
    ):
        return None
    return Pinning.of(int(ranges["bytes"].sum()), node)


def loading_seconds(trace: Trace) -> float:
    """What it took the program to fetch batches from the worker processes of PyTorch's DataLoader, where it did not wait for
    one: with `pin_memory=True` a thread of the loader does what it can of this. Longer fetches count as the median one.
    """
    ranges = trace.markers.filter(pl.col("name").cast(pl.String).str.contains(LOADER)).drop_nulls("end_ns")
    took = (ranges["end_ns"] - ranges["start_ns"]).to_numpy() * NS
    return float(np.minimum(took, np.median(took)).sum()) if len(took) else 0.0
