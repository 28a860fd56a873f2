"""Which work a stream waits for where a trace has the calls that record events and wait for them, but names no event.

So it is with PyTorch's profiler of CUDA 13. What stands for the names: an event is recorded behind what its thread launched
last, a wait is of the stream that its thread launches into next, and a stream waits for the events of another in the order
of their records. Times decide where they can: work that starts as soon as other work ends was waiting for that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline import _core
from busfare.timeline.build.device_work import DeviceWork
from busfare.timeline.build.host_calls import HostCalls, alike
from busfare.trace.api_calls import EVENT_RECORD, STREAM_WAIT_EVENT
from busfare.trace.words import Names

__all__ = ["Pairs", "unnamed_events"]

#: What a call does, as the core numbers it.
LAUNCH, RECORD, WAIT = 0, 1, 2


class Pairs(NamedTuple):
    """Calls, by row: a record of an event and a wait for it; and the streams of both, by number. Shape (pairs,) each."""

    record: NDArray[np.int32]
    recorded: NDArray[np.int32]
    wait: NDArray[np.int32]
    waiting: NDArray[np.int32]


def unnamed_events(host: HostCalls, work: DeviceWork) -> Pairs:
    """The waits of streams that the order of calls and the times of work tell of, each with the record that it is for."""
    calls, operations = host.calls, work.operations
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    records, waits = (
        texts.str.contains(pattern).fill_null(False).to_numpy()[names.of]
        for pattern in (EVENT_RECORD, STREAM_WAIT_EVENT)
    )
    launched = np.flatnonzero(operations["launched"].to_numpy())
    if not (records.any() and waits.any() and len(launched)):
        return Pairs(*np.empty((4, 0), np.int32))
    caller = operations["call"].to_numpy()[launched]
    kind = np.full(calls.height, -1)
    kind[waits], kind[records], kind[caller] = WAIT, RECORD, LAUNCH
    rows = np.flatnonzero(kind >= 0)
    kind = kind[rows]
    # Of calls that launch nothing, these are of another's operations, and not looked at.
    ends = (np.searchsorted(caller, rows, side) for side in ("left", "right"))
    first, last = (launched[np.clip(of - step, 0, len(launched) - 1)] for step, of in enumerate(ends))
    columns: dict[str, NDArray[Any]] = {
        "row": rows.astype(np.int32),
        "kind": kind.astype(np.uint8),
        "thread": calls["thread_number"].to_numpy()[rows].astype(np.int32),
        "process": alike(calls.select("process"))[0][rows].astype(np.int32),
        "time": calls["start_ns"].to_numpy()[rows].astype(np.int64),
    }
    for name, of in (("first", first), ("last", last)):
        columns[f"{name}_stream"] = operations["stream_number"].to_numpy()[of].astype(np.int32)
    columns["first_start"] = operations["start_ns"].to_numpy()[first].astype(np.int64)
    columns["last_end"] = operations["end_ns"].to_numpy()[last].astype(np.int64)
    return Pairs(**_core.unnamed_events(columns))
