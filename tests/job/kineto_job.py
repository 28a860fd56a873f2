"""Traces of a made-up data-parallel job as PyTorch's profiler writes them, one a rank; when everything happens is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: All in µs: of a call, from a call to its kernel, and between kernels of a stream.
CALL, LAUNCH, BEHIND = 5.0, 8.0, 1.0


def write_ranks(
    folder: Path, compute_us: Sequence[Sequence[float]], transfer_us: float = 100.0, elements: int = 1 << 20,
    offsets_us: Sequence[float] = (), drift_ppm: Sequence[float] = (), copy_us: float = 0.0,
    copy_bytes: int = 1 << 20, copied_on: Sequence[int] = (0,), pairs: int = 1, mpi: bool = False,
    **arguments: Any,
) -> float:  # fmt: skip
    """Writes `rank<r>.json.gz`; `compute_us[r][step]` is how long rank r computes before each of `pairs` all-reduces of
    a step, after which its host waits for the stream. With `mpi`, the host waits, and then calls MPI_Allreduce. `copy_us`:
    of a copy of `copy_bytes` from pageable memory on the ranks `copied_on` before each step.

    Returns the length of the whole job, µs.
    """
    folder.mkdir(exist_ok=True)
    ranks, steps = len(compute_us), len(compute_us[0])
    events: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
    host, correlation = [1000.0] * ranks, 0
    for step in range(steps):
        for r in copied_on if copy_us else ():
            _call(events[r], "cudaMemcpyAsync", host[r], copy_us + 50, correlation := correlation + 1)
            copy = {"bytes": copy_bytes, "stream": 7, "device": r, "context": 1, "correlation": correlation}
            _event(
                events[r], "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", host[r] + 20, copy_us, r, 7, copy
            )
            host[r] += copy_us + 50
        stream = [at + LAUNCH for at in host]
        called = list(host)
        for _ in range(pairs):
            for rank, rows in enumerate(events):
                for name in ("compute",) if mpi else ("compute", "reduce"):
                    correlation += 1
                    _call(rows, "cudaLaunchKernel", called[rank], CALL, correlation)
                    called[rank] += CALL
                    if name == "compute":
                        _kernel(rows, "gemm", stream[rank], compute_us[rank][step], rank, correlation)
                        stream[rank] += compute_us[rank][step] + BEHIND
                    else:
                        rows.append({"number": correlation})  # of the all-reduce, when it is known
            if mpi:
                continue
            end = max(stream) + transfer_us
            for rank, rows in enumerate(events):
                number = rows.pop()["number"]
                more = {
                    "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                    "dtype": "Float", "Group size": ranks, "Process Group Name": "0",
                } | arguments  # fmt: skip
                _kernel(
                    rows, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", stream[rank], end - stream[rank],
                    rank, number, more,
                )  # fmt: skip
                stream[rank] = end + BEHIND
        for rank, rows in enumerate(events):
            end = stream[rank] - BEHIND + 3
            _call(rows, "cudaStreamSynchronize", called[rank], end - called[rank], 0)
            host[rank] = end + 10
        if mpi:
            end = max(host) + transfer_us
            for rank, rows in enumerate(events):
                _event(rows, "user_annotation", "MPI_Allreduce", host[rank], end - host[rank], 4000, 4000, {})
                host[rank] = end + 10
    for rank, rows in enumerate(events):
        for row in rows:
            row["ts"] += offsets_us[rank] if offsets_us else 0.0
            row["ts"] += row["ts"] * drift_ppm[rank] * 1e-6 if drift_ppm else 0.0
        write_trace(folder, rank, ranks, rows)
    return max(host) - 10 - 1000.0


def write_trace(folder: Path, rank: int, ranks: int, rows: list[dict[str, Any]]) -> None:
    """Writes the events of one rank."""
    text = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": n, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for n in range(ranks)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "traceEvents": rows,
    }
    (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(text).encode(), 1))


def ranged(name: str, start: float, end: float) -> dict[str, Any]:
    """A range of the host, times in µs."""
    rows: list[dict[str, Any]] = []
    _event(rows, "user_annotation", name, start, end - start, 4000, 4000, {})
    return rows[0]


def _event(
    rows: list[dict[str, Any]], category: str, name: str, start: float, duration: float, process: int, thread: int,
    arguments: dict[str, Any],
) -> None:  # fmt: skip
    place = {"pid": process, "tid": thread, "ts": start, "dur": duration}
    rows.append({"ph": "X", "cat": category, "name": name, **place, "args": arguments})


def _call(rows: list[dict[str, Any]], name: str, start: float, duration: float, correlation: int) -> None:
    _event(rows, "cuda_runtime", name, start, duration, 4000, 4000, {"correlation": correlation})


def _kernel(
    rows: list[dict[str, Any]], name: str, start: float, duration: float, device: int, correlation: int,
    more: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    arguments = {
        "device": device, "context": 1, "stream": 7, "correlation": correlation, "grid": [8, 1, 1], "block": [512, 1, 1]
    }  # fmt: skip
    _event(rows, "kernel", name, start, duration, device, 7, arguments | (more or {}))
