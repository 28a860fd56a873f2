"""The traces of a job that never ran: real recorded steps and generated ones, with faults planted to be found.

Nothing here was measured: ranks, hosts and rates are made up (the same in every run), so that many traces can be had.
Three of four traces hold the events of one of the example traces, which are real (recorded on an H100 and an H200),
behind generated copies of their own; the fourth is generated throughout.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Planted", "write_job"]

EXAMPLES = Path(__file__).parents[1] / "src" / "busfare" / "examples"
REAL = ("train-images-h100", "generate-text-h100", "train-images-pinned-h100")
GPUS_PER_HOST = 8
GPU = "NVIDIA H100 80GB HBM3"
#: Bytes per second of a large pinned copy, near what the examples recorded.
SOUND_RATE = 54.6e9
MIB = 1 << 20


@dataclass(frozen=True)
class Planted:
    """What is wrong with the job: a rank on half a link, a rank that takes far longer, and files that are damaged."""

    half_rate_rank: int
    slow_rank: int
    damaged: tuple[str, ...]


def write_job(folder: Path, traces: int, damaged: int = 3, seed: int = 1) -> Planted:
    """Writes `traces` good traces into `folder`, one a rank, eight ranks a host, and `damaged` bad files beside them."""
    chance = random.Random(seed)
    half, slow = traces // 3, traces // 2
    bodies = [_events_of(name) for name in REAL]
    for rank in range(traces):
        host = f"node{rank // GPUS_PER_HOST:04}"
        header = _header(rank, traces, host)
        rate = SOUND_RATE * chance.uniform(0.97, 1.0) * (0.5 if rank == half else 1.0)
        steps = 60 if rank % 4 == 3 else 12
        begin, body = (1e9, b"") if rank % 4 == 3 else bodies[rank % 4]
        events = _steps(chance, begin, steps * (20 if rank == slow else 1), rate)
        _write(folder / host / f"rank{rank}.pt.trace.json.gz", header, events, body)
    bad = []
    for number in range(damaged):
        file = folder / f"damaged-{number}.json.gz"
        file.write_bytes(
            (gzip.compress(b'{"no": "events"}', mtime=0), b"", b"SQLite format 3\0 and no more")[number % 3]
        )
        bad.append(str(file))
    return Planted(half, slow, tuple(bad))


def _header(rank: int, ranks: int, host: str) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0,
                "name": GPU,
                "totalGlobalMem": 85017493504,
                "computeMajor": 9,
                "computeMinor": 0,
                "numSms": 132,
            }
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "hostname": host,
    }


def _write(path: Path, header: dict[str, Any], events: list[dict[str, Any]], body: bytes) -> None:
    """A trace in two members of gzip: what is this rank's own, and what it shares with others, compressed once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps(header)[:-1] + ', "traceEvents": [' + ",".join(map(json.dumps, events))
    tail = body or gzip.compress(b"]}", mtime=0)
    path.write_bytes(gzip.compress(head.encode(), 1, mtime=0) + tail)


def _events_of(name: str) -> tuple[float, bytes]:
    """When an example trace begins, and its events, from the comma before them on, as a member of gzip."""
    text = gzip.decompress((EXAMPLES / f"{name}.json.gz").read_bytes())
    mark = b'"traceEvents":['
    first = min(float(time) for time in re.findall(rb'"ts":([0-9.]+)', text) if float(time) > 0)
    return first, gzip.compress(b"," + text[text.index(mark) + len(mark) :], 6, mtime=0)


def _steps(chance: random.Random, end: float, steps: int, rate: float) -> list[dict[str, Any]]:
    """Training steps before `end` (µs): each a copy in and kernels, every fourth a copy out."""
    events: list[dict[str, Any]] = []
    now, correlation = end - steps * 3_500, 10_000_000
    for step in range(steps):
        correlation += 10
        size = 48 * MIB
        duration = size / rate * 1e6 * chance.uniform(1.0, 1.03)
        events.append(_copy("HtoD (Pinned -> Device)", size, now, duration, correlation))
        now += duration + 3
        for kernel in range(24):
            length = chance.uniform(20, 120)
            events.append(
                _event(
                    "kernel",
                    f"layer_{kernel % 6}",
                    now,
                    length,
                    stream=7,
                    correlation=correlation + 1 + kernel % 6,
                )
            )
            now += length + chance.uniform(1, 4)
        if step % 4 == 3:
            duration = size / rate * 1e6 * chance.uniform(1.0, 1.03)
            events.append(_copy("DtoH (Device -> Pinned)", size, now, duration, correlation + 8))
            now += duration + 5
    return events


def _copy(direction: str, size: int, start: float, duration: float, correlation: int) -> dict[str, Any]:
    return _event(
        "gpu_memcpy", f"Memcpy {direction}", start, duration, stream=20, correlation=correlation, bytes=size
    )


def _event(category: str, name: str, start: float, duration: float, **args: int) -> dict[str, Any]:
    place = {"device": 0, "context": 1} | args
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": args["stream"],
        "ts": round(start, 3),
        "dur": round(duration, 3),
        "args": place,
    }
