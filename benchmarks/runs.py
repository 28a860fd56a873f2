"""What the benchmarks share: their options, rivals in an environment of their own, and the raw times written out."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
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


def write(file: Path, benchmark: str, raw: dict[str, object]) -> None:
    """`raw` as JSON, behind the command, its date and the machine. `benchmark`: its name and arguments."""
    machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    head = {"command": f"python -m benchmarks.{benchmark}", "date": datetime.now(UTC).date().isoformat()}
    file.parent.mkdir(parents=True, exist_ok=True)
    record = head | {"machine": machine, "load_average": os.getloadavg()} | raw
    file.write_text(json.dumps(record, indent=1) + "\n")


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
