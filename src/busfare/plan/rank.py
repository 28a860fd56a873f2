"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from busfare.plan.curve import WITHIN, Curve, StreamRange, curves, stream_ranges
from busfare.plan.machine import Machine
from busfare.plan.one_stream import in_one_stream, of_pageable
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.work import kernel_seconds

__all__ = ["CUT", "Bounds", "Plan", "break_even", "plan", "plans", "ranked"]

#: The strategies that cut the data.
CUT = ("streams", "three-streams", "hybrid")
#: So many accesses to an element, and break-even is taken to lie nowhere; it is placed to a thousandth of itself.
MOST_ACCESSES, HALVINGS = 1e6, 10
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
            "three-streams",
            "streams",
            "streams-pageable",
            "graph",
            "hybrid",
        )
    )
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds: nothing beats full overlap, the longest part; no overlap is the explicit copy; mapped is [W14 eq 6]."""

    full_overlap: float
    no_overlap: float
    mapped: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one problem on one machine. `parts` are the seconds of each part by itself at its fastest, by copy or
    in place; `useful` the fewest and the most streams (chunks of `three-streams`) that help each strategy that has them.
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
        """The fastest strategy that assumes nothing which the problem does not say."""
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
    # A copy out holds later kernels up where synchronisation is implicit: chunk by chunk nothing would overlap.
    cut = CUT if machine.category != "implicit-synchronization" else ("streams", "hybrid")
    found = {strategy: curves(problems, machine, strategy) for strategy in cut}
    ranges = stream_ranges(problems, machine, found["streams"])
    single = in_one_stream(problems, machine)
    return [
        _planned(problem, machine, single[n], {name: found[name][n] for name in cut}, ranges[n])
        for n, problem in enumerate(problems)
    ]


def _planned(
    problem: Problem,
    machine: Machine,
    single: list[Prediction],
    cut: dict[str, Curve],
    useful: StreamRange,
) -> Plan:
    asked = None if problem.chunks else problem.streams
    every = [*single, *(curve.prediction(asked) for curve in cut.values()), *of_pageable(problem, machine)]
    if problem.launch_seconds:
        every.append(curves([problem], machine, "graph")[0].prediction(asked))
    parts = _parts(problem, machine)
    return Plan(
        problem,
        machine,
        tuple(ranked([replace(p, assumes=_assumed(problem, machine, p.strategy)) for p in every])),
        Bounds(max(parts.values()), single[0].seconds, single[1].seconds),
        useful,
        parts,
        {name: curve.useful() for name, curve in cut.items()},
    )


def ranked(found: Sequence[Prediction]) -> list[Prediction]:
    """The fastest first, and before all others the fastest that assumes nothing that the problem does not say.

    `three-streams` stand before `streams` within 1 %, which no model tells apart: in order, copies wait for the turns of no
    other stream, and a stream a chunk was measured clearly faster only where kernels of several fill the GPU together
    [results/bench, docs/which-method.md].
    """
    seconds = {p.strategy: p.seconds for p in found}
    in_order, apart = (seconds.get(name, float("inf")) for name in ("three-streams", "streams"))
    if in_order <= apart * (1 + WITHIN):
        seconds["three-streams"] = min(apart, in_order)
    order = sorted(found, key=lambda p: (seconds[p.strategy], EFFORT[p.strategy]))
    first = next(n for n, p in enumerate(order) if not p.assumes)
    return [order[first], *order[:first], *order[first + 1 :]]


def _assumed(problem: Problem, machine: Machine, strategy: str) -> tuple[str, ...]:
    """The numbers of accesses that the problem does not say and that `strategy` pays for."""
    mapped = ("mapped", "managed") if machine.gpu.coherent else ("mapped",)
    pays = {
        "accesses_in": strategy in mapped and problem.h2d_bytes * machine.h2d.mapped.long_gap > 0,
        "accesses_out": strategy in (*mapped, "hybrid")
        and problem.d2h_bytes * machine.d2h.mapped.long_gap > 0,
    }
    return tuple(side for side in problem.assumed if pays[side])


def _parts(problem: Problem, machine: Machine) -> dict[str, float]:
    """Seconds of each part at its fastest: the bytes over whatever carries them best, the kernel in as many chunks, and as
    many side by side, as suit it best.
    """
    into, out = (
        min(line.least_per_byte for line in (way.copy, way.mapped, way.pageable, way.faulted, way.prefetched))
        for way in (machine.h2d, machine.d2h)
    )
    kernel = min([kernel_seconds(problem, machine), *(seconds for _, seconds in problem.kernel_at)])
    return {
        "h2d": problem.h2d_bytes * into,
        "kernel": kernel / problem.concurrent_kernels,
        "d2h": problem.d2h_bytes * out,
    }


def break_even(answer: Plan) -> float | None:
    """At how many accesses to each element a strategy that assumes one stops being faster than the best.

    None where no such strategy is ahead; infinite where accesses never make it slower.
    """
    ahead = [p for p in answer.ranking if p.assumes and p.seconds < answer.best.seconds]
    if not ahead:
        return None

    def seconds(prediction: Prediction, accesses: float) -> float:
        sides: dict[str, Any] = dict.fromkeys(prediction.assumes, accesses)
        problem = replace(answer.problem, **sides)
        if prediction.strategy == "hybrid":
            return curves([problem], answer.machine, "hybrid")[0].prediction(problem.streams).seconds
        return in_one_stream([problem], answer.machine)[0][1].seconds

    low, high = 1.0, 2.0
    while any(seconds(p, high) < answer.best.seconds for p in ahead):
        low, high = high, 2 * high
        if high > MOST_ACCESSES:
            return float("inf")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        faster = any(seconds(p, middle) < answer.best.seconds for p in ahead)
        low, high = (middle, high) if faster else (low, middle)
    return high
