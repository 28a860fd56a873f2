"""What the benchmarks share: their options, rivals in an environment of their own, and the raw times written out."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out"


def options_of(description: str | None, runs: int) -> argparse.ArgumentParser:
    """`--runs` and `--json`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--json", type=Path, help="write the raw times here")
    return parser


def timed(work: Callable[[], object], runs: int) -> list[tuple[float, float]]:
    """Wall and processor seconds of each run after one that warms up."""
    times = []
    for _ in range(runs + 1):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    return times[1:]


def write(options: argparse.Namespace, benchmark: str, raw: dict[str, object]) -> None:
    """`raw` as JSON where it is asked for, behind the command, its date and the machine."""
    if options.json is None:
        return
    given = {
        name: value for name, value in vars(options).items() if not isinstance(value, (Path, type(None)))
    }
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in given.items()
        if value is not False
    ]
    machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    record = {
        "command": " ".join([f"python -m benchmarks.{benchmark}", *flags]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine,
        "load_average": os.getloadavg(),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record | raw, indent=1) + "\n")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def spread(seconds: list[float], digits: int = 3) -> str:
    """'0.123 (0.119 – 0.140)': median, least and most."""
    median, least, most = (f"{f(seconds):.{digits}f}" for f in (statistics.median, min, max))
    return f"{median} ({least} – {most})"


def rival_python(environment: str, *packages: str) -> Path:
    """Python of out/ENVIRONMENT, which has `packages`; they are installed the first time."""
    python = OUT / environment / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(packages)} into out/{environment}", file=sys.stderr)
        venv.create(OUT / environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def lines_of(python: str | Path, code: str, *arguments: object) -> list[list[float]]:
    """The numbers that `code` prints, line by line."""
    command = [str(python), "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [[float(value) for value in line.split()] for line in done.stdout.splitlines()]


def large_trace() -> Path:
    """A published Kineto trace of 132,152 events; an example where that is not there."""
    shared = Path(os.environ.get("BUSFARE_SHARED", ROOT.parent / "shared"))
    published = sorted((shared / "data/traces/kineto/tracelens-h100").glob("google_owlv2*.json.gz"))
    return published[0] if published else ROOT / "src/busfare/examples/generate-text-h100.json.gz"
