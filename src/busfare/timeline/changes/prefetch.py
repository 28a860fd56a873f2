"""Managed memory: kernels that stand still while its pages move to them, and pages sent before they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.build.device_work import FAULT_NS
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.edit import bytes_of, with_durations, without_operations
from busfare.timeline.model import Timeline
from busfare.timeline.prices import nanoseconds_prefetched
from busfare.trace.lanes import Union
from busfare.trace.words import Words

__all__ = ["OPTIONS", "PLACE", "Faults", "Prefetch", "asked", "faults", "kernels_held"]

Times = NDArray[np.int64]
#: From a fault to its first move, where no move went right before: 15 to 35 µs, published for P100 to V100. Nanoseconds.
FIRST_FAULT_NS = 35_000
PLACE = 40
OPTIONS = (Option("--prefetch", "Send managed memory before kernels need it."),)


def asked(options: Asked) -> list[Change]:
    """Managed memory sent beforehand."""
    return [Prefetch()] if options.flag("prefetch") else []


class Faults(NamedTuple):
    """`moved`: the moves that nobody launched, shape (operations,). Of each kernel, how long pages move while it runs
    (`moving`), and how long it stands still for them, from each fault on (`standing`); ns, shape (kernels,).
    """

    moved: NDArray[np.bool_]
    kernels: NDArray[np.int64]
    moving: Times
    standing: Times


def faults(timeline: Timeline) -> Faults:
    """The faults of a timeline's kernels, as recorded.

    Within a chain of faults a kernel stands still between the moves, too; the gap before the first is its own work.
    """
    words = Words(timeline.operations)
    moved = words.among("kind", "migration") & (timeline.columns["operation_launched"] == 0)
    starts, ends = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    kernels = np.flatnonzero(words.among("kind", "kernel"))
    order = np.flatnonzero(moved)[np.argsort(starts[moved], kind="stable")]
    begins, reached = starts[order], np.maximum.accumulate(ends[order])
    chained = np.zeros(len(order), bool)
    chained[1:] = begins[1:] - reached[:-1] <= FAULT_NS
    since = np.where(
        chained, np.minimum(begins, np.concatenate([begins[:1], reached[:-1]])), begins - FIRST_FAULT_NS
    )
    moving = Union.of(begins, ends[order]).covered_within(starts[kernels], ends[kernels])
    standing = Union.of(since, ends[order]).covered_within(starts[kernels], ends[kernels])
    return Faults(moved, kernels, moving, np.where(moving > 0, standing, 0))


def kernels_held(timeline: Timeline, duration: NDArray[Any]) -> NDArray[Any]:
    """`duration`, and where moves take another time than in `timeline`, the kernels that stand still for them with it.

    Nanoseconds, shape (operations,). Where nothing moves any more, nothing faults.
    """
    before = timeline.columns["operation_duration"]
    found = faults(timeline)
    if not found.moved.any() or np.array_equal(duration[found.moved], before[found.moved]):
        return duration
    starts, ends = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    order = np.flatnonzero(found.moved)[np.argsort(starts[found.moved], kind="stable")]
    first, last = (np.searchsorted(starts[order], times[found.kernels]) for times in (starts, ends))
    old, new = (np.concatenate([[0.0], np.cumsum(values[order])]) for values in (before, duration))
    took, takes = old[last] - old[first], new[last] - new[first]
    ratio = np.divide(takes, took, out=np.ones_like(took), where=took > 0)
    held = duration.astype(np.float64)
    saved = np.where((took > 0) & (takes == 0), found.standing, found.moving * (1 - ratio))
    held[found.kernels] = np.maximum(0.0, held[found.kernels] - saved)
    return held


@dataclass(frozen=True)
class Prefetch:
    """Migrations become one a kernel, before it, as fast as a prefetch; kernels no longer fault."""

    @property
    def title(self) -> str:
        return "prefetch managed memory"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--prefetch",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        found = faults(timeline)
        moved, kernels, within = found.moved, found.kernels, found.standing
        if not moved.any():
            return Applied(timeline, 0)
        faulting = kernels[within > 0]
        duration = timeline.columns["operation_duration"].astype(np.float64)
        resident = _resident(timeline, kernels, within, duration)
        whole = timeline.operations[faulting].with_columns(
            bytes=pl.Series(_bytes_within(timeline, moved, faulting)),
            direction=pl.lit("h2d", timeline.operations["direction"].dtype),
            copy_count=pl.lit(1, pl.Int32),
        )
        sending = nanoseconds_prefetched(whole, setting.recorded_on)
        duration[faulting] = np.minimum(duration[faulting], resident[within > 0] + sending)
        # What the host touches comes back in one piece, too, before it is touched.
        changed = _host_side(with_durations(timeline, duration), moved, setting)
        return Applied(
            without_operations(changed, moved),
            int(moved.sum()),
            bytes_of(timeline, moved),
            ["every page that moves is one that the kernel uses; the prefetch runs right before its kernel"],
        )


def _bytes_within(
    timeline: Timeline, moved: NDArray[np.bool_], kernels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Bytes that migrate to the GPU while each kernel runs."""
    start, end = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    into = moved & (timeline.operations["direction"] == "h2d").fill_null(False).to_numpy()
    order = np.flatnonzero(into)[np.argsort(start[into], kind="stable")]
    total = np.concatenate([[0], np.cumsum(timeline.operations["bytes"].fill_null(0).to_numpy()[order])])
    first = np.searchsorted(start[order], start[kernels], side="left")
    last = np.searchsorted(start[order], end[kernels], side="left")
    return np.asarray(total[last] - total[first], np.int64)


