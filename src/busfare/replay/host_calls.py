"""The calls of each host thread as one row after another: no call inside another, and who hands work to whom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["HANDS_OVER_AFTER_NS", "HostCalls", "between_calls", "handed_over", "outermost"]

Rows = NDArray[np.int32]
Times = NDArray[np.int64]
#: A thread that calls nothing for so long may be waiting for another thread of its process.
HANDS_OVER_AFTER_NS = 100_000


class HostCalls(NamedTuple):
    """Outermost calls in order of their start, and of every call of the trace the outermost one around it.

    `calls`: the trace's columns, `waits_for`, `stream` and `event` taken from an inner call where the outer one
    does not wait, and `thread_number` (from 0). `inside`: process, correlation, start_ns, call (row of `calls`).
    """

    calls: pl.DataFrame
    inside: pl.DataFrame


def outermost(calls: pl.DataFrame) -> HostCalls:
    """Driver calls within runtime calls folded into those; rows without a time are left out."""
    thread = ["process", "thread"]
    ordered = calls.filter(pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns"))).sort(
        "start_ns", "end_ns", descending=[False, True], maintain_order=True
    )
    reached = pl.col("end_ns").cum_max().shift(1).over(thread)
    ordered = ordered.with_columns(outer=(reached.is_null() | (pl.col("start_ns") >= reached)))
    ordered = ordered.with_columns(
        call=pl.when("outer").then(pl.col("outer").cum_sum().cast(pl.Int64) - 1)
    ).with_columns(call=pl.col("call").forward_fill().over(thread))
    outer = ordered.filter("outer")
    waiting = (
        ordered.filter(~pl.col("outer") & (pl.col("waits_for") != "none"))
        .unique("call", keep="first", maintain_order=True)
        .select("call", inner_waits="waits_for", inner_stream="stream", inner_event="event")
    )
    outer = outer.join(waiting, on="call", how="left", maintain_order="left")
    takes_inner = (pl.col("waits_for") == "none") & pl.col("inner_waits").is_not_null()
    outer = outer.with_columns(
        pl.when(takes_inner).then("inner_waits").otherwise("waits_for").alias("waits_for"),
        pl.when(takes_inner).then("inner_stream").otherwise("stream").alias("stream"),
        pl.when(takes_inner).then("inner_event").otherwise("event").alias("event"),
        thread_number=pl.struct(thread).rank("dense").cast(pl.Int32) - 1,
    ).drop("inner_waits", "inner_stream", "inner_event", "outer", "call")
    return HostCalls(outer, ordered.select("process", "correlation", "start_ns", "call"))


def between_calls(calls: pl.DataFrame, origin_ns: int) -> Times:
    """Host time before each outermost call since its thread's call before, or since `origin_ns`; ns, shape (calls,).

    Without what the recorder itself took of it.
    """
    before = calls.select(pl.col("end_ns").shift(1).over("thread_number"))["end_ns"]
    gap = calls["start_ns"] - before.fill_null(origin_ns)
    if "recorder_ns" in calls.columns:
        gap = (gap - calls["recorder_ns"].fill_null(0)).clip(lower_bound=0)
    return gap.to_numpy().astype(np.int64)


def handed_over(calls: pl.DataFrame) -> Rows:
    """The call of another thread after which each call starts, where threads take turns; -1 elsewhere. Shape (calls,).

    PyTorch's backward pass is such a thread: it is silent while the program's own thread works, and the other way
    round. Threads of one process that work at the same time hand nothing over.
    """
    after = np.full(calls.height, -1, np.int32)
    if calls.height == 0:
        return after
    numbered = calls.with_row_index("row").with_columns(
        gap=pl.col("start_ns") - pl.col("end_ns").shift(1).over("thread_number"),
        next_start=pl.col("start_ns").shift(-1).over("thread_number"),
    )
    quiet = pl.col("gap").is_null() | (pl.col("gap") >= HANDS_OVER_AFTER_NS)
    numbered = numbered.with_columns(burst=quiet.cum_sum().over("thread_number")).with_columns(
        burst_end=pl.col("end_ns").max().over("thread_number", "burst"), first=quiet
    )
    for part in numbered.partition_by("process", maintain_order=True):
        if part["thread_number"].n_unique() < 2:
            continue
        by_end = part.sort("end_ns", "row")
        firsts = part.filter("first")
        at = np.searchsorted(by_end["end_ns"].to_numpy(), firsts["start_ns"].to_numpy(), side="right") - 1
        known = at >= 0
        firsts, at = firsts.filter(pl.Series(known)), at[known]
        other = by_end.select("row", "thread_number", "next_start")[at]
        silent = other["next_start"].is_null() | (other["next_start"] >= firsts["burst_end"])
        hands = (other["thread_number"] != firsts["thread_number"]) & silent & (other["row"] < firsts["row"])
        after[firsts.filter(hands)["row"].to_numpy()] = other.filter(hands)["row"].to_numpy()
    return after
