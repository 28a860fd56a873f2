"""One cell of `bench strategies`: all versions of one kernel on one grid, measured, and what was predicted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busfare.measure.bench.device import Timing
from busfare.measure.bench.predicting import STRATEGIES, Predicted
from busfare.measure.bench.version import Version
from busfare.measure.bench.work import Work
from busfare.measure.middle import quicker
from busfare.measure.raw import QUIETEST_ONE_IN

__all__ = ["Cell"]


@dataclass(frozen=True)
class Cell:
    """All versions of one kernel on one grid. `kernel_moments_s`: t_E of each moment by the number of chunks; `link`: all
    copies both ways at once, and nothing else, `one_way_s` those in and those out alone; `against`: what results were
    compared with.
    """

    work: Work
    kernel_moments_s: dict[int, tuple[float, ...]]
    link: Timing
    one_way_s: tuple[float, ...]
    predicted: Predicted
    versions: tuple[Version, ...]
    against: str

    @property
    def kernel_s(self) -> dict[int, float]:
        """t_E by the number of chunks: the mean of the quicker half of the moments, as of versions."""
        return {n: quicker(moments) for n, moments in self.kernel_moments_s.items()}

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
        """Seconds of all copies both ways at once, at the quietest moments: as `probe` reads such copies."""
        return quicker(self.link.device_s, QUIETEST_ONE_IN)

    @property
    def limit_s(self) -> float:
        """Nothing is faster than the link both ways, nor than the kernel."""
        return max(self.link_s, self.kernel_s[1])
