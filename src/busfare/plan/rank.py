"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busfare.plan.curve import Curve, StreamRange
from busfare.plan.machine import Machine
from busfare.plan.one_stream import in_one_stream, of_pageable
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.work import kernel_seconds

__all__ = ["Bounds", "Plan", "full_overlap", "plan"]

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
class Bounds:
    """Seconds: nothing is faster than full overlap; no overlap is the explicit copy; mapped is [W14 eq 6]."""

    full_overlap: float
    no_overlap: float
    mapped: float


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
    curve = Curve(problem, machine, "streams", numbers)
    found = [
        curve.prediction(problem.streams),
        Curve(problem, machine, "hybrid", numbers).prediction(problem.streams),
    ]
    found += in_one_stream(problem, machine)
    found += of_pageable(problem, machine)
    if problem.launch_seconds:
        found.append(Curve(problem, machine, "graph", numbers).prediction(problem.streams))
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
