"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busfare.plan.curve import StreamRange, curves, stream_ranges
from busfare.plan.machine import Machine
from busfare.plan.one_stream import in_one_stream, of_pageable
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.work import kernel_seconds

__all__ = ["Bounds", "Plan", "plan", "plans"]

#: Of strategies that take as long, the one with less to write comes first.
EFFORT = {
    name: place
    for place, name in enumerate(
        (
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
    )
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds: nothing is faster than full overlap; no overlap is the explicit copy; mapped is [W14 eq 6]."""

    full_overlap: float
    no_overlap: float
    mapped: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one problem on one machine. `parts` are the seconds of each part at full speed; `useful` the
    fewest and the most streams that help each strategy that has them.
    """

    problem: Problem
    machine: Machine
    ranking: tuple[Prediction, ...]
    bounds: Bounds
    streams: StreamRange
    parts: dict[str, float]
    useful: dict[str, tuple[int, int]]

    @property
    def best(self) -> Prediction:
        """The fastest strategy."""
        return self.ranking[0]

    @property
    def dominant(self) -> str:
        """The longest part: `kernel`, `h2d` or `d2h`."""
        return max(self.parts, key=lambda part: self.parts[part])


def plan(problem: Problem, machine: Machine) -> Plan:
    """Ranks the strategies for `problem` on `machine`. Raises InputError where the kernel's time cannot be known."""
    return plans([problem], machine)[0]


def plans(problems: Sequence[Problem], machine: Machine) -> list[Plan]:
    """`plan` of each problem, many at once."""
    streams, hybrids = (curves(problems, machine, strategy) for strategy in ("streams", "hybrid"))
    ranges = stream_ranges(problems, machine, streams)
    others = in_one_stream(problems, machine)
    least = _least_gaps(machine)
    found = []
    for problem, into, both, useful, single in zip(problems, streams, hybrids, ranges, others, strict=True):
        asked = None if problem.chunks else problem.streams
        ranking = [*single, into.prediction(asked), both.prediction(asked), *of_pageable(problem, machine)]
        if problem.launch_seconds:
            ranking.append(curves([problem], machine, "graph")[0].prediction(asked))
        ranking.sort(key=lambda p: (p.seconds, EFFORT[p.strategy]))
        kernel = kernel_seconds(problem, machine)
        found.append(
            Plan(
                problem,
                machine,
                tuple(ranking),
                Bounds(_full_overlap(problem, kernel, least), single[0].seconds, single[1].seconds),
                useful,
                {
                    "h2d": problem.h2d_bytes * machine.h2d.copy.long_gap,
                    "kernel": kernel,
                    "d2h": problem.d2h_bytes * machine.d2h.copy.long_gap,
                },
                {"streams": (useful.smallest_useful, useful.largest_useful), "hybrid": both.useful()},
            )
        )
    return found


def _least_gaps(machine: Machine) -> tuple[float, float]:
    """The fewest seconds a byte of anything that carries data, each way."""
    into, out = (
        min(g for line in (way.copy, way.mapped, way.pageable, way.faulted) for g in line.gaps_per_byte)
        for way in (machine.h2d, machine.d2h)
    )
    return into, out


def _full_overlap(problem: Problem, kernel: float, least: tuple[float, float]) -> float:
    """The longest of the three parts at its fastest: seconds that no strategy beats."""
    kernel = min([kernel, *(seconds for _, seconds in problem.kernel_at)]) / problem.concurrent_kernels
    return max(problem.h2d_bytes * least[0], kernel, problem.d2h_bytes * least[1])
