"""`report` on a Kineto trace against Holistic Trace Analysis loading the same file, in turn, on the same machine.

    python -m benchmarks.kineto_report [TRACE] [--runs N] [--json FILE]

The trace is by default the 55 MB one of the published set (BUSFARE_SHARED, or ../shared), otherwise the largest
example. Holistic Trace Analysis runs in a virtual environment of its own, out/rivals, made at the first run.

Two ratios: the work alone (each inside its own warm process: read and report, against parse and decode), and the
whole command from start to exit, interpreter and imports included.
"""

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
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
RIVALS = ROOT / "out" / "rivals"
RIVAL = "HolisticTraceAnalysis==0.5.0"

OURS = """
import sys, time
from busfare.report.summary import summarise
from busfare.trace import read
for _ in range(int(sys.argv[2]) + 1):
    begun = time.perf_counter()
    result = summarise(read(sys.argv[1]))
    print(time.perf_counter() - begun, result.transfers.count, result.kernels.count)
"""
THEIRS = """
import logging, sys, time
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
for _ in range(int(sys.argv[2]) + 1):
    begun = time.perf_counter()
    trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
    trace.parse_traces(use_multiprocessing=False)
    trace.decode_symbol_ids()
    print(time.perf_counter() - begun, len(trace.get_trace(0)), 0)
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="?", type=Path, default=_default_trace())
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the raw times here")
    options = parser.parse_args(arguments)
    rival = _rival_python()

    ours, theirs = [], []
    whole_ours, whole_theirs = [], []
    for _ in range(3):  # in turn, so that a busy moment of the machine does not hit one side only
        ours += _inside(sys.executable, OURS, options.trace, options.runs)
        theirs += _inside(str(rival), THEIRS, options.trace, max(2, options.runs // 3))
        whole_ours.append(_whole([sys.executable, "-m", "busfare", "report", str(options.trace), "--json"]))
        whole_theirs.append(_whole([str(rival), "-c", THEIRS, str(options.trace), "0"]))
    print(
        f"{options.trace.name}, {options.trace.stat().st_size / 1e6:.1f} MB compressed; median (fastest – slowest) seconds"
    )
    print(f"{'':28}{'busfare report':>26}{'HTA 0.5.0 loads':>26}{'ratio':>8}")
    for what, a, b in (("the work alone", ours, theirs), ("the whole command", whole_ours, whole_theirs)):
        print(f"{what:28}{_spread(a):>26}{_spread(b):>26}{statistics.median(b) / statistics.median(a):7.1f}×")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps(
                {
                    "command": f"python -m benchmarks.kineto_report --runs {options.runs}",
                    "date": datetime.now(UTC).date().isoformat(),
                    "machine": {
                        "processor": _processor(),
                        "cores": os.cpu_count(),
                        "python": platform.python_version(),
                    },
                    "trace": options.trace.name,
                    "rival": RIVAL,
                    "work_seconds": {"busfare": ours, "rival": theirs},
                    "command_seconds": {"busfare": whole_ours, "rival": whole_theirs},
                },
                indent=1,
            )
            + "\n"
        )
    return 0


def _default_trace() -> Path:
    shared = Path(os.environ.get("BUSFARE_SHARED", ROOT.parent / "shared"))
    published = sorted(
        (shared / "data" / "traces" / "kineto" / "tracelens-h100").glob("google_owlv2*.json.gz")
    )
    return published[0] if published else ROOT / "src" / "busfare" / "examples" / "generate-text-h100.json.gz"


def _rival_python() -> Path:
    python = RIVALS / "bin" / "python"
    if not python.exists():
        print(f"installing {RIVAL} into {RIVALS.relative_to(ROOT)}", file=sys.stderr)
        venv.create(RIVALS, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", RIVAL], check=True)
    return python


def _inside(python: str, code: str, trace: Path, runs: int) -> list[float]:
    """Seconds of each run after the first, which warms up."""
    done = subprocess.run(
        [python, "-c", code, str(trace), str(runs)], capture_output=True, text=True, check=True
    )
    return [float(line.split()[0]) for line in done.stdout.splitlines()][1:]


def _whole(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f} ({min(seconds):.3f} – {max(seconds):.3f})"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
