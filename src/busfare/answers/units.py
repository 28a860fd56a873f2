"""Whether units of work of two runs differ by more than the units of one run vary."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["FEWEST", "differ", "sampled"]

#: Fewer periods do not show how much they vary.
FEWEST = 5
#: Periods are compared in consecutive parts of a run, with this many samples each.
PARTS, OF_PART = 5, 8
#: One comparison in a hundred of like runs may pass the rank test.
CHANCE = 0.01


def sampled(seconds: ArrayLike) -> list[float]:
    """At most PARTS · OF_PART samples of what units took: medians of those that follow each other."""
    every = np.asarray(seconds)
    pieces = np.array_split(every, min(len(every), PARTS * OF_PART))
    return [float(np.median(piece)) for piece in pieces]


def differ(before: Sequence[float], after: Sequence[float]) -> bool | None:
    """Whether samples of two runs differ by more than those of one run do; None where there are too few to tell.

    Two things must hold. A rank test finds that they differ [Mann and Whitney 1947, normal approximation with ties]. And
    their medians differ by more than the medians of parts of either run: clocks and other programs change within a run, and
    a rank test alone would report them as a change of the program.
    """
    if min(len(before), len(after)) < FEWEST:
        return None
    distance = abs(float(np.median(after)) - float(np.median(before)))
    return distance > max(_drift(before), _drift(after)) and _chance(before, after) < CHANCE


def _drift(samples: Sequence[float]) -> float:
    """How much the medians of the parts vary; 0 where there are too few samples for parts."""
    parts = np.array_split(np.asarray(samples), max(1, min(PARTS, len(samples) // OF_PART)))
    return float(np.ptp([np.median(part) for part in parts]))


def _chance(before: Sequence[float], after: Sequence[float]) -> float:
    """The p-value: how likely samples of one distribution have ranks that differ as much as these."""
    n, m = len(before), len(after)
    _, place, ties = np.unique(np.concatenate([before, after]), return_inverse=True, return_counts=True)
    rank = (np.cumsum(ties) - (ties - 1) / 2)[place]
    u = rank[:n].sum() - n * (n + 1) / 2
    spread = sqrt(n * m / 12 * (n + m + 1 - (ties**3 - ties).sum() / ((n + m) * (n + m - 1))))
    return erfc(abs(u - n * m / 2) / (spread * sqrt(2))) if spread else 1.0
