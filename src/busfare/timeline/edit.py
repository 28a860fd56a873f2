"""What every change is made of: which operations it is about; operations, calls and waits taken out; other durations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.expressions import found_in
from busfare.timeline.build.device_work import unit_of
from busfare.timeline.build.host_calls import before_in
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import packing_nanoseconds, pageable, staged
from busfare.trace.words import Words

Mask = NDArray[np.bool_]
Times = NDArray[np.int64]
ASYNC_COPY = r"Memcpy.*Async"
#: What an asynchronous call takes the host where the trace has none, in nanoseconds.
ASYNCHRONOUS_CALL_NS = 5_000
#: A core's own second-level cache: 2 MiB on the hosts of H100s and H200s, 1 to 2 on servers of these years. A copy that
#: the host moves, and that is no smaller, leaves nothing of the program there.
PRIVATE_CACHE_BYTES = 2 << 20
#: A program's own lines, here and there, take so many times as long to fetch as a copy's: behind a large copy CuPy and
#: PyTorch took 247 to 275 µs longer, an interpreter 232 to 262, where a copy of as many bytes takes 146 (H200, copies
#: pageable and pinned).
SCATTERED = 1.8


def without_operations(timeline: Timeline, removed: Mask, bytes_stay: bool = False) -> Timeline:
    """Takes operations out, and the host time of calls that launched nothing else. `removed`: shape (operations,).

    `bytes_stay`: what they carried still passes through the host's caches, in other copies.
    """
    if not removed.any():
        return timeline
    columns, kept = dict(timeline.columns), ~removed
    emptied = calls_of(timeline, removed) & ~calls_of(timeline, kept)
    before = before_in(columns["operation_stream"])
    number = np.append(np.cumsum(kept) - 1, -1)  # -1 stays -1
    after = number[_kept_before(columns["operation_after"], removed)]
    columns |= {
        "operation_order_lag": lags_behind(timeline, before, removed),
        "operation_after": after.astype(np.int32),
    }
    for name in [name for name in columns if name.startswith("operation_")]:
        columns[name] = columns[name][kept]
    # Who waited for one that is gone waits for the one before it in its stream.
    wait, key = columns["call_wait"], columns["call_wait_key"]
    given = wait == WAIT["given"]
    instead = np.where(removed, _kept_before(before, removed), np.arange(len(removed)))
    key = np.where(given, number[instead[np.where(given, key, 0)]], key).astype(np.int32)
    columns["call_wait_key"] = key
    columns["call_wait"] = np.where(given & (key < 0) | emptied, WAIT["none"], wait).astype(np.uint8)
    columns["call_own"] = np.where(emptied, 0, columns["call_own"])
    if not bytes_stay:
        columns["call_gap"] = gaps_without(timeline, removed)
    return replace(
        timeline,
        columns=columns,
        operations=timeline.operations.filter(pl.Series(kept)),
        operation_class=timeline.operation_class[kept],
    )


def lags_behind(timeline: Timeline, before: NDArray[np.int32], removed: Mask) -> Times:
    """How long each operation starts behind the one `before` it in its stream, once that is gone; shape (operations,).

    What followed a copy engine's work and now follows work of its own unit no longer pays for the change of units: 2.7 to
    5.2 µs from a kernel to a copy on H100s and H200s (`busfare probe`, after a kernel).
    """
    unit = unit_of(timeline.operations, timeline.operation_class)
    now = _kept_before(before, removed)
    alike = (now >= 0) & (unit[before] != unit) & (unit[now] == unit) & ~removed
    lag = timeline.columns["operation_order_lag"]
    usual = timeline.usual_order_ns[timeline.operation_class]
    return np.where(alike, np.minimum(lag, usual), lag)


def _kept_before(before: NDArray[np.int32], removed: Mask) -> NDArray[np.int32]:
    """For each operation the one it is to follow, past those that are taken out.

    Each round looks twice as far: chains of faults are as long as the trace.
    """
    skip = np.where(removed, before, np.arange(len(before), dtype=np.int32))
    while (through := (skip >= 0) & removed[skip]).any():
        skip[through] = skip[skip[through]]
    return np.where(before >= 0, skip[before], -1).astype(np.int32)


def gaps_without(timeline: Timeline, gone: Mask) -> Times:
    """The host's times between calls when the copies `gone` no longer pass through its caches; ns, shape (calls,).

    `gone`: shape (operations,). A copy that the host stages, and that is as large as a core's cache, makes the host fetch
    again what it works with, `SCATTERED` times as slowly as it copies those bytes on this node. A trace does not tell that
    time from the host's own: it is taken to be half of the gaps behind the copy until then, but for gaps longer than the
    whole cache takes: those are work on data of its own, as a gather from a large table.
    """
    columns = timeline.columns
    gap: Times = columns["call_gap"]
    sizes = timeline.operations["bytes"].fill_null(0).to_numpy()
    large = gone & pageable(timeline.operations) & (columns["operation_launched"] != 0)
    large &= sizes >= PRIVATE_CACHE_BYTES
    if not large.any():
        return gap
    fills = np.zeros(len(gap), bool)
    fills[columns["operation_call"][large]] = True
    order = np.argsort(columns["call_thread"], kind="stable")
    thread, behind, place = columns["call_thread"][order], fills[order], np.arange(len(order))
    copied_ns = packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], np.float64), timeline.node)[0]
    whole = int(SCATTERED * copied_ns)
    half = np.where(gap[order] >= whole, 0, np.maximum(gap[order], 0) // 2)
    passed = np.cumsum(half)
    # The nearest such copy before each call on its thread.
    last = np.concatenate([[-1], np.maximum.accumulate(np.where(behind, place, -1))[:-1]])
    known = (last >= 0) & (thread[np.maximum(last, 0)] == thread)
    since = passed - half - passed[np.maximum(last, 0)]
    changed = gap.copy()
    changed[order] -= np.where(known, np.clip(whole - since, 0, half), 0)
    return changed


def without_waits(timeline: Timeline, calls: Mask, own_ns: Times | int) -> Timeline:
    """These calls return after `own_ns` without waiting (0: they are gone); shape (calls,)."""
    columns = timeline.columns
    return timeline.with_columns(
        call_wait=np.where(calls, WAIT["none"], columns["call_wait"]).astype(np.uint8),
        call_own=np.where(calls, own_ns, columns["call_own"]).astype(np.int64),
    )


def without_waits_behind(timeline: Timeline, removed: Mask) -> Timeline:
    """What waits, right behind their calls, for the copies `removed` no longer does; shape (operations,)."""
    return without_waits(timeline, waiting_behind(timeline, calls_of(timeline, removed)), 0)


def with_durations(timeline: Timeline, duration_ns: NDArray[Any]) -> Timeline:
    """The same operations, lasting `duration_ns`; shape (operations,)."""
    return timeline.with_columns(operation_duration=np.rint(duration_ns).astype(np.int64))


def right_behind(timeline: Timeline, calls: Mask) -> Mask:
    """The next call of each one's thread; shape (calls,)."""
    before = before_in(timeline.columns["call_thread"])
    return np.asarray((before >= 0) & calls[before])


