"""Predicted time of a strategy with streams against their number, and which numbers are useful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.plan.cutting import cut_of
from busfare.plan.equations import Cut, Terms, best_streams, eq1, eq2, eq3, eq4, eq5, eq5_shared
from busfare.plan.machine import Machine, in_one_stream
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.schedule import makespan
from busfare.plan.starving import starved
from busfare.plan.work import engines_of, lines_of, load_of, mapped_writes, tasks_of

__all__ = ["WITHIN", "Curve", "StreamRange", "curves", "first_numbers", "stream_ranges", "streams_seconds"]

#: Streams are worth having until the time is this near to the least.
WITHIN = 0.01
#: Problems answered at once; their times fill a few megabytes.
BLOCK = 1024


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Numbers of streams: the fewest within 1 % of the least time, and the one of the least time, beyond which more
    only cost. `formula` is [W14 §VI]'s own figure, by equation `equation`; None where none follows.
    """

    smallest_useful: int
    largest_useful: int
    equation: int | None
    formula: float | None


def streams_seconds(cut: Cut, category: str) -> tuple[FloatArray, str]:
    """Seconds of equal chunks in streams, by the closed form of the device's category, and the form's name."""
    if category == "implicit-synchronization":
        return np.maximum(eq1(cut), eq2(cut)), "W14 eq 1, 2"
    if category == "one-copy-engine":
        return np.maximum(eq3(cut), eq4(cut)), "W14 eq 3, 4"
    if max(np.max(cut.h2d_slowdown), np.max(cut.d2h_slowdown)) == 1:
        return eq5(cut), "W14 eq 5"
    return eq5_shared(cut), "W14 eq 5, slowed while shared"


@dataclass(frozen=True, slots=True)
class Curve:
    """Predicted `seconds` of one problem at the `numbers` of streams, and what they are predicted by."""

    strategy: str
    numbers: FloatArray
    seconds: FloatArray
    by: str

    def prediction(self, asked: int | None = None) -> Prediction:
        """At `asked` streams, which must be among the numbers, or at the best number."""
        place = int(self.seconds.argmin()) if asked is None else int(np.searchsorted(self.numbers, asked))
        return Prediction(self.strategy, int(self.numbers[place]), float(self.seconds[place]), self.by)

    def useful(self) -> tuple[int, int]:
        """The fewest streams within 1 % of the least time, and those of the least time."""
        best = int(self.seconds.argmin())
        first = int((self.seconds <= self.seconds[best] * (1 + WITHIN)).argmax())
        return int(self.numbers[first]), int(self.numbers[best])


def curves(problems: Sequence[Problem], machine: Machine, strategy: str) -> list[Curve]:
    """The curve of each problem; of `three-streams` over the number of chunks.

    Raises InputError where a kernel's time is not known.

    Problems that the closed forms hold for are answered together, a block at a time.
    """
    found: list[Curve] = []
    if strategy == "three-streams":
        machine = in_one_stream(machine, "h2d", "d2h")
    for start in range(0, len(problems), BLOCK):
        block = problems[start : start + BLOCK]
        numbers = np.arange(1.0, max(p.most_streams for p in block) + 1)
        lines = lines_of(machine, strategy)
        cut = cut_of(load_of(block, machine, strategy, numbers), machine, lines, numbers)
        category = "two-copy-engines" if strategy == "hybrid" else machine.category
        if strategy == "hybrid" and machine.h2d.starving_measured:
            seconds, by = starved(cut, mapped_writes(block, machine)), "copies beside mapped writes"
        else:
            seconds, by = streams_seconds(cut, category)
        found += [
            _scheduled(problem, machine, strategy)
            if problem.needs_schedule
            else Curve(strategy, numbers[: problem.most_streams], row[: problem.most_streams], by)
            for problem, row in zip(block, seconds, strict=True)
        ]
    return found


def _scheduled(problem: Problem, machine: Machine, strategy: str) -> Curve:
    """The curve by the schedule, at as many numbers as tell the least one."""
    engines = engines_of(problem, machine, strategy)
    once = problem.launch_seconds if strategy == "graph" else 0.0

    def at(streams: int) -> float:
        return once + makespan(tasks_of(problem, machine, strategy, streams), engines)

    known: dict[int, float] = {}
    for n in first_numbers(problem, problem.most_streams):
        if n == problem.streams or not _past(list(known.values())):
            known[n] = at(n)
    if len(known) > 2:
        ordered = sorted(known)
        place = ordered.index(min(known, key=lambda n: known[n]))
        low, high = ordered[max(0, place - 1)], ordered[min(len(ordered) - 1, place + 1)]
        for n in np.unique(np.linspace(low, high, 7).round().astype(int)):
            if int(n) not in known:
                known[int(n)] = at(int(n))
    numbers = sorted(known)
    return Curve(
        strategy,
        np.array(numbers, dtype=np.float64),
        np.array([known[n] for n in numbers]),
        "schedule",
    )


def _past(seconds: list[float]) -> bool:
    """Whether two numbers of streams in a row were clearly worse than the best: larger ones only cost."""
    return len(seconds) > 2 and min(seconds[-2:]) > min(seconds) * (1 + 2 * WITHIN)


def stream_ranges(problems: Sequence[Problem], machine: Machine, found: Sequence[Curve]) -> list[StreamRange]:
    """The useful numbers of streams of each problem, and [W14 §VI]'s own figure for the equation that holds there."""
    useful = [curve.useful() for curve in found]
    at_best = np.array([[float(best)] for _, best in useful])
    load = load_of(problems, machine, "streams", at_best[:, 0])
    if load.kernel.shape[1] > 1:
        load = load._replace(kernel=np.diagonal(load.kernel)[:, None])
    cut = cut_of(load, machine, lines_of(machine, "streams"), at_best)
    equations = _equations(cut, machine.category)
    # Terms of each problem as plain numbers; `best_streams` is scalar.
    plain: list[FloatArray] = [getattr(cut, name) for name in Terms._fields]
    columns = [np.broadcast_to(term, at_best.shape)[:, 0].tolist() for term in plain]
    return [
        StreamRange(
            few, many, equation, None if curve.by == "schedule" else best_streams(equation, Terms(*terms))
        )
        for (few, many), equation, curve, terms in zip(
            useful, equations, found, zip(*columns, strict=True), strict=True
        )
    ]


def _equations(cut: Cut, category: str) -> list[int]:
    """The equation that sets the time, by row."""
    if category == "two-copy-engines":
        return [5] * len(cut.streams)
    kernel_leads = eq1(cut) >= eq2(cut) if category == "implicit-synchronization" else eq3(cut) >= eq4(cut)
    pair = (1, 2) if category == "implicit-synchronization" else (3, 4)
    return [pair[0] if lead else pair[1] for lead in kernel_leads[:, 0]]


def first_numbers(problem: Problem, most: int) -> list[int]:
    """Numbers of streams to look at first: powers of two, the largest, and the one asked for."""
    if problem.chunks:
        return [len(problem.chunks)]
    powers = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    return sorted({*powers, most, problem.streams or 1})
