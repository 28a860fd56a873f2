"""Traces of a made-up data-parallel job as PyTorch's profiler writes them, one a rank; when everything happens is known."""

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trace.build_kineto import Event, call, copy, document, event, kernel

#: All in µs: of a call, from a call to its kernel, and between kernels of a stream.
CALL, LAUNCH, BEHIND = 5.0, 8.0, 1.0
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
GRID = {"grid": [8, 1, 1], "block": [512, 1, 1]}


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
    events: list[list[Event]] = [[] for _ in range(ranks)]
    host, correlation = [1000.0] * ranks, 0
    for step in range(steps):
        for r in copied_on if copy_us else ():
            correlation += 1
            events[r].append(call("cudaMemcpyAsync", host[r], copy_us + 50, correlation))
            name = "Memcpy HtoD (Pageable -> Device)"
            events[r].append(copy(name, copy_bytes, host[r] + 20, copy_us, correlation, device=r))
            host[r] += copy_us + 50
        stream = [at + LAUNCH for at in host]
        called = list(host)
        for _ in range(pairs):
            for rank, rows in enumerate(events):
                correlation += 2
                for number in (correlation - 1,) if mpi else (correlation - 1, correlation):
                    rows.append(call("cudaLaunchKernel", called[rank], CALL, number))
                    called[rank] += CALL
                computes = compute_us[rank][step]
                rows.append(kernel("gemm", stream[rank], computes, correlation - 1, device=rank, **GRID))
                stream[rank] += computes + BEHIND
            if mpi:
                continue
            end = max(stream) + transfer_us
            for rank, rows in enumerate(events):
                more = {
                    "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                    "dtype": "Float", "Group size": ranks, "Process Group Name": "0",
                } | GRID | arguments  # fmt: skip
                number = correlation - 2 * (ranks - 1 - rank)
                rows.append(kernel(REDUCE, stream[rank], end - stream[rank], number, device=rank, **more))
                stream[rank] = end + BEHIND
        for rank, rows in enumerate(events):
            end = stream[rank] - BEHIND + 3
            rows.append(call("cudaStreamSynchronize", called[rank], end - called[rank], 0))
            host[rank] = end + 10
        if mpi:
            end = max(host) + transfer_us
            for rank, rows in enumerate(events):
                rows.append(event("user_annotation", "MPI_Allreduce", host[rank], end - host[rank], args={}))
                host[rank] = end + 10
    for rank, rows in enumerate(events):
        for row in rows:
            row["ts"] += offsets_us[rank] if offsets_us else 0.0
            row["ts"] += row["ts"] * drift_ppm[rank] * 1e-6 if drift_ppm else 0.0
        write_trace(folder, rank, ranks, rows)
    return max(host) - 10 - 1000.0


def write_trace(folder: Path, rank: int, ranks: int, rows: list[Event]) -> None:
    """Writes the events of one rank."""
    header = {
        "deviceProperties": [{"id": n, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for n in range(ranks)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
    }
    (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(document(rows, header).encode(), 1))


@contextmanager
def rewritten(path: Path) -> Iterator[Any]:
    """The trace of one rank, which is written again as it is left."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    yield trace
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
