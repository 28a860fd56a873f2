"""Jobs of small traces for tests: PyTorch traces whose header says rank and host."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from busfare.job import Progress
from busfare.job.partial import Found, Left, Moved, Partial, Sized
from busfare.job.place import Place
from busfare.job.rates import LinkRate
from busfare.job.traffic import LinkTraffic
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
        write_rank(
            folder / f"trace-{rank}.json",
            rank,
            f"node{rank // 4}",
            (25e9 if rank == 2 else 50e9),
            15000 if rank == 5 else 5000 + rank,
        )
    return folder


def random_partial(chance: random.Random) -> Partial:
    """A partial with something of everything, of few kinds, so that partials meet."""
    rank = chance.choice([None, chance.randrange(2000)])
    host = chance.choice([None, f"node{chance.randrange(6)}"])
    rates = [
        LinkRate(
            chance.randrange(8),
            None,
            chance.choice(["h2d", "d2h"]),
            chance.choice([None, GPU, "NVIDIA H200"]),
            chance.choice([None, f"GPU-{chance.randrange(9)}"]),
            chance.uniform(1e9, 60e9),
            1,
            chance.choice([None, 56e9]),
        )
        for _ in range(chance.randrange(4))
    ]
    numbers = iter(lambda: chance.randrange(1 << 50), None)
    return Partial(
        format=chance.choice(["kineto", "recorded"]),
        place=Place(rank, rank and "trace", host, host and "trace"),
        node=chance.choice([None, "h100-sxm"]),
        node_guessed=chance.random() < 0.5,
        gpus=[GPU] if chance.random() < 0.8 else [],
        makespan_ns=chance.choice([0, 7, next(numbers)]),
        **{
            name: next(numbers)
            for name in (
                *("transfers", "transfer_bytes", "transfer_ns", "exposed_ns", "kernels", "kernel_ns"),
                *("communication", "communication_ns"),
                *("graph_work", "graph_ns", "sets", "set_ns", "unrouted_bytes"),
            )
        },
        by_path=[Moved(chance.choice([None, "h2d"]), "pinned", "device", 3, next(numbers), next(numbers))],
        sizes=[Sized(chance.choice([0, 10]), chance.choice([10, 100]), 2, next(numbers))],
        findings=[
            Found(
                chance.choice(["slow-link", "small-copies"]),
                "title",
                f"seen {chance.randrange(99)}",
                "change",
                chance.choice([0, chance.randrange(1000)]),
                chance.random() < 0.5,
                (),
                chance.choice([(), ("--pin",)]),
            )
            for _ in range(chance.randrange(3))
        ],
        rates=rates,
        traffic=[
            LinkTraffic(
                "h100-sxm", chance.randrange(3), "a", "b", "PCIe 5 x16", 63e9, 1, next(numbers), 5, 6, 7
            )
        ],
        omissions=[Left(chance.choice(["cut", "torn"]), chance.randrange(5), f"what {chance.randrange(9)}")],
    )


class Told:
    """Progress that keeps what it was told; `at` is called with the number of parts done."""

    def __init__(self, at: Any = None) -> None:
        self.said: list[str] = []
        self.seen: list[tuple[int, int, int]] = []
        self._at = at

    def say(self, text: str) -> None:
        self.said.append(text)

    warn = say

    def parts(self, done: int, whole: int, failed: int) -> None:
        self.seen.append((done, whole, failed))
        if self._at:
            self._at(done)


_: type[Progress] = Told
