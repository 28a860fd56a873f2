"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for; and how their
order changes with a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import msgspec

from busfare.errors import InputError
from busfare.nodes import Curve
from busfare.planning.machine import HostCurves, Machine
from busfare.planning.problem import Prediction, Problem
from busfare.planning.strategies import STRATEGIES, kernel_seconds
from busfare.planning.streams import (  # fmt: skip
    MOST_PLAYED,
    WITHIN,
    ByStreams,
    StreamRange,
    by_streams,
    played,
    stream_ranges,
)

__all__ = [
    "Bounds", "Change", "Parameter", "Plan", "Point", "Sweep", "break_even", "faster_link", "plan", "plans", "ranked",
    "sweep",
]  # fmt: skip

#: The strategies that cut the data.
CUT = ("streams", "three-streams", "hybrid")
#: So many accesses to an element, and break-even is taken to lie nowhere; it is placed to a thousandth of itself.
MOST_ACCESSES, HALVINGS = 1e6, 10
EFFORT = {strategy: place for place, strategy in enumerate(STRATEGIES)}


class Bounds(msgspec.Struct, frozen=True, rename="{}_seconds".format):
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
    several = len(problems) > MOST_PLAYED
    always = ["explicit", "mapped", "managed", *CUT]
    if machine.category == "implicit-synchronization":
        # A copy out holds later kernels up: chunk by chunk nothing would overlap.
        always.remove("three-streams")
    if machine.migrates_on_fault and not machine.gpu.unified_memory:
        always.append("managed-prefetch")
    times = {strategy: by_streams(problems, machine, strategy) for strategy in always}
    ranges = stream_ranges(problems, machine, times["streams"])
    fastest = [min(map(_least_per_byte, curves)) for curves in (machine.h2d, machine.d2h)]
    found = []
    for n, problem in enumerate(problems):
        own = {strategy: curves[n] for strategy, curves in times.items()}
        own |= {name: by_streams([problem], machine, name)[0] for name in _more(problem)}
        play = not (several and problem.has_closed_form)
        ranking = ranked([_predicted(problem, machine, one, play) for one in own.values()])
        kernel = min([kernel_seconds(problem, machine), *(seconds for _, seconds in problem.kernel_at)])
        parts = {
            "h2d": problem.h2d_bytes * fastest[0],
            "kernel": kernel / problem.concurrent_kernels,
            "d2h": problem.d2h_bytes * fastest[1],
        }
        plain = {p.strategy: p.seconds for p in ranking}
        bounds = Bounds(max(parts.values()), plain["explicit"], plain["mapped"])
        useful = {strategy: own[strategy].useful for strategy in CUT if strategy in own}
        found.append(Plan(problem, machine, tuple(ranking), bounds, ranges[n], parts, useful))
    return found


def _more(problem: Problem) -> list[str]:
    """The strategies that only some problems have."""
    wanted = {
        "batched": problem.copies_in > 1 or problem.copies_out > 1,
        "explicit-pageable": problem.memory == "pageable",
        "streams-pageable": problem.memory == "pageable",
        "graph": problem.launch_seconds > 0,
    }
    return [strategy for strategy, has in wanted.items() if has]


def _predicted(problem: Problem, machine: Machine, times: ByStreams, play: bool) -> Prediction:
    """At the asked number of streams or the best one; played, unless the times are or it is not to be."""
    asked = None if problem.chunks or len(times.numbers) == 1 else problem.streams
    streams = times.best if asked is None else asked
    played_now = play and times.by != "timeline"
    seconds = played(problem, machine, times.strategy, streams) if played_now else times.at(streams)
    return Prediction(times.strategy, streams, seconds, times.by, _assumed(problem, machine, times.strategy))


def ranked(found: Sequence[Prediction]) -> list[Prediction]:
    """The fastest first, and before all others the fastest that assumes nothing that the problem does not say.

    `three-streams` stand before `streams` within 1 %, which no model tells apart: in order, copies wait for no other
    stream, and a stream a chunk was measured clearly faster only where kernels of several fill the GPU together
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
    if not problem.assumed:
        return ()
    mapped = ("mapped", "managed") if machine.gpu.unified_memory else ("mapped",)
    pays = {
        "accesses_in": strategy in mapped and problem.h2d_bytes * machine.h2d.mapped.long_gap_per_byte_s > 0,
        "accesses_out": strategy in (*mapped, "hybrid")
        and problem.d2h_bytes * machine.d2h.mapped.long_gap_per_byte_s > 0,
    }
    return tuple(side for side in problem.assumed if pays[side])


def _least_per_byte(curve: Curve) -> float:
    """The fewest seconds a byte of one copy of any size, L+o in them: no copies back to back move data faster."""
    ends = (*curve.up_to_bytes, float("inf"))
    pieces = zip(ends, curve.latency_overhead_s, curve.gap_per_byte_s, strict=True)
    return min(latency / end + gap for end, latency, gap in pieces)


def break_even(answer: Plan) -> float | None:
    """At how many accesses to each element a strategy that assumes one stops being faster than the best.

    None where no such strategy is ahead; infinite where accesses never make it slower.
    """
    ahead = [p for p in answer.ranking if p.assumes and p.seconds < answer.best.seconds]
    if not ahead:
        return None

    def faster(accesses: float) -> bool:
        for p in ahead:
            sides: dict[str, Any] = dict.fromkeys(p.assumes, accesses)
            problem = replace(answer.problem, **sides)
            if played(problem, answer.machine, p.strategy, p.streams) < answer.best.seconds:
                return True
        return False

    low, high = 1.0, 2.0
    while faster(high):
        low, high = high, 2 * high
        if high > MOST_ACCESSES:
            return float("inf")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if faster(middle) else (low, middle)
    return high


Parameter = Literal["link", "streams", "bytes", "kernel"]
#: Powers of two about what was asked, two a step.
FACTORS = tuple(2 ** (n / 2) for n in range(-8, 9))
#: A change is placed to about a hundredth of an octave.
SWEEP_HALVINGS = 6
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
    for _ in range(SWEEP_HALVINGS):
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
