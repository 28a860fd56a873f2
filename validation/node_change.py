"""Programs recorded on one kind of GPU, predicted for machines of the other: `python validation/node_change.py`.

The 17 programs of `validation/pairs/pairs.toml` as they are, from their recordings on an H100 and on an H200, by
`busfare project --model calibrated` between the nodes fitted to each machine's probe; beside what other machines of the
other kind took: whole runs (medians of unrecorded ones), and the copies' mean time of each path and size
(`results/machines.json.xz`). One machine says how near a prediction came by chance; means over all of a kind are judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import polars as pl
from claims import Truth, goal, judge, table
from pairs.table import read_plan
from stored import Machine, known_as, machines, probed_node, read_table

from busfare.node import Node
from busfare.project import project
from busfare.project.projection import transfers_priced
from busfare.timeline import Timeline, timeline
from busfare.trace import Trace, read

KINDS = ("h100", "h200")
MODEL = "calibrated"
#: Percent that copies and whole runs may be off together, weighted by their times.
GOAL_PERCENT = 5.0
#: Machines of the other kind that programs are carried to, for the ranges.
MOVED_TO = 3
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
    rows = []
    for name, own in found.items():
        copies = [pair for one in own for pair in one.copies.values()]
        rows.append((f"{origin.name} → {name}", off([one.run for one in own]), off(copies)))
    table("machines|runs, % off:.1f|copies, % off:.1f", rows)
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


def main() -> None:
    origins = {machine.gpu: machine for machine in machines("pairs")}
    for here, there in (KINDS, KINDS[::-1]):
        found = from_machine(origins[here], there)
        runs, copies = means(found)
        table(
            "program|ms:.1f|predicted:.1f|% off:+.1f",
            [(name, 1e3 * m, 1e3 * p, 100 * (p / m - 1)) for name, (p, m) in runs.items()],
        )
        print(f"{here} → {there}, means over {len(found)} machines, % off:")
        goal("  whole runs", off(list(runs.values())), most=GOAL_PERCENT, form=".1f")
        goal("  copies", off(list(copies.values())), most=GOAL_PERCENT, form=".1f")
        goal("  pinned copies", off([pair for key, pair in copies.items() if "pinned" in key]), form=".1f")


def truths() -> Iterator[Truth]:
    """Programs on machines of the other kind, some of them: whole runs, and their copies by memory kind."""
    for origin in machines("pairs"):
        other = KINDS[1 - KINDS.index(origin.gpu)]
        here = known_as(origin.gpu, probed_node(origin.times["probe"]))
        away = list(targets(other).values())[:MOVED_TO]
        known = [known_as(other, probed_node(told["probe"])) for told in away]
        for program in read_plan("pairs.toml").programs:
            trace = read(origin.recording(program, "before"))
            seconds = origin.seconds(program, "before")
            for figures, node in here.items():
                rebuilt = timeline(trace, node)
                for told, there in zip(away, known, strict=True):
                    if measured := told["programs"].get(program):
                        one = moved(program, rebuilt, trace, seconds, (node, there[figures]), measured)
                        yield Truth(figures, MODEL, "run", 0, program, *one.run)
                        yield from _of_paths(figures, program, one.copies)


def _of_paths(figures: str, program: str, copies: dict[Any, tuple[float, float]]) -> Iterator[Truth]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (direction, source, destination, _), pair in copies.items():
        memory = {"h2d": source, "d2h": destination}.get(direction, "device") or "pinned"
        sums[direction, memory] = [
            one + more for one, more in zip(sums[direction, memory], pair, strict=True)
        ]
    for (_, memory), pair in sums.items():
        yield Truth(figures, MODEL, memory, 0, program, *pair)


if __name__ == "__main__":
    judge(main)
