"""Traces of PyTorch's profiler with what a replay looks at, as columns: half of what they take as rows, compressed."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import Any

#: What a replay looks at.
KINDS = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation"}
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
#: Times are kept from this many µs on, and in so many parts of one; ranks share their host's clock.
EVEN_US, PARTS = 10**9, 4


def pack(trace: dict[str, Any]) -> bytes:
    """`trace` (Chrome's JSON) without what no replay needs, sorted by what its events are."""
    kinds: dict[str, int] = {}
    rows = []
    for event in trace.pop("traceEvents"):
        needed = event.get("cat") in KINDS and event.get("ph") == "X" and event["name"] not in ASKING
        if needed and not event["name"].startswith("ProfilerStep"):
            used = {key: value for key, value in event.get("args", {}).items() if key in USED}
            number = used.pop("correlation", -1)
            kind = json.dumps({key: event[key] for key in ("cat", "name", "pid", "tid")} | {"args": used})
            times = (round(event["ts"] % EVEN_US * PARTS), round(event["dur"] * PARTS))
            rows.append((kinds.setdefault(kind, len(kinds)), *times, number))
    trace.pop("traceName", None)
    of, starts, lengths, numbers = ([*column] for column in zip(*sorted(rows), strict=True))
    # Calls and what they launched are numbered anew in the order of the calls: steps are small then.
    anew = {number: place for place, number in enumerate(sorted({*numbers} - {-1}))} | {-1: -1}
    numbers = [anew[number] for number in numbers]
    columns = {"kind": _steps(of), "start": _steps(starts), "length": lengths, "correlation": _steps(numbers)}
    return json.dumps({"trace": trace, "kinds": [*kinds], "columns": columns}, separators=(",", ":")).encode()


def unpack(packed: bytes) -> bytes:
    """The trace that was packed, as Chrome's JSON."""
    held = json.loads(packed)
    kinds = [json.loads(kind) for kind in held["kinds"]]
    columns = held["columns"]
    events = []
    of, starts, numbers = ([*accumulate(columns[name])] for name in ("kind", "start", "correlation"))
    for kind, start, length, number in zip(of, starts, columns["length"], numbers, strict=True):
        known = {} if number < 0 else {"correlation": number}
        times = {"ph": "X", "ts": start / PARTS, "dur": length / PARTS}
        events.append(kinds[kind] | times | {"args": kinds[kind]["args"] | known})
    return json.dumps(held["trace"] | {"traceEvents": events}).encode()


def _steps(numbers: list[int]) -> list[int]:
    """Each less the one before it."""
    return [to - at for at, to in pairwise([0, *numbers])]
