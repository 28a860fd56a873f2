"""What every change is made of: operations taken out, waits taken out, work moved to other streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.expressions import found_in
from busfare.timeline.build.device_work import unit_of
from busfare.timeline.faults import within_kernels
from busfare.timeline.host_caches import gaps_without
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import staged

__all__ = [
    "ASYNC_COPY",
    "calls_named",
    "calls_only_for",
    "next_on_thread",
    "usual_call_ns",
    "with_durations",
    "without_calls",
    "without_operations",
    "without_waits",
]

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
ASYNC_COPY = r"Memcpy.*Async"
#: What an asynchronous call takes the host where the trace has none, in nanoseconds.
ASYNCHRONOUS_CALL_NS = 5_000
#: No library takes longer from one call to the next: 4 to 10 µs between copies in recordings of PyTorch and CuPy.
MOST_NS_BETWEEN = 10_000


def without_operations(timeline: Timeline, removed: Mask, bytes_stay: bool = False) -> Timeline:
    """Takes operations out, and the host time of calls that launched nothing else. `removed`: shape (operations,).

    `bytes_stay`: what they carried still passes through the host's caches, in other copies.
    """
    if not removed.any():
        return timeline
    columns = dict(timeline.columns)
    emptied = calls_only_for(timeline, removed)
    kept = ~removed
    number = np.cumsum(kept) - 1
    stand_in = _kept_before(columns["operation_after"], removed)
    columns["operation_order_lag"] = _lags_behind(timeline, removed)
    for name in [name for name in columns if name.startswith("operation_")]:
        if name not in ("operation_link_begin", "operation_links"):
            columns[name] = columns[name][kept]
    after = stand_in[kept]
    columns["operation_after"] = np.where(after >= 0, number[np.maximum(after, 0)], -1).astype(np.int32)
    given = columns["call_wait"] == WAIT["given"]
    key = columns["call_wait_key"].copy()
    # Who waited for one that is gone waits for the one before it in its stream.
    instead = _kept_before(_in_stream_before(timeline.columns["operation_stream"]), removed)
    waited = np.where(given, key, 0)
    gone = given & removed[np.maximum(waited, 0)] if len(removed) else given
    key[gone] = instead[key[gone]]
    lost = given & (key < 0)
    key[given & ~lost] = number[key[given & ~lost]]
    columns["call_wait_key"] = key
    columns["call_wait"] = np.where(lost | emptied, WAIT["none"], columns["call_wait"]).astype(np.uint8)
    columns["call_own"] = np.where(emptied, 0, columns["call_own"])
    gap = columns["call_gap"] if bytes_stay else gaps_without(timeline, removed)
    columns["call_gap"] = gap - _spent_on(timeline, emptied)
    return replace(
        timeline,
        columns=columns,
        operations=timeline.operations.filter(pl.Series(kept)),
        operation_class=timeline.operation_class[kept],
    )


def _in_stream_before(stream: NDArray[np.int32]) -> NDArray[np.int32]:
    """The operation before each in its stream, -1 before the first; shape (operations,)."""
    order = np.argsort(stream, kind="stable")
    before = np.full(len(stream), -1, np.int32)
    same = stream[order][1:] == stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _spent_on(timeline: Timeline, calls: Mask) -> NDArray[np.int64]:
    """Of the host's time before each call, what goes when `calls` go; shape (calls,).

    Between two calls of a thread a library returns from the first and comes to the second (in Python that is most of
    the time), and the program does what it does anyway; a trace does not tell them apart. Half of what lies between two
    calls is taken to go with each of them: of what lies there in the middle, or of `MOST_NS_BETWEEN`.
    """
    gap, following = timeline.columns["call_gap"], next_on_thread(timeline)[calls]
    gone = calls.astype(np.int64)
    gone[following[following >= 0]] += 1
    return np.clip(gap, 0, MOST_NS_BETWEEN) * gone // 2


def _lags_behind(timeline: Timeline, removed: Mask) -> NDArray[np.int64]:
    """How long each operation starts behind the one before it in its stream, once that is gone; shape (operations,).

    What followed a copy engine's work and now follows work of its own unit no longer pays for the turn.
    """
    columns = timeline.columns
    lag, unit = columns["operation_order_lag"].copy(), unit_of(timeline.operations, timeline.operation_class)
    in_stream = np.argsort(columns["operation_stream"], kind="stable")
    stream, gone, units = columns["operation_stream"][in_stream], removed[in_stream], unit[in_stream]
    place = np.arange(len(in_stream))
    # The nearest kept place before each.
    kept = np.maximum.accumulate(np.where(gone, -1, place))
    before = np.concatenate([[-1], kept[:-1]])
    same_stream = (before >= 0) & (stream[np.maximum(before, 0)] == stream)
    moved = same_stream & (before < place - 1) & ~gone
    turned = moved & (units[place - 1] != units) & (units[np.maximum(before, 0)] == units)
    rows = in_stream[turned]
    lag[rows] = np.minimum(lag[rows], timeline.usual_order_ns[timeline.operation_class[rows]])
    return lag


def _kept_before(after: NDArray[np.int32], removed: Mask) -> NDArray[np.int32]:
    """For each operation the one it is to follow, past those that are taken out.

    Each round looks twice as far: chains of faults are as long as the trace.
    """
    skip = np.where(removed, after, np.arange(len(after), dtype=np.int32))
    while (through := (skip >= 0) & removed[np.maximum(skip, 0)]).any():
        skip[through] = skip[skip[through]]
    return np.where(after >= 0, skip[np.maximum(after, 0)], -1).astype(np.int32)


def calls_only_for(timeline: Timeline, operations: Mask) -> Mask:
    """The calls that launched some of `operations` and nothing else; shape (calls,)."""
    calls = timeline.columns["operation_call"]
    launched = timeline.columns["operation_launched"] != 0
    count = len(timeline.columns["call_own"])
    of_these = np.bincount(calls[launched & operations], minlength=count) > 0
    of_others = np.bincount(calls[launched & ~operations], minlength=count) > 0
    return np.asarray(of_these & ~of_others)


def without_waits(timeline: Timeline, calls: Mask, own_ns: NDArray[np.int64] | int) -> Timeline:
    """These calls return after `own_ns` without waiting; shape (calls,)."""
    columns = timeline.columns
    return timeline.with_columns(
        call_wait=np.where(calls, WAIT["none"], columns["call_wait"]).astype(np.uint8),
        call_own=np.where(calls, own_ns, columns["call_own"]).astype(np.int64),
    )


def without_calls(timeline: Timeline, calls: Mask) -> Timeline:
    """These calls, which launch nothing, are gone, with what the host spent on coming to them; shape (calls,)."""
    gap = timeline.columns["call_gap"] - _spent_on(timeline, calls)
    return without_waits(timeline, calls, 0).with_columns(call_gap=gap)


def with_durations(timeline: Timeline, duration_ns: NDArray[Any]) -> Timeline:
    """The same operations, lasting `duration_ns`; shape (operations,)."""
    return timeline.with_columns(**within_kernels(timeline, duration_ns))


def next_on_thread(timeline: Timeline) -> Rows:
    """The next call of each call's thread, -1 after the last; shape (calls,)."""
    threads = timeline.columns["call_thread"]
    order = np.argsort(threads, kind="stable")
    following = np.full(len(threads), -1, np.int64)
    same = threads[order][:-1] == threads[order][1:]
    following[order[:-1][same]] = order[1:][same]
    return following


def calls_named(timeline: Timeline, pattern: str) -> Mask:
    """Calls whose name matches; shape (calls,). Raises InputError for what is no regular expression."""
    names = pl.Series([name or None for name in timeline.call_names], dtype=pl.String)
    return found_in(pattern, names).to_numpy()[timeline.call_name]


def usual_call_ns(timeline: Timeline, pattern: str) -> int:
    """The median host time of calls that wait for nothing, stage nothing and have such a name, or the usual one."""
    free = (timeline.columns["call_wait"] == WAIT["none"]) & calls_named(timeline, pattern)
    launched = staged(timeline.operations) & (timeline.columns["operation_launched"] != 0)
    free[timeline.columns["operation_call"][launched]] = False
    own = timeline.columns["call_own"][free]
    return int(np.median(own)) if len(own) else ASYNCHRONOUS_CALL_NS
