"""Runs the pairs of `programs.py` on two GPUs or more: what `validation/job_pairs.py` reads.

    python validation/jobs/record.py --out results/jobs/h100-x2 [--ranks N] [--only NAME,…]

Regions of both variants run by turns, nothing recorded, and among them some of `before` that are recorded: in one set of
processes by PyTorch's profiler, of whose recordings the one of median length is kept, and in a set for each pair by `busfare
record`. So what is predicted stands beside what the same processes took at the same time: how fast a host stages copies
differs by a third from process to process, and by a tenth from one minute to the next. Pairs over MPI are recorded by
`busfare record` alone. Writes OUT/times.json.gz and OUT/NAME/rank*.json.gz or OUT/NAME.bf. Exit status 1 where something
failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pairs_of_jobs import PAIRS, Pair
from programs import MAKERS
from torch.profiler import ProfilerActivity, profile, schedule
from training import AFTER, BEFORE, Step, world

from busfare.measure.record import environment
from busfare.questions import Record

Span = tuple[float, float]
HERE = Path(__file__).resolve()
#: Turns in all, those before anything counts, and those behind which a region is recorded, by mode.
TURNS, WARM = 12, 3
RECORDED_BEHIND = {"profiler": (4, 7, 10), "recorder": (7,)}


def meet(over: str) -> None:
    if over == "mpi":
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
    else:
        dist.barrier()
    torch.cuda.synchronize()


def region(pair: Pair, step: Step) -> Span:
    """When it began and ended; all ranks of a host have one clock."""
    meet(pair.over)
    begin = time.perf_counter()
    for _ in range(pair.steps):
        step()
    torch.cuda.synchronize()
    return begin, time.perf_counter()


def measured(
    pair: Pair, steps: dict[str, Step], mode: str, folder: Path, rank: int
) -> tuple[dict[str, list[Span]], list[Span]]:
    """The regions of each variant that nothing recorded, and those of `before` that `mode` recorded."""
    bare: dict[str, list[Span]] = {variant: [] for variant in steps}
    recorded = []
    for iteration in range(TURNS):
        for variant in steps if iteration % 2 else reversed(steps):
            span = region(pair, steps[variant])
            if iteration >= WARM:
                bare[variant].append(span)
        if iteration in RECORDED_BEHIND[mode]:
            file = folder / str(len(recorded)) / f"rank{rank}.json.gz"
            recorded.append(
                profiled(pair, steps[BEFORE], file) if mode == "profiler" else captured(pair, steps[BEFORE])
            )
    return bare, recorded


def profiled(pair: Pair, step: Step, file: Path) -> Span:
    """A region recorded by PyTorch's profiler, from its start on."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as seen:
        region(pair, step)
        meet(pair.over)
        seen.step()
        span = region(pair, step)
    file.parent.mkdir(parents=True, exist_ok=True)
    seen.export_chrome_trace(str(file))
    return span


def captured(pair: Pair, step: Step) -> Span:
    """A region recorded by `busfare record`, whose recorder is in this process."""
    meet(pair.over)
    torch.cuda.profiler.start()
    span = region(pair, step)
    torch.cuda.profiler.stop()
    return span


