"""What `busfare project` foretells of a program on another GPU, beside the program run there.

Run `python validation/node_change.py [--results FOLDER] [--only NAME,…] [--again FOLDER]`. The
programs of validation/pairs as they are, recorded on one GPU of results/pairs and run and recorded on the other, with
the node files probed there: whole-run times (medians of unrecorded runs) and each copy's time, by program, over all
programs, and by path. With `--again`, recordings of the same programs made at another time on GPUs of the same
kinds: by how much copies differ where nothing was changed and nothing predicted. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import median

import polars as pl
from pairs.table import Plan, read_plan
from replay_pairs import FOLDER, Machine, NoAnswerError, machines_in

from busfare.errors import BusfareError
from busfare.node import Node, load_node
from busfare.project import compare, project
from busfare.project.projection import PATH, transfers_priced
from busfare.trace import Trace, read

#: Percent by which a whole run, and the copies, may be off.
GOAL_PERCENT = 5.0
#: Programs whose own runs differ by no more, in percent, on both machines.
STEADY_PERCENT = 10.0
MODEL = "calibrated"


@dataclass(frozen=True)
class Copies:
    """How far off the copies of a program were. `by_path` as in `busfare.project.Comparison`.

    `scatter_percent`: WMAPE that is left where each copy is given the mean of its like (path and size) there.
    """

    wmape_percent: float
    count: int
    by_path: pl.DataFrame
    scatter_percent: float

    @property
    def seconds(self) -> float:
        return float(self.by_path["recorded_seconds"].sum())


@dataclass(frozen=True)
class Moved:
    """A program on another machine, seconds. `spreads`: of the unrecorded runs on the two, (most − least) / median."""

    program: str
    here: float
    measured: float
    predicted: float
    spreads: tuple[float, float]
    copies: Copies | None

    @property
    def error_percent(self) -> float:
        return 100 * (self.predicted / self.measured - 1)


def copies_of(here: Path, there: Path, nodes: tuple[str, str]) -> Copies | None:
    """None where no copy of the one is one of the other."""
    actual, new = read(there), load_node(nodes[1])
    try:
        found = compare(read(here), actual, load_node(nodes[0]), new, MODEL)
    except BusfareError:
        return None
    return Copies(found.wmape_percent, found.count, found.by_path, scatter_percent(actual, new))


def scatter_percent(trace: Trace, node: Node) -> float:
    seconds = transfers_priced(trace, node, node, "envelope")
    mean = pl.col("recorded_seconds").mean().over(*PATH, "bytes")
    share = (pl.col("recorded_seconds") - mean).abs().sum() / pl.col("recorded_seconds").sum()
    return 100 * float(seconds.select(share).item())


def moved(program: str, origin: Machine, target: Machine, plan: Plan) -> Moved | None:
    """The program recorded on `origin` and run on `target`; None where one of them lacks it."""
    try:
        here, there = origin.recording(program, "before"), target.recording(program, "before")
        before, measured = origin.seconds(program, "before"), target.seconds(program, "before")
        spreads = origin.spread(program, "before"), target.spread(program, "before")
    except NoAnswerError:
        return None
    names = origin.node(plan, program), target.node(plan, program)
    old, new = load_node(names[0]), load_node(names[1])
    found = project(read(here), old, new, MODEL)
    ratio = found.predicted_makespan_seconds / found.replayed_makespan_seconds
    return Moved(program, before, measured, before * ratio, spreads, copies_of(here, there, names))


def overall(percents: Iterable[float], copies: Sequence[Copies]) -> float:
    """Percents of programs, weighted by the time of their copies: of WMAPEs, the one over all copies of all programs."""
    return sum(p * c.seconds for p, c in zip(percents, copies, strict=True)) / sum(c.seconds for c in copies)


def runs_together(found: Sequence[Moved]) -> float:
    """100 · Σ|predicted − measured| / Σ measured, over whole runs."""
    return 100 * sum(abs(m.predicted - m.measured) for m in found) / sum(m.measured for m in found)


def verdict(percent: float) -> str:
    return "met" if percent <= GOAL_PERCENT else "MISSED"


def show_paths(copies: Sequence[Copies]) -> None:
    """Of all programs together: where the time of copies is, and the error of each path."""
    rows = pl.concat([c.by_path for c in copies])
    by_path = (
        rows.with_columns(error=pl.col("wmape_percent").fill_null(0.0) * pl.col("recorded_seconds"))
        .group_by(PATH)
        .agg(pl.col("count", "recorded_seconds", "predicted_seconds", "error").sum())
        .sort("recorded_seconds", descending=True)
    )
    for row in by_path.iter_rows(named=True):
        path = f"{row['direction']} {row['source_memory']} → {row['destination_memory']}"
        share = row["error"] / row["recorded_seconds"] if row["recorded_seconds"] else 0.0
        print(
            f"    {path:28} {row['count']:8,} {1e3 * row['recorded_seconds']:9.3f} ms recorded"
            f" {1e3 * row['predicted_seconds']:9.3f} predicted  WMAPE {share:5.2f} %"
        )


def show(origin: Machine, target: Machine, found: Sequence[Moved]) -> bool:
    """Prints what was found; whether every goal is met."""
    print(f"recorded on {origin.name}, run on {target.name}: the programs as they are")
    print(
        "                        on both, ms     predicted   error  spread of runs   WMAPE of copies (their time), scatter"
    )
    for one in found:
        copies = "     –"
        if (c := one.copies) is not None:
            copies = f"{c.wmape_percent:6.2f} % of {c.count:6,} ({1e3 * c.seconds:8.2f} ms) {c.scatter_percent:6.2f} %"
        print(
            f"  {one.program:20} {1e3 * one.here:7.1f} {1e3 * one.measured:7.1f}  {1e3 * one.predicted:8.1f}"
            f"  {one.error_percent:+6.1f} %  {100 * one.spreads[0]:3.0f} / {100 * one.spreads[1]:2.0f} %      {copies}"
        )
    return show_runs(found) & show_copies([one.copies for one in found if one.copies is not None])


def show_runs(found: Sequence[Moved]) -> bool:
    errors = [abs(one.error_percent) for one in found]
    together = runs_together(found)
    print(
        f"  whole runs: {sum(error <= GOAL_PERCENT for error in errors)} of {len(errors)} within {GOAL_PERCENT:g} %, "
        f"median {median(errors):.1f} %; all together, weighted by time, {together:.1f} % "
        f"(goal {GOAL_PERCENT:g} %) {verdict(together)}"
    )
    if steady := [one for one in found if 100 * max(one.spreads) <= STEADY_PERCENT]:
        close = sum(abs(one.error_percent) <= GOAL_PERCENT for one in steady)
        print(
            f"    where a program's own runs differ by at most {STEADY_PERCENT:g} %: {close} of {len(steady)}, "
            f"together {runs_together(steady):.1f} %"
        )
    return together <= GOAL_PERCENT


def show_copies(found: Sequence[Copies]) -> bool:
    if not found:
        return True
    wmapes = [copies.wmape_percent for copies in found]
    together = overall(wmapes, found)
    print(
        f"  copies: {sum(w <= GOAL_PERCENT for w in wmapes)} of {len(wmapes)} programs within {GOAL_PERCENT:g} %, "
        f"median {median(wmapes):.1f} %; WMAPE of all together {together:.1f} % "
        f"(goal {GOAL_PERCENT:g} %) {verdict(together)}"
    )
    left = overall([copies.scatter_percent for copies in found], found)
    print(f"    {left:.1f} % would be left if the mean of each path and size were known; by path:")
    show_paths(found)
    return together <= GOAL_PERCENT


def show_again(machine: Machine, earlier: Machine, plan: Plan, names: Iterable[str]) -> None:
    """How far the copies of one recording are from those of another on a machine of the same kind."""
    print(f"recorded on {machine.name} twice: copies as they were, beside copies as they were another time")
    found = []
    for name in names:
        try:
            one, other = earlier.recording(name, "before"), machine.recording(name, "before")
        except NoAnswerError:
            continue
        if one.read_bytes() == other.read_bytes():
            continue
        node = machine.node(plan, name)
        copies = copies_of(one, other, (node, node))
        if copies is not None:
            found.append(copies)
            print(
                f"  {name:20} {copies.wmape_percent:6.2f} % of {copies.count:6,} ({1e3 * copies.seconds:8.2f} ms)"
            )
    if found:
        wmapes = [copies.wmape_percent for copies in found]
        print(f"  all together {overall(wmapes, found):.1f} %, median {median(wmapes):.1f} %\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Whole runs and copies on another GPU, predicted and measured."
    )
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs")
    parser.add_argument("--again", type=Path, help="results of another time, on the same kinds of GPU")
    options = parser.parse_args()
    plan = read_plan()
    machines = machines_in(options.results)
    names = [name for name in options.only.split(",") if name] or list(plan.programs)
    if options.again:
        earlier = machines_in(options.again)
        for name, machine in machines.items():
            if name in earlier:
                show_again(machine, earlier[name], plan, names)
    met = True
    for origin, target in permutations(machines.values(), 2):
        found = [one for name in names if (one := moved(name, origin, target, plan)) is not None]
        if found:
            met &= show(origin, target, found)
            print()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
