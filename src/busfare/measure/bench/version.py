"""One strategy with one number of streams, measured at several moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from busfare.measure.bench.device import Timing
from busfare.measure.middle import median, quicker
from busfare.measure.raw import QUIETEST_ONE_IN
from busfare.plan import Prediction

__all__ = ["SHORT_S", "Version", "seconds_of"]

#: What moves data both ways at once, for longer than this: kernels and copies of shorter programs take turns in a time of
#: their own, a few microseconds more or less from run to run.
_BOTH_WAYS = frozenset(("mapped", "streams", "three-streams", "hybrid", "graph", "streams-2gpu"))
SHORT_S = 5e-4

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
        """The median of each moment."""
        return _of_moments(self.timing.device_s, self.visits)

    @property
    def seconds(self) -> float:
        """What counts of the device's seconds."""
        return seconds_of(self.strategy, self.timing.device_s, self.visits)

    @property
    def apart(self) -> bool:
        """Whether the middle moment was slower than the quietest by more than what repeats."""
        seen = sorted(self.of_visits)
        return seen[len(seen) // 2] > min(seen[0], self.seconds) * (1 + APART)


def seconds_of(strategy: str, samples: Sequence[float], visits: Sequence[int]) -> float:
    """What counts of `samples` (s), of which each moment took so many: the mean of the quicker half of the moments, for what
    disturbs a run only makes it slower. Of data both ways at once the quickest quarter of all samples, as `probe` reads
    such copies: they live on the host's memory, which is quiet for milliseconds, not for a whole moment. Raises ValueError
    for no samples.
    """
    by_moment = quicker(_of_moments(samples, visits))
    if strategy not in _BOTH_WAYS or by_moment < SHORT_S:
        return by_moment
    return quicker(samples, QUIETEST_ONE_IN)


def _of_moments(samples: Sequence[float], visits: Sequence[int]) -> list[float]:
    """The median of each moment: samples of one share what disturbed it."""
    ends = list(accumulate(visits or (len(samples),), initial=0))
    return [median(samples[a:b]) for a, b in pairwise(ends)]
