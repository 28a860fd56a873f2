"""One strategy with one number of streams, measured at several moments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from busfare.measure.bench.device import Timing
from busfare.measure.middle import median, quicker
from busfare.plan import Prediction

__all__ = ["Version"]

#: Moments of a quiet machine differ by less.
APART = 0.015


@dataclass(frozen=True)
class Version:
    """One strategy with one number of streams: measured seconds, and what was predicted.

    `error_share` is the largest deviation from the reference over what is allowed; None where nothing was computed.
    `visits`: how many of the device's samples each moment took.
    """

    strategy: str
    streams: int
    gpus: int
    timing: Timing
    predicted: Prediction | None
    error_share: float | None
    visits: tuple[int, ...] = ()

    @property
    def of_visits(self) -> list[float]:
        """The median of each moment: samples of one share what disturbed it."""
        ends = list(accumulate(self.visits or (len(self.timing.device_s),), initial=0))
        return [median(self.timing.device_s[a:b]) for a, b in pairwise(ends)]

    @property
    def seconds(self) -> float:
        """The mean of the quicker half of the moments, of the device's seconds: what disturbs a run only makes it slower."""
        return quicker(self.of_visits)

    @property
    def apart(self) -> bool:
        """Whether the middle moment was slower than the fastest one by more than what repeats."""
        seen = sorted(self.of_visits)
        return seen[len(seen) // 2] > seen[0] * (1 + APART)
