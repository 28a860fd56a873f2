"""Runs data-parallel jobs on two GPUs and on all of one host, by turns: what `validation/four_gpus.py` reads.

    python validation/jobs/two_beside_all.py --out FOLDER [--ranks N] [--only NAME,…]

Both sets of processes are there at once and take turns, one region each, so what the host gives to one it gives to the
other. `busfare record` records one region of each set. Writes OUT/times.json.gz and OUT/NAME-RANKS.bf. Exit status 1 where
something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from pairs_of_jobs import PAIRS
from programs import MAKERS
from record import captured, ended_well, meet, region, write_times
from training import BEFORE

from busfare.measure.record import environment
from busfare.questions import Record

HERE = Path(__file__).resolve()
#: Turns in all, those before anything counts, and the one behind which a region is recorded.
TURNS, WARM, RECORDED_BEHIND = 13, 3, 6
LONGEST_REGION = timedelta(seconds=60)


def work(rank: int, name: str, out: Path, store_port: int, sets: list[int]) -> None:
    """One rank of a set: its regions, each when it is the set's turn."""
    torch.cuda.set_device(rank)
    torch.backends.cuda.matmul.allow_tf32 = True
    size = int(os.environ["WORLD_SIZE"])
    turns = dist.TCPStore("127.0.0.1", store_port, is_master=False, timeout=LONGEST_REGION)
    dist.init_process_group("nccl", rank=rank, world_size=size, device_id=torch.device("cuda", rank))
    pair, step = PAIRS[name], MAKERS[name](rank, BEFORE)
    next_size = sets[(sets.index(size) + 1) % len(sets)]
    meet(pair.over)
    bare, recorded = [], []
    for iteration in range(TURNS):
        turns.wait([f"{size} {iteration}"])
        span = region(pair, step)
        if iteration >= WARM:
            bare.append(span)
        if iteration == RECORDED_BEHIND:
            recorded.append(captured(pair, step))
        meet(pair.over)
        if rank == 0:
            turns.set(f"{next_size} {iteration if size == sets[0] else iteration + 1}", "")
    result = {"ranks": size, "rank": rank, "times": {name: {BEFORE: bare}}, "recorded": {name: recorded}}
    (out / f"{name}-{size}-{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def two_and_all(name: str, sets: list[int], out: Path, timeout_s: float) -> bool:
    """Starts a set of two ranks and one of all, and waits for them."""
    turns = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    turns.set(f"{sets[0]} 0", "")
    started = []
    for size in sets:
        files = out / f"{name}-{size}.bf"
        files.mkdir(parents=True, exist_ok=True)
        variables = dict(os.environ) | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(20000 + (os.getpid() + size) % 20000),
            "NCCL_NVLS_ENABLE": "0",
            "WORLD_SIZE": str(size),
        }
        variables |= environment(
            str(files / "%h-r%r-%p.bf"), Record(capture="profiler-calls"), ["jobs", name]
        )
        argv = [sys.executable, str(HERE), "--out", str(out), "--only", name, "--store", str(turns.port)]
        started += [
            subprocess.Popen(
                [*argv, "--ranks", str(sets[1])], env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            )
            for rank in range(size)
        ]
    return ended_well(started, timeout_s, name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--ranks", type=int, default=4, help="how many GPUs there are")
    parser.add_argument("--only", required=True, metavar="NAME,…", help="these jobs")
    parser.add_argument("--store", type=int, help="(of the processes that this program starts)")
    parser.add_argument("--timeout", type=float, default=90, help="seconds for a job")
    options = parser.parse_args()
    names, sets = options.only.split(","), [2, options.ranks]
    if options.store is not None:
        try:
            work(int(os.environ["RANK"]), names[0], options.out, options.store, sets)
        except Exception:
            traceback.print_exc()
            os._exit(1)  # the others wait in a collective
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    went = []
    for name in names:
        began = time.monotonic()
        went.append(two_and_all(name, sets, options.out, options.timeout))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    files = sorted(options.out.glob("*-*-*.json"))
    write_times(options.out, [json.loads(file.read_text()) for file in files])
    for file in files:
        file.unlink()
    return 0 if all(went) else 1


if __name__ == "__main__":
    sys.exit(main())
