"""Programs recorded on one kind of GPU, predicted for machines of the other: `python validation/node_change.py`.

Programs of `validation/pairs` as they are, from their recordings on H100s and H200s, by `busfare project --model calibrated`
between the nodes probed right before; beside what machines of the other kind took (medians of unrecorded regions), and of
the 17 with which the models were made the copies' mean time of each path and size (`results/machines.json.xz`). Hosts are
shared: one machine takes as much longer minutes later as predictions are off, so means over machines are judged, and what
the same machine took again stands beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
from claims import Truth, goal, judge, table
from pairs.table import read_plan
from stored import Machine, NoAnswerError, machines, nodes_by_rung, probed_node, read_table

from busfare.answers.project import project, transfers_priced
from busfare.nodes import Node, load_node
from busfare.timeline import Timeline, timeline
from busfare.trace import Trace, read

KINDS = ("h100", "h200")
MODEL = "calibrated"
#: Percent that copies and whole runs may be off together, weighted by their times.
GOAL_PERCENT = 5.0
#: What a range of 80 % should hold of the truths, percent.
HOLDS_PERCENT = (75, 95)
#: Programs that a pair of machines is told by.
MANY = 10
#: Machines of the other kind that programs are carried to, for the ranges.
MOVED_TO = 3
#: Occasions of one machine, minutes apart, in `results/whole`.
AGAIN = (("h100-2026-11-28-2045", "h100-2026-11-28-2049"), ("h200-2026-11-28-2056", "h200-2026-11-28-2101"))
SECOND = {f"whole/{name}" for _, name in AGAIN}
#: What copies are alike by.
LIKE = ("direction", "source_memory", "destination_memory", "bytes")
#: Predicted and measured.
Pair = tuple[float, float]


@dataclass
class Moved:
    """One program on another machine, seconds predicted and measured: of the run, and of its copies by what is alike; and
    whether the run was in its range.
    """

    program: str
    run: Pair
    in_range: bool
    copies: dict[tuple[Any, ...], Pair] = field(default_factory=dict)


@dataclass
class Occasion:
    """A machine at one time: as it was probed, and by program the seconds unrecorded, the recording, and the copies (LIKE,
    count, seconds in all), where there are any.
    """

    name: str
    gpu: str
    node: Node
    seconds: dict[str, float] = field(default_factory=dict)
    recordings: dict[str, Path] = field(default_factory=dict)
    copies: dict[str, list[Any]] = field(default_factory=dict)


def programs() -> tuple[list[str], list[str]]:
    """Those with which the models were made, and those written later."""
    made_with = [*read_plan("pairs.toml").programs]
    return made_with, [*read_plan("unseen.toml").programs]


def of_the_table() -> dict[str, Occasion]:
    """The 13 of `results/machines.json.xz`, by their probes."""
    by_probe = {}
    for name, row in read_table("machines").items():
        occasion = Occasion(name, name.partition("-")[0], probed_node(row["probe"]))
        by_probe[row["probe"]] = occasion
        for program, measured in row["programs"].items():
            occasion.seconds[program], occasion.copies[program] = measured["seconds"], measured["copies"]
    return by_probe


@cache
def occasions() -> list[Occasion]:
    """All that is stored."""
    by_probe = of_the_table()
    for machine in machines("pairs"):  # two of the same
        by_probe[machine.times["probe"]].recordings = _occasion(machine).recordings
    return [*by_probe.values(), *map(_occasion, (*machines("unseen"), *machines("whole")))]


def _occasion(machine: Machine) -> Occasion:
    occasion = Occasion(machine.archive, machine.gpu, load_node(machine.node))
    for program in machine.times["programs"]:
        try:
            occasion.seconds[program] = machine.seconds(program, "before")
        except NoAnswerError:  # it failed there
            continue
        if machine.has(program, "before"):
            occasion.recordings[program] = machine.recording(program, "before")
    return occasion


def moved(
    program: str, rebuilt: Timeline, trace: Trace, seconds: float, nodes: tuple[Node, Node], target: Occasion
) -> Moved:
    """`rebuilt`: the timeline of `trace`; `seconds`: what the program takes unrecorded on the first of both nodes; `target`:
    what it took on the second.
    """
    here, there = nodes
    run = project(trace, here, there, MODEL, rebuilt=rebuilt).makespan
    low, predicted, high = (
        seconds * end / run.replayed_seconds
        for end in (run.low_seconds, run.predicted_seconds, run.high_seconds)
    )
    rows = (
        transfers_priced(trace, here, there, MODEL)
        .with_columns(pl.col("predicted_seconds").fill_null(pl.col("recorded_seconds")))
        .group_by(LIKE)
        .agg(pl.col("predicted_seconds").mean())
    )
    means_by_copy = {row[:-1]: row[-1] for row in rows.iter_rows()}
    copies = {
        key: (means_by_copy[key] * count, taken)
        for *like, count, taken in target.copies.get(program, ())
        if (key := tuple(like)) in means_by_copy
    }
    taken = target.seconds[program]
    return Moved(program, (predicted, taken), low <= taken <= high, copies)


def carried(gpu: str) -> dict[tuple[str, str], list[Moved]]:
    """All programs recorded on machines of kind `gpu`, on those of the other kind: by both machines' names."""
    moves: dict[tuple[str, str], list[Moved]] = defaultdict(list)
    away = [occasion for occasion in occasions() if occasion.gpu != gpu]
    for origin in occasions():
        for program, recording in origin.recordings.items() if origin.gpu == gpu else ():
            if not any(program in there.seconds for there in away):
                continue
            trace = read(recording, launches=True)
            rebuilt, seconds = timeline(trace, origin.node), origin.seconds[program]
            for there in away:
                if program in there.seconds:
                    run = moved(program, rebuilt, trace, seconds, (origin.node, there.node), there)
                    moves[origin.name, there.name].append(run)
    return moves


