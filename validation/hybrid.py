"""NAS FT and MG on GPUs that ranks share: `python validation/hybrid.py`.

Reads raw runs of `results/hybrid.tar.xz` as the programs wrote them, and recomputes what funneling gains over a context a
rank, over MPS and over packed slabs, and the share of the limit: of FT what its link and kernels allow, measured beside the
runs, of MG the time of its kernels, each measured alone. Benchmarks of a file that later ones supersede are left out. Goals
are of class C runs of four and eight ranks on one GPU, and that all runs reached the official values. Runs on several GPUs
are a table.
"""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path
from typing import Any

from claims import goal, judge, table
from stored import read_table, unpacked

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid" / "run"))
from nas_bench.limit import rates_of_limits
from nas_bench.result import gains, rows_of

#: Times as fast as these, at least; percent of the limit, at least; of FFTW-MPI's time, at most.
GOALS = {"multiple": 1.3, "multiple-mps": 1.0, "packed slabs, funneled": 1.0}
LEAST_SHARE, MOST_OF_FFTW = 90.0, 1.10
RANKS = (4, 8)
#: Copies of so many H200s, both ways at once, measured on another host; points of FT's grids and bytes of one.
ALL_GPUS, ALL_AT_ONCE = 4, "h2d+d2h 4"
POINTS, POINT_BYTES = {"C": 512**3, "D": 2048 * 1024 * 1024}, 16
#: Runs beside which the limit was measured; shares of others are printed.
JUDGED = ("h200-one-gpu-link-beside.json", "h200-one-gpu-staged.json")


def main() -> None:
    for path in sorted(unpacked("hybrid").glob("*.json")):
        held = json.loads(path.read_text("utf-8"))
        if held.get("schema") == "busfare.hybrid.against_fftw_mpi/1":
            ratio = held["median_ratio"]
            goal(f"{path.name}: transform on processors, of FFTW-MPI's time", ratio, most=MOST_OF_FFTW)
            continue
        for benchmark in sorted({"ft", "mg"} - set(held.get("superseded") or ())):
            runs(path.name, benchmark, held)


def runs(name: str, benchmark: str, held: dict[str, Any]) -> None:
    """One benchmark of a file."""
    rates = rates_of_limits(held["limits"], name) if held.get("limits") else None
    rows, _ = rows_of(benchmark, held["runs"], rates)
    if not rows:
        return
    wrong = sum(row["verified"] is False for row in rows)
    goal(
        f"{name}, {benchmark.upper()}: of {len(rows)} runs, missed the official values", wrong, most=0,
        form="d",
    )  # fmt: skip
    several = [row for row in rows if row["gpus"] > 1]
    if several:
        bounds = "GPUs:d|ranks:d|seconds an iteration:.5f|grid each way, all GPUs at once:.4f"
        table(f"  class|mode|exchange|{bounds}", [_of_several(row) for row in several])
    for gain in gains(rows):
        if (gain["class"], gain["gpus"]) == ("C", 1) and gain["ranks"] in RANKS:
            what = f"  {gain['ranks']} ranks: {gain['way']}, times as fast as {gain['over']}"
            goal(what, gain["measured_times_as_fast"], least=GOALS.get(gain["over"], -inf))
    for ranks in RANKS:
        judged = [row for row in rows if _is_judged(row, ranks)]
        if judged:
            best = min(judged, key=lambda row: float(row["measured_iteration_seconds"]))
            share = best["alone_share_percent"] or best["limit_share_percent"]
            least = LEAST_SHARE if name in JUDGED else -inf
            goal(f"  {ranks} ranks: percent of the limit", share, least=least, form=".1f")


def _of_several(row: dict[str, Any]) -> tuple[Any, ...]:
    exchange, measured = row["variant"].get("exchange", ""), row["measured_iteration_seconds"]
    shared = None
    if row["algorithm"] == "slabs" and row["gpus"] == ALL_GPUS and exchange == "device":
        slowest = min(min(r) for r in read_table("four-gpus")["measured"]["copies"][ALL_AT_ONCE].values())
        shared = POINT_BYTES * POINTS[row["class"]] / row["gpus"] / slowest
    return (row["class"], row["mode"], exchange, row["gpus"], row["ranks"], measured, shared)


def _is_judged(row: dict[str, Any], ranks: int) -> bool:
    measured_so = (row["mode"], row["ranks"], row["class"], row["gpus"]) == ("funneled", ranks, "C", 1)
    return measured_so and row["algorithm"] != "packed-slabs" and bool(row["limit"])


if __name__ == "__main__":
    judge(main)
