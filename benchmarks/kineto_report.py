"""`report` on a Kineto trace against Holistic Trace Analysis loading the same file, in turn, on the same machine.

    python -m benchmarks.kineto_report [TRACE] [--runs N] [--json FILE]

The trace is by default the 55 MB one of the published set (BUSFARE_SHARED, or ../shared), otherwise the largest
example. Holistic Trace Analysis runs in a virtual environment of its own, out/rivals, made at the first run.

Two ratios: the work alone (each inside its own warm process: read and report, against parse and decode), and the
whole command from start to exit, interpreter and imports included.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.runs import large_trace, lines_of, options_of, rival_python, spread, write

RIVAL = "HolisticTraceAnalysis==0.5.0"

OURS = """
import sys, time
from busfare.answers.report import summarise
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
    parser = options_of(__doc__, 7)
    parser.add_argument("trace", nargs="?", type=Path, default=large_trace())
    options = parser.parse_args(arguments)
    rival = rival_python("rivals", RIVAL)

    ours, theirs = [], []
    whole_ours, whole_theirs = [], []
    for _ in range(3):  # in turn, so that a busy moment of the machine does not hit one side only
        # The first of each warms up.
        ours += [line[0] for line in lines_of(sys.executable, OURS, options.trace, options.runs)[1:]]
        runs = max(2, options.runs // 3)
        theirs += [line[0] for line in lines_of(rival, THEIRS, options.trace, runs)[1:]]
        whole_ours.append(_whole([sys.executable, "-m", "busfare", "report", str(options.trace), "--json"]))
        whole_theirs.append(_whole([str(rival), "-c", THEIRS, str(options.trace), "0"]))
    print(
        f"{options.trace.name}, {options.trace.stat().st_size / 1e6:.1f} MB compressed; median (fastest – slowest) seconds"
    )
    print(f"{'':28}{'busfare report':>26}{'HTA 0.5.0 loads':>26}{'ratio':>8}")
    for what, a, b in (("the work alone", ours, theirs), ("the whole command", whole_ours, whole_theirs)):
        print(f"{what:28}{spread(a):>26}{spread(b):>26}{statistics.median(b) / statistics.median(a):7.1f}×")
    raw = {
        "trace": options.trace.name,
        "rival": RIVAL,
        "work_seconds": {"busfare": ours, "rival": theirs},
        "command_seconds": {"busfare": whole_ours, "rival": whole_theirs},
    }
    write(options, "kineto_report", raw)
    return 0


def _whole(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
