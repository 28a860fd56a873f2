"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.plan.equations import (
    Cut,
    best_streams,
    eq1,
    eq2,
    eq3,
    eq4,
    eq5_shared,
    eq6_shared,
)
from busfare.plan.machine import Machine
from busfare.plan.problem import Problem
from busfare.plan.schedule import makespan
from busfare.plan.work import (
    Sides,
    cut_of,
    engines_of,
    kernel_seconds,
    mapped_work,
    sides_of,
    tasks_of,
)

__all__ = [
    "WITHIN",
    "Bounds",
    "Plan",
    "Prediction",
    "StreamRange",
    "plan",
    "strategy_seconds",
    "streams_seconds",
]

#: Streams are worth having until the time is this near to the least.
WITHIN = 0.01
#: Of strategies that take as long, the one with less to write comes first.
EFFORT = (
    "managed",
    "mapped",
    "explicit",
    "batched",
    "explicit-pageable",
    "managed-prefetch",
    "streams",
    "streams-pageable",
    "graph",
    "hybrid",
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy takes; `by` names the equation, or the schedule."""

    strategy: str
    streams: int
    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds: nothing is faster than full overlap; no overlap is the explicit copy; mapped is [W14 eq 6]."""

    full_overlap: float
    no_overlap: float
    mapped: float


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Numbers of streams: the fewest within 1 % of the least time, and the one of the least time, beyond which more
    only cost. `formula` is [W14 §VI]'s own figure, by equation `equation`; None where none follows.
    """

    smallest_useful: int
    largest_useful: int
    equation: int | None
    formula: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one problem on one machine. `parts` are the seconds of each part at full speed."""

    problem: Problem
    machine: Machine
    ranking: tuple[Prediction, ...]
    bounds: Bounds
    streams: StreamRange
    parts: dict[str, float]

    @property
    def best(self) -> Prediction:
        return self.ranking[0]

    @property
    def dominant(self) -> str:
        """The longest part: `kernel`, `h2d` or `d2h`."""
        return max(self.parts, key=lambda part: self.parts[part])


def plan(problem: Problem, machine: Machine) -> Plan:
    """Ranks the strategies for `problem` on `machine`. Raises InputError where the kernel's time cannot be known."""
    kernel = kernel_seconds(problem, machine)
    numbers = np.arange(1.0, problem.most_streams + 1)
    curve = _Curve(problem, machine, "streams", numbers)
    found = [
        curve.prediction(problem.streams),
        _Curve(problem, machine, "hybrid", numbers).prediction(problem.streams),
    ]
    found += _single(problem, machine)
    found += _pageable(problem, machine)
    if problem.launch_seconds:
        found.append(_Curve(problem, machine, "graph", numbers).prediction(problem.streams))
    ranking = sorted(found, key=lambda p: (p.seconds, EFFORT.index(p.strategy)))
    by = {p.strategy: p.seconds for p in found}
    return Plan(
        problem,
        machine,
        tuple(ranking),
        Bounds(full_overlap(problem, machine), by["explicit"], by["mapped"]),
        curve.range(),
        {
            "h2d": problem.h2d_bytes * machine.h2d.copy.long_gap,
            "kernel": kernel,
            "d2h": problem.d2h_bytes * machine.d2h.copy.long_gap,
        },
    )


def full_overlap(problem: Problem, machine: Machine) -> float:
    """The longest of the three parts at its fastest: seconds that no strategy beats."""
    kernels = [kernel_seconds(problem, machine), *(seconds for _, seconds in problem.kernel_at)]
    into, out = (
        min(g for line in (way.copy, way.mapped, way.pageable, way.faulted) for g in line.gaps_per_byte)
        for way in (machine.h2d, machine.d2h)
    )
    return max(problem.h2d_bytes * into, min(kernels) / problem.concurrent_kernels, problem.d2h_bytes * out)


def streams_seconds(cut: Cut, sides: Sides, category: str) -> tuple[FloatArray, str]:
    """Seconds of equal chunks in streams, by the closed form of the device's category, and the form's name."""
    if category == "implicit-synchronization":
        return np.maximum(eq1(cut), eq2(cut)), "W14 eq 1, 2"
    if category == "one-copy-engine":
        return np.maximum(eq3(cut), eq4(cut)), "W14 eq 3, 4"
    slow = np.float64(sides.h2d_slowdown), np.float64(sides.d2h_slowdown)
    shared = max(slow) > 1
    return eq5_shared(cut, *slow), "W14 eq 5, slowed while shared" if shared else "W14 eq 5"  # type: ignore[arg-type]


class _Curve:
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

        def at(streams: int) -> float:
            return makespan(tasks_of(self.problem, self.machine, self.sides, streams), engines)

        known = {int(n): at(int(n)) for n in _first_numbers(self.problem, len(self.numbers))}
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
        return Cut(*(np.float64(np.asarray(term).reshape(-1)[-1]) for term in self.cut))  # type: ignore[arg-type]

    def _equation(self, best: int) -> int:
        """The equation that sets the time of the best number."""
        if self.category == "two-copy-engines":
            return 5
        pair = (1, 2) if self.category == "implicit-synchronization" else (3, 4)
        first, second = (eq1, eq2) if pair == (1, 2) else (eq3, eq4)
        if self.by == "schedule":
            return pair[0]
        return pair[int(np.asarray(second(self.cut))[best] > np.asarray(first(self.cut))[best])]


def _first_numbers(problem: Problem, most: int) -> list[int]:
    """Numbers of streams to look at first: powers of two, the largest, and the one asked for."""
    if problem.chunks:
        return [len(problem.chunks)]
    powers = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    return sorted({*powers, most, problem.streams or 1})


def _single(problem: Problem, machine: Machine) -> list[Prediction]:
    """The strategies without streams."""
    found = [
        Prediction("explicit", 1, strategy_seconds(problem, machine, "explicit"), "W14 §III"),
        Prediction("mapped", 1, mapped_seconds(problem, machine), "W14 eq 6"),
        Prediction(
            "managed", 1, strategy_seconds(problem, machine, "managed"), "page faults, then the kernel"
        ),
    ]
    if machine.migrates_on_fault and not machine.gpu.unified_memory:
        found.append(
            Prediction(
                "managed-prefetch",
                1,
                strategy_seconds(problem, machine, "managed-prefetch"),
                "prefetch, kernel, prefetch",
            )
        )
    if problem.copies_in > 1 or problem.copies_out > 1:
        found.append(
            Prediction(
                "batched", 1, strategy_seconds(problem, machine, "batched"), "one L+o for all copies each way"
            )
        )
    return found


def mapped_seconds(problem: Problem, machine: Machine) -> float:
    """Seconds of a kernel that reads and writes host memory itself [W14 eq 6], each way slowed by the other."""
    slow = np.float64(machine.h2d.beside_copy), np.float64(machine.d2h.beside_copy)
    return float(eq6_shared(mapped_work(problem, machine), *slow))  # type: ignore[arg-type]


def strategy_seconds(problem: Problem, machine: Machine, strategy: str) -> float:
    """Seconds of a strategy that does one thing after the other: copies in, kernels, copies out."""
    if strategy == "managed" and (machine.gpu.coherent or machine.gpu.unified_memory):
        return mapped_seconds(problem, machine)  # nothing migrates: the kernel reads in place
    if strategy == "managed" and not machine.migrates_on_fault:
        strategy = "pageable"  # before Pascal the driver moves whole allocations at the launch
    sides = sides_of(problem, machine, strategy)
    whole = kernel_seconds(problem, machine)
    launches = problem.launch_seconds * max(1, len(problem.steps))
    seconds = launches + whole
    steps = [(s.h2d_bytes, s.d2h_bytes) for s in problem.steps] or [(problem.h2d_bytes, problem.d2h_bytes)]
    for into, out in steps:
        for bytes_, copies, line, gap in (
            (into, problem.copies_in, sides.h2d, machine.h2d.gap),
            (out, problem.copies_out, sides.d2h, machine.d2h.gap),
        ):
            if bytes_ <= 0:
                continue
            if strategy == "explicit" or strategy == "pageable":
                each = bytes_ / copies
                fixed = line.seconds(each) + problem.launch_seconds
                further = max(gap, 0.0) if strategy == "explicit" else line.seconds(0.0)
                slope = float(line.at(np.float64(each))[1])  # type: ignore[arg-type]
                seconds += fixed + (copies - 1) * (each * slope + further)
            else:
                seconds += line.seconds(bytes_) + problem.launch_seconds
    return seconds


def _pageable(problem: Problem, machine: Machine) -> list[Prediction]:
    """The strategies that leave pageable data where it is."""
    if problem.memory != "pageable":
        return []
    sides = sides_of(problem, machine, "pageable")
    found = [
        Prediction(
            "explicit-pageable", 1, strategy_seconds(problem, machine, "pageable"), "W14 §III, staged copies"
        )
    ]
    engines = engines_of(problem, machine, "streams", sides)
    numbers = [problem.streams] if problem.streams else _first_numbers(problem, min(problem.most_streams, 64))
    seconds = {n: makespan(tasks_of(problem, machine, sides, n, blocking=True), engines) for n in numbers}
    best = min(seconds, key=lambda n: seconds[n])
    found.append(
        Prediction("streams-pageable", best, seconds[best], "schedule, the host waits for each copy")
    )
    return found


def plans(problems: Sequence[Problem], machine: Machine) -> list[Plan]:
    """`plan` of each problem."""
    return [plan(problem, machine) for problem in problems]