def waiting_behind(timeline: Timeline, calls: Mask) -> Mask:
    """Of those right behind `calls`, the ones that wait for a stream or an operation; shape (calls,)."""
    waits = np.isin(timeline.columns["call_wait"], [WAIT["stream"], WAIT["given"]])
    return right_behind(timeline, calls) & waits


def last_of_each(groups: NDArray[Any], among: Mask) -> Mask:
    """The last row of each group among some; shape (rows,)."""
    rows = np.flatnonzero(among)[::-1]
    last = np.zeros(len(among), bool)
    last[rows[np.unique(groups[rows], return_index=True)[1]]] = True
    return last


def calls_named(timeline: Timeline, pattern: str) -> Mask:
    """Calls whose name matches; shape (calls,). Raises InputError for what is no regular expression."""
    names = pl.Series([name or None for name in timeline.call_names], dtype=pl.String)
    return found_in(pattern, names).to_numpy()[timeline.call_name]


def usual_call_ns(timeline: Timeline, pattern: str) -> int:
    """The median host time of calls of such a name that wait for nothing and stage nothing, or the usual one."""
    free = (timeline.columns["call_wait"] == WAIT["none"]) & calls_named(timeline, pattern)
    own = timeline.columns["call_own"][free & ~calls_of(timeline, staged(timeline.operations))]
    return int(np.median(own)) if len(own) else ASYNCHRONOUS_CALL_NS


