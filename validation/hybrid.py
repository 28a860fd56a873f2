"""NAS FT and MG on GPUs that ranks share: `python validation/hybrid.py`.

Reads raw runs of `results/hybrid/*.json` as the programs wrote them, and recomputes what funneling gains over a context a
rank, over MPS and over packed slabs, and the share of the limit: of FT what its link and kernels allow, measured beside the
runs, of MG the time of its kernels, each measured alone. Benchmarks of a file that later ones supersede are left out. Exit
status 1 where a run missed the official values, or the newest class C runs of four and eight ranks miss a goal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid" / "run"))
from nas_bench.limit import rates_of_limits
from nas_bench.result import gains, rows_of

FOLDER = Path(__file__).parents[1] / "results" / "hybrid"
#: Times as fast as these, at least; percent of the limit, at least; of FFTW-MPI's time, at most.
GOALS = {"multiple": 1.3, "multiple-mps": 1.0, "packed slabs, funneled": 1.0}
LEAST_SHARE, MOST_OF_FFTW = 90.0, 1.10
CLASS, RANKS, GPUS = "C", (4, 8), 1
#: Runs beside which the limit was measured; shares of others are printed.
JUDGED = ("h200-one-gpu-link-beside.json", "h200-one-gpu-staged.json")


def main() -> int:
    met = True
    for path in sorted(FOLDER.glob("*.json")):
        held = json.loads(path.read_text("utf-8"))
        if held.get("schema") == "busfare.hybrid.against_fftw_mpi/1":
            ratio = held["median_ratio"]
            met &= ratio <= MOST_OF_FFTW
            print(
                f"{path.name}: transform on processors {ratio:.2f} of FFTW-MPI's time (goal {MOST_OF_FFTW:g})"
            )
            continue
        superseded = held.get("superseded") or []
        for benchmark in ("ft", "mg"):
            if superseded is not True and benchmark not in superseded:
                met &= judge(path.name, benchmark, held)
    return 0 if met else 1


def judge(name: str, benchmark: str, held: dict[str, Any]) -> bool:
    """One benchmark of a file."""
    rates = rates_of_limits(held["limits"], name) if held.get("limits") else None
    rows, _ = rows_of(benchmark, held["runs"], rates)
    if not rows:
        return True
    wrong = sum(row["verified"] is False for row in rows)
    said = f"{wrong} missed the official values{' MISSED' if wrong else ''}"
    print(f"{name}, {benchmark.upper()}: {len(rows)} runs, {said}")
    met = not wrong
    for gain in gains(rows):
        if gain["class"] == CLASS and gain["ranks"] in RANKS and gain["gpus"] == GPUS:
            goal = GOALS.get(gain["over"], 0.0)
            times = gain["measured_times_as_fast"]
            met &= times >= goal
            print(f"  {gain['ranks']} ranks: {gain['way']} {times:.2f} × {gain['over']} (goal {goal:g})")
    for ranks in RANKS:
        own = [row for row in rows if _is_judged(row, ranks)]
        if own:
            best = min(own, key=lambda row: float(row["measured_iteration_seconds"]))
            share = best["alone_share_percent"] or best["limit_share_percent"]
            met &= share >= LEAST_SHARE or name not in JUDGED
            print(f"  {ranks} ranks: {share:.1f} % of the limit (goal {LEAST_SHARE:g})")
    return met


def _is_judged(row: dict[str, Any], ranks: int) -> bool:
    known = (row["mode"], row["ranks"], row["class"], row["gpus"]) == ("funneled", ranks, CLASS, GPUS)
    return known and row["algorithm"] != "packed-slabs" and bool(row["limit"])


if __name__ == "__main__":
    sys.exit(main())
