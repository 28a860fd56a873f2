"""One kind of GPU against another, over several machines of each: what a program takes there, and what is predicted.

A recording is of one machine at one hour, and so is the time that a prediction is held against: beside other guests of
its host, copies of pageable memory take 10 % more or less from one machine to the next of the same kind. What a program
takes on a *kind* of machine is the mean over the machines of that kind that ran it: of a copy by program, path and
size, of a run the median of its unrecorded regions there. The mean, for times add up: so many runs on such machines take
so many times that. What is predicted for the kind is the mean over all pairs of machines, each predicted by its own two
node files, as a user would; node files of several machines have no mean, for their pieces end at different sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations, product

import numpy as np
import polars as pl
from pairs.judged import Machine, NoAnswerError
from pairs.table import Plan

from busfare.errors import BusfareError
from busfare.node import Node, load_node
from busfare.project import project
from busfare.project.projection import PATH, transfers_priced
from busfare.trace import Trace, read

__all__ = ["Copies", "Kinds", "Run", "off_percent"]

MODEL = "calibrated"
#: Copies of one program that are alike.
LIKE = ["program", *PATH, "bytes"]


@dataclass(frozen=True)
class Run:
    """Seconds of a whole run of a program on a machine, or on a kind of them: measured, and predicted."""

    program: str
    measured: float
    predicted: float

    @property
    def error_percent(self) -> float:
        return 100 * (self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Copies:
    """Copies by program, path and size: `LIKE`, count, measured and predicted, the seconds of one."""

    rows: pl.DataFrame

    @property
    def wmape_percent(self) -> float:
        """100 · Σ|measured − predicted| / Σ measured, each as often as it is copied."""
        off = (pl.col("measured") - pl.col("predicted")).abs() * pl.col("count")
        share = off.sum() / (pl.col("measured") * pl.col("count")).sum()
        return 100 * float(self.rows.select(share).item())

    def by(self, columns: Sequence[str]) -> list[tuple[tuple[str, ...], float, float]]:
        """For each of `columns`, those that take longest first: seconds measured, and WMAPE in percent."""
        found = []
        for key, rows in self.rows.group_by(columns):
            seconds = float((rows["measured"] * rows["count"]).sum())
            found.append((tuple(str(part) for part in key), seconds, Copies(rows).wmape_percent))
        return sorted(found, key=lambda one: -one[1])


def off_percent(runs: Iterable[Run]) -> float:
    """100 · Σ|predicted − measured| / Σ measured."""
    listed = list(runs)
    return 100 * sum(abs(r.predicted - r.measured) for r in listed) / sum(r.measured for r in listed)


@cache
def _node(file: str) -> Node:
    return load_node(file)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A program as it was, on one machine."""

    machine: Machine
    program: str
    trace: Trace
    node: Node
    seconds: float

    @cached_property
    def copies(self) -> pl.DataFrame:
        return _alike(self.program, transfers_priced(self.trace, self.node, self.node, "envelope"))


def _alike(program: str, transfers: pl.DataFrame) -> pl.DataFrame:
    """LIKE, count, and what one of them took and is predicted to take (null: no price), seconds."""
    return (
        transfers.with_columns(program=pl.lit(program))
        .group_by(LIKE)
        .agg(
            count=pl.len(),
            measured=pl.col("recorded_seconds").mean(),
            predicted=pl.col("predicted_seconds").mean(),
        )
    )


