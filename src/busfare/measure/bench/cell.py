"""One cell of `bench strategies`: all versions of one kernel on one grid, measured, and what was predicted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from busfare.measure.bench.device import Timing
from busfare.measure.bench.predicting import STRATEGIES, Predicted
from busfare.measure.bench.program import Work
from busfare.measure.raw import QUIETEST_ONE_IN
from busfare.measure.summary import fastest_part, median
from busfare.plan import Prediction

__all__ = ["Cell", "Version", "seconds_of"]

#: What moves data both ways at once, for longer than this: such copies live on the host's memory, which other programs
#: slow for most of a run, but not for every millisecond of it.
_BOTH_WAYS = frozenset(("mapped", "streams", "three-streams", "hybrid", "graph", "streams-2gpu"))
_SHORT_S = 5e-4


def seconds_of(strategy: str, samples: Sequence[float], visits: Sequence[int]) -> float:
    """What counts of `samples` (s), of which each moment took so many: the mean of the quicker half of the moments' medians,
    or, of data both ways at once, of the quickest quarter of all samples: as `probe` reads its own. Raises ValueError for no
    samples.
    """
    ends = accumulate(visits or (len(samples),), initial=0)
    by_moment = fastest_part([median(samples[a:b]) for a, b in pairwise(ends)])
    if strategy not in _BOTH_WAYS or by_moment < _SHORT_S:
        return by_moment
    return fastest_part(samples, QUIETEST_ONE_IN)


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
    def seconds(self) -> float:
        """What counts of the device's seconds."""
        return seconds_of(self.strategy, self.timing.device_s, self.visits)


@dataclass(frozen=True)
class Cell:
    """All versions of one kernel on one grid. `kernel_samples_s`: t_E by the number of chunks; `link`: all copies both
    ways at once, and nothing else, `one_way_s` those in and those out alone; `against`: what results were compared with.
    """

    work: Work
    kernel_samples_s: dict[int, tuple[float, ...]]
    link: Timing
    one_way_s: tuple[float, ...]
    predicted: Predicted
    versions: tuple[Version, ...]
    against: str

    @property
    def kernel_s(self) -> dict[int, float]:
        """t_E by the number of chunks: the median of its samples."""
        return {n: median(samples) for n, samples in self.kernel_samples_s.items()}

    def fastest(self, strategies: Sequence[str] = STRATEGIES) -> Version:
        """The fastest measured version of some strategies."""
        return min((v for v in self.versions if v.strategy in strategies), key=lambda v: v.seconds)

    def of(self, strategy: str, streams: int | None = None) -> Version | None:
        """A version; None where it was not measured."""
        return next(
            (v for v in self.versions if v.strategy == strategy and streams in (None, v.streams)), None
        )

    @property
    def link_s(self) -> float:
        """Seconds of all copies both ways at once, at the quietest moments."""
        return fastest_part(self.link.device_s, QUIETEST_ONE_IN)

    @property
    def limit_s(self) -> float:
        """Nothing is faster than the link both ways, nor than the kernel."""
        return max(self.link_s, self.kernel_s[1])
