"""Recomputes every accuracy claim: `python -m validation [NAME …]`. Fails if a script misses its goal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from validation.published import SHARED

PUBLISHED = (SHARED / "data/measurements.csv").is_file()
#: Scripts, and what one needs that is not here.
SCRIPTS = {
    "papers": "",
    "plan_papers": "",
    "w14_programs": "",
    "datasheet": "" if PUBLISHED else f"{SHARED}/data/measurements.csv; set BUSFARE_SHARED",
    "probe": "",
    "bench": "",
    "offload": "",
    "kv": "",
    "replay_pairs": "",
    "job_pairs": "",
    "diff_pairs": "",
    "four_gpus": "",
    "node_change": "",
    "link_change": "",
    "kernels": "",
    "collectives": "" if PUBLISHED else f"{SHARED}/data; set BUSFARE_SHARED",
    "aiconfigurator": "",
    "ranges": "",
    "tries": "",
    "hybrid": "",
}


def main() -> int:
    missed = []
    for script in sys.argv[1:] or SCRIPTS:
        print(f"\n== validation/{script}.py\n", flush=True)
        if lacks := SCRIPTS.get(script):
            print(f"not run, for want of {lacks}")
        elif subprocess.run([sys.executable, f"{Path(__file__).parent}/{script}.py"], check=False).returncode:
            missed.append(script)
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nevery goal is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
