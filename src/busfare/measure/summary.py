"""What a set of samples says, and how far off that may be."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np


def interquartile_mean(samples: Sequence[float]) -> float:
    """The mean of the middle half, in the samples' unit: as deaf to outliers as the median, without the steps
    of a clock that ticks every 32 ns. Raises ValueError for none.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    if not len(ordered):
        raise ValueError("no samples")
    cut = (len(ordered) + 1) // 4  # of three samples, the middle one
    return float(ordered[cut : len(ordered) - cut].mean())


def fastest_part(samples: Sequence[float], one_in: int = 2) -> float:
    """The mean of the quicker half, or of the quickest one in so many: what disturbs a copy only ever makes it slower.
    In the samples' unit. Raises ValueError for none.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples")
    kept = ordered[: -(-len(ordered) // one_in)]
    return sum(kept) / len(kept)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the true median with at least 95 %, from order statistics: no shape is assumed.

    With fewer than six samples no such interval exists, and the extremes are given.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    count = len(ordered)
    # Ranks n/2 ± z √n / 2 of the binomial distribution of how many samples lie below the median.
    reach = 1.96 * np.sqrt(count) / 2
    low, high = int(np.floor(count / 2 - reach)), int(np.ceil(count / 2 + reach))
    return float(ordered[max(low, 0)]), float(ordered[min(high, count - 1)])


def overlapping(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the intervals of two medians overlap: then nothing says which is the smaller one."""
    (low, high), (lower, higher) = interval(one), interval(other)
    return low <= higher and lower <= high


def spread(samples: Sequence[float]) -> float:
    """Half the interval over the median; infinite for fewer than two samples or a median of zero."""
    if len(samples) < 2 or median(samples) == 0:
        return float("inf")
    low, high = interval(samples)
    return (high - low) / 2 / abs(median(samples))
