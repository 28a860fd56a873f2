"""The overhead of the library of `busfare try` per CUDA driver call.

    python -m benchmarks.trial_calls [--runs N] [--json FILE]

The driver is a stub whose calls do nothing (trial_calls.c): the benchmark measures only the library and needs no GPU.
Processes run one after another. Each makes two million calls of each kind: without the library, with the library but no
change, or with all changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.runs import options_of, write
from busfare.measure.record import recorder_library
from busfare.measure.trial import LIBRARY, VARIABLE
from busfare.nodes import load_node

SOURCE = Path(__file__).with_suffix(".c")
#: The node file with the measured launch time of an empty kernel.
NODE = "h200-probed"
VARIANTS = {"no library": None, "no change": "", "all changes": "pin,async,prefetch"}


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, 11).parse_args(arguments)
    times: dict[str, dict[str, list[float]]] = {variant: {} for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        driver, program = f"{folder}/libcuda.so.1", f"{folder}/program"
        shared = ["-DDRIVER", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        for flags, output in ((shared, driver), (["-ldl"], program)):
            subprocess.run(["cc", "-O2", "-w", SOURCE, *flags, "-o", output], check=True)
        for number in range(options.runs):
            for variant in list(VARIANTS)[:: -1 if number % 2 else 1]:
                for call, nanoseconds in _measured(program, folder, VARIANTS[variant]).items():
                    times[variant].setdefault(call, []).append(nanoseconds)
    print(f"{'ns per call':24}{''.join(f'{variant:>14}' for variant in VARIANTS)}")
    for call in times["no library"]:
        print(f"{call:24}{''.join(f'{median(times[variant][call]):14.0f}' for variant in VARIANTS)}")
    launch = {variant: median(calls["cuLaunchKernel"]) for variant, calls in times.items()}
    added_s = (launch["no change"] - launch["no library"]) * 1e-9
    if cost := load_node(NODE).call_cost("launch"):
        print(
            f"kernel launch: {added_s / cost.call_s:.1%} of the {cost.call_s * 1e6:.1f} µs that it takes on {NODE}"
        )
    write(options, "trial_calls", {"nanoseconds": times})
    return 0


def _measured(program: str, folder: str, changes: str | None) -> dict[str, float]:
    """Nanoseconds per call by its name; `changes` None: without the library."""
    variables = {**os.environ, "LD_LIBRARY_PATH": folder}
    if changes is not None:
        variables |= {
            "LD_PRELOAD": str(recorder_library().with_name(LIBRARY)),
            f"{VARIABLE}CHANGES": changes,
            f"{VARIABLE}REPORT": f"{folder}/report",
        }
    done = subprocess.run([program], env=variables, capture_output=True, text=True, check=True)
    return {call: float(number) for call, number in (line.split() for line in done.stdout.splitlines())}


if __name__ == "__main__":
    sys.exit(main())
