"""Recomputes every accuracy claim: `python -m validation`. Fails if a script that has a goal does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "papers.py",
    "plan_papers.py",
    "datasheet.py",
    "probe.py",
    "replay_pairs.py",
    "node_change.py",
    "ranges.py",
    "cases.py",
    "bench.py",
    "hybrid.py",
)


#: Scripts that show what was measured, on programs that were never meant to meet a goal.
SHOWN = (("replay_pairs.py", "--plan", "unseen.toml", "--results", "results/pairs-unseen"),)


def main() -> int:
    folder = Path(__file__).parent
    worst = 0
    for script in SCRIPTS:
        print(f"\n== validation/{script}\n", flush=True)
        worst = max(worst, subprocess.run([sys.executable, str(folder / script)], check=False).returncode)
    for script, *arguments in SHOWN:
        print(f"\n== validation/{script} {' '.join(arguments)}\n", flush=True)
        subprocess.run([sys.executable, str(folder / script), *arguments], cwd=folder.parent, check=False)
    return worst


if __name__ == "__main__":
    sys.exit(main())
