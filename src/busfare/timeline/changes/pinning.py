"""Host costs of pinning besides copies: pinning memory that is copied only once, and work of a DataLoader thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.nodes import Node
from busfare.nodes.contention import published
from busfare.statements import Words, statement
from busfare.timeline.model import Mask, Timeline
from busfare.trace import Trace

NS = 1e-9
#: PyTorch's range for fetching a batch from worker processes.
LOADER = r"^enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter"


class Pinning(NamedTuple):
    """The time to pin these bytes, s: measured on the node, or between the lowest and the highest published rate."""

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
        """The assumption that the run includes this time."""
        figures = {"bytes": self.bytes, "low_seconds": self.low, "high_seconds": self.high}
        return statement("assumes.pinning-counted", **figures)

    def before_calls(self, timeline: Timeline, pinned: Mask) -> Timeline:
        """The run in which the call of each copy in `pinned`, shape (operations,), first pins its bytes."""
        columns, rows = timeline.columns, np.flatnonzero(pinned)
        share = timeline.sizes[rows] / max(1, self.bytes)
        gap = columns["call_gap"].astype(np.float64)
        np.add.at(gap, columns["operation_call"][rows], share * self.seconds / NS)
        return timeline.with_columns(call_gap=np.rint(gap).astype(np.int64))


def pinning_of(copies: pl.DataFrame, node: Node | None) -> Pinning | None:
    """For the host ranges of `copies`, if each is copied only once; None otherwise, or without recorded addresses."""
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
    """The time to fetch batches from worker processes of PyTorch's DataLoader, without waiting for one: with
    `pin_memory=True`, a thread of the loader takes over part of it. Longer fetches count as the median.
    """
    ranges = trace.markers.filter(pl.col("name").cast(pl.String).str.contains(LOADER)).drop_nulls("end_ns")
    took = (ranges["end_ns"] - ranges["start_ns"]).to_numpy() * NS
    return float(np.minimum(took, np.median(took)).sum()) if len(took) else 0.0
