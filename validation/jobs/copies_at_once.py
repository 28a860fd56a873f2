"""How fast each GPU's pinned copies are while 1, 2, … of them copy at once: what `validation/four_gpus.py` reads.

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

BYTES, COPIES, REGIONS = 1 << 28, 20, 5
WAYS = (("h2d",), ("d2h",), ("h2d", "d2h"))


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
    gpus = 1
    while gpus <= count:
        for ways in WAYS:
            seen = []
            for _ in range(REGIONS + 1):
                torch.cuda.synchronize()
                barrier.wait()
                if rank < gpus:
                    seen.append(region(ways, held, on_gpu))
                barrier.wait()
            for way in ways if rank < gpus else ():
                rate = median(one[way] for one in seen[1:])
                results.put((f"{'+'.join(ways)} {gpus}", rank, way, rate))
        gpus *= 2


def main() -> None:
    count = torch.cuda.device_count()
    context = mp.get_context("spawn")
    barrier, results = context.Barrier(count), context.SimpleQueue()
    ranks = [context.Process(target=work, args=(rank, count, barrier, results)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    found: dict[str, dict[str, list[float]]] = {}
    while not results.empty():
        case, _, way, rate = results.get()
        found.setdefault(case, {}).setdefault(way, []).append(rate)
    json.dump({"gpu": torch.cuda.get_device_name(0), "bytes": BYTES, "bytes_per_s": found}, sys.stdout)


if __name__ == "__main__":
    main()
