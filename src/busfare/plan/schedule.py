"""Copies and kernels on a GPU's engines, event by event: what the closed forms cannot say.

A task starts when the host has issued it, what it depends on is done, the task before it in its hardware queue has
started, and its engine is free; of several the one issued first goes first. A copy holds its engine for `gap` and
its bytes, and is complete L+o − g later, so that n copies back to back take (L+o) + k·G + g(n−1) [W14 §V]. While
both directions move bytes each is slowed by its factor. Kernels have slots of their own.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

__all__ = ["Engines", "Task", "makespan"]

INFINITY = float("inf")


@dataclass(slots=True)
class Task:
    """One operation, in the order of issue. Seconds.

    `seconds`: a kernel's time, or k·G of a copy alone; `gap` and `latency`: g and L+o of a copy. `after` are
    indices of earlier tasks; tasks of one hardware `queue` start in order. `blocks_host`: the host waits for it.
    """

    kind: Literal["h2d", "kernel", "d2h"]
    seconds: float
    gap: float = 0.0
    latency: float = 0.0
    after: tuple[int, ...] = ()
    queue: int | None = None
    blocks_host: bool = False


@dataclass(frozen=True, slots=True)
class Engines:
    """What runs tasks. Slow-downs are factors of 1 at least; `launch` is the host's time for each call, in seconds."""

    one_copy_engine: bool = False
    implicit_synchronization: bool = False
    kernels: int = 1
    h2d_slowdown: float = 1.0
    d2h_slowdown: float = 1.0
    launch: float = 0.0


def makespan(tasks: list[Task], engines: Engines) -> float:
    """Seconds from the first call until the last task is complete; 0 for no tasks.

    Raises ValueError where a task depends on a later one.
    """
    return _Run(tasks, engines).to_the_end()


class _Copy:
    """A copy that holds its engine: first for its gap, then while its bytes move."""

    __slots__ = ("index", "moves_at", "rest")

    def __init__(self, index: int, moves_at: float, rest: float) -> None:
        self.index, self.moves_at, self.rest = index, moves_at, rest


