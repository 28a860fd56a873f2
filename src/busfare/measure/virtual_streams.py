"""Streams, copy engines, kernels and mapped memory of a machine that is not there: a small simulation of flows.

It shares no code with `busfare.plan`: everything that moves is a flow with a pace, and the pace of each follows at every
moment from what else moves. How long a queue mapped writes keep, how long they hold copies and kernels wait for these, and
how a kernel's reads and writes slow each other, are the laws that `plan` has too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Activity", "Flow", "Laws", "simulate"]

Way = Literal["h2d", "d2h"]
Medium = Literal["copy", "mapped"]
#: Seconds and bytes that are none.
_DUST, _CRUMB = 1e-15, 1e-6


@dataclass
class Flow:
    """Bytes that a copy engine, or a kernel itself, moves.

    Mapped writes queue for the link, and copies the other way wait in that queue: `queue` is its length, 1 for a
    kernel that does nothing but write. For `lull` seconds there is none: it builds up and drains.
    """

    way: Way
    medium: Medium
    bytes_left: float
    queue: float = 1.0
    lull: float = 0.0

    @property
    def queue_now(self) -> float:
        """The queue's length now."""
        return 0.0 if self.lull > _DUST else self.queue


@dataclass
class Activity:
    """One operation as the machine sees it. Seconds and bytes.

    `engine` does one activity at a time, in the order of issue of those that are ready. `stream` and `after` say what
    it waits for; it cannot start before `issued_at`. `work` is what it computes, beside its `flows`, and `before` what
    it does first.
    """

    engine: Literal["h2d", "d2h", "gpu"]
    stream: int
    work: float = 0.0
    flows: list[Flow] = field(default_factory=list)
    after: tuple[int, ...] = ()
    issued_at: float = 0.0
    after_kernel: bool = False
    before: float = 0.0

    @property
    def writes_mapped(self) -> bool:
        """Whether it is a kernel that writes mapped memory."""
        return any(f.medium == "mapped" and f.way == "d2h" for f in self.flows)


@dataclass(frozen=True)
class Laws:
    """How the machine behaves. `setup(activity, turn, idle)`: seconds before the activity's bytes or work, where it is
    the engine's `turn`-th (from 1) and the engine was `idle` before; `pace(way, medium, opposite)`: seconds a byte
    while `opposite` media move data the other way, as fast and with as long a queue as they ever do. `beside(copy)`: seconds
    more before its bytes while copies go the other way.

    `kernel_wait(late)`: seconds from a copy to the kernel with mapped writes that waits for it, where it ended `late`
    seconds after such writes. None where these do not hold copies; where they do, a copy that is under way does not end
    before they do, and no other begins.
    """

    setup: Callable[[Activity, int, bool], float]
    pace: Callable[[Way, Medium, frozenset[Medium]], float]
    beside: Callable[[Activity], float] = lambda copy: 0.0
    kernel_wait: Callable[[float], float] | None = None


@dataclass
class _Running:
    index: int
    setup: float
    work: float
    flows: list[Flow]

    @property
    def done(self) -> bool:
        return self.setup <= _DUST and self.work <= _DUST and all(f.bytes_left <= _CRUMB for f in self.flows)


def simulate(activities: list[Activity], laws: Laws) -> float:
    """Seconds until the last of `activities` is done; their flows are used up.

    Raises ValueError where some can never start.
    """
    return _Machine(activities, laws).to_the_end()


