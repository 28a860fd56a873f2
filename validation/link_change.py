"""The same programs with another link: `python validation/link_change.py`.

On an H200 behind PCIe 5 x16, and behind 1/k of it (`slow_link/slow_link.cpp`; k = 2, 4, 8: x8, x4, x2), which `what-if`
predicts from the bare recordings alone: of programs whose copies take a tenth of the bare run, runs from the first copy
on, and copies by WMAPE, which A19 has at 19 % (CORAL-2) and 23 % (Rodinia). k = 1 is the same link: what runs differ by.
Then published large pinned copies, each predicted from those of other machines.
"""

from __future__ import annotations

import json
from statistics import mean, median

import datasheet
import numpy as np
import polars as pl
from claims import goal, judge, table
from node_change import off
from published import SHARED
from stored import busfare, unpacked

from busfare.answers.project import transfers_priced
from busfare.nodes import load_node
from busfare.trace import read
from busfare.trace.window import part_of

LEAST_SHARE, PUBLISHED, NS = 0.1, 19.0, 1e-9


def predicted(path: str, begins: float, link: str) -> list[float]:
    """Seconds of the run after `begins` behind `link`, the ends of its range, and then its copies."""
    window = begins, begins + 1e3
    answer = busfare("what-if", path, "--link", link, "--window", "{:.9f}s..{:.9f}s".format(*window))
    part, nodes = part_of(read(path), window), (load_node("h200-sxm"), load_node(link))
    copies = transfers_priced(part, *nodes, "calibrated").filter(pl.col("direction").is_in(["h2d", "d2h"]))
    run = [answer[f"{end}_seconds"] for end in ("predicted", "low", "high")]
    return run + copies.sort("correlation")["predicted_seconds"].to_list()


def main() -> None:
    folder, rows = unpacked("link-change") / "link-change", []
    for program, runs in json.loads((folder / "measured.json").read_text("utf-8")).items():
        bare = [run for run in runs if run["k"] == 0]
        share = median(sum(run["copies_ns"]) / run["ns"] for run in bare)
        for k in {run["k"] for run in runs if run["k"]} if share >= LEAST_SHARE else ():
            files = [(str(folder / run["file"]), run["begins_ns"] * NS) for run in bare]
            forecast = np.median([predicted(*file, f"pcie:5x{16 // k}") for file in files], axis=0)
            taken = np.median([[run["ns"], *run["copies_ns"]] for run in runs if run["k"] == k], axis=0) * NS
            copies_off = off(zip(forecast[3:], taken[1:], strict=True))
            rows.append((k, program, share, taken[0], *forecast[:3], copies_off))
    table("k:d|program|copies' share:.2f|s:.4f|predicted:.4f|from:.4f|to:.4f|copies, % off:.1f", sorted(rows))
    for k in (1, 2, 4, 8):
        of_k = [row for row in rows if row[0] == k]
        goal(f"k = {k}, {len(of_k)} runs, % off", off((row[4], row[3]) for row in of_k), form=".1f")
        most = PUBLISHED if k > 1 else np.inf
        goal("  copies, mean WMAPE, %", mean(row[-1] for row in of_k), most=most, form=".1f")
    held = 100 * np.mean([row[5] <= row[3] <= row[6] for row in rows])
    goal("runs in their 80 % ranges, %", held, least=75, form=".0f")
    if (SHARED / "data/measurements.csv").is_file():
        pinned = [t for t in datasheet.truths() if (t.model, t.what) == ("calibrated", "pinned")]
        errors = [100 * abs(t.predicted / t.actual - 1) for t in pinned]
        goal(f"{len(errors)} published copies, mean % off", mean(errors), most=PUBLISHED, form=".1f")


if __name__ == "__main__":
    judge(main)
