"""Every strategy that fits a problem, fastest first, with the number of streams that its prediction is for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from busfare.nodes import Curve
from busfare.planning.machine import Machine, migrates_on_fault
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


class Parts(msgspec.Struct, frozen=True, rename="{}_seconds".format):
    """Seconds of each part by itself at its fastest, by copy or in place."""

    h2d: float
    kernel: float
    d2h: float

    @property
    def dominant(self) -> str:
        """The longest part: `kernel`, `h2d` or `d2h`."""
        return max(self.__struct_fields__, key=lambda part: float(getattr(self, part)))


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one problem on one machine. `useful`: the fewest and most streams or chunks that help each strategy."""

    problem: Problem
    machine: Machine
    ranking: tuple[Prediction, ...]
    bounds: Bounds
    streams: StreamRange
    parts: Parts
    useful: dict[str, tuple[int, int]]

    @property
    def best(self) -> Prediction:
        """The fastest strategy that assumes nothing which the problem does not say."""
        return self.ranking[0]


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
    if migrates_on_fault(machine.gpu) and not machine.gpu.unified_memory:
        always.append("managed-prefetch")
    times = {strategy: by_streams(problems, machine, strategy) for strategy in always}
    ranges = stream_ranges(problems, machine, times["streams"])
    fastest = [min(map(_least_per_byte, curves)) for curves in (machine.h2d, machine.d2h)]
    answers = []
    for n, problem in enumerate(problems):
        duplex = problem.h2d_bytes and problem.d2h_bytes  # else a hybrid is streams, or mapped
        by_strategy = {name: curves[n] for name, curves in times.items() if duplex or name != "hybrid"}
        wanted = {
            "batched": problem.copies_in > 1 or problem.copies_out > 1,
            "explicit-pageable": problem.memory == "pageable",
            "streams-pageable": problem.memory == "pageable",
            "graph": problem.launch_seconds > 0,
        }
        more = [strategy for strategy, has in wanted.items() if has]
        by_strategy |= {name: by_streams([problem], machine, name)[0] for name in more}
        play = not (several and problem.has_closed_form)
        ranking = ranked([_predicted(problem, machine, curve, play) for curve in by_strategy.values()])
        kernel = min([kernel_seconds(problem, machine), *(seconds for _, seconds in problem.kernel_at)])
        parts = Parts(problem.h2d_bytes * fastest[0], kernel, problem.d2h_bytes * fastest[1])
        plain = {p.strategy: p.seconds for p in ranking}
        bounds = Bounds(max(parts.h2d, parts.kernel, parts.d2h), plain["explicit"], plain["mapped"])
        useful = {strategy: by_strategy[strategy].useful for strategy in CUT if strategy in by_strategy}
        answers.append(Plan(problem, machine, tuple(ranking), bounds, ranges[n], parts, useful))
    return answers


def _predicted(problem: Problem, machine: Machine, times: ByStreams, play: bool) -> Prediction:
    """At the asked number of streams or the best one; played, unless the times are or it is not to be."""
    chosen = None if len(times.numbers) == 1 else problem.streams
    streams = times.best if chosen is None else chosen
    played_now = play and times.by != "timeline"
    seconds = played(problem, machine, times.strategy, streams) if played_now else times.at(streams)
    return Prediction(times.strategy, streams, seconds, times.by, _assumed(problem, machine, times.strategy))


def ranked(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The fastest first, and before all others the fastest that assumes nothing that the problem does not say.

    `three-streams` stand before `streams` within 1 %, which no model tells apart: in order, copies wait for no other
    stream, and a stream a chunk was measured clearly faster only where kernels of several fill the GPU together
    [results/bench, docs/which-method.md].
    """
    seconds = {p.strategy: p.seconds for p in predictions}
    in_order, apart = (seconds.get(name, float("inf")) for name in ("three-streams", "streams"))
    if in_order <= apart * (1 + WITHIN):
        seconds["three-streams"] = min(apart, in_order)
    order = sorted(predictions, key=lambda p: (seconds[p.strategy], EFFORT[p.strategy]))
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
    """At how many accesses to each element a strategy that assumes one stops being faster than the best. None where no such
    strategy is ahead; infinite where accesses never make it slower.
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
