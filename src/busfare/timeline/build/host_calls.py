"""The calls of each host thread as one row after another: no call inside another, and who hands work to whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.model import Times
from busfare.trace.api_calls import QUERY
from busfare.trace.columns import numbered, plain
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import Names, Words

__all__ = [
    "HostCalls", "Rows", "alike", "before_in", "between_calls", "handed_over", "outermost", "timed", "without_pollers",
]  # fmt: skip

Rows = NDArray[np.int32]
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
    ordered = timed(calls)
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    later = (starts[1:] > starts[:-1]) | ((starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1]))
    ordered = ordered if later.all() else ordered[np.lexsort((-ends, starts))]  # the longer ones first
    thread_of, threads = alike(ordered.select("process", "thread"))
    spans = ordered.select("start_ns", "end_ns", thread=pl.Series(thread_of))
    reached = pl.col("end_ns").cum_max().shift(1).over("thread")
    outer = spans.select((pl.col("start_ns") >= reached).fill_null(True)).to_series()
    spans = spans.with_columns(number=pl.when(outer).then(pl.Series(np.cumsum(outer) - 1)))
    # An inner call's outer one is the last before it that is one.
    call = spans.select(pl.col("number").forward_fill().over("thread").cast(pl.Int64)).to_series()
    rows = np.flatnonzero(outer)
    kept = _with_inner_waits(ordered, rows, np.flatnonzero(~outer), call.to_numpy())
    rank = threads.select(pl.struct("process", "thread").rank("dense").cast(pl.Int32) - 1).to_series()
    kept = kept.with_columns(thread_number=pl.Series(rank.to_numpy()[thread_of[rows]]))
    return HostCalls(kept, ordered.select("process", "correlation", "start_ns", call=call))


def without_pollers(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` without those of threads that only ask, as NCCL's watchdog does: when they ask depends on nothing here."""
    names = Names.of_calls(calls)
    asks = pl.Series(names.texts, dtype=pl.String).str.contains(QUERY).fill_null(False).to_numpy()
    if not asks.any():
        return calls
    works = pl.col("works").any().over("process", "thread")
    return calls.with_columns(works=pl.Series(~asks[names.of])).filter(works).drop("works")


def timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Those of a table that have times."""
    has = (pl.col("end_ns") >= pl.col("start_ns")).fill_null(False)
    return rows if rows.select(has.all()).item() else rows.filter(has)


def _with_inner_waits(ordered: pl.DataFrame, outer: Times, inner: Times, call: Times) -> pl.DataFrame:
    """The `outer` calls, what each waits for taken from its first inner call that waits, where it does not itself."""
    words = Words(ordered)
    inner = inner[words.among("waits_for", *WAITS_FOR[1:])[inner]]
    of_call, first = np.unique(call[inner], return_index=True)
    takes = words.among("waits_for", "none")[outer[of_call]]
    source = outer.copy()
    source[of_call[takes]] = inner[first[takes]]
    return ordered[outer].with_columns(ordered[name][source] for name in ("waits_for", "stream", "event"))


def alike(table: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Rows that are alike in all columns (of whole numbers): which of them each is, and each once, as they appear."""
    of, first_rows = numbered([numbers for column in table for numbers in plain(column)])
    return of, table[first_rows]


def before_in(groups: NDArray[Any]) -> Rows:
    """The row before each of its group, -1 for the first one; shape (rows,)."""
    order = np.argsort(groups, kind="stable")
    before = np.full(len(groups), -1, np.int32)
    same = groups[order[1:]] == groups[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def between_calls(calls: pl.DataFrame, after: Rows, origin_ns: int) -> Times:
    """Host time before each outermost call since its thread's call before, since the one that it comes `after` where
    another thread hands over (`handed_over`), or since `origin_ns`; ns, shape (calls,).

    Without what the recorder itself took of it.
    """
    previous = np.where(after >= 0, after, before_in(calls["thread_number"].to_numpy()))
    ends = np.append(calls["end_ns"].to_numpy(), origin_ns)  # of -1: where there is none before
    gap = pl.Series(calls["start_ns"].to_numpy() - ends[previous])
    if "recorder_ns" in calls.columns:
        gap = (gap - calls["recorder_ns"].fill_null(0)).clip(lower_bound=0)
    return gap.to_numpy().astype(np.int64)


def handed_over(calls: pl.DataFrame) -> Rows:
    """The call after which each call starts, where threads take turns; -1 elsewhere. Shape (calls,).

    PyTorch's backward pass is such a thread: it is silent while the program's own thread works, and the other way
    round. Of JAX's, the one that hands over may say a few things more. Threads of one process that work at the same time
    hand nothing over. A thread that goes on after a silence in which no other called comes after its own call before.
    """
    after = np.full(calls.height, -1, np.int32)
    if calls.is_empty() or calls["process"].n_unique() > calls["thread_number"].max():  # type: ignore[operator]
        return after  # each process has one thread
    since = pl.col("start_ns") - pl.col("end_ns").shift(1)
    rows = calls.with_columns(row=pl.int_range(pl.len(), dtype=pl.UInt32)).with_columns(
        first=(since >= HANDS_OVER_AFTER_NS).fill_null(True).over("thread_number"),
        next_start=pl.col("start_ns").shift(-1).over("thread_number"),
    )
    burst = pl.col("first").cum_sum().over("thread_number")
    rows = rows.with_columns(
        burst_end=pl.col("end_ns").max().over("thread_number", burst),
        next_burst=pl.when("first").then("start_ns").shift(-1).backward_fill().over("thread_number"),
    )
    for part in rows.partition_by("process", maintain_order=True):
        by_end = part.sort("end_ns", "row")
        firsts = part.filter("first")
        at = np.searchsorted(by_end["end_ns"].to_numpy(), firsts["start_ns"].to_numpy(), side="right") - 1
        firsts, other = firsts.filter(pl.Series(at >= 0)), by_end[at[at >= 0]]
        silent = other["next_start"].is_null() | (other["next_start"] >= firsts["burst_end"])
        waits = other["next_burst"].is_null() | (other["next_burst"] >= firsts["burst_end"])
        waits &= other["burst_end"] < firsts["start_ns"] + HANDS_OVER_AFTER_NS
        own = other["thread_number"] == firsts["thread_number"]
        hands = (own | silent | waits) & (other["row"] < firsts["row"])
        after[firsts.filter(hands)["row"].to_numpy()] = other.filter(hands)["row"].to_numpy()
    return after
