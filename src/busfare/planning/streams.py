"""Predicted time of a strategy against its number of streams, and which numbers are useful."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from busfare.errors import InputError
from busfare.nodes import Curve, FloatArray
from busfare.planning import strategies as forms
from busfare.planning.machine import Category, Machine
from busfare.planning.problem import Problem
from busfare.planning.published import streams_as_published
from busfare.planning.strategies import AT_ONCE, Cut, carried, kernel_seconds, layout_of
from busfare.timeline.program import share_with_mapped

#: Streams are worth having until the time is this near to the least.
WITHIN = 0.01
#: Problems answered at once; their times fill a few megabytes.
BLOCK = 1024
#: Up to so many problems are played, each strategy at its best number of streams; more are answered by the equations.
MOST_PLAYED = 32


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Numbers of streams: the fewest within 1 % of the least time, and the one of the least time, beyond which more
    only cost. `formula` is [W14 §VI]'s own figure, by equation `equation`; None where none follows.
    """

    smallest_useful: int
    largest_useful: int
    equation: int | None
    formula: float | None


@dataclass(frozen=True)
class ByStreams:
    """Predicted `seconds` by `numbers` of streams (chunks of `three-streams`): by an equation or, by `timeline`, played."""

    strategy: str
    numbers: FloatArray
    seconds: FloatArray
    by: str

    @cached_property
    def best(self) -> int:
        """The number of the least time."""
        return int(self.numbers[self.seconds.argmin()])

    @cached_property
    def useful(self) -> tuple[int, int]:
        """The fewest streams within 1 % of the least time, and those of the least time."""
        first = int((self.seconds <= self.seconds.min() * (1 + WITHIN)).argmax())
        return int(self.numbers[first]), self.best

    def at(self, streams: int) -> float:
        """Seconds at one of the numbers."""
        every = self.numbers[-1] == len(self.numbers)
        return float(self.seconds[streams - 1 if every else np.searchsorted(self.numbers, streams)])


class _Side(NamedTuple):
    """One direction: bytes that cross the link; seconds of them at their chunks' G and at that of long copies; L+o; how many
    copies follow another of their chunk, g of those, and g between chunks.
    """

    curve: Curve
    size: FloatArray
    moving: FloatArray
    long: FloatArray
    latency: FloatArray
    further: FloatArray
    train: FloatArray
    gap: FloatArray


def _sides(problems: Sequence[Problem], machine: Machine, strategy: str, streams: FloatArray) -> list[_Side]:
    layout = layout_of(machine, strategy)
    times = [carried(p, layout) for p in problems]
    sides = []
    for at, (direction, memory) in enumerate(zip(("h2d", "d2h"), layout[:2], strict=True)):
        curve: Curve = getattr(machine.curves(direction), memory)
        whole = [(p.h2d_bytes, p.d2h_bytes)[at] for p in problems]
        size = np.array([[whole_bytes * t[at]] for whole_bytes, t in zip(whole, times, strict=True)])
        alone = memory == "mapped" or strategy in AT_ONCE
        arrays = np.array([[1 if alone else (p.copies_in, p.copies_out)[at]] for p in problems])
        ordered = [[layout.over == "engine" or (at == 0 and p.copies_in_order)] for p in problems]
        train, part = float(curve.issue_interval(1)), size / streams / arrays
        copied = (size > 0) & (memory != "mapped")
        sides.append(
            _Side(
                curve,
                size,
                moving=size * curve.gap_per_byte(part),
                long=size * curve.long_gap_per_byte_s,
                latency=np.asarray(curve.latency_overhead(part) * (size > 0), np.float64),
                further=(arrays - 1) * streams * copied,
                train=np.asarray(train * copied, np.float64),
                gap=np.asarray(np.where(ordered, train, curve.issue_interval(streams)) * copied, np.float64),
            )
        )
    return sides


