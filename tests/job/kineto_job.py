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
    folder: Path,
    compute_us: Sequence[Sequence[float]],
    transfer_us: float = 100.0,
    elements: int = 1 << 20,
    offsets_us: Sequence[float] = (),
    drift_ppm: Sequence[float] = (),
    copies: int = 0,
    **arguments: Any,
) -> float:
    """Writes `rank<r>.json.gz`; `compute_us[r][step]` is how long rank r computes before each all-reduce, after which its
    host waits for the stream. `copies`: bytes that rank 0 copies from pageable memory before each step.

    Returns the length of the whole job, µs.
    """
    folder.mkdir(exist_ok=True)
    ranks, steps = len(compute_us), len(compute_us[0])
    events: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
    host, correlation = [1000.0] * ranks, 0
    for step in range(steps):
        begins = []
        for rank, rows in enumerate(events):
            correlation += 2
            own = 900 if copies and rank == 0 else 0
            if own:  # the copy takes 800 µs on the GPU, and the call until it is done
                _call(rows, "cudaMemcpyAsync", host[rank], own, correlation + 1_000_000)
                copy = {
                    "bytes": copies,
                    "stream": 7,
                    "device": rank,
                    "context": 1,
                    "correlation": correlation + 1_000_000,
                }
                _event(
                    rows,
                    "gpu_memcpy",
                    "Memcpy HtoD (Pageable -> Device)",
                    host[rank] + 50,
                    800,
                    rank,
                    7,
                    copy,
                )
                host[rank] += own
            for number in range(2):
                _call(rows, "cudaLaunchKernel", host[rank] + number * CALL, CALL, correlation + number)
            begin = host[rank] + LAUNCH
            _kernel(rows, "gemm", begin, compute_us[rank][step], rank, correlation)
            begins.append(begin + compute_us[rank][step] + BEHIND)
        end = max(begins) + transfer_us
        for rank, rows in enumerate(events):
            number = correlation - 2 * (ranks - 1 - rank) + 1
            more = {
                "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                "dtype": "Float", "Group size": ranks, "Process Group Name": "0",
            } | arguments  # fmt: skip
            _kernel(
                rows,
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                begins[rank],
                end - begins[rank],
                rank,
                number,
                more,
            )
            waits = host[rank] + 2 * CALL
            _call(rows, "cudaStreamSynchronize", waits, end + 3 - waits, 0)
            host[rank] = end + 3 + 10
    for rank, rows in enumerate(events):
        for row in rows:
            row["ts"] += offsets_us[rank] if offsets_us else 0.0
            row["ts"] += row["ts"] * drift_ppm[rank] * 1e-6 if drift_ppm else 0.0
        text = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": n, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for n in range(ranks)
            ],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "traceEvents": rows,
        }
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(text).encode(), 1))
    return max(host) - 10 - 1000.0


def _event(
    rows: list[dict[str, Any]], category: str, name: str, start: float, duration: float, process: int, thread: int,
    arguments: dict[str, Any],
) -> None:  # fmt: skip
    rows.append(
        {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": process,
            "tid": thread,
            "ts": start,
            "dur": duration,
            "args": arguments,
        }
    )


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
