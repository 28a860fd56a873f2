"""How fast each GPU's pinned copies are while others copy, too, in many patterns: what `validation/four_gpus.py` reads.

    python validation/jobs/copies_at_once.py > copies.json

A process a GPU, a stream a direction; bytes per second of every GPU and direction, medians of some regions.
"""

from __future__ import annotations

import json
import sys
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import Any

import torch
import torch.multiprocessing as mp

BYTES, COPIES, REGIONS = 1 << 28, 8, 4
#: A direction and a GPU.
Flow = tuple[str, int]


def patterns(gpus: int) -> list[list[Flow]]:
    """Copies in, out and both ways of several sets of GPUs; then some in and others out."""
    sets = [[gpu] for gpu in range(gpus)] + [[*range(count)] for count in range(2, gpus + 1)]
    sets += [[0, gpus // 2], [gpus - 2, gpus - 1]] if gpus > 2 else []
    ways = [(one, two) for some in sets for one, two in ((some, []), ([], some), (some, some))]
    whole = [*range(gpus)]
    ways += [
        ([0], [1]),
        (whole[: gpus // 2], whole[gpus // 2 :]),
        (whole[:-1], whole[-1:]),
        (whole[-1:], whole[:-1]),
    ]
    ways += [(whole, [0]), ([0], whole), (whole, [0, 1]), ([0, 1], whole)]
    listed = [[*(("h2d", gpu) for gpu in into), *(("d2h", gpu) for gpu in out)] for into, out in ways]
    return [flows for at, flows in enumerate(listed) if flows not in listed[:at]]


def region(ways: tuple[str, ...], held: dict[str, Any], on_gpu: dict[str, Any]) -> dict[str, float]:
    """Bytes per second of each direction, by the events around its copies."""
    streams = {way: torch.cuda.Stream() for way in ways}
    ends = {way: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for way in ways}
    for way in ways:
        ends[way][0].record(streams[way])
    for _ in range(COPIES):
        for way in ways:
            with torch.cuda.stream(streams[way]):
                target, source = (on_gpu, held) if way == "h2d" else (held, on_gpu)
                target[way].copy_(source[way], non_blocking=True)
    for way in ways:
        ends[way][1].record(streams[way])
    torch.cuda.synchronize()
    return {way: BYTES * COPIES / (ends[way][0].elapsed_time(ends[way][1]) * 1e-3) for way in ways}


def work(rank: int, count: int, barrier: Barrier, results: Any) -> None:
    torch.cuda.set_device(rank)
    held = {way: torch.zeros(BYTES, dtype=torch.uint8).pin_memory() for way in ("h2d", "d2h")}
    on_gpu = {way: torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for way in ("h2d", "d2h")}
    for number, flows in enumerate(patterns(count)):
        ways = tuple(way for way, gpu in flows if gpu == rank)
        seen = []
        for _ in range(REGIONS + 1):
            torch.cuda.synchronize()
            barrier.wait()
            if ways:
                seen.append(region(ways, held, on_gpu))
            barrier.wait()
        for way in ways:
            results.put((number, way, rank, median(one[way] for one in seen[1:])))


def main() -> None:
    count = torch.cuda.device_count()
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(count), context.SimpleQueue()
    ranks = [context.Process(target=work, args=(rank, count, barrier, results)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    rates = [[[way, gpu, 0.0] for way, gpu in flows] for flows in patterns(count)]
    for _ in range(sum(map(len, rates))):
        number, way, rank, rate = results.get()
        next(row for row in rates[number] if row[:2] == [way, rank])[2] = rate
    for rank in ranks:
        rank.join()
    json.dump({"gpu": torch.cuda.get_device_name(0), "bytes": BYTES, "bytes_per_s": rates}, sys.stdout)


if __name__ == "__main__":
    main()
