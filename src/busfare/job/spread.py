"""How a figure spreads over the ranks of a job: exact sum, least and most, quantiles within half a percent."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from busfare.job.bounded import Least

__all__ = ["RELATIVE_ERROR", "Rank", "Spread"]

#: Values share a bin if they are this close: DDSketch [Masson et al. 2019], whose bins merge by adding counts.
RELATIVE_ERROR = 0.005
_GROWTH = math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
LISTED = 16


class Rank(msgspec.Struct, frozen=True, order=True):
    """One trace of the job, as a user finds it again."""

    path: str
    rank: int | None = None
    host: str | None = None


class Spread:
    """Values of whole numbers, at least 0, one a trace."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self._bins: dict[int, int] = {}
        # Ties are broken by path, so that the lists are the same in whatever order traces arrive.
        self._most: Least[tuple[int, Rank]] = Least(LISTED, lambda held: (-held[0], held[1].path))
        self._least: Least[tuple[int, Rank]] = Least(LISTED, lambda held: (held[0], held[1].path))

    def add(self, value: int, rank: Rank) -> None:
        self.count += 1
        self.sum += value
        number = _bin(value)
        self._bins[number] = self._bins.get(number, 0) + 1
        self._most.add((value, rank))
        self._least.add((value, rank))

    def merge(self, other: Spread) -> None:
        self.count += other.count
        self.sum += other.sum
        for number, count in other._bins.items():
            self._bins[number] = self._bins.get(number, 0) + count
        self._most.merge(other._most)
        self._least.merge(other._least)

    def most(self) -> list[tuple[int, Rank]]:
        """The largest values, at most LISTED, largest first."""
        return list(self._most)

    def least(self) -> list[tuple[int, Rank]]:
        """The smallest values, at most LISTED, smallest first."""
        return list(self._least)

    def quantile(self, share: float) -> float:
        """The value below which `share` of all lie, within RELATIVE_ERROR of a value that occurred; 0 for none."""
        if not self.count:
            return 0.0
        wanted = share * (self.count - 1)
        seen = 0
        for number, count in sorted(self._bins.items()):
            seen += count
            if seen > wanted:
                lowest, highest = self.least()[0][0], self.most()[0][0]
                return float(min(max(_middle(number), lowest), highest))
        raise AssertionError("the counts of the bins add up to the count")

    def above(self, limit: float) -> int:
        """How many values lie above `limit`, within RELATIVE_ERROR of it."""
        return sum(count for number, count in self._bins.items() if _middle(number) > limit)

    def bars(self, most: int) -> Iterator[tuple[float, float, int]]:
        """Lower and upper bound and count of neighbouring bins, joined into at most `most` bars; zero is left out."""
        numbers = [number for number in self._bins if number >= 0]
        if not numbers:
            return
        first, last = min(numbers), max(numbers)
        width = max(1, -(-(last - first + 1) // most))
        for start in range(first, last + 1, width):
            count = sum(self._bins.get(number, 0) for number in range(start, start + width))
            yield math.exp((start - 1) * _GROWTH), math.exp((start + width - 1) * _GROWTH), count


def _bin(value: int) -> int:
    return -1 if value <= 0 else math.ceil(math.log(value) / _GROWTH)


def _middle(number: int) -> float:
    return 0.0 if number < 0 else 2 * math.exp(number * _GROWTH) / (1 + math.exp(_GROWTH))
