"""GPU times and host times that come from two clocks, brought together."""

from __future__ import annotations

import polars as pl

from busfare.trace.omissions import Omissions
from busfare.trace.trace import Trace

__all__ = ["join_clocks"]


def join_clocks(trace: Trace, omissions: Omissions) -> None:
    """Moves the GPU's times next to the host's where the two clearly count from different moments.

    Clearly: the distance between calls and their operations is longer than all calls and all operations last
    together, as in files of nvprof whose host clock starts anew. The least distance then becomes none.
    """
    operations, calls = trace.operations, trace.calls
    if operations.is_empty() or calls.is_empty() or _meet(operations, calls):
        return
    called = calls.drop_nulls("correlation").unique(["process", "correlation"], keep="first")
    launched = operations.join(
        called.select("process", "correlation", called_ns="start_ns"),
        on=["process", "correlation"],
        how="inner",
        nulls_equal=True,
    )
    if launched.is_empty():
        return
    distances = launched["start_ns"] - launched["called_ns"]
    least, most = int(distances.min()), int(distances.max())  # type: ignore[arg-type]
    lasting = _length(operations) + _length(calls)
    if least <= lasting and most >= -lasting:
        return
    omissions.add(
        "two-clocks",
        f"GPU operations timed by another clock than the calls, {abs(least) * 1e-9:.6g} s apart: moved so that the "
        "quickest starts with its call",
        operations.height,
    )
    trace.operations = operations.with_columns(pl.col("start_ns") - least, pl.col("end_ns") - least)


def _length(frame: pl.DataFrame) -> int:
    return int(frame["end_ns"].max()) - int(frame["start_ns"].min())  # type: ignore[arg-type]


def _meet(operations: pl.DataFrame, calls: pl.DataFrame) -> bool:
    """Whether the two have any time in common: then no distance is longer than both last together."""
    first, last = (
        [int(getattr(frame[name], which)()) for frame in (operations, calls)]
        for name, which in (("start_ns", "min"), ("end_ns", "max"))
    )
    return max(first) <= min(last)
