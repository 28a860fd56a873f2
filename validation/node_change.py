"""Programs recorded on one kind of GPU, predicted for machines of the other: `python validation/node_change.py`.

The 17 programs of `validation/pairs/pairs.toml` as they are, from their recordings on an H100 and on an H200, by
`busfare project --model calibrated` between the nodes fitted to each machine's probe; beside what other machines of the
other kind took: whole runs (medians of unrecorded ones), and the copies' mean time of each path and size
(`results/machines.json.xz`). One machine says how near a prediction came by chance; means over all of a kind are judged.
Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import polars as pl
from pairs.table import read_plan
from stored import Machine, machines, probed_node, read_table

from busfare.node import Node
from busfare.project import project
from busfare.project.projection import transfers_priced
from busfare.timeline import Timeline, timeline
from busfare.trace import Trace, read

KINDS = ("h100", "h200")
MODEL = "calibrated"
#: Percent that copies and whole runs may be off together, weighted by their times.
GOAL_PERCENT = 5.0
#: What copies are alike by.
LIKE = ("direction", "source_memory", "destination_memory", "bytes")


@dataclass
class Moved:
    """One program on another machine, seconds predicted and measured: of the run, and of its copies by what is alike."""

    program: str
    run: tuple[float, float]
    copies: dict[tuple[Any, ...], tuple[float, float]] = field(default_factory=dict)


def targets(gpu: str) -> dict[str, dict[str, Any]]:
    """Machines of a kind: their probe and, by program, `seconds` and `copies` (LIKE, count, seconds in all)."""
    return {name: told for name, told in read_table("machines").items() if name.startswith(gpu)}


def moved(
    program: str,
    rebuilt: Timeline,
    trace: Trace,
    seconds: float,
    nodes: tuple[Node, Node],
    measured: dict[str, Any],
) -> Moved:
    """`rebuilt`: the timeline of `trace`; `seconds`: what the program takes unrecorded on the first of both nodes."""
    here, there = nodes
    found = project(trace, here, there, MODEL, rebuilt=rebuilt)
    ratio = found.makespan.predicted_seconds / found.makespan.replayed_seconds
    rows = (
        transfers_priced(trace, here, there, MODEL)
        .with_columns(pl.col("predicted_seconds").fill_null(pl.col("recorded_seconds")))
        .group_by(LIKE)
        .agg(pl.col("predicted_seconds").mean())
    )
    told = {row[:-1]: row[-1] for row in rows.iter_rows()}
    copies = {
        key: (told[key] * count, taken)
        for *like, count, taken in measured["copies"]
        if (key := tuple(like)) in told
    }
    return Moved(program, (seconds * ratio, measured["seconds"]), copies)


def from_machine(origin: Machine, gpu: str) -> list[list[Moved]]:
    """All programs, on each machine of kind `gpu`."""
    here = probed_node(origin.times["probe"])
    found: dict[str, list[Moved]] = defaultdict(list)
    for program in read_plan("pairs.toml").programs:
        trace, seconds = (
            read(origin.recording(program, "before"), launches=True),
            origin.seconds(program, "before"),
        )
        rebuilt = timeline(trace, here)
        for name, told in targets(gpu).items():
            if measured := told["programs"].get(program):
                nodes = here, probed_node(told["probe"])
                found[name].append(moved(program, rebuilt, trace, seconds, nodes, measured))
    for name, own in found.items():
        runs = off([one.run for one in own])
        copies = off([pair for one in own for pair in one.copies.values()])
        print(f"  {origin.name} → {name:22} runs {runs:5.1f} %, copies {copies:5.1f} % off")
    return list(found.values())


def off(pairs: list[tuple[float, float]]) -> float:
    """100 · Σ|predicted − measured| / Σ measured."""
    return 100 * sum(abs(p - m) for p, m in pairs) / sum(m for _, m in pairs)


def means(found: list[list[Moved]]) -> tuple[dict[Any, tuple[float, float]], dict[Any, tuple[float, float]]]:
    """Runs and copies, predicted and measured, each on average over machines."""
    runs, copies = defaultdict(list), defaultdict(list)
    for machine in found:
        for one in machine:
            runs[one.program].append(one.run)
            for key, pair in one.copies.items():
                copies[one.program, *key].append(pair)
    averaged = [
        {key: (mean(p for p, _ in pairs), mean(m for _, m in pairs)) for key, pairs in each.items()}
        for each in (runs, copies)
    ]
    return averaged[0], averaged[1]


def main() -> int:
    met = True
    origins = {machine.gpu: machine for machine in machines("pairs")}
    for here, there in (KINDS, KINDS[::-1]):
        found = from_machine(origins[here], there)
        runs, copies = means(found)
        for program, (predicted, measured) in runs.items():
            print(
                f"    {program:20} {1e3 * measured:8.1f} ms, predicted {1e3 * predicted:8.1f}, "
                f"{100 * (predicted / measured - 1):+6.1f} %"
            )
        pinned = [pair for key, pair in copies.items() if "pinned" in key]
        together, of_copies = off(list(runs.values())), off(list(copies.values()))
        good = together <= GOAL_PERCENT and of_copies <= GOAL_PERCENT
        met &= good
        print(
            f"{here} → {there}, means over {len(found)} machines: whole runs {together:.1f} %, copies {of_copies:.1f} % "
            f"(pinned {off(pinned):.1f}) off (goal {GOAL_PERCENT:g}): {'met' if good else 'MISSED'}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
