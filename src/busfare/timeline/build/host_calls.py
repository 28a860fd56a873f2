"""The calls of each host thread as one row after another: no call inside another, and who hands work to whom."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import numbered
from busfare.trace.tables import WAITS_FOR
from busfare.trace.words import Words

__all__ = [
    "HANDS_OVER_AFTER_NS",
    "HostCalls",
    "alike",
    "before_in",
    "between_calls",
    "handed_over",
    "outermost",
]

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
    ordered = _in_order(calls)
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    thread_of, threads = alike(ordered.select("process", "thread"))
    by_thread = np.argsort(thread_of, kind="stable")
    begins = np.searchsorted(thread_of[by_thread], np.arange(threads.height + 1))
    outer = np.ones(ordered.height, bool)
    call = np.empty(ordered.height, np.int64)
    for first, last in itertools.pairwise(begins):
        mine = by_thread[first:last]
        reached = np.maximum.accumulate(ends[mine])
        outer[mine[1:]] = starts[mine[1:]] >= reached[:-1]
    number = np.cumsum(outer) - 1
    for first, last in itertools.pairwise(begins):
        mine = by_thread[first:last]
        # An inner call's outer one is the last before it that is one.
        call[mine] = number[mine[np.maximum.accumulate(np.where(outer[mine], np.arange(len(mine)), 0))]]
    rows = np.flatnonzero(outer)
    kept = ordered if len(rows) == ordered.height else ordered[rows]
    kept = _with_inner_waits(ordered, kept, rows, np.flatnonzero(~outer), call)
    rank = threads.select(pl.struct("process", "thread").rank("dense").cast(pl.Int32) - 1).to_series()
    kept = kept.with_columns(thread_number=pl.Series(rank.to_numpy()[thread_of[rows]]))
    return HostCalls(
        kept, ordered.select("process", "correlation", "start_ns").with_columns(call=pl.Series(call))
    )


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls that have times, by start, the longer ones first."""
    if calls["start_ns"].null_count() or calls["end_ns"].null_count():
        calls = calls.filter(pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
    starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    if (ends < starts).any():
        calls = calls.filter(pl.Series(ends >= starts))
        starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    later = (starts[1:] > starts[:-1]) | ((starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1]))
    return calls if later.all() else calls[np.lexsort((-ends, starts))]


def _with_inner_waits(
    ordered: pl.DataFrame,
    outer: pl.DataFrame,
    outer_rows: NDArray[np.int64],
    inner_rows: NDArray[np.int64],
    call: NDArray[np.int64],
) -> pl.DataFrame:
    """`outer`, what it waits for taken from the first inner call that waits, where the outer one does not."""
    words = Words(ordered)
    waiting = words.among("waits_for", *WAITS_FOR[1:])
    inner = inner_rows[waiting[inner_rows]]
    of_call, first = np.unique(call[inner], return_index=True)
    takes = words.among("waits_for", "none")[outer_rows[of_call]]
    if not takes.any():
        return outer
    source = outer_rows.copy()
    source[of_call[takes]] = inner[first[takes]]
    return outer.with_columns(ordered[name][source] for name in ("waits_for", "stream", "event"))


def alike(table: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Rows that are alike in all columns (of whole numbers): which of them each is, and each once, as they appear."""
    arrays = []
    for column in table:
        if column.null_count():
            arrays.append(column.is_null().cast(pl.UInt8).to_numpy())
            column = column.fill_null(0)
        arrays.append(np.ascontiguousarray(column.to_numpy()))
    of, first_rows = numbered(arrays)
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
    """The call of another thread after which each call starts, where threads take turns; -1 elsewhere. Shape (calls,).

    PyTorch's backward pass is such a thread: it is silent while the program's own thread works, and the other way
    round. Threads of one process that work at the same time hand nothing over.
    """
    after = np.full(calls.height, -1, np.int32)
    if calls.height == 0:
        return after
    if calls["process"].n_unique() > calls["thread_number"].max():  # type: ignore[operator]
        return after  # each process has one thread
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