def cut_of(problems: Sequence[Problem], machine: Machine, strategy: str, streams: FloatArray) -> Cut:
    """The terms of the equations, a row a problem, for equal chunks in `streams` streams.

    A direction without data has neither L+o nor g. Where there are several arrays each way, each chunk has as many
    copies, and every copy but the chunk's first adds g of one stream. Raises InputError for a kernel without a time.
    """
    layout = layout_of(machine, strategy)
    kernel = np.array([[kernel_seconds(p, machine)] for p in problems])
    if any(p.kernel_at for p in problems):
        columns = np.broadcast_to(streams, (len(problems), streams.shape[-1]))
        rows = zip(problems, kernel, columns, strict=True)
        kernel = np.array([forms.kernel_split(p, float(whole[0]), n, layout) for p, whole, n in rows])
    into, out = sides = _sides(problems, machine, strategy, streams)
    # One unit of the GPU issues the copies of all streams in turn: each waits for the other direction's g, too, but for the
    # first two chunks in, which go before any copy out, and the last one out.
    duplex = (into.gap > 0) & (out.gap > 0) & (streams > 1)
    crossing = 1.0 if layout.over == "engine" else np.maximum(streams - 2, 0) / np.maximum(streams - 1, 1)
    trains = np.where(duplex, into.train + out.train, 0.0)
    moving = [side.moving + side.further * np.where(duplex, trains, side.train) for side in sides]
    gaps = [
        side.gap + np.where(duplex, crossing * opposite.gap, 0.0)
        for side, opposite in zip(sides, (out, into), strict=True)
    ]
    shares = forms.shares_of(machine, layout)
    slowdowns = [np.full_like(moves, 1 / share) for moves, share in zip(moving, shares, strict=True)]
    if layout.out != "mapped":
        busy = [moves + gap * (streams - 1) for moves, gap in zip(moving, gaps, strict=True)]
        # Slowed bytes move at the link's rate then, which leaves alone what is slower anyhow; and none is slowed while the
        # other direction issues.
        for n, (side, share) in enumerate(zip(sides, shares, strict=True)):
            overlap = moving[1 - n] / np.maximum(busy[1 - n], 1e-30)
            slowed = np.maximum(side.long / share - side.moving, 0.0)
            slowdowns[n] = 1 + slowed / np.maximum(busy[n], 1e-30) * overlap
    if strategy == "hybrid":
        alone = (part_seconds / streams for part_seconds in (*moving, kernel))
        slowdowns[0] = 1 / share_with_mapped(1 / slowdowns[0], *alone)
    # Copies out follow a kernel; in a stream an engine, that has waited for a copy in.
    waits = out.curve.after_kernel_s + into.curve.event_wait_s * (layout.over == "engine") * (moving[0] > 0)
    last = out.latency + waits * (out.latency > 0)
    in_place = layout.into == layout.out == "mapped"
    extra = machine.contention.mapped_start(into.size, out.size) if in_place else 0.0
    (gap_in, gap_out), (slow_in, slow_out) = gaps, slowdowns
    terms = moving[0], kernel, moving[1], into.latency, last, gap_in, gap_out, slow_in, slow_out
    return Cut(streams, *terms, extra)


def closed(cut: Cut, strategy: str, category: Category) -> tuple[FloatArray, str]:
    """Seconds by the equation that holds for a strategy on a category of device, and the equation's name."""
    if strategy == "hybrid":
        return forms.hybrid(cut), "copies beside mapped writes"
    if strategy == "mapped":
        return forms.eq6(cut), "W14 eq 6"
    if strategy not in ("streams", "three-streams", "graph"):
        return forms.explicit(cut), "W14 §III"
    if category == "implicit-synchronization":
        return np.maximum(forms.eq1(cut), forms.eq2(cut)), "W14 eq 1, 2"
    if category == "one-copy-engine":
        return np.maximum(forms.eq3(cut), forms.eq4(cut)), "W14 eq 3, 4"
    shared = max(np.max(cut.h2d_slowdown), np.max(cut.d2h_slowdown)) > 1
    return forms.eq5_shared(cut), "W14 eq 5, slowed while shared" if shared else "W14 eq 5"


