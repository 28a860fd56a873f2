"""Jobs of small traces for tests: PyTorch traces whose header says rank and host."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.advise import CallSite, RangedFinding
from busfare.answers.job import job_report
from busfare.jobs.partial import SUMS, Advice, LinkRate, Moved, Partial
from busfare.jobs.ranks import MOMENTS, ROWS, TraceRank, packed
from busfare.jobs.reduce import Job
from busfare.jobs.run import Progress
from busfare.trace import Omission
from tests.trace.build_kineto import copy, kernel, write_kineto

MIB = 1 << 20
GPU = "NVIDIA H100 80GB HBM3"


def write_rank(
    path: Path, rank: int | None = 0, host: str | None = "node0", rate: float = 50e9, run_us: float = 5000
) -> Path:
    """A trace of one rank: a large pinned copy at `rate` bytes per second, and a kernel that ends the run."""
    header: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": GPU}]}
    header |= {} if rank is None else {"distributedInfo": {"rank": rank}}
    header |= {} if host is None else {"hostname": host}
    size = 64 * MIB
    events = [
        copy("Memcpy HtoD (Pinned -> Device)", size, 0, size / rate * 1e6, 1),
        kernel("work", run_us - 100, 100, 2),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_kineto(path, events, header)


def write_job(folder: Path, ranks: int = 8) -> Path:
    """`ranks` ranks, four a host; rank 2 on half a link, rank 5 three times as slow."""
    for rank in range(ranks):
        rate, run_us = 25e9 if rank == 2 else 50e9, 15000 if rank == 5 else 5000 + rank
        write_rank(folder / f"trace-{rank}.json", rank, f"node{rank // 4}", rate, run_us)
    return folder


def random_partial(chance: random.Random) -> Partial:
    """A partial with something of everything, of few kinds, so that partials meet."""
    pick = chance.choice

    def number() -> int:
        return chance.randrange(1 << 50)

    def rate() -> LinkRate:
        gpu, identity = pick([None, GPU, "NVIDIA H200"]), pick([None, f"GPU-{chance.randrange(9)}"])
        rate, sheet = chance.uniform(1e9, 60e9), pick([None, 56e9])
        return LinkRate(gpu, identity, chance.randrange(8), None, pick(["h2d", "d2h"]), rate, sheet)

    def finding() -> Advice:
        by_replay = chance.random() < 0.5
        made = RangedFinding(
            id=pick(["slow-link", "small-copies"]),
            title="title",
            evidence=f"seen {chance.randrange(99)}",
            change="change",
            predicted_gain_seconds=pick([0, chance.randrange(1000)]) * 1e-9,
            by_replay=by_replay,
            bound_seconds=None,
            rests_on=[],
            what_if=pick([[], ["--pin"]]),
            overlaps_with=[],
            call_sites=[CallSite("train.py:42 load", None, ["step"], 6, 4096, 1e-3)],
        )
        return Advice(made.id, made.predicted_gain_seconds, by_replay, msgspec.json.encode(made))

    ranks = [TraceRank(1, device, 0, number(), 5, 6) for device in range(chance.randrange(3))]
    return Partial(
        format=pick(["kineto", "recorded"]),
        rank=pick([None, chance.randrange(2000)]),
        host=pick([None, f"node{chance.randrange(6)}"]),
        node=pick([None, "h100-sxm"]),
        node_guessed=chance.random() < 0.5,
        gpus=[GPU] if chance.random() < 0.8 else [],
        sums={name: number() for name in SUMS} | {"makespan_ns": pick([0, 7, number()])},
        by_path=[Moved((pick([None, "h2d"]), "pinned", "device"), 3, number(), number())],
        sizes=[Moved((pick([0, 10]), pick([10, 100])), 2, 0, number())],
        findings=[finding() for _ in range(chance.randrange(3))],
        rates=[rate() for _ in range(chance.randrange(4))],
        ranks=ranks,
        communicating=packed(_communicating(chance, len(ranks))),
        omissions=[Omission(pick(["cut", "torn"]), chance.randrange(5), f"what {chance.randrange(9)}")],
    )


def _communicating(chance: random.Random, devices: int) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for device in range(devices):
        for start in (chance.randrange(1000) for _ in range(chance.randrange(4))):
            row = {"process": 1, "device": device, "stream": 7, "bytes": 8, "computing_ns": [0] * MOMENTS}
            row |= {
                "start_ns": start,
                "end_ns": start + chance.randrange(50),
                "peer": chance.choice([None, 0, 1]),
            }
            rows.append(row | {"collective_kind": chance.choice([None, "all_reduce", "broadcast", "send"])})
    return pl.DataFrame(rows, schema=ROWS)


def encoded(job: Job) -> bytes:
    """Everything that is reported of a job."""
    return msgspec.json.encode(job_report(job))


class Noted(Progress):
    """Progress that keeps what it is given; `at` is called with the number of parts done."""

    def __init__(self, at: Callable[[int], object] | None = None) -> None:
        self.texts: list[str] = []
        self.seen: list[tuple[int, int, int]] = []
        self._at = at

    def warn(self, text: str) -> None:
        self.texts.append(text)

    def parts(self, done: int, whole: int, failed: int) -> None:
        self.seen.append((done, whole, failed))
        if self._at:
            self._at(done)
