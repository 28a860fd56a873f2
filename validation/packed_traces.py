"""Traces of PyTorch's profiler as columns: less than half of what they take as rows, compressed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from packed_columns import read, write

#: What a replay looks at.
KINDS = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation"}
FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
#: Of their arguments.
USED = {
    "device", "context", "stream", "correlation", "grid", "bytes", "Collective name", "In msg nelems", "Out msg nelems",
    "Group size", "dtype", "Process Group Name", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank",
}  # fmt: skip
#: Calls that only ask: the host's time in them is between other calls then.
ASKING = {
    "cudaFuncGetAttributes", "cudaStreamIsCapturing", "cudaEventQuery", "cudaThreadExchangeStreamCaptureMode",
    "cudaDeviceGetAttribute", "cudaGetFuncBySymbol", "INVALID",
}  # fmt: skip
#: Times of replays are kept from this many µs on, and in so many parts of one; ranks share their host's clock.
EVEN_US, PARTS = 10**9, 4
#: Whole traces, to a nanosecond.
WHOLE_PARTS = 1000
#: Arguments that are numbers of their own.
NUMBERED = ("correlation", "External id")


def pack(trace: dict[str, Any], whole: bool = False) -> bytes:
    """`trace` (Chrome's JSON), `whole` or without what no replay needs, sorted by what its events are."""
    parts = WHOLE_PARTS if whole else PARTS
    kinds: dict[str, int] = {}
    rows = []
    for event in (
        trace["traceEvents"] if whole else map(_replayed, filter(_is_replayed, trace["traceEvents"]))
    ):
        fields = dict(event)
        arguments = dict(fields.pop("args", {}))
        times = [round(fields.pop(name) * parts) if name in fields else None for name in ("ts", "dur")]
        numbers = [arguments.pop(name, None) for name in NUMBERED]
        kind = json.dumps([fields, arguments, [value is not None for value in (*times, *numbers)]])
        rows.append([kinds.setdefault(kind, len(kinds)), *(value or 0 for value in (*times, *numbers))])
    rows.sort()
    table = np.array(rows, np.int64).reshape(len(rows), 3 + len(NUMBERED))
    if not whole:
        # Calls and what they launched are numbered anew in the order of the calls: steps are small then.
        table[:, 3] = np.unique(table[:, 3], return_inverse=True)[1]
    held = {"trace": {key: value for key, value in trace.items() if key not in ("traceEvents", "traceName")}}
    return write(held | {"parts": parts, "kinds": [*kinds]}, list(table.T))


def unpack(packed: bytes) -> bytes:
    """The trace that was packed, as Chrome's JSON."""
    held, columns = read(packed)
    kinds = [json.loads(kind) for kind in held["kinds"]]
    events = []
    for of, *values in zip(*(column.tolist() for column in columns), strict=True):
        fields, arguments, there = kinds[of]
        named = zip(("ts", "dur", *NUMBERED), values, there, strict=True)
        numbers = {name: value for name, value, is_there in named if is_there}
        times = {name: numbers.pop(name) / held["parts"] for name in ("ts", "dur") if name in numbers}
        events.append(fields | times | {"args": arguments | numbers})
    return json.dumps(held["trace"] | {"traceEvents": events}).encode()


def _is_replayed(event: dict[str, Any]) -> bool:
    asks = event.get("name") in ASKING or event.get("name", "").startswith("ProfilerStep")
    return event.get("cat") in KINDS and event.get("ph") == "X" and not asks


def _replayed(event: dict[str, Any]) -> dict[str, Any]:
    arguments = {key: value for key, value in event.get("args", {}).items() if key in USED}
    return {key: event[key] for key in FIELDS} | {"ts": event["ts"] % EVEN_US, "args": arguments}