def by_streams(problems: Sequence[Problem], machine: Machine, strategy: str) -> list[ByStreams]:
    """The times of each problem by its number of streams: all numbers by the equations, a block of problems at a time;
    some, played, of those that the equations do not hold for, and of hybrids of up to MOST_PLAYED problems. Raises
    InputError for a kernel without a time.
    """
    answers: list[ByStreams] = []
    # The equation of hybrids says what they take, but not at which number of streams they take the least.
    by_playing = strategy == "streams-pageable" or (strategy == "hybrid" and len(problems) <= MOST_PLAYED)
    single = layout_of(machine, strategy).over == "one"
    for start in range(0, len(problems), BLOCK):
        block = problems[start : start + BLOCK]
        numbers = np.arange(1.0, 2.0 if single else max(p.most_streams for p in block) + 1)
        seconds, by = closed(cut_of(block, machine, strategy, numbers), strategy, machine.category)
        for problem, row in zip(block, np.broadcast_to(seconds, (len(block), len(numbers))), strict=True):
            most = 1 if single else problem.most_streams
            if by_playing or not problem.has_closed_form:
                answers.append(_by_playing(problem, machine, strategy, most))
            else:
                allocating = problem.reallocate and allocation_of(problem, machine, strategy).seconds
                answers.append(ByStreams(strategy, numbers[:most], row[:most] + allocating, by))
    return answers


def played(problem: Problem, machine: Machine, strategy: str, streams: int = 1) -> float:
    """Seconds of a strategy's program. Raises InputError for a kernel without a time."""
    once = problem.launch_seconds if strategy == "graph" else 0.0
    once += problem.reallocate and allocation_of(problem, machine, strategy).seconds
    return once + forms.program_of(problem, machine, strategy, streams).play().seconds


class Allocation(NamedTuple):
    """What allocating and freeing a strategy's device buffers adds to an iteration; of that, what it slows copies by."""

    bytes: float
    seconds: float
    copies_seconds: float


def allocation_of(problem: Problem, machine: Machine, strategy: str) -> Allocation:
    """A buffer for each array that is not mapped or managed. Raises InputError where the node does not say what it costs."""
    if (cost := machine.node.call_cost("allocate-device")) is None:
        what = f"node {machine.node.name} lacks the cost of device allocations"
        raise InputError(f"`reallocate`: {what}; probe it (`busfare probe`), or leave this out")
    into, out, _ = layout_of(machine, strategy)
    arrays = (problem.h2d_bytes, problem.copies_in, into), (problem.d2h_bytes, problem.copies_out, out)
    copied = [(size, n) for size, n, memory in arrays if size and memory in ("copy", "pageable")]
    buffers = [size / n for size, n in copied for _ in range(n)]
    calls = sum(cost.seconds(size) for size in buffers)
    # The driver clears what was freed, also during the calls for further buffers. Copies to the GPU wait, and no others.
    cleared = sum(buffers) * (cost.wait_per_byte_s + (cost.call_per_byte_s or 0.0))
    copies_s = max(cleared - calls, 0.0) if problem.h2d_bytes and into != "mapped" else 0.0
    return Allocation(sum(buffers), calls + copies_s, copies_s)


def _by_playing(problem: Problem, machine: Machine, strategy: str, most: int) -> ByStreams:
    """Played at powers of two until more only cost, then at a few numbers about the best."""
    times: dict[int, float] = {}

    def play(n: int) -> None:
        times[n] = played(problem, machine, strategy, n)

    if most == 1:
        play(most)
    else:
        for n in (*(1 << power for power in range((most - 1).bit_length())), most):
            if len(times) > 2 and min([*times.values()][-2:]) > min(times.values()) * (1 + 2 * WITHIN):
                break
            play(n)
        ordered, best = sorted(times), min(times, key=lambda n: times[n])
        place = ordered.index(best)
        around = np.linspace(ordered[max(0, place - 1)], ordered[min(len(ordered) - 1, place + 1)], 7)
        for n in {*around.round().astype(int).tolist(), problem.streams or best} - times.keys():
            play(n)
    numbers = sorted(times)
    seconds = np.array([times[n] for n in numbers])
    return ByStreams(strategy, np.array(numbers, np.float64), seconds, "timeline")


def stream_ranges(
    problems: Sequence[Problem], machine: Machine, by_number: Sequence[ByStreams]
) -> list[StreamRange]:
    """The useful numbers of streams of each problem, and [W14 §VI]'s own figure for the equation that holds there."""
    ranges = []
    for problem, times in zip(problems, by_number, strict=True):
        equation, formula = streams_as_published(problem, machine)
        ranges.append(StreamRange(*times.useful, equation, formula if times.by != "timeline" else None))
    return ranges
