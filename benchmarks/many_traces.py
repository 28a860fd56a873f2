"""Many traces: what is planted in them is found, the reducer's memory, and workers killed in the middle.

    python -m benchmarks.many_traces [--traces N] [--kills N] [--json FILE]

The job is generated (benchmarks/generated_job.py): three of four traces hold the events of a real example trace. Goals: the
same memory at 100 and 1,000 traces; the same result, byte for byte, whenever a worker is killed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import tracemalloc
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
from busfare.jobs.run import Outcome, Progress, do_part, run_job
from busfare.questions import Report

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

        memory = _memory(folder)
        kills = _kills(folder, expected, options.kills)
    raw = {"traces": options.traces, "bytes": size, "memory": memory, "kills": kills}
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


def _memory(folder: Path) -> list[dict[str, Any]]:
    """What the reducer holds after so many traces, and the peak of a whole process that reads and reduces them.

    Beyond the traces that there are, their partials come again under other ranks and hosts.
    """
    parts = find_parts([folder]).parts
    done = [
        (shown(part.path), msgspec.json.decode(do_part(part, None, advised), type=Outcome)) for part in parts
    ]
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
    chance = random.Random(1)
    rows = []
    print()
    for _ in range(times):
        at = chance.randint(1, len(find_parts([folder]).parts) * 9 // 10)

        def kill(done: int, at: int = at) -> None:
            if done == at:
                os.kill(chance.choice(multiprocessing.active_children()).pid or 0, signal.SIGKILL)

        result = _result(run_job([folder], None, Report(jobs=2), _Quiet(kill), advised))
        rows.append({"killed_after": at, "same": result == expected, "sha256": sha256(result).hexdigest()})
        print(
            f"a worker killed after {at:,} files: {'the same result' if rows[-1]['same'] else 'ANOTHER RESULT'}"
        )
    print(f"{sum(row['same'] for row in rows)} of {len(rows)} the same")
    return rows


if __name__ == "__main__":
    sys.exit(main())