class _Run:
    """One pass over the tasks."""

    def __init__(self, tasks: list[Task], engines: Engines) -> None:
        self.tasks, self.engines = tasks, engines
        self.both = {"h2d": engines.h2d_slowdown, "d2h": engines.d2h_slowdown}
        self.now = 0.0
        self.waits = [1] * len(tasks)  # the first: to be issued
        self.wakes: list[list[int]] = [[] for _ in tasks]  # on completion
        self.follows: list[list[int]] = [[] for _ in tasks]  # on start
        self._link()
        self.ready: dict[str, list[int]] = {"h2d": [], "d2h": [], "kernel": []}
        self.copies: dict[str, _Copy] = {}
        self.done: list[tuple[float, int]] = []  # completions to come
        self.running = 0
        self.next_issue, self.issue_at = 0, engines.launch
        self.free_at = 0.0  # of the engine that copied last, where its gap outlasts the copy
        self.clear_at = 0.0  # when the last copy is complete, which one engine awaits before it turns round
        self.way = ""

    def _link(self) -> None:
        last_of_queue: dict[int, int] = {}
        kernels: list[int] = []
        for n, task in enumerate(self.tasks):
            before = set(task.after)
            if task.kind == "kernel":
                kernels.append(n)
            elif task.kind == "d2h" and self.engines.implicit_synchronization:
                before.update(kernels[-self.engines.kernels :])
            for m in before:
                if m >= n:
                    raise ValueError(f"task {n} waits for task {m}, which is issued later")
                self.wakes[m].append(n)
            self.waits[n] += len(before)
            if task.queue is not None:
                if (front := last_of_queue.get(task.queue)) is not None:
                    self.follows[front].append(n)
                    self.waits[n] += 1
                last_of_queue[task.queue] = n

    def to_the_end(self) -> float:
        while True:
            self._issue()
            self._start()
            pace = self._pace()
            at = self._next_event(pace)
            if at == INFINITY:
                return self.now
            self._advance(at, pace)

    def _issue(self) -> None:
        while self.next_issue < len(self.tasks) and self.issue_at <= self.now:
            index = self.next_issue
            self.next_issue += 1
            # A blocking call comes back when its task is complete, which `_complete` sees to.
            self.issue_at = INFINITY if self.tasks[index].blocks_host else self.now + self.engines.launch
            self._met(index)

    def _met(self, index: int) -> None:
        self.waits[index] -= 1
        if self.waits[index] == 0:
            heapq.heappush(self.ready[self.tasks[index].kind], index)

    def _start(self) -> None:
        started = True
        while started:
            started = self._start_copy() | self._start_kernel()

    def _start_kernel(self) -> bool:
        ready = self.ready["kernel"]
        if not ready or self.running >= self.engines.kernels:
            return False
        index = heapq.heappop(ready)
        self.running += 1
        heapq.heappush(self.done, (self.now + self.tasks[index].seconds, index))
        self._started(index)
        return True

    def _start_copy(self) -> bool:
        started = False
        for way in self._ways():
            ready = self.ready[way]
            if not ready or way in self.copies or (self.engines.one_copy_engine and self.copies):
                continue
            if self.now < self._start_at(way):
                continue
            index = heapq.heappop(ready)
            task = self.tasks[index]
            gap = min(task.gap, task.latency)
            self.copies[way] = _Copy(index, self.now + gap, task.seconds)
            self.way = way
            self._started(index)
            started = True
        return started

    def _start_at(self, way: str) -> float:
        """The earliest start of a copy that way, its engine being free."""
        if not self.engines.one_copy_engine:
            return self.free_at if self.way == way else 0.0
        return self.free_at if self.way in ("", way) else max(self.clear_at, self.free_at)

    def _ways(self) -> tuple[str, ...]:
        into, out = self.ready["h2d"], self.ready["d2h"]
        if into and out:
            return ("h2d", "d2h") if into[0] < out[0] else ("d2h", "h2d")
        return ("h2d",) if into else ("d2h",) if out else ()

    def _started(self, index: int) -> None:
        for follower in self.follows[index]:
            self._met(follower)

    def _pace(self) -> dict[str, float]:
        """By what each copy is slowed that moves bytes now."""
        now = self.now
        moving = {way: 1.0 for way, copy in self.copies.items() if copy.moves_at <= now}
        return moving if len(moving) < 2 else self.both

    def _next_event(self, pace: dict[str, float]) -> float:
        at = self.done[0][0] if self.done else INFINITY
        if self.next_issue < len(self.tasks):
            at = min(at, self.issue_at)
        for way, copy in self.copies.items():
            at = min(at, self.now + copy.rest * pace[way] if way in pace else copy.moves_at)
        for way in self._ways():
            if way not in self.copies and self.now < (start := self._start_at(way)):
                at = min(at, start)
        return at

    def _advance(self, at: float, pace: dict[str, float]) -> None:
        passed = at - self.now
        released = []
        for way, factor in pace.items():
            copy = self.copies[way]
            if self.now + copy.rest * factor <= at:
                released.append(way)
            else:
                copy.rest -= passed / factor
        self.now = at
        for way in released:
            index = self.copies.pop(way).index
            task = self.tasks[index]
            complete = at + max(0.0, task.latency - task.gap)
            self.free_at = at + max(0.0, task.gap - task.latency)
            self.clear_at = max(self.clear_at, complete)
            heapq.heappush(self.done, (complete, index))
        while self.done and self.done[0][0] <= at:
            self._complete(heapq.heappop(self.done)[1])

    def _complete(self, index: int) -> None:
        task = self.tasks[index]
        if task.kind == "kernel":
            self.running -= 1
        if task.blocks_host:
            self.issue_at = self.now + self.engines.launch
        for waiting in self.wakes[index]:
            self._met(waiting)
