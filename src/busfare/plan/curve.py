"""Predicted time of a strategy with streams against their number, and which numbers are useful."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.plan.equations import Cut, best_streams, eq1, eq2, eq3, eq4, eq5_shared
from busfare.plan.machine import Machine
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.schedule import makespan
from busfare.plan.work import Sides, cut_of, engines_of, sides_of, tasks_of

__all__ = ["WITHIN", "Curve", "StreamRange", "first_numbers", "streams_seconds"]

#: Streams are worth having until the time is this near to the least.
WITHIN = 0.01


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Numbers of streams: the fewest within 1 % of the least time, and the one of the least time, beyond which more
    only cost. `formula` is [W14 §VI]'s own figure, by equation `equation`; None where none follows.
    """

    smallest_useful: int
    largest_useful: int
    equation: int | None
    formula: float | None


def streams_seconds(cut: Cut, sides: Sides, category: str) -> tuple[FloatArray, str]:
    """Seconds of equal chunks in streams, by the closed form of the device's category, and the form's name."""
    if category == "implicit-synchronization":
        return np.maximum(eq1(cut), eq2(cut)), "W14 eq 1, 2"
    if category == "one-copy-engine":
        return np.maximum(eq3(cut), eq4(cut)), "W14 eq 3, 4"
    slow = np.asarray(sides.h2d_slowdown), np.asarray(sides.d2h_slowdown)
    shared = max(slow) > 1
    return eq5_shared(cut, *slow), "W14 eq 5, slowed while shared" if shared else "W14 eq 5"


class Curve:
    """Predicted seconds of a strategy with streams against their number."""

    def __init__(self, problem: Problem, machine: Machine, strategy: str, numbers: FloatArray) -> None:
        self.problem, self.machine, self.strategy = problem, machine, strategy
        self.sides = sides_of(problem, machine, strategy)
        self.category = "two-copy-engines" if strategy == "hybrid" else machine.category
        self.numbers = numbers
        self.cut = cut_of(problem, machine, self.sides, numbers)
        self.seconds, self.by = streams_seconds(self.cut, self.sides, self.category)
        if problem.needs_schedule:
            self._schedule()

    def _schedule(self) -> None:
        """Replaces the closed form by the schedule, at as many numbers as tell the least one."""
        self.by = "schedule"
        engines = engines_of(self.problem, self.machine, self.strategy, self.sides)
        once = self.problem.launch_seconds if self.strategy == "graph" else 0.0

        def at(streams: int) -> float:
            tasks = tasks_of(self.problem, self.machine, self.sides, streams)
            return once + makespan(tasks, engines)

        known = {int(n): at(int(n)) for n in first_numbers(self.problem, len(self.numbers))}
        if len(known) > 2:
            ordered = sorted(known)
            place = ordered.index(min(known, key=lambda n: known[n]))
            low, high = ordered[max(0, place - 1)], ordered[min(len(ordered) - 1, place + 1)]
            for n in np.unique(np.linspace(low, high, 9).round().astype(int)):
                known.setdefault(int(n), at(int(n)))
        self.numbers = np.array(sorted(known), dtype=np.float64)
        self.seconds = np.array([known[int(n)] for n in self.numbers])

    def prediction(self, asked: int | None) -> Prediction:
        """At `asked` streams, or at the best number."""
        place = int(np.argmin(self.seconds))
        if asked is not None and not self.problem.chunks:
            place = int(np.searchsorted(self.numbers, asked))
        return Prediction(self.strategy, int(self.numbers[place]), float(self.seconds[place]), self.by)

    def range(self) -> StreamRange:
        """The useful numbers of streams."""
        best = int(np.argmin(self.seconds))
        good = np.flatnonzero(self.seconds <= self.seconds[best] * (1 + WITHIN))
        equation = self._equation(best)
        formula = None if self.by == "schedule" else best_streams(equation, self._scalars())
        return StreamRange(int(self.numbers[good[0]]), int(self.numbers[best]), equation, formula)

    def _scalars(self) -> Cut:
        return Cut(*(np.asarray(np.asarray(term).reshape(-1)[-1]) for term in self.cut))

    def _equation(self, best: int) -> int:
        """The equation that sets the time of the best number."""
        if self.category == "two-copy-engines":
            return 5
        pair = (1, 2) if self.category == "implicit-synchronization" else (3, 4)
        first, second = (eq1, eq2) if pair == (1, 2) else (eq3, eq4)
        if self.by == "schedule":
            return pair[0]
        return pair[int(np.asarray(second(self.cut))[best] > np.asarray(first(self.cut))[best])]


def first_numbers(problem: Problem, most: int) -> list[int]:
    """Numbers of streams to look at first: powers of two, the largest, and the one asked for."""
    if problem.chunks:
        return [len(problem.chunks)]
    powers = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    return sorted({*powers, most, problem.streams or 1})