class _Machine:
    """One run."""

    def __init__(self, activities: list[Activity], laws: Laws) -> None:
        self.activities, self.laws = activities, laws
        self.now = 0.0
        self.left = len(activities)
        self.waits = [0] * len(activities)
        self.wakes: list[list[int]] = [[] for _ in activities]
        self.ready: dict[str, list[int]] = {"h2d": [], "d2h": [], "gpu": []}
        self.ready_at = [0.0] * len(activities)
        self.not_issued: list[tuple[float, int]] = []
        self.running: dict[str, _Running] = {}
        self.turns = dict.fromkeys(self.ready, 0)
        self.free_since = dict.fromkeys(self.ready, -1.0)
        self.written_at = -float("inf")
        self.waited: set[int] = set()
        last: dict[int, int] = {}
        for index, activity in enumerate(activities):
            before = {*activity.after, *([last[activity.stream]] if activity.stream in last else [])}
            last[activity.stream] = index
            self.waits[index] = len(before)
            for other in before:
                self.wakes[other].append(index)
            if not before:
                self._may_start(index)

    def to_the_end(self) -> float:
        while self.left:
            while self.not_issued and self.not_issued[0][0] <= self.now:
                index = heapq.heappop(self.not_issued)[1]
                heapq.heappush(self.ready[self.activities[index].engine], index)
            for engine, queue in self.ready.items():
                if queue and engine not in self.running and not self._held(engine):
                    self._start(engine, heapq.heappop(queue))
            # What was just started may end at once, and then wake others.
            ended = [engine for engine, one in self.running.items() if one.done and not self._held(engine)]
            # Writes are over before the copies that they held.
            for engine in sorted(ended, key=lambda engine: engine != "gpu"):
                self._end(engine)
            if not ended:
                issues = [self.not_issued[0][0]] if self.not_issued else []
                self.now = _advance(self.now, self.running, issues, self.laws)
        return self.now

    def _held(self, engine: str) -> bool:
        """Whether mapped writes hold this engine's copies."""
        kernel = self.running.get("gpu")
        if self.laws.kernel_wait is None or engine != "h2d" or kernel is None or kernel.setup > _DUST:
            return False
        return any(f.medium == "mapped" and f.way == "d2h" and f.bytes_left > _CRUMB for f in kernel.flows)

    def _may_start(self, index: int, copied: bool = False) -> None:
        activity = self.activities[index]
        behind_writes = copied and activity.writes_mapped and self.written_at >= 0
        wait = self.laws.kernel_wait if behind_writes else None
        ready_at = self.now + (wait(self.now - self.written_at) if wait else 0.0)
        self.ready_at[index] = max(ready_at, activity.issued_at)
        if wait:
            self.waited.add(index)
        heapq.heappush(self.not_issued, (self.ready_at[index], index))

    def _start(self, engine: str, index: int) -> None:
        activity = self.activities[index]
        self.turns[engine] += 1
        idle = self.turns[engine] == 1 or self.ready_at[index] > self.free_since[engine]
        idle = idle and index not in self.waited  # that wait holds its start
        setup = self.laws.setup(activity, self.turns[engine], idle) + activity.before
        other = {"h2d": "d2h", "d2h": "h2d"}.get(engine, engine)
        # What an idle engine waits for anyhow hides the other one's turns.
        if other != engine and not idle and (other in self.running or self.ready[other]):
            setup += self.laws.beside(activity)
        self.running[engine] = _Running(index, setup, activity.work, activity.flows)

    def _end(self, engine: str) -> None:
        index = self.running.pop(engine).index
        self.free_since[engine] = self.now
        self.left -= 1
        if self.activities[index].writes_mapped:
            self.written_at = self.now
        for other in self.wakes[index]:
            self.waits[other] -= 1
            if not self.waits[other]:
                self._may_start(other, copied=engine == "h2d")


def _advance(now: float, running: dict[str, _Running], wakes: list[float], laws: Laws) -> float:
    """The next moment at which anything changes; everything that runs gets on until then."""
    moving = [f for one in running.values() if one.setup <= _DUST for f in one.flows if f.bytes_left > _CRUMB]
    paces = [_pace(f, [other for other in moving if other.way != f.way], laws) for f in moving]
    steps = [at - now for at in wakes]
    for one in running.values():
        if one.setup > _DUST:
            steps.append(one.setup)
        elif one.work > _DUST:
            steps.append(one.work)
    steps += [f.bytes_left * pace for f, pace in zip(moving, paces, strict=True)]
    if len(moving) > 1:
        steps += [f.lull for f in moving if f.lull > _DUST]
    if not steps:
        raise ValueError("some activities wait for each other")
    step = min(steps)
    for flow, pace in zip(moving, paces, strict=True):
        flow.bytes_left = max(0.0, flow.bytes_left - step / pace) if flow.bytes_left * pace > step else 0.0
        flow.lull = max(0.0, flow.lull - step)
    for one in running.values():
        if one.setup > _DUST:
            one.setup -= step
        elif one.work > _DUST:
            one.work -= step
    return now + step


def _pace(flow: Flow, opposite: list[Flow], laws: Laws) -> float:
    """Seconds a byte of `flow` now."""
    media = frozenset(other.medium for other in opposite)
    full = laws.pace(flow.way, flow.medium, media)
    if len(media) != 1 or (media == {"copy"} and flow.medium == "copy"):
        return full
    alone = laws.pace(flow.way, flow.medium, frozenset())
    if media == {flow.medium}:
        # A kernel mixes its reads and writes: both ways end together, and the lesser one loads the link but in part.
        other = opposite[0]
        back = laws.pace(other.way, "mapped", frozenset({"mapped"}))
        lesser, larger = sorted((flow.bytes_left * full, other.bytes_left * back))
        load = (lesser / larger) ** 2
        idle = laws.pace(other.way, "mapped", frozenset())
        own, theirs = alone + (full - alone) * load, idle + (back - idle) * load
        return max(own, theirs * other.bytes_left / flow.bytes_left)
    if flow.medium == "copy":
        return alone + (full - alone) * max(other.queue_now for other in opposite)
    # Copies that wait in a queue take less of the link.
    other = opposite[0]
    share = laws.pace(other.way, "copy", frozenset()) / _pace(other, [flow], laws)
    return alone + (full - alone) * share