def off(pairs: Iterable[Pair]) -> float:
    """100 · Σ|predicted − measured| / Σ measured."""
    rows = list(pairs)
    return 100 * sum(abs(p - m) for p, m in rows) / sum(m for _, m in rows)


def means(by_machine: Iterable[Sequence[Moved]]) -> tuple[dict[Any, Pair], dict[Any, Pair]]:
    """Runs and copies, predicted and measured, each on average over machines."""
    runs, copies = defaultdict(list), defaultdict(list)
    for machine in by_machine:
        for run in machine:
            runs[run.program].append(run.run)
            for key, pair in run.copies.items():
                copies[run.program, *key].append(pair)
    averaged = [
        {key: (mean(p for p, _ in pairs), mean(m for _, m in pairs)) for key, pairs in pairs_by_key.items()}
        for pairs_by_key in (runs, copies)
    ]
    return averaged[0], averaged[1]


def again(names: Sequence[str]) -> list[float]:
    """Percent that two occasions of one machine are apart, each way, of `names`; a row of each two."""
    seconds_of = {occasion.name: occasion.seconds for occasion in occasions()}
    return [
        off((seconds_of[f"whole/{first}"][name], seconds_of[f"whole/{second}"][name]) for name in names)
        for pair in AGAIN
        for first, second in permutations(pair)
    ]


def on_two_machines(program: str) -> bool:
    """Whether it ran on two machines of each kind, so that a mean is of machines."""
    on = [o.gpu for o in occasions() if program in o.seconds and o.name not in SECOND]
    return min(on.count(gpu) for gpu in KINDS) > 1