def described(timeline: Timeline) -> pl.Series:
    """What a REGEX is matched against: an operation's name, path, launching call, and the markers around that call."""
    operations = timeline.operations
    path = pl.format(
        "{} {} {}→{}",
        pl.col("name").cast(pl.String).fill_null(""),
        pl.col("direction").cast(pl.String).fill_null(""),
        pl.col("source_memory").cast(pl.String).fill_null(""),
        pl.col("destination_memory").cast(pl.String).fill_null(""),
    )
    text = operations.select(path.alias("text"))["text"]
    if timeline.calls.height == 0:
        return text
    called = pl.Series(np.maximum(timeline.columns["operation_call"], 0))
    names = timeline.calls["name"].cast(pl.String).fill_null("").gather(called)
    return text + " " + names + _markers_around(timeline, called)


def _markers_around(timeline: Timeline, called: pl.Series) -> pl.Series:
    """Names of the ranges that were open when each operation was called: the innermost few."""
    ranges = timeline.trace.markers.filter(pl.col("end_ns").is_not_null())
    none = pl.repeat("", called.len(), eager=True)
    if ranges.height == 0 or ranges.height > 100_000:
        return none
    times = timeline.calls["start_ns"].gather(called).to_numpy()
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    names = ranges["name"].cast(pl.String).fill_null("").to_list()
    order = np.argsort(starts, kind="stable")
    open_now: list[int] = []
    found: list[str] = [""] * called.len()
    at = 0
    for row in np.argsort(times, kind="stable"):
        while at < len(order) and starts[order[at]] <= times[row]:
            open_now.append(int(order[at]))
            at += 1
        open_now = [r for r in open_now if ends[r] >= times[row]]
        found[row] = "".join(f" {names[r]}" for r in open_now[-8:])
    return pl.Series(found)


def matching(timeline: Timeline, pattern: str) -> Mask:
    """Operations whose description matches. Raises InputError for what is no regular expression."""
    if not pattern:
        return np.ones(timeline.operations.height, bool)
    return np.array(found_in(pattern, described(timeline)))


def bytes_of(timeline: Timeline, mask: Mask) -> int:
    """The bytes of these operations that are known; shape (operations,)."""
    return int(timeline.operations["bytes"].filter(pl.Series(mask)).sum())


def among(timeline: Timeline, column: str, *words: str) -> Mask:
    """Operations with one of these words in a column; shape (operations,)."""
    return Words(timeline.operations).among(column, *words)


def calls_of(timeline: Timeline, operations: Mask) -> Mask:
    """The calls that launched some of these operations; shape (calls,)."""
    mask = np.zeros(len(timeline.columns["call_own"]), bool)
    launched = operations & (timeline.columns["operation_launched"] != 0)
    mask[timeline.columns["operation_call"][launched]] = True
    return mask


def of_calls(timeline: Timeline, calls: Mask) -> Mask:
    """The operations that these calls launched; shape (operations,)."""
    mask: Mask = timeline.columns["operation_launched"] != 0
    mask[mask] = calls[timeline.columns["operation_call"][mask]]
    return mask
