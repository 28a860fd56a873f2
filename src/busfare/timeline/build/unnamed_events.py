"""Which work a stream waits for where a trace has the calls that record events and wait for them, but names no event.

So it is with PyTorch's profiler of CUDA 13. What stands for the names: an event is recorded behind what its thread launched
last, a wait is of the stream that its thread launches into next, and a stream waits for the events of another in the order
of their records. Times decide where they can: work that starts as soon as other work ends was waiting for that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.build.device_work import DeviceWork
from busfare.timeline.build.host_calls import HostCalls
from busfare.trace.api_calls import EVENT_RECORD, STREAM_WAIT_EVENT
from busfare.trace.words import Names

__all__ = ["Pairs", "unnamed_events"]

#: Work that starts so soon behind other work was waiting for it: streams start within some 3 µs behind an event.
AT_ONCE_NS = 10_000
#: Time stamps of two streams are off by about this.
OFF_NS = 1_000
#: A thread that waits and launches nothing for so long may have handed over to another.
HANDED_OVER_NS = 50_000
#: A launch, a record, a wait and another record: NCCL's own stream waits for its kernel, and what the program records comes
#: behind that.
WITHIN_LAUNCH = "LRWR"


class Pairs(NamedTuple):
    """Calls, by row: a record of an event and a wait for it; and the streams of both, by number. Shape (pairs,) each."""

    record: NDArray[np.int64]
    recorded: NDArray[np.int32]
    wait: NDArray[np.int64]
    waiting: NDArray[np.int32]


class _Stream:
    """What was recorded of a stream: the record calls in their order, and when the work before each of them ended."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.ends: list[int] = []

    def add(self, record: int, end: int) -> None:
        self.records.append(record)
        self.ends.append(max(end, self.ends[-1]) if self.ends else end)


def unnamed_events(host: HostCalls, work: DeviceWork) -> Pairs:
    """The waits of streams that the order of calls and the times of work tell of, each with the record that it is for."""
    calls, operations = host.calls, work.operations
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    is_record, is_wait = (
        texts.str.contains(pattern).fill_null(False).to_numpy()[names.of]
        for pattern in (EVENT_RECORD, STREAM_WAIT_EVENT)
    )
    found: list[tuple[int, int, int, int]] = []
    if is_record.any() and is_wait.any():
        launched = np.flatnonzero(operations["launched"].to_numpy())
        caller = operations["call"].to_numpy()[launched]
        launches = np.zeros(calls.height, bool)
        launches[caller] = True
        first = launched[np.searchsorted(caller, np.arange(calls.height))[launches]]
        last = launched[np.searchsorted(caller, np.arange(calls.height), side="right")[launches] - 1]
        rows = np.flatnonzero(is_record | is_wait | launches)
        kind = np.where(launches[rows], 0, np.where(is_record[rows], 1, 2))
        place = np.cumsum(launches) - 1
        found = _paired(
            rows.tolist(),
            kind.tolist(),
            calls["thread_number"].to_numpy()[rows].tolist(),
            calls["process"].fill_null(-1).to_numpy()[rows].tolist(),
            calls["start_ns"].to_numpy()[rows].tolist(),
            place[rows].tolist(),
            operations["stream_number"].to_numpy()[first].tolist(),
            operations["start_ns"].to_numpy()[first].tolist(),
            operations["stream_number"].to_numpy()[last].tolist(),
            operations["end_ns"].to_numpy()[last].tolist(),
        )
    pairs = np.array(found, np.int64).reshape(-1, 4)
    return Pairs(pairs[:, 0], pairs[:, 1].astype(np.int32), pairs[:, 2], pairs[:, 3].astype(np.int32))


def _paired(
    rows: list[int],
    kinds: list[int],
    threads: list[int],
    processes: list[int],
    times: list[int],
    places: list[int],
    first_stream: list[int],
    first_start: list[int],
    last_stream: list[int],
    last_end: list[int],
) -> list[tuple[int, int, int, int]]:
    """Record, its stream, wait, its stream; of calls in their order that launch (kind 0, `places` in what follows), record
    (1) or wait (2), at `times`.
    """
    found: list[tuple[int, int, int, int]] = []
    streams: dict[int, dict[int, _Stream]] = defaultdict(dict)  # by process and number
    seen: dict[tuple[int, int], int] = defaultdict(
        int
    )  # by waiting and recorded stream: records that are done with
    latest: dict[int, int] = {}  # by thread: the place of its last launch
    did: dict[int, str] = defaultdict(str)  # by thread: the kinds of its last calls
    # By thread: waits since its last launch, each with the stream and place there of a record right before it.
    waits: dict[int, list[tuple[int, tuple[int, int] | None]]] = defaultdict(list)
    adjacent: dict[int, tuple[int, int]] = {}
    waited: dict[int, dict[int, int]] = defaultdict(
        dict
    )  # by process: threads with such waits, and when the last was
    called = zip(rows, kinds, threads, processes, times, places, strict=True)
    for row, kind, thread, process, time, place in called:
        did[thread] = did[thread][-3:] + "LRW"[kind]
        own = streams[process]
        if kind == 2:
            waits[thread].append((row, adjacent.pop(thread, None)))
            waited[process][thread] = time
        elif kind == 1 and thread in latest:
            if did[thread] == WITHIN_LAUNCH:
                waits[thread].pop()
            stream = last_stream[latest[thread]]
            own.setdefault(stream, _Stream()).add(row, last_end[latest[thread]])
            adjacent[thread] = stream, len(own[stream].records) - 1
        elif kind == 0:
            adjacent.pop(thread, None)
            latest[thread] = place
            stream, start = first_stream[place], first_start[place]
            # PyTorch's backward pass waits, and the thread that it hands back to launches what was waited for.
            by = [t for t, at in waited[process].items() if t == thread or time - at >= HANDED_OVER_NS]
            for wait, chosen in [each for t in by for each in waits.pop(t, ())]:
                if chosen is None or own[chosen[0]].ends[chosen[1]] > start + OFF_NS:
                    chosen = _head(own, seen, stream, start, wait)
                if chosen is not None and chosen[0] != stream:
                    of, at = chosen
                    found.append((own[of].records[at], of, wait, stream))
                    seen[stream, of] = max(seen[stream, of], at + 1)
            for t in by:
                del waited[process][t]
    return found


def _head(
    streams: dict[int, _Stream], seen: dict[tuple[int, int], int], stream: int, start: int, wait: int
) -> tuple[int, int] | None:
    """The stream and the record that work of `stream`, which starts at `start`, waits for by the call `wait`; None for
    none that its times allow: of every other stream the one whose end it starts right behind, else the first that is left.
    """
    best: tuple[int, int, int] | None = None
    for number, own in streams.items():
        left = seen[stream, number]
        most = bisect_left(own.records, wait)
        over = min(bisect_right(own.ends, start + OFF_NS), most) - 1
        if number == stream or over < left:
            continue
        at = over if start - own.ends[over] <= AT_ONCE_NS else left
        if best is None or own.ends[at] > best[0]:
            best = (own.ends[at], number, at)
    return None if best is None else (best[1], best[2])
