"""Managed memory: kernels that stand still while its pages move to them, and pages sent before they are needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.nodes import FloatArray
from busfare.statements import statement
from busfare.timeline.build.work import FAULT_NS
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    applied,
    nanoseconds_from,
    with_durations,
    without_operations,
)
from busfare.timeline.model import Mask, Timeline, Times
from busfare.trace.lanes import Union

__all__ = ["kernels_held", "prefetch"]


def prefetch() -> Change:
    """Migrations become one a kernel, before it, as fast as a prefetch; kernels no longer fault."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        faults = _faults(timeline)
        if not faults.moved.any():
            return Applied(timeline, 0)
        faulting = faults.standing > 0
        kernels = faults.kernels[faulting]
        duration = timeline.columns["operation_duration"].astype(np.float64)
        h2d = pl.lit("h2d", timeline.operations["direction"].dtype)
        like = timeline.operations[kernels].with_columns(direction=h2d)
        begins, ends = like["start_ns"].to_numpy(), like["end_ns"].to_numpy()
        sending = _sent(timeline, faults.moved, like, begins, ends, setting)
        resident = _resident(timeline, faults, duration)[faulting]
        duration[kernels] = np.minimum(duration[kernels], resident + sending)
        # What the host touches comes back in one piece, too, before it is touched.
        changed = _host_side(with_durations(timeline, duration), faults.moved, setting)
        return applied(
            timeline, without_operations(changed, faults.moved), faults.moved, statement("assumes.pages-used")
        )

    return Change("prefetch", statement("change.prefetch"), apply)


class Faults(NamedTuple):
    """`moved`: the moves that nobody launched, shape (operations,). Of each kernel, how long pages move while it runs
    (`moving`), and how long it stands still for them, from each fault on (`standing`); ns, shape (kernels,).
    """

    moved: Mask
    kernels: Times
    moving: Times
    standing: Times


def _faults(timeline: Timeline) -> Faults:
    """The faults of a timeline's kernels, as recorded.

    Within a chain of faults a kernel stands still between the moves, too; the gap before the first is its own work.
    """
    moved = timeline.among("kind", "migration") & ~timeline.launched
    starts, ends = timeline.recorded_spans
    kernels = np.flatnonzero(timeline.among("kind", "kernel"))
    order = np.flatnonzero(moved)[np.argsort(starts[moved], kind="stable")]
    begins, reached = starts[order], np.maximum.accumulate(ends[order])
    chained = np.zeros(len(order), bool)
    chained[1:] = begins[1:] - reached[:-1] <= FAULT_NS
    since = np.where(chained, np.minimum(begins, np.concatenate([begins[:1], reached[:-1]])), begins)
    moving = Union.of(begins, ends[order]).covered_within(starts[kernels], ends[kernels])
    standing = Union.of(since, ends[order]).covered_within(starts[kernels], ends[kernels])
    return Faults(moved, kernels, moving, np.where(moving > 0, standing, 0))


def kernels_held(timeline: Timeline, duration: NDArray[Any]) -> NDArray[Any]:
    """`duration`, and where moves take another time than in `timeline`, the kernels that stand still for them with it.

    Nanoseconds, shape (operations,). Where nothing moves any more, nothing faults.
    """
    before = timeline.columns["operation_duration"]
    faults = _faults(timeline)
    if not faults.moved.any() or np.array_equal(duration[faults.moved], before[faults.moved]):
        return duration
    starts, ends = timeline.recorded_spans
    kernels = (starts[faults.kernels], ends[faults.kernels])
    took, takes = (
        _within(starts[faults.moved], values[faults.moved], *kernels) for values in (before, duration)
    )
    ratio = np.divide(takes, took, out=np.ones_like(took), where=took > 0)
    held = duration.astype(np.float64)
    saved = np.where((took > 0) & (takes == 0), faults.standing, faults.moving * (1 - ratio))
    held[faults.kernels] = np.maximum(0.0, held[faults.kernels] - saved)
    return held


def _within(starts: Times, values: NDArray[Any], begins: Times, ends: Times) -> FloatArray:
    """The sum of the values of what starts within each stretch of time; shape (stretches,)."""
    order = np.argsort(starts, kind="stable")
    total = np.append(0.0, np.cumsum(values[order]))
    first, last = (np.searchsorted(starts[order], times) for times in (begins, ends))
    return np.asarray(total[last] - total[first])


def _sent(
    timeline: Timeline, moved: Mask, like: pl.DataFrame, begins: Times, ends: Times, setting: Setting
) -> FloatArray:
    """What all pages that move within each stretch of time take in one piece, `like` these operations, all of one direction;
    nanoseconds, shape (stretches,).
    """
    if like.is_empty():
        return np.zeros(0)
    moves = moved & timeline.among("direction", str(like["direction"].first()))
    size = _within(timeline.recorded_spans[0][moves], timeline.sizes[moves], begins, ends)
    whole = like.with_columns(bytes=pl.Series(size).cast(pl.Int64), copy_count=pl.lit(1, pl.Int32))
    return nanoseconds_from("managed", whole, setting.recorded_on)


def _resident(timeline: Timeline, faults: Faults, duration: FloatArray) -> FloatArray:
    """What each kernel takes with its pages there: as its own runs without faults show, or without the moving time."""
    names = timeline.operations["name"].cast(pl.String).gather(pl.Series(faults.kernels))
    within, taken = pl.col("within"), pl.col("taken")
    frame = pl.DataFrame({"name": names, "within": faults.standing, "taken": duration[faults.kernels]})
    quiet = pl.min_horizontal(taken.filter(within == 0).median().over("name"), taken)
    stalled = pl.max_horizontal(taken - within, 0.0)
    known = taken.filter(within == 0).len().over("name") > 0
    return frame.select(pl.when(known).then(quiet).otherwise(stalled)).to_series().to_numpy()


def _host_side(timeline: Timeline, moved: Mask, setting: Setting) -> Timeline:
    """Host gaps shrink by what pages took to come back while no kernel ran, less one copy of them."""
    back = timeline.operations.filter(pl.Series(moved & timeline.among("direction", "d2h")))
    ends = timeline.calls["start_ns"].to_numpy()
    gap = timeline.columns["call_gap"].copy()
    begins = ends - gap
    within = Union.of(back["start_ns"].to_numpy(), back["end_ns"].to_numpy()).covered_within(begins, ends)
    rows = np.flatnonzero(within > 0)
    if len(rows):
        like = back.sort("start_ns")[np.zeros(len(rows), np.int64)]
        sending = _sent(timeline, moved, like, begins[rows], ends[rows], setting)
        gap[rows] = np.maximum(0, gap[rows] - np.maximum(0, within[rows] - sending)).astype(np.int64)
    return timeline.with_columns(call_gap=gap)
