"""Host costs of pinning besides copies: pinning memory that is copied only once, and work of a DataLoader thread."""

from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.nodes import Node
from busfare.nodes.contention import published
from busfare.statements import Words, statement
from busfare.timeline.edit import PRIVATE_CACHE_BYTES
from busfare.timeline.model import Mask, Timeline, pageable
from busfare.trace import Trace

NS = 1e-9
#: PyTorch's range for fetching a batch from worker processes.
LOADER = r"^enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter"


class Pinning(NamedTuple):
    """Seconds to pin the buffers of copies that use them `once`, shape (rows,): measured here, or the published range."""

    once: Mask
    bytes: int
    seconds: float
    low: float
    high: float

    @classmethod
    def of(cls, once: Mask, bytes_: int, node: Node | None) -> "Pinning":
        cost = None if node is None else node.call_cost("allocate-pinned")
        if cost is not None:
            return cls(once, bytes_, *[cost.seconds(bytes_)] * 3)
        rates = published("pinning")
        low, high = bytes_ / rates.high, bytes_ / rates.low
        return cls(once, bytes_, (low * high) ** 0.5, low, high)

    def stated(self) -> Words:
        """The assumption that the run includes this time."""
        figures = {"bytes": self.bytes, "low_seconds": self.low, "high_seconds": self.high}
        return statement("assumes.pinning-counted", **figures)

    def before_calls(self, timeline: Timeline, pinned: Mask) -> Timeline:
        """The run in which calls of the copies `pinned`, shape (operations,), first pin what these use once."""
        columns, rows = timeline.columns, np.flatnonzero(pinned)[self.once]
        share = timeline.sizes[rows] / max(1, self.bytes)
        gap = columns["call_gap"].astype(np.float64)
        np.add.at(gap, columns["operation_call"][rows], share * self.seconds / NS)
        return timeline.with_columns(call_gap=np.rint(gap).astype(np.int64))


def untouched(copies: pl.DataFrame) -> Mask:
    """Large copies to pageable memory that nothing may have written to before, each the first to its address where that is
    recorded: at the rate of page faults, where other large pageable copies are not as slow. Shape (rows,).
    """
    large = pl.lit(pl.Series(pageable(copies))) & (pl.col("bytes") >= PRIVATE_CACHE_BYTES)
    took = pl.col("end_ns") - pl.col("start_ns")
    slow = pl.col("bytes") <= published("first_touch").high * NS * took
    first = large & slow & (pl.col("direction") == "d2h")
    if "destination_address" in copies.columns:
        first &= pl.struct("process", "destination_address").is_first_distinct()
    rows = copies.select(large=large, slow=slow, first=first.fill_null(False))
    usual = rows.filter(pl.col("large") & ~pl.col("first"))["slow"].to_numpy()
    return np.asarray(rows["first"].to_numpy() & (2 * usual.sum() <= len(usual)))


def pinning_of(copies: pl.DataFrame, node: Node | None) -> Pinning | None:
    """For the host ranges of `copies`, if addresses show that each is copied once; else for untouched ones, if any."""
    once = untouched(copies)
    if "source_address" in copies.columns:
        host = pl.when(pl.col("direction") == "h2d").then("source_address").otherwise("destination_address")
        ranges = copies.select("process", address=host)
        once |= not (ranges.null_count().sum_horizontal().item() or ranges.is_duplicated().any())
    return Pinning.of(once, int(copies["bytes"].filter(once).sum()), node) if once.any() else None


def loading_seconds(trace: Trace) -> float:
    """The time to fetch batches from worker processes of PyTorch's DataLoader, without waiting for one: with
    `pin_memory=True`, a thread of the loader takes over part of it. Longer fetches count as the median.
    """
    ranges = trace.markers.filter(pl.col("name").cast(pl.String).str.contains(LOADER)).drop_nulls("end_ns")
    took = (ranges["end_ns"] - ranges["start_ns"]).to_numpy() * NS
    return float(np.minimum(took, np.median(took)).sum()) if len(took) else 0.0
