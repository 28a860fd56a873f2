"""The clocks of a job's traces brought together: all members of a collective end together, within microseconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.tables import SYMMETRIC

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
ROUNDS = 12
#: A drift counts where it moves times over the whole run by so many times their uncertainty, of at least so many ends.
CLEAR, ENOUGH = 3.0, 20
#: The standard deviation of normal errors over their median magnitude.
SPREAD = 1.4826


class Clocks(NamedTuple):
    """What is added to the times of each clock: offset + drift · (time - middle), ns; shapes (clocks,).

    `uncertainty`: the standard deviation of one time, ns; not a number where nothing ties a clock to the others.
    """

    offset: Numbers
    drift: Numbers
    middle: Numbers
    uncertainty: Numbers

    def shift(self, clock: Rows, times: Rows) -> Numbers:
        """What is added to `times` (ns) of each `clock`; shape (times,)."""
        return self.offset[clock] + self.drift[clock] * (times - self.middle[clock])


def align(members: pl.DataFrame, clocks: int) -> Clocks:
    """So many clocks brought to the one that is tied to most collectives.

    `members`: clock, joint (null: of none), collective_kind, and end_ns since a moment that is the same by all clocks.
    """
    offset, drift, middle, uncertainty = (np.zeros(clocks) for _ in range(4))
    found = Clocks(offset, drift, middle, uncertainty)
    uncertainty[:] = np.nan
    # Who sends, or begins a broadcast, may be done long before the others.
    tied = members.drop_nulls("joint").filter(pl.col("collective_kind").is_in(SYMMETRIC))
    tied = tied.filter(pl.col("clock").n_unique().over("joint") > 1)
    if tied.is_empty():
        return found
    clock, joint = tied["clock"].to_numpy().astype(np.int64), tied["joint"].rank("dense").to_numpy() - 1
    joint, end = joint.astype(np.int64), tied["end_ns"].to_numpy()
    middle[:] = np.nan_to_num(_medians(end, clock, clocks))
    reference = int(np.bincount(clock).argmax())
    known = np.zeros(clocks, bool)
    known[reference] = True
    for _ in range(clocks):  # outwards from the reference
        away = _residuals(found, clock, joint, end, known[clock])
        median = _medians(away, clock, clocks)
        new = ~known & np.isfinite(median)
        if not new.any():
            break
        offset[new] += median[new]
        known |= new
    some = known[clock]
    clock, joint, end = clock[some], joint[some], end[some]
    every = np.ones(len(end), bool)
    count = np.bincount(clock, minlength=clocks)
    for round in range(ROUNDS):
        away = _residuals(found, clock, joint, end, every)
        offset[known] += _medians(away, clock, clocks)[known]
        if round >= ROUNDS // 2:
            away = _residuals(found, clock, joint, end, every)
            slope, span = _slopes(away, clock, end, clocks)
            straight = np.abs(away - slope[clock] * (end - middle[clock]))
            noise = SPREAD * _medians(straight, clock, clocks)
            clear = known & (count >= ENOUGH) & (np.abs(slope) * span > CLEAR * noise)
            drift[clear] += slope[clear]
    # All are moved back by as much as the reference was.
    back = offset[reference] + drift[reference] * (middle + offset - middle[reference])
    offset -= np.where(known, back, 0.0)
    drift -= np.where(known, drift[reference], 0.0)
    away = _residuals(found, clock, joint, end, every)
    uncertainty[known] = SPREAD * _medians(np.abs(away), clock, clocks)[known]
    return found


def _residuals(found: Clocks, clock: Rows, joint: Rows, end: Rows, by: NDArray[np.bool_]) -> Numbers:
    """How much later each joint ends than each of its members, by the median of those members that count (`by`)."""
    times = end + found.shift(clock, end)
    joints = int(joint.max()) + 1
    return _medians(times[by], joint[by], joints)[joint] - times


def _medians(values: Numbers, groups: Rows, count: int) -> Numbers:
    """The median of each group, not a number of none; shape (count,). Values that are no numbers do not count."""
    usable = np.isfinite(values)
    values, groups = values[usable], groups[usable]
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups, minlength=count)
    begins = np.cumsum(sizes) - sizes
    medians = np.full(count, np.nan)
    some = sizes > 0
    ordered = values[order]
    low, high = begins[some] + (sizes[some] - 1) // 2, begins[some] + sizes[some] // 2
    medians[some] = (ordered[low] + ordered[high]) / 2
    return medians


def _slopes(away: Numbers, clock: Rows, end: Rows, count: int) -> tuple[Numbers, Numbers]:
    """How `away` grows with time in each clock, between the medians of the first and the last third; and the time of all."""
    order = np.lexsort((end, clock))
    sizes = np.bincount(clock, minlength=count)
    place = np.arange(len(end)) - (np.cumsum(sizes) - sizes)[clock[order]]
    third = np.minimum(3 * place // np.maximum(sizes[clock[order]], 1), 2)
    values = []
    for part in (0, 2):
        rows = order[third == part]
        values += [
            _medians(away[rows], clock[rows], count),
            _medians(end[rows].astype(float), clock[rows], count),
        ]
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (values[2] - values[0]) / (values[3] - values[1])
        return np.nan_to_num(slope, posinf=0.0, neginf=0.0), np.nan_to_num(1.5 * (values[3] - values[1]))
