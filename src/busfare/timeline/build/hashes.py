"""What a run waited for only because a recorder hashed copied bytes in their streams (`record --fingerprint`)."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.timeline.build.host_calls import before_in
from busfare.timeline.model import Columns
from busfare.trace.lanes import Union

__all__ = ["without_hashes"]


def without_hashes(columns: Columns, calls: pl.DataFrame, operations: pl.DataFrame) -> Columns:
    """`columns` without it: of waits for such copies, of hand-overs of threads meanwhile, and of work behind such a copy in
    its stream. As they are where no stream was held up.
    """
    if "hash_end_ns" not in operations.columns:
        return columns
    hashed = operations.drop_nulls("hash_end_ns")
    lag, gap, extra = (columns[name].copy() for name in ("call_wait_lag", "call_gap", "operation_extra"))
    starts, ends, begun = (
        calls["start_ns"].to_numpy(),
        calls["end_ns"].to_numpy(),
        operations["start_ns"].to_numpy(),
    )
    told = (
        calls["awake_ns"].is_not_null().to_numpy()
        if "awake_ns" in calls.columns
        else np.zeros(len(gap), bool)
    )
    before = before_in(columns["operation_stream"])
    behind = (before >= 0) & operations["hash_end_ns"].is_not_null().to_numpy()[before]
    for (process,), own in hashed.partition_by("process", as_dict=True).items():
        held = Union.of(own["hash_start_ns"].to_numpy(), own["hash_end_ns"].to_numpy())
        mine = calls["process"].eq_missing(process).to_numpy()
        rows = np.flatnonzero(mine & (lag > 0))
        lag[rows] -= held.covered_within(ends[rows] - lag[rows], ends[rows])
        rows = np.flatnonzero(mine & (columns["call_after"] >= 0) & (gap > 0) & ~told)
        gap[rows] -= held.covered_within(starts[rows] - gap[rows], starts[rows])
        rows = np.flatnonzero(operations["process"].eq_missing(process).to_numpy() & behind & (extra > 0))
        extra[rows] -= held.covered_within(begun[rows] - extra[rows], begun[rows])
    return columns | {"call_wait_lag": lag, "call_gap": gap, "operation_extra": extra}
