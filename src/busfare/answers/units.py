"""Whether units of work of two runs differ by more than the units of one run vary."""

from collections.abc import Callable
from functools import partial
from math import sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from busfare.trace import Trace
from busfare.trace.units import units_of

#: Fewer units do not show their variation.
FEWEST = 5
#: Consecutive batches of a run; their variation includes changes of clocks and of other programs during the run.
BATCHES = 5
#: Units in a batch that are enough to show drift.
OF_BATCH = 8
#: Smaller changes are invisible in three digits.
SAME = 0.0005
#: The significance level of all statistics of a unit, its kernels, transfers and idle time together: 1 in 100 equal runs.
CHANCE, QUANTITIES = 0.01, 4
Statistic = Literal["mean", "median", "low", "high"]


class Batches(Struct):
    """Statistics of consecutive batches of units, in order of time, s. A slowdown of some units changes the mean and the
    last decile, of most units the median, of all units the first decile, which other programs affect least.
    `unit_seconds`: each unit, if few; `high_seconds`, if not. Reports of earlier versions may lack both.
    """

    mean_seconds: list[float]
    median_seconds: list[float]
    low_seconds: list[float]
    high_seconds: list[float] = []
    unit_seconds: list[float] = []


FIGURES: dict[Statistic, Callable[[NDArray[np.float64]], np.floating]] = {
    "mean": np.mean,
    "median": np.median,
    "low": lambda batch: np.quantile(batch, 0.1),
    "high": lambda batch: np.quantile(batch, 0.9),
}


#: Half the width of an interval of the difference between two runs, by their seconds and the level.
Half = Callable[[NDArray[np.float64], NDArray[np.float64], float], float]


class Difference(NamedTuple):
    """`before`, `after`: mean of `figure` over the batches, but the median of few units, s. `least`: half the interval of
    their difference, s; a larger difference is `real`. `growth`: the lower bound of the difference for a test that looks for
    longer units alone, s.
    """

    figure: Statistic
    before: float
    after: float
    least: float
    growth: float

    @property
    def real(self) -> bool:
        return abs(self.after - self.before) > self.least


def batched(seconds: ArrayLike) -> Batches:
    """At most BATCHES batches of unit times, s."""
    every = np.asarray(seconds, np.float64)
    batches = np.array_split(every, min(len(every), BATCHES))
    mean, median, low, high = ([float(figure(batch)) for batch in batches] for figure in FIGURES.values())
    if len(every) >= BATCHES * OF_BATCH:
        return Batches(mean, median, low, high_seconds=high)
    return Batches(mean, median, low, unit_seconds=every.tolist())


def differences(
    before: Batches, after: Batches, runs: int = 1, unseen: float = 0.0, of_unit: bool = True
) -> list[Difference]:
    """How units of two runs differ, by each statistic; empty with too few units.

    Uses t intervals of the difference between the means of batches [batch means: Law, Simulation modeling and analysis,
    §9.5.3]: Welch's [1947]; Student's for the mean and the last decile of many units, which a slowdown of some units makes
    vary. Half of CHANCE is for the statistics of many units; few units, whose batches hide drift and have no last decile,
    and parts of a unit share it with all quantities; so do `runs` pairs [Bonferroni]. A test for longer units alone is
    one-sided and has all of CHANCE. The median of few units, of which some may be far longer, has an interval by their
    ranks. Differences up to `unseen`, s, do not count, such as one step of the clock.
    """
    if min(len(before.mean_seconds), len(after.mean_seconds)) < FEWEST:
        return []
    many = of_unit and bool(before.high_seconds and after.high_seconds)
    figures = [figure for figure in FIGURES if many or figure != "high"]
    level = CHANCE / (len(figures) * runs * (2 if many else QUANTITIES))
    one_sided = 2 * CHANCE / (len(figures) * runs)
    every = list[Difference]()
    for figure in figures:
        old, new = (np.asarray(getattr(run, f"{figure}_seconds")) for run in (before, after))
        was, now = float(old.mean()), float(new.mean())
        half: Half = partial(_half_interval, alike=many and figure in ("mean", "high"))
        if figure == "median" and of_unit and before.unit_seconds and after.unit_seconds:
            old, new, half = np.asarray(before.unit_seconds), np.asarray(after.unit_seconds), _half_by_ranks
            was, now = float(np.median(old)), float(np.median(new))
        least, less = (max(half(old, new, part), SAME * was, unseen) for part in (level, one_sided))
        every.append(Difference(figure, was, now, least, now - was - less))
    return every


def variation(trace: Trace) -> float:
    """The relative variation of a unit of work: half the span of its batches' medians; 0 where units are too few."""
    enough = (of.periods for of in units_of(trace) if len(of.periods) >= FEWEST)
    medians = [np.asarray(batched(periods).median_seconds) for periods in enough]
    spans = [np.ptp(batch) / (2 * np.median(batch)) for batch in medians if batch.all()]
    return float(max(spans, default=0.0))


def _half_interval(old: NDArray[np.float64], new: NDArray[np.float64], level: float, alike: bool) -> float:
    """Half the width of the t interval of the difference of two means: Student's if the runs vary `alike`, or Welch's."""
    parts = [float(batch.var(ddof=1)) / len(batch) for batch in (old, new)]
    variance, degrees = sum(parts), [len(run) - 1 for run in (old, new)]
    if not variance:
        return 0.0
    freedom = variance**2 / sum(part**2 / n for part, n in zip(parts, degrees, strict=True))
    return student_quantile(1 - level / 2, sum(degrees) if alike else freedom) * sqrt(variance)


def _half_by_ranks(old: NDArray[np.float64], new: NDArray[np.float64], level: float) -> float:
    """Half the width of an interval of the shift between two runs: the ends, as far from the difference of the medians, of
    the middle differences of their units [Hodges and Lehmann 1963], at least that difference if these are too few. Units
    that resemble the unit before count as fewer, by the correlation of their ranks [Bartlett 1946].
    """
    apart, every = float(np.median(new) - np.median(old)), len(old) * len(new)
    ranks = [_centred_ranks(run) for run in (old, new)]
    variance, lagged = (sum(rank[lag:] @ rank[: len(rank) - lag] for rank in ranks) for lag in (0, 1))
    alike = max(0.0, lagged / max(variance, 1.0))
    spread = sqrt(every * (len(old) + len(new) + 1) / 12 * (1 + alike) / (1 - alike))
    left_out = int(every / 2 - NormalDist().inv_cdf(1 - level / 2) * spread)
    differences = np.sort(np.subtract.outer(new, old), axis=None)
    outer = differences[max(left_out, 1) - 1], differences[-max(left_out, 1)]
    return max(*(abs(float(end) - apart) for end in outer), 0.0 if left_out >= 1 else abs(apart))


def _centred_ranks(run: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each unit, equal ones sharing theirs, less the mean rank; shape (units,)."""
    _, place, equal = np.unique(run, return_inverse=True, return_counts=True)
    return (np.cumsum(equal) - (equal - 1) / 2)[place] - (len(run) + 1) / 2


def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution, from the normal quantile [Abramowitz and Stegun 1964, 26.7.5]."""
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / freedom**power for power, term in enumerate(terms, 1))
