"""A job of many ranks with many operations each: `report` and `what-if`, their time and memory, on all cores.

    python -m benchmarks.large_job [--ranks N] [--operations N] [--json FILE]

The ranks are simulated: each is one of the two real ranks of a data-parallel job (small-buckets, recorded on two H200s:
results/jobs-h200-x2.tar.xz), repeated until it has so many operations, its collectives up to a microsecond longer at random,
with a rank and a host of its own. Goals: 1,000 ranks are reported in less than 5 minutes and 4 GB on two cores.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.runs import ROOT, options_of, write

sys.path.append(str(ROOT / "validation"))

from stored import unpacked

GOAL_S, GOAL_BYTES = 300.0, 4e9
JOB, GPUS_PER_HOST, BODIES = "small-buckets", 8, 4
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 1)
    parser.add_argument("--ranks", type=int, default=1_000)
    parser.add_argument("--operations", type=int, default=100_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        rank = write_job(Path(scratch), options.ranks, options.operations)
        print(
            f"{options.ranks:,} simulated ranks of {rank['operations']:,} operations, {rank['events']:,} events each"
        )
        rows = [
            {"command": name, **measured(["busfare", *command.split(), scratch, "--json"])}
            for name, command in (
                ("report", "report"),
                ("what-if", "what-if --no-stragglers --from h200-sxm"),
            )
        ]
    for row in rows:
        print(
            f"{row['command']:8}  {row['seconds']:6.0f} s  {row['peak_bytes'] / 1e9:5.2f} GB in all processes"
        )
    reported = rows[0]
    met = reported["seconds"] < GOAL_S and reported["peak_bytes"] < GOAL_BYTES
    print(f"report: goal < {GOAL_S:.0f} s, < {GOAL_BYTES / 1e9:.0f} GB: {'met' if met else 'MISSED'}")
    write(options, "large_job", {"of_each_rank": rank, "commands": rows})
    return 0


def write_job(folder: Path, ranks: int, operations: int) -> dict[str, int]:
    """Writes a trace a rank below `folder`; returns what each holds."""
    chance = random.Random(1)
    folder_of_real = unpacked("jobs-h200-x2") / JOB
    real = [json.loads((folder_of_real / f"rank{rank}.json").read_bytes()) for rank in (0, 1)]
    events = [trace.pop("traceEvents") for trace in real]
    begin = min(event["ts"] for recorded in events for event in recorded)
    span = max(event["ts"] + event["dur"] for recorded in events for event in recorded) - begin + 100
    times = -(-operations // sum(event["cat"] in WORK for event in events[0]))
    named = str(list(range(ranks))) if ranks <= 30 else f"[0, 1, 2, 3, 4, 5, 6, 7, ..., {ranks - 1}]"
    bodies = []
    for body in range(BODIES):
        recorded = events[body % 2]
        most = max(event["args"].get("correlation", 0) for event in recorded) + 1
        again = (
            repeated(
                event, repetition, span, most, {"Group size": ranks, "Process Group Ranks": named}, chance
            )
            for repetition in range(times)
            for event in recorded
        )
        bodies.append(gzip.compress(("," + ",".join(map(json.dumps, again)) + "]}").encode(), 1, mtime=0))
    for rank in range(ranks):
        host = f"node{rank // GPUS_PER_HOST:04}"
        header = real[0] | {
            "hostname": host, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        }  # fmt: skip
        head = json.dumps(header)[:-1] + ', "traceEvents": [{"ph": "M", "name": "process_name", "args": {}}'
        path = folder / host / f"rank{rank}.pt.trace.json.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(head.encode(), 1, mtime=0) + bodies[rank % BODIES])
    some = events[0] * times
    return {"operations": sum(event["cat"] in WORK for event in some), "events": len(some)}


def repeated(
    event: dict[str, Any],
    repetition: int,
    span: float,
    most: int,
    group: dict[str, Any],
    chance: random.Random,
) -> dict[str, Any]:
    arguments = dict(event["args"])
    if "correlation" in arguments:
        arguments["correlation"] += repetition * most
    start, length = event["ts"] + repetition * span, event["dur"]
    if "Collective name" in arguments:
        arguments |= group
        early = chance.random()
        start, length = start - early, length + early
    return event | {"ts": round(start, 3), "dur": round(length, 3), "args": arguments}


def measured(command: list[str]) -> dict[str, Any]:
    """Seconds of a command, and the most that it and the processes that it started held at once."""
    begun, peak = time.perf_counter(), 0
    script = Path(sys.executable).parent / command[0]
    with subprocess.Popen([str(script), *command[1:]], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, held(process.pid))
            time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return {"seconds": time.perf_counter() - begun, "peak_bytes": peak}


def held(root: int) -> int:
    """Bytes of memory of a process and all below it; pages that they share count in each."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            sizes[int(folder.name)] = int((folder / "statm").read_text().split()[1]) * 4096
        except (OSError, IndexError):
            continue
    below = {root}
    for process in sorted(parents):
        if parents[process] in below:
            below.add(process)
    return sum(sizes.get(process, 0) for process in below)


if __name__ == "__main__":
    sys.exit(main())
