"""Runs fixed pieces of the host's work beside Python programs: `PYTHONPATH=src python validation/pieces/measure.py OUT`.

On a machine with a GPU, PyTorch, CuPy, and the C++ programs of validation/pairs in build/pairs. All programs get ready
together; then for half a minute a region of each is measured by turns, on the processor that is quickest just then, with
all pieces just before and after it there. Writes OUT: `validation/host_pieces.py` reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAIRS = ROOT / "validation" / "pairs"
sys.path[:0] = [str(PAIRS), str(ROOT / "src")]

from process import Run, RunError  # noqa: E402
from table import Program, read_plan  # noqa: E402
from work import seconds_of_all  # noqa: E402

from busfare.measure.processors import Processors  # noqa: E402

SECONDS, READY_SECONDS, REGION_SECONDS, PATIENCE_SECONDS = 35.0, 24.0, 5.0, 0.1
PYTHON = ("generate_letters", "recommend", "kmeans", "power_iteration", "matched_filter", "embed_texts")
NATIVE = ("jacobi", "conjugate_gradient", "graph_ranks")


def runs() -> list[Run]:
    plan, wait = read_plan().programs, ["--wait", "--variant", "before"]
    found = [
        Run(Program(f"{library}_host", "", ()), "", [sys.executable, str(HERE / "host_loops.py"), library])
        for library in ("torch", "cupy")
    ]
    commands = {name: [sys.executable, str(PAIRS / f"{name}.py")] for name in PYTHON}
    commands |= {name: [str(ROOT / "build" / "pairs" / name)] for name in NATIVE}
    found += [Run(plan[name], "before", [*command, *wait]) for name, command in commands.items()]
    return found


def pieces_at(processor: int, processors: Processors) -> dict[str, float]:
    os.sched_setaffinity(0, {processor})
    try:
        return {name: float(f"{seconds:.4g}") for name, seconds in seconds_of_all().items()}
    finally:
        processors.all_again()


def region(run: Run, processors: Processors) -> dict[str, Any]:
    assert run.process is not None
    place = processors.place(1, PATIENCE_SECONDS)
    place.taken_by(run.process.pid)
    run._region("warm", REGION_SECONDS)
    before = pieces_at(place.own, processors)
    processors._away_from(place)
    seconds = run._region("measure", REGION_SECONDS)
    after = pieces_at(place.own, processors)
    return {"program": run.program.name, "seconds": seconds, "before": before, "after": after}


def main() -> int:
    began = time.monotonic()
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    listed = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = ("Model name", "CPU family", "Model", "L2 cache", "L3 cache")
    found: dict[str, Any] = {
        "gpu": gpu,
        "cpu": ", ".join(" ".join(line.split()) for line in listed if line.split(":")[0].strip() in wanted),
        "date": time.strftime("%FT%TZ", time.gmtime()),
        "regions": [],
        "failures": [],
    }
    programs = runs()

    def tried(run: Run, step: Any) -> None:
        if run.failed:
            return
        try:
            step()
        except (RunError, OSError, ValueError) as error:
            run.failed = True
            found["failures"].append(f"{run.program.name}: {error}")

    with tempfile.TemporaryDirectory() as scratch:
        for run in programs:
            run.start(Path(), Path(scratch))
        for run in programs:
            tried(run, lambda run=run: run.wait_until_ready(began + READY_SECONDS))
        processors = Processors()
        turn = 0
        while time.monotonic() < began + SECONDS and not all(run.failed for run in programs):
            for run in programs if turn % 2 == 0 else programs[::-1]:
                if time.monotonic() < began + SECONDS:
                    tried(run, lambda run=run: found["regions"].append(region(run, processors)))
            turn += 1
        for run in programs:
            run.stop()
    Path(sys.argv[1]).write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
