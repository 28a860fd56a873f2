"""GPU times and host times that come from two clocks, brought together."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.model import Omissions, Trace


def join_clocks(trace: Trace, omissions: Omissions) -> None:
    """Moves the GPU's times next to the host's where the two clearly count from different moments.

    Clearly: the distance between calls and their operations is longer than all calls and all operations last
    together, as in files of nvprof whose host clock starts anew. The least distance then becomes none.
    """
    operations, calls = trace.operations, trace.calls
    if operations.is_empty() or calls.is_empty() or _meet(operations, calls):
        return
    called = calls.drop_nulls("correlation").unique(["process", "correlation"], keep="first")
    launched = operations.with_row_index("at").join(
        called.select("process", "correlation", "waits_for", called_ns="start_ns", returned_ns="end_ns"),
        on=["process", "correlation"],
        how="inner",
        nulls_equal=True,
        maintain_order="left",
    )
    if launched.is_empty():
        return
    distances = launched["start_ns"] - launched["called_ns"]
    least, most = int(distances.min()), int(distances.max())  # type: ignore[arg-type]
    lasting = _length(operations) + _length(calls)
    if least <= lasting and most >= -lasting:
        return
    moved = least + _drift(launched.with_columns(pl.col("start_ns", "end_ns") - least), calls)
    apart = int(moved.max() - moved.min())
    omissions.add(
        "two-clocks",
        f"GPU operations timed by another clock than the calls, {abs(least) * 1e-9:.6g} s apart: moved so that the "
        "quickest starts with its call"
        + (
            f", and later ones by up to {apart * 1e-6:.3g} ms more, for the clocks run apart" if apart else ""
        ),
        operations.height,
    )
    trace.operations = (
        operations.with_row_index("at")
        .join(launched.select("at", moved=pl.Series(moved)), on="at", how="left", maintain_order="left")
        .with_columns(pl.col("moved").fill_null(strategy="forward").fill_null(least))
        .with_columns(pl.col("start_ns", "end_ns") - pl.col("moved"))
        .drop("at", "moved")
    )


def _drift(launched: pl.DataFrame, calls: pl.DataFrame) -> NDArray[np.int64]:
    """How far ahead the GPU's clock is at each of `launched`; ns, shape (rows,).

    It changes only where the times would contradict each other: no operation begins before its call, and none that was
    launched before a wait for the device, or by a blocking copy to the host, ends after that returned.
    """
    called, begun, ended = (launched[name].to_numpy() for name in ("called_ns", "start_ns", "end_ns"))
    order = np.argsort(called, kind="stable")
    waits = calls.filter(pl.col("waits_for") == "device").select("start_ns", "end_ns")
    copies = launched.filter((pl.col("waits_for") == "operation") & (pl.col("direction") == "d2h"))
    at = np.concatenate([waits["start_ns"].to_numpy(), copies["called_ns"].to_numpy() + 1])
    until = np.concatenate([waits["end_ns"].to_numpy(), copies["returned_ns"].to_numpy()])
    # What the wait is sure to wait for: all launched since the wait before, or its own copy.
    own = np.concatenate([np.full(len(waits), -1), copies["end_ns"].to_numpy()])
    by_time = np.argsort(at, kind="stable")
    edges = np.searchsorted(called[order], at[by_time])
    moved = np.zeros(len(called), np.int64)
    ahead, first = 0, 0
    for edge, returned, copied in zip(
        [*edges.tolist(), len(order)],
        [*until[by_time].tolist(), None],
        [*own[by_time].tolist(), -1],
        strict=True,
    ):
        part = order[first:edge]
        if len(part) == 0:
            continue
        if returned is not None:
            ahead = max(ahead, (copied if copied >= 0 else int(ended[part].max())) - returned)
        ahead = min(ahead, int((begun[part] - called[part]).min()))
        moved[part] = ahead
        first = edge
    return moved


def _length(frame: pl.DataFrame) -> int:
    return int(frame["end_ns"].max()) - int(frame["start_ns"].min())  # type: ignore[arg-type]


def _meet(operations: pl.DataFrame, calls: pl.DataFrame) -> bool:
    """Whether the two have any time in common: then no distance is longer than both last together."""
    first, last = (
        [int(getattr(frame[name], which)()) for frame in (operations, calls)]
        for name, which in (("start_ns", "min"), ("end_ns", "max"))
    )
    return max(first) <= min(last)
