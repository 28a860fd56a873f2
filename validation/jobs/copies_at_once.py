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
    pairs = [(into, out) for some in sets for into, out in ((some, []), ([], some), (some, some))]
    whole = [*range(gpus)]
    pairs += [
        ([0], [1]),
        (whole[: gpus // 2], whole[gpus // 2 :]),
        (whole[:-1], whole[-1:]),
        (whole[-1:], whole[:-1]),
    ]
    pairs += [(whole, [0]), ([0], whole), (whole, [0, 1]), ([0, 1], whole)]
    listed = [[*(("h2d", gpu) for gpu in into), *(("d2h", gpu) for gpu in out)] for into, out in pairs]
    return [flows for at, flows in enumerate(listed) if flows not in listed[:at]]


def region(directions: tuple[str, ...], held: dict[str, Any], on_gpu: dict[str, Any]) -> dict[str, float]:
    """Bytes per second of each direction, by the events around its copies."""
    streams = {direction: torch.cuda.Stream() for direction in directions}
    ends = {direction: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for direction in directions}
    for direction in directions:
        ends[direction][0].record(streams[direction])
    for _ in range(COPIES):
        for direction in directions:
            with torch.cuda.stream(streams[direction]):
                target, source = (on_gpu, held) if direction == "h2d" else (held, on_gpu)
                target[direction].copy_(source[direction], non_blocking=True)
    for direction in directions:
        ends[direction][1].record(streams[direction])
    torch.cuda.synchronize()
    return {flow: BYTES * COPIES / (ends[flow][0].elapsed_time(ends[flow][1]) * 1e-3) for flow in directions}


def work(rank: int, count: int, barrier: Barrier, results: Any) -> None:
    torch.cuda.set_device(rank)
    held = {direction: torch.zeros(BYTES, dtype=torch.uint8).pin_memory() for direction in ("h2d", "d2h")}
    on_gpu = {direction: torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for direction in ("h2d", "d2h")}
    for number, flows in enumerate(patterns(count)):
        directions = tuple(direction for direction, gpu in flows if gpu == rank)
        seen = []
        for _ in range(REGIONS + 1):
            torch.cuda.synchronize()
            barrier.wait()
            if directions:
                seen.append(region(directions, held, on_gpu))
            barrier.wait()
        for direction in directions:
            results.put((number, direction, rank, median(rates[direction] for rates in seen[1:])))


def main() -> None:
    count = torch.cuda.device_count()
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(count), context.SimpleQueue()
    ranks = [context.Process(target=work, args=(rank, count, barrier, results)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    rates = [[[direction, gpu, 0.0] for direction, gpu in flows] for flows in patterns(count)]
    for _ in range(sum(map(len, rates))):
        number, direction, rank, rate = results.get()
        next(row for row in rates[number] if row[:2] == [direction, rank])[2] = rate
    for rank in ranks:
        rank.join()
    json.dump({"gpu": torch.cuda.get_device_name(0), "bytes": BYTES, "bytes_per_s": rates}, sys.stdout)


if __name__ == "__main__":
    main()