def _resident(
    timeline: Timeline, kernels: NDArray[np.int64], within: NDArray[np.int64], duration: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each kernel takes with its pages there: as its own runs without faults show, or without the moving time."""
    names = timeline.operations["name"].cast(pl.String).gather(pl.Series(kernels))
    frame = pl.DataFrame({"name": names, "within": within, "taken": duration[kernels]}).with_columns(
        quiet=pl.col("taken").filter(pl.col("within") == 0).median().over("name")
    )
    stalled = pl.max_horizontal(pl.col("taken") - pl.col("within"), 0.0)
    quiet = pl.when(pl.col("quiet").is_not_null()).then(pl.min_horizontal("quiet", "taken"))
    return frame.select(
        found=pl.when(pl.col("within") == 0).then("taken").otherwise(pl.coalesce(quiet, stalled))
    )["found"].to_numpy()


def _host_side(timeline: Timeline, moved: NDArray[np.bool_], setting: Setting) -> Timeline:
    """Host gaps shrink by what pages took to come back while no kernel ran, less one copy of them."""
    start, end = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    back = moved & (timeline.operations["direction"] == "d2h").fill_null(False).to_numpy()
    if not back.any() or timeline.calls.height == 0:
        return timeline
    columns = timeline.columns
    call_start = timeline.calls["start_ns"].to_numpy()
    gap_from = call_start - columns["call_gap"]
    moving = Union.of(start[back], end[back])
    within = moving.covered_within(gap_from, call_start)
    rows = np.flatnonzero(within > 0)
    if len(rows) == 0:
        return timeline
    order = np.flatnonzero(back)[np.argsort(start[back], kind="stable")]
    total = np.concatenate([[0], np.cumsum(timeline.operations["bytes"].fill_null(0).to_numpy()[order])])
    size = (
        total[np.searchsorted(start[order], call_start[rows])]
        - total[np.searchsorted(start[order], gap_from[rows])]
    )
    template = timeline.operations[np.repeat(order[:1], len(rows))].with_columns(
        bytes=pl.Series(size).cast(pl.Int64), copy_count=pl.lit(1, pl.Int32)
    )
    sending = nanoseconds_prefetched(template, setting.recorded_on)
    gap = columns["call_gap"].copy()
    gap[rows] = np.maximum(0, gap[rows] - np.maximum(0, within[rows] - sending)).astype(np.int64)
    return timeline.with_columns(call_gap=gap)