def judged(here: str, there: str) -> None:
    """Prints what is predicted of machines of kind `there` from those of kind `here`, and holds it to the goals."""
    made_with, later = map(set, programs())
    moves_by_pair = carried(here)
    rows = []
    for (origin, target), moves in moves_by_pair.items():
        copied = [pair for run in moves for pair in run.copies.values()]
        runs_off = off(run.run for run in moves)
        rows.append((f"{origin} → {target}", len(moves), runs_off, off(copied) if copied else None))
    table("machines|programs:d|runs, % off:.1f|copies, % off:.1f", rows)
    runs, copies = means(moves_by_pair.values())
    lines = [(name, 1e3 * m, 1e3 * p, 100 * (p / m - 1)) for name, (p, m) in runs.items()]
    table("program|ms:.1f|predicted:.1f|% off:+.1f", lines)
    print(f"{here} → {there}, means over machines, % off:")
    on_two = {name for name in runs if on_two_machines(name)}
    goal(
        f"  whole runs, {len(on_two)} programs",
        off(runs[name] for name in on_two),
        most=GOAL_PERCENT,
        form=".1f",
    )
    for what, names in (
        ("with which the models were made", made_with),
        ("written later", later & on_two),
        ("later, that ran on one machine of a kind alone", later - on_two),
    ):
        of_group = [pair for name, pair in runs.items() if name in names]
        goal(f"    {len(of_group)} {what}", off(of_group), form=".1f")
    goal("  copies", off(copies.values()), most=GOAL_PERCENT, form=".1f")
    goal("  pinned copies", off(pair for key, pair in copies.items() if "pinned" in key), form=".1f")
    held = 100 * mean(run.in_range for moves in moves_by_pair.values() for run in moves)
    least, most = HOLDS_PERCENT
    goal("single runs in their ranges, %", held, least=least, most=most, form=".0f")
    singles = mean(row[2] for row in rows if row[1] >= MANY)
    goal(f"one machine from one other, {MANY} programs and more, % off on average", singles, form=".1f")


def main() -> None:
    for here, there in (KINDS, KINDS[::-1]):
        judged(here, there)
    twice = [
        occasion.seconds
        for occasion in occasions()
        if occasion.name in SECOND or occasion.name.removeprefix("whole/") in dict(AGAIN)
    ]
    made_with, later = programs()
    shared = [name for name in (*made_with, *later) if all(name in seconds for seconds in twice)]
    print("the same machine again within minutes, % off: " + ", ".join(f"{o:.1f}" for o in again(shared)))


def truths() -> Iterator[Truth]:
    """Programs on machines of the other kind, some of them: whole runs, and their copies by memory kind."""
    for origin in machines("pairs"):
        target_kind = KINDS[1 - KINDS.index(origin.gpu)]
        here = nodes_by_rung(origin.gpu, probed_node(origin.times["probe"]))
        away = [occasion for occasion in of_the_table().values() if occasion.gpu == target_kind][:MOVED_TO]
        target_nodes = [nodes_by_rung(target_kind, occasion.node) for occasion in away]
        for program in read_plan("pairs.toml").programs:
            trace = read(origin.recording(program, "before"))
            seconds = origin.seconds(program, "before")
            for figures, node in here.items():
                rebuilt = timeline(trace, node)
                for target, there in zip(away, target_nodes, strict=True):
                    if program in target.seconds:
                        run = moved(program, rebuilt, trace, seconds, (node, there[figures]), target)
                        yield Truth(figures, MODEL, "run", 0, program, *run.run)
                        yield from _of_paths(figures, program, run.copies)


def _of_paths(figures: str, program: str, copies: dict[Any, tuple[float, float]]) -> Iterator[Truth]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (direction, source, destination, _), pair in copies.items():
        memory = {"h2d": source, "d2h": destination}.get(direction, "device") or "pinned"
        sums[direction, memory] = [s + more for s, more in zip(sums[direction, memory], pair, strict=True)]
    for (_, memory), pair in sums.items():
        yield Truth(figures, MODEL, memory, 0, program, *pair)


if __name__ == "__main__":
    judge(main)