class Kinds:
    """Machines by kind, the programs that they ran, and each program of one carried to each machine of the other."""

    def __init__(self, machines: Sequence[Machine], plan: Plan, programs: Sequence[str]) -> None:
        self.machines = {
            kind: [machine for machine in machines if machine.kind == kind]
            for kind in dict.fromkeys(machine.kind for machine in machines)
        }
        self._recorded = {
            (machine.folder, program): found
            for machine, program in product(machines, programs)
            if (found := _recorded(machine, program, plan)) is not None
        }
        self.programs = [
            program for program in programs if all(list(self._of(kind, program)) for kind in self.machines)
        ]
        self._carried: dict[tuple[Recorded, Recorded], tuple[float, pl.DataFrame]] = {}

    def _of(self, kind: str, program: str) -> Iterator[Recorded]:
        for machine in self.machines[kind]:
            if (found := self._recorded.get((machine.folder, program))) is not None:
                yield found

    def _carry(self, here: Recorded, there: Recorded) -> tuple[float, pl.DataFrame]:
        """Seconds of a run recorded `here` on the machine of `there`, and its copies as `_alike`."""
        if (here, there) not in self._carried:
            found = project(here.trace, here.node, there.node, MODEL)
            ratio = found.predicted_makespan_seconds / found.replayed_makespan_seconds
            copies = _alike(here.program, transfers_priced(here.trace, here.node, there.node, MODEL))
            self._carried[here, there] = here.seconds * ratio, copies
        return self._carried[here, there]

    def pairs(self) -> list[tuple[Machine, Machine]]:
        """Every machine with every one of another kind, both ways."""
        ordered = permutations(self.machines.values(), 2)
        return [pair for one, other in ordered for pair in product(one, other)]

    def of_pair(self, origin: Machine, target: Machine) -> tuple[Copies, list[Run]]:
        """Of what both ran: predicted from the one, measured on the other."""
        return self._together([origin], [target])

    def of_kinds(self, origin: str, target: str, without: Machine | None = None) -> tuple[Copies, list[Run]]:
        """Means over the machines of either kind, or all but one of them."""
        one, other = ([m for m in self.machines[kind] if m is not without] for kind in (origin, target))
        return self._together(one, other)

    def from_machine(self, origin: Machine, target: str) -> tuple[Copies, list[Run]]:
        """Predicted from one machine, measured as the mean over the other kind's."""
        return self._together([origin], self.machines[target])

    def _together(self, origins: Sequence[Machine], targets: Sequence[Machine]) -> tuple[Copies, list[Run]]:
        predicted, measured, runs = [], [], []
        for program in self.programs:
            here, there = (
                [r for machine in machines if (r := self._recorded.get((machine.folder, program)))]
                for machines in (origins, targets)
            )
            if not here or not there:
                continue
            carried = [self._carry(one, other) for one, other in product(here, there)]
            predicted.append(_mean(copies for _, copies in carried))
            measured.append(_mean(one.copies for one in there))
            runs.append(Run(program, _average(r.seconds for r in there), _average(s for s, _ in carried)))
        return _joined(measured, "measured", predicted, "predicted"), runs

    def beside_others(self, machine: Machine) -> tuple[Copies, list[Run]]:
        """What was measured on a machine, in place of a prediction, beside the mean of the others of its kind."""
        return self._measured([machine], [m for m in self.machines[machine.kind] if m is not machine])

    def halves(self, kind: str) -> list[tuple[Copies, list[Run]]]:
        """What was measured on one half of a kind's machines beside the other half, in every way to halve them: how far
        off a kind is by chance where nothing is predicted. Of machines that ran every program, one fewer where their
        number is odd; none of fewer than four.
        """
        whole = [
            m for m in self.machines[kind] if all((m.folder, p) in self._recorded for p in self.programs)
        ]
        size = len(whole) // 2
        if size < 2:
            return []
        first, *rest = whole[: 2 * size]
        taken = [(first, *others) for others in combinations(rest, size - 1)]
        return [self._measured(half, [m for m in (first, *rest) if m not in half]) for half in taken]

    def on_each(self, kind: str, program: str, direction: str, size: int) -> dict[str, list[float]]:
        """Seconds of a program's pageable copy of so many bytes on each machine of a kind, and what its node file says
        of such a copy; neither where the copies are others.
        """
        chosen = pl.col("direction").eq(direction) & pl.col("bytes").eq(size)
        chosen &= pl.any_horizontal(pl.col("source_memory", "destination_memory") == "pageable")
        found: dict[str, list[float]] = {}
        for recorded in self._of(kind, program):
            own = recorded.node.measurement(direction, "pageable")
            copies = recorded.copies.filter(chosen)
            if own is not None and len(copies):
                found.setdefault("on each machine", []).append(float(copies["measured"].mean()))
                says = float(own.seconds(np.array([float(size)]))[0])
                found.setdefault("by the probes, at quiet moments", []).append(says)
        return found

    def _measured(self, ones: Sequence[Machine], others: Sequence[Machine]) -> tuple[Copies, list[Run]]:
        """Means over machines, measured on both sides."""
        one, other, runs = [], [], []
        for program in self.programs:
            here, there = (
                [r for machine in machines if (r := self._recorded.get((machine.folder, program)))]
                for machines in (ones, others)
            )
            if here and there:
                one.append(_mean(r.copies for r in here))
                other.append(_mean(r.copies for r in there))
                runs.append(Run(program, *(_average(r.seconds for r in side) for side in (there, here))))
        return _joined(other, "measured", one, "measured"), runs


def _recorded(machine: Machine, program: str, plan: Plan) -> Recorded | None:
    try:
        path, seconds = machine.recording(program, "before"), machine.seconds(program, "before")
        return Recorded(machine, program, read(path), _node(machine.node(plan, program)), seconds)
    except (NoAnswerError, BusfareError):
        return None


def _average(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _mean(tables: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Of each kind of copy, the mean over the tables that have it."""
    return pl.concat(tables).group_by(LIKE).agg(pl.col("count", "measured", "predicted").mean())


def _joined(
    measured: Sequence[pl.DataFrame], one: str, predicted: Sequence[pl.DataFrame], other: str
) -> Copies:
    """Column `one` of `measured` beside column `other` of `predicted`, of copies that both have."""
    if not measured:
        return Copies(pl.DataFrame(schema=[*LIKE, "count", "measured", "predicted"]))
    there = pl.concat(measured).select(*LIKE, "count", measured=one)
    here = pl.concat(predicted).select(*LIKE, predicted=other)
    return Copies(there.join(here, on=LIKE, nulls_equal=True).drop_nulls("predicted"))
