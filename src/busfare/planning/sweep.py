"""One parameter varied: every strategy's predicted time, and where the best one changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, get_args

import msgspec

from busfare.errors import InputError
from busfare.nodes import Curve
from busfare.planning.machine import HostCurves, Machine
from busfare.planning.problem import Problem
from busfare.planning.rank import Plan, plan
from busfare.planning.strategies import kernel_seconds

__all__ = ["Change", "Parameter", "Point", "Sweep", "faster_link", "sweep"]

Parameter = Literal["link", "streams", "bytes", "kernel"]
#: Powers of two about what was asked, two a step.
FACTORS = tuple(2 ** (n / 2) for n in range(-8, 9))
#: A change is placed to about a hundredth of an octave.
HALVINGS = 6
UNITS = {"link": "times the link's bandwidth", "streams": "streams", "bytes": "bytes", "kernel": "seconds"}


class Point(msgspec.Struct, frozen=True):
    """At `value`, the seconds of each strategy."""

    value: float
    best: str
    seconds: dict[str, float] = msgspec.field(name="predicted_seconds")


class Change(msgspec.Struct, frozen=True):
    """From about `value` on, `after` is best instead of `before`."""

    value: float
    before: str = msgspec.field(name="from")
    after: str = msgspec.field(name="to")


class Sweep(msgspec.Struct, frozen=True):
    """The answer for one parameter; `asked` is its value in the question."""

    parameter: str
    unit: str
    asked: float
    points: tuple[Point, ...]
    changes: tuple[Change, ...]


def faster_link(machine: Machine, factor: float) -> Machine:
    """`machine` with a host link `factor` times as fast each way; L+o, g and shares stay."""
    return replace(machine, h2d=_faster(machine.h2d, factor), d2h=_faster(machine.d2h, factor))


def _faster(curves: HostCurves, factor: float) -> HostCurves:
    now = curves.copy.long_gap_per_byte_s
    then = now / factor
    quicker = curves._replace(
        **{name: getattr(curves, name).scaled(1 / factor) for name in ("copy", "mapped", "prefetched")}
    )
    # Page faults cost what they cost beside the link, and staging overlaps with it beyond 1 MiB.
    return quicker._replace(
        faulted=_with_gaps(curves.faulted, lambda gap: max(0.0, gap - now) + then),
        pageable=_with_gaps(curves.pageable, lambda gap: max(then, gap if gap > now else 0.0)),
    )


def _with_gaps(curve: Curve, change: Callable[[float], float]) -> Curve:
    return msgspec.structs.replace(curve, gap_per_byte_s=tuple(change(gap) for gap in curve.gap_per_byte_s))


def sweep(problem: Problem, machine: Machine, parameter: str) -> Sweep:
    """Varies `parameter` of `problem` on `machine`. Raises InputError for one that is not known."""
    if parameter not in get_args(Parameter):
        raise InputError(f"--sweep {parameter[:40]!r}: not known; one of {', '.join(get_args(Parameter))}")
    if parameter == "streams":
        return _over_streams(problem, machine)
    at, asked = _asking(problem, machine, parameter)
    answers = [(factor, at(factor)) for factor in FACTORS]
    changes = tuple(
        _placed(at, asked, low, high)
        for (low, one), (high, other) in pairwise(answers)
        if one.best.strategy != other.best.strategy
    )
    points = tuple(_point(asked * factor, answer) for factor, answer in answers)
    return Sweep(parameter, UNITS[parameter], asked, points, changes)


def _asking(problem: Problem, machine: Machine, parameter: str) -> tuple[Callable[[float], Plan], float]:
    """The plan at a factor of the parameter, and the parameter's value at 1."""
    if parameter == "link":
        return lambda factor: plan(problem, faster_link(machine, factor)), 1.0
    if parameter == "bytes":
        asked = problem.h2d_bytes + problem.d2h_bytes
        return lambda factor: plan(_times(problem, factor, "h2d_bytes", "d2h_bytes"), machine), asked
    kernel = kernel_seconds(problem, machine)
    known = replace(problem, kernel_seconds=kernel)
    return lambda factor: plan(_times(known, factor, "kernel_seconds"), machine), kernel


def _times(problem: Problem, factor: float, *fields: str) -> Problem:
    """`problem` with these fields of it and of its steps `factor` times as large."""

    def scaled(one: Any) -> Any:
        return replace(one, **{field: getattr(one, field) * factor for field in fields})

    kernels = factor if "kernel_seconds" in fields else 1.0
    points = tuple((n, seconds * kernels) for n, seconds in problem.kernel_at)
    whole: Problem = replace(scaled(problem), steps=tuple(map(scaled, problem.steps)), kernel_at=points)
    return whole


def _point(value: float, answer: Plan) -> Point:
    return Point(value, answer.best.strategy, {p.strategy: p.seconds for p in answer.ranking})


def _placed(at: Callable[[float], Plan], asked: float, low: float, high: float) -> Change:
    """Where between two factors the best strategy changes, by halving."""
    before, after = at(low).best.strategy, at(high).best.strategy
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        found = at(middle).best.strategy
        if found == before:
            low = middle
        else:
            high, after = middle, found
    return Change(asked * high, before, after)


def _over_streams(problem: Problem, machine: Machine) -> Sweep:
    """Numbers of streams: all up to 16, then a few an octave."""
    most = problem.most_streams
    numbers = sorted(
        {n for n in (*range(1, 17), *(round(16 * 2 ** (k / 4)) for k in range(1, 41)), most) if n <= most}
    )
    points = [_point(n, plan(replace(problem, streams=n), machine)) for n in numbers]
    changes = [
        Change(later.value, point.best, later.best)
        for point, later in pairwise(points)
        if later.best != point.best
    ]
    asked = problem.streams or plan(problem, machine).streams.largest_useful
    return Sweep("streams", UNITS["streams"], float(asked), tuple(points), tuple(changes))
