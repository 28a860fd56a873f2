"""Quiet moments: those at which the processor that measures is as fast as it gets.

Another program on the same core (on a shared machine, of another guest) halves its pace for seconds on end; pageable
copies, which it moves itself, then take 10 to 100 % longer, and a pinned copy's host memory may be slow too.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np

from busfare.measure.case import Samples
from busfare.measure.host import move_to, near, pace, processor
from busfare.measure.raw import Measurement, Record

__all__ = ["Processor", "quiet", "quiet_pace_s", "quiet_share"]

#: One visit in so many is quiet even on a busy machine: their pace is that of a quiet moment.
QUIET_ONE_IN = 10
#: Times as slow as then and still quiet: for what the processor moves itself, and for what it only starts.
SLOW, SLOW_STARTS = 1.3, 2.5
#: Visits that are counted at least: where fewer were quiet, the quickest ones.
LEAST_QUIET = 4
#: Quicker processors are looked for no more often than this: trying all takes a millisecond.
LOOK_EVERY_S = 0.02
#: `none` is what calls take.
_BY_PROCESSOR = ("pageable", "managed", "none")


class Processor:
    """The processor that this thread runs on, watched from visit to visit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._looked, self._paces = clock, -math.inf, [pace()]
        self.moves = 0
        self._look(all_=True)

    def ready(self) -> tuple[int | None, float]:
        """Moves to a quicker processor where this one is slow and another is not; its number, and its pace (s)."""
        took = pace()
        if took > SLOW * self._quiet_s and self._clock() - self._looked > LOOK_EVERY_S:
            took = self._look()
        insort(self._paces, took)
        return processor(), took

    @property
    def _quiet_s(self) -> float:
        return self._paces[len(self._paces) // QUIET_ONE_IN]

    def _look(self, all_: bool = False) -> float:
        """Tries the other processors of this memory, `all_` or until one is quiet, and stays at the quickest."""
        self._looked = self._clock()
        here = processor()
        if here is None:
            return self._paces[-1]
        found = {here: pace()}
        for other in near(here):
            if not move_to(other):
                break
            found[other] = pace()
            insort(self._paces, found[other])
            if not all_ and found[other] <= SLOW * self._quiet_s:
                break
        best = here if found[here] <= SLOW * self._quiet_s else min(found, key=lambda number: found[number])
        move_to(best)
        self.moves += best != here
        return found[best]


def quiet_pace_s(record: Record) -> float | None:
    """Seconds of the fixed piece of work at a quiet moment; None where the record does not tell."""
    paces = [v.pace_s for m in record.measurements for v in m.moments if v.pace_s is not None]
    return float(np.quantile(paces, 1 / QUIET_ONE_IN)) if paces else None


def quiet_share(record: Record) -> float | None:
    """The share of all visits that began at a quiet moment; None where the record does not tell."""
    limit = quiet_pace_s(record)
    if limit is None:
        return None
    paces = np.array([v.pace_s or 0.0 for m in record.measurements for v in m.moments])
    return float((paces <= SLOW * limit).mean())


def quiet(record: Record) -> Record:
    """The record with those visits alone that began at quiet moments, by the pace noted before each: by nothing that
    was measured in it. Where fewer than LEAST_QUIET of a case were quiet, its quickest so many.
    """
    limit = quiet_pace_s(record)
    if limit is None:
        return record
    return replace(record, measurements=[_of_quiet(m, limit) for m in record.measurements])


def _of_quiet(m: Measurement, quiet_s: float) -> Measurement:
    if len(m.moments) != len(m.visits):
        return m
    limit = quiet_s * (SLOW if m.case.memory in _BY_PROCESSOR else SLOW_STARTS)
    paces = np.array([v.pace_s or 0.0 for v in m.moments])
    order = np.argsort(np.maximum(paces, limit), kind="stable")
    kept = sorted(order[: max(int((paces <= limit).sum()), LEAST_QUIET)])
    if len(kept) == len(m.visits):
        return m
    ends = [0, *accumulate(m.visits)]

    def of(samples: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(s for n in kept for s in samples[ends[n] : ends[n + 1]])

    return replace(
        m,
        samples=Samples(of(m.samples.device_s), of(m.samples.api_s)),
        visits=tuple(m.visits[n] for n in kept),
        moments=tuple(m.moments[n] for n in kept),
    )