def work(rank: int, chosen: list[str], out: Path, mode: str) -> None:
    """One rank: every pair timed, then recorded as `mode` says."""
    torch.cuda.set_device(rank)
    torch.backends.cuda.matmul.allow_tf32 = True
    if any(PAIRS[name].over == "nccl" for name in chosen):
        dist.init_process_group("nccl", rank=rank, world_size=world(), device_id=torch.device("cuda", rank))
    times: dict[str, Any] = {}
    recorded: dict[str, Any] = {}
    for name in chosen:
        pair = PAIRS[name]
        steps = {variant: MAKERS[name](rank, variant) for variant in (BEFORE, AFTER)}
        times[name], recorded[name] = measured(pair, steps, mode, out / name, rank)
        if rank == 0:
            least = (
                f"{variant} {1e3 * min(end - begin for begin, end in spans):.2f} ms"
                for variant, spans in times[name].items()
            )
            print(mode, name, *least, flush=True)
    result = {"mode": mode, "rank": rank, "times": times, "recorded": recorded}
    (out / f"{mode}-{chosen[0]}-{rank}.json").write_text(json.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()


def ranks(count: int, chosen: list[str], out: Path, mode: str, timeout_s: float) -> bool:
    """Starts `count` ranks on `chosen`, by MPI's launcher or by hand, and waits for them."""
    argv = [sys.executable, str(HERE), "--out", str(out), "--only", ",".join(chosen), "--mode", mode]
    variables = dict(os.environ) | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        "NCCL_NVLS_ENABLE": "0",
        "TEARDOWN_CUPTI": "1",  # between recordings the profiler then costs nothing
    }
    if mode == "recorder":
        files = out / f"{chosen[0]}.bf"
        files.mkdir(parents=True, exist_ok=True)
        title = ["jobs/record.py", *chosen]
        variables |= environment(str(files / "%h-r%r-%p.bf"), Record(capture="profiler-calls"), title)
    if chosen == ["halo"]:
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(count)]
        started = [subprocess.Popen([*launcher, *argv], env=variables)]
    else:
        started = [
            subprocess.Popen(
                argv, env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            )
            for rank in range(count)
        ]
    return ended_well(started, timeout_s, ",".join(chosen))


def ended_well(started: Sequence[subprocess.Popen[Any]], timeout_s: float, what: str) -> bool:
    """Whether all of them end with status 0 in this time; none is left."""
    end = time.monotonic() + timeout_s
    try:
        statuses = [process.wait(max(end - time.monotonic(), 1)) for process in started]
        return not any(statuses)
    except subprocess.TimeoutExpired:
        print(f"{what}: longer than {timeout_s:g} s", flush=True)
        return False
    finally:
        for process in started:
            process.kill()
            process.wait()


def keep_median(folder: Path, recorded: list[dict[str, list[tuple[float, float]]]]) -> None:
    """Of a pair's recordings the one of median length, in `folder` itself; the spans of the others go, too."""
    ranks = [spans[folder.name] for spans in recorded]
    lengths = [max(end for _, end in spans) - min(b for b, _ in spans) for spans in zip(*ranks, strict=True)]
    kept = sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]
    for number in range(len(lengths)):
        for file in (folder / str(number)).iterdir():
            if number == kept:
                file.rename(folder / file.name)
            else:
                file.unlink()
        (folder / str(number)).rmdir()
    for spans in ranks:
        spans[:] = [spans[kept]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--ranks", type=int, default=2, help="how many, a GPU each")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these pairs")
    parser.add_argument("--modes", default="profiler,recorder", metavar="NAME,…", help="these recorders")
    parser.add_argument("--mode", help="(of the processes that this program starts)")
    parser.add_argument("--timeout", type=float, default=150, help="seconds for a group of pairs")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PAIRS)
    if options.mode is not None:
        try:
            work(
                int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]),
                names,
                options.out,
                options.mode,
            )
        except Exception:
            traceback.print_exc()
            os._exit(1)  # the others wait in a collective
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    of_nccl = [name for name in names if PAIRS[name].over == "nccl"]
    groups = [(of_nccl, "profiler")] if of_nccl else []
    groups += [([name], "recorder") for name in names]
    groups = [(chosen, mode) for chosen, mode in groups if mode in options.modes.split(",")]
    went = [ranks(options.ranks, chosen, options.out, mode, options.timeout) for chosen, mode in groups]
    files = sorted(options.out.glob("*-*.json"))
    records = [json.loads(file.read_text()) for file in files]
    for name in {name for record in records if record["mode"] == "profiler" for name in record["recorded"]}:
        keep_median(options.out / name, [r["recorded"] for r in records if r["mode"] == "profiler"])
    write_times(options.out, records)
    for file in files:
        file.unlink()
    return 0 if all(went) else 1


def write_times(out: Path, records: list[dict[str, Any]]) -> None:
    """What the processes measured, and where."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.split("\n")[0]
    times: dict[str, Any] = {
        "gpu": torch.cuda.get_device_properties(0).name, "driver": driver,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__,
        "processes": records,
    }  # fmt: skip
    with gzip.open(out / "times.json.gz", "wt") as packed:
        json.dump(times, packed)


if __name__ == "__main__":
    sys.exit(main())
