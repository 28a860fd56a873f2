"""Unions of time intervals, and what lies inside and outside of them.

Intervals come as two integer arrays of shape (n,), starts and ends in nanoseconds, with start ≤ end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from busfare.trace import _columns

__all__ = ["Union"]

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in order of time, in nanoseconds."""

    starts: Times
    ends: Times

    @staticmethod
    def of(starts: Times, ends: Times) -> Union:
        """The union of any intervals, in any order."""
        if len(starts) == 0:
            return Union(np.zeros(0, np.int64), np.zeros(0, np.int64))
        lane, chosen = np.zeros(len(starts), np.uint32), np.ones(1, np.uint8)
        united = _columns.unite(starts, ends, lane, chosen)
        if united is None:  # they are not in order
            order = np.argsort(starts, kind="stable")
            united = _columns.unite(starts[order], ends[order], lane, chosen)
            assert united is not None
        return Union(*united)

    @cached_property
    def before(self) -> Times:
        """The length of all intervals before each."""
        before = np.zeros(len(self.starts), np.int64)
        np.cumsum((self.ends - self.starts)[:-1], out=before[1:])
        return before

    def length(self) -> int:
        """Nanoseconds covered."""
        return int(self.ends.sum() - self.starts.sum())

    def covered_before(self, times: Times) -> Times:
        """How many nanoseconds of the union lie before each of `times`; shape (n,)."""
        if len(self.starts) == 0:
            return np.zeros(len(times), np.int64)
        index = np.maximum(np.searchsorted(self.starts, times, side="right") - 1, 0)
        inside = np.clip(times, self.starts[index], self.ends[index]) - self.starts[index]
        return np.asarray(self.before[index] + inside, np.int64)

    def covered_within(self, starts: Times, ends: Times) -> Times:
        """How many nanoseconds of the union lie within each interval; shape (n,)."""
        return self.covered_before(ends) - self.covered_before(starts)

    def minus(self, other: Union) -> int:
        """Nanoseconds covered by this union and not by the other."""
        return self.length() - _columns.shared(self.starts, self.ends, other.starts, other.ends)

    def gaps(self) -> tuple[Times, Times]:
        """Starts and ends of the gaps between the intervals."""
        return self.ends[:-1], self.starts[1:]
