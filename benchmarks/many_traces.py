"""Many traces on a local Dask cluster: two workers over one, the reducer's memory, and workers killed in the middle.

    python -m benchmarks.many_traces [--traces N] [--runs N] [--kills N] [--json FILE]

The job is generated (benchmarks/generated_job.py): three of four traces hold the events of a real example trace. Each
worker is one process of one thread, held to a core of its own as Slurm holds a job of one core: reading PyTorch traces
takes a second thread for decompression, and one worker on two cores would borrow half of the other's. The runs with one
and two workers take turns, and the ratio is taken within each turn; the machine's load before each run is kept beside
it. Beside the ratio of wall times stands that of processor times, one worker's over the busier of two's: what a machine
with nothing else to do would come near. Starting the workers and their first imports are left out.

Goals: two workers at least 1.8 × as fast as one; the same memory at 100 and 1,000 traces; the same result, byte for
byte, whenever a worker is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.generated_job import write_job
from benchmarks.runs import options_of, write
from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.jobs.parts import find_parts, shown
from busfare.jobs.reduce import Job
from busfare.jobs.run import Progress, decoded, do_part, run_job
from busfare.questions import Report

GOAL = 1.8
WARM_UP = 24
MEMORY_AT = (100, 1_000, 10_000, 100_000)


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 3)
    parser.add_argument("--traces", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "job"
        folder.mkdir()
        planted = write_job(folder, options.traces)
        size = sum(file.stat().st_size for file in folder.rglob("*.gz"))
        print(f"{options.traces:,} traces, {size / 1e6:.0f} MB, and {len(planted.damaged)} damaged files")

        expected = _result(run_job([folder], None, Report(jobs=2), _Quiet(), advised))
        summary = json.loads(expected)
        assert summary["slowest"]["rank"] == planted.slow_rank, summary["slowest"]
        assert {link["rank"] for link in summary["link_health"]["slow"]} == {planted.half_rate_rank}
        assert summary["traces"]["failed"] == len(planted.damaged)
        print("the slow rank, the link at half its rate and the damaged files are found")

        turns = [_compared(folder, expected) for _ in range(options.runs)]
        _show(turns)
        memory = _memory(folder)
        kills = _kills(folder, expected, options.kills)
    raw = {"traces": options.traces, "bytes": size, "turns": turns, "memory": memory, "kills": kills}
    write(options, "many_traces", raw)
    return 0


class _Quiet(Progress):
    """Progress that calls `at` with the number of files done."""

    def __init__(self, at: Any = None) -> None:
        self._at = at

    def parts(self, done: int, whole: int, failed: int) -> None:
        if self._at:
            self._at(done)


def _result(job: Job) -> bytes:
    return msgspec.json.encode(job_report(job))


@contextmanager
def _cluster(workers: int, folder: Path) -> Iterator[Any]:
    """A cluster of warm workers, each held to a core of its own."""
    import dask
    from distributed import Client, LocalCluster

    settings = {"distributed.nanny.environ.POLARS_MAX_THREADS": "1", "distributed.admin.tick.limit": "1h"}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
    ):
        with Client(cluster, set_as_default=False) as client:
            for core, address in enumerate(sorted(client.scheduler_info()["workers"])):
                client.run(_hold_to, core % (os.cpu_count() or 1), workers=[address])
        first = sorted(folder.rglob("rank*.json.gz"))[:WARM_UP]
        run_job(first, None, Report(scheduler=cluster.scheduler_address), _Quiet(), advised)
        yield cluster


def _hold_to(core: int) -> None:
    os.sched_setaffinity(0, {core})


def _compared(folder: Path, expected: bytes) -> dict[str, Any]:
    """Seconds of the whole job by one worker and by two, one after the other."""
    comparison: dict[str, Any] = {}
    for workers in (1, 2):
        with _cluster(workers, folder) as cluster:
            load, before = os.getloadavg()[0], _processor_seconds(cluster)
            begun = time.perf_counter()
            job = run_job([folder], None, Report(scheduler=cluster.scheduler_address), _Quiet(), advised)
            seconds = time.perf_counter() - begun
            spent = [after - first for first, after in zip(before, _processor_seconds(cluster), strict=True)]
            assert _result(job) == expected
            comparison[str(workers)] = {
                "seconds": seconds,
                "load_before": load,
                "workers_processor_seconds": spent,
            }
    single, double = comparison["1"], comparison["2"]
    comparison["ratio"] = single["seconds"] / double["seconds"]
    # What a machine with nothing else to do would show, if workers never waited for the scheduler.
    comparison["processor_ratio"] = single["workers_processor_seconds"][0] / max(
        double["workers_processor_seconds"]
    )
    return comparison


def _processor_seconds(cluster: Any) -> list[float]:
    """What each worker has used of its core, in the order of their addresses."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        spent = client.run(time.process_time)
    return [spent[address] for address in sorted(spent)]


def _show(turns: list[dict[str, Any]]) -> None:
    print(
        f"\n{'':12}{'one worker':>14}{'two workers':>14}{'ratio':>9}{'by processor':>15}{'load before':>16}"
    )
    for number, comparison in enumerate(turns, 1):
        single, double = comparison["1"], comparison["2"]
        loads = f"{single['load_before']:.1f}, {double['load_before']:.1f}"
        print(
            f"turn {number:<7}{single['seconds']:12.1f} s{double['seconds']:12.1f} s{comparison['ratio']:8.2f}×"
            f"{comparison['processor_ratio']:14.2f}×{loads:>16}"
        )
    for name, what in (("ratio", "wall"), ("processor_ratio", "processor")):
        ratios = [comparison[name] for comparison in turns]
        print(
            f"median ratio by {what} time {statistics.median(ratios):.2f}× ({min(ratios):.2f} – {max(ratios):.2f}), "
            f"goal {GOAL:.1f}×"
        )


def _memory(folder: Path) -> list[dict[str, Any]]:
    """What the reducer holds after so many traces, and the peak of a whole process that reads and reduces them.

    Beyond the traces that there are, their partials come again under other ranks and hosts.
    """
    done = [(shown(part.path), decoded(do_part(part, None, advised))) for part in find_parts([folder]).parts]
    real = [(path, outcome.partial) for path, outcome in done if outcome.partial]
    rows = []
    print(f"\n{'traces':>10}{'reducer holds':>16}{'peak of the process':>22}")
    for count in MEMORY_AT:
        tracemalloc.start()
        job = Job()
        for number in range(count):
            path, partial = real[number % len(real)]
            placed = msgspec.structs.replace(partial, rank=number, host=f"node{number // 8:06}")
            job.add(f"{path}-{number}", placed)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        peak = _peak(folder, count) if count <= len(real) else None
        rows.append({"traces": count, "reducer_bytes": held, "peak_process_bytes": peak})
        print(f"{count:10,}{held / 1e6:13.2f} MB" + ("" if peak is None else f"{peak / 1e6:19.0f} MB"))
    return rows


PEAK = """
import resource, sys
from pathlib import Path
from busfare.advise.jobs import advised
from busfare.questions import Report
from busfare.jobs.run import run_job
from benchmarks.many_traces import _Quiet
paths = sorted(Path(sys.argv[1]).rglob("rank*.json.gz"))[: int(sys.argv[2])]
run_job(paths, None, Report(jobs=1), _Quiet(), advised)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def _peak(folder: Path, count: int) -> int:
    command = [sys.executable, "-c", PEAK, str(folder), str(count)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _kills(folder: Path, expected: bytes, times: int) -> list[dict[str, Any]]:
    """Whether the result is the same when a worker is killed somewhere on the way."""
    from distributed import Client

    chance = random.Random(1)
    rows = []
    print()
    for _ in range(times):
        with _cluster(2, folder) as cluster:
            with Client(cluster, set_as_default=False) as client:
                victim = chance.choice(sorted(client.run(os.getpid).values()))
            at = chance.randint(1, len(find_parts([folder]).parts) * 9 // 10)

            def kill(done: int, at: int = at, victim: int = victim) -> None:
                if done == at:
                    os.kill(victim, signal.SIGKILL)

            result = _result(
                run_job([folder], None, Report(scheduler=cluster.scheduler_address), _Quiet(kill), advised)
            )
        rows.append({"killed_after": at, "same": result == expected, "sha256": sha256(result).hexdigest()})
        print(
            f"a worker killed after {at:,} files: {'the same result' if rows[-1]['same'] else 'ANOTHER RESULT'}"
        )
    print(f"{sum(row['same'] for row in rows)} of {len(rows)} the same")
    return rows


if __name__ == "__main__":
    sys.exit(main())
