"""Managed memory that is sent before the kernels need it, where it came page by page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.timeline.changes.change import Applied, Setting
from busfare.timeline.edit import with_durations, without_operations
from busfare.timeline.faults import faults
from busfare.timeline.model import Timeline
from busfare.timeline.prices import nanoseconds_prefetched
from busfare.trace.lanes import Union

__all__ = ["Prefetch"]


@dataclass(frozen=True)
class Prefetch:
    """Migrations become one a kernel, before it, at the pace of a prefetch; kernels no longer fault."""

    @property
    def title(self) -> str:
        return "prefetch managed memory"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        found = faults(timeline)
        moved, kernels, within = found.moved, found.kernels, found.standing
        if not moved.any():
            return Applied(timeline, 0)
        columns = timeline.columns
        start = timeline.operations["start_ns"].to_numpy()
        end = timeline.operations["end_ns"].to_numpy()
        faulting = kernels[within > 0]
        duration = columns["operation_duration"].astype(np.float64)
        sent = _bytes_within(timeline, moved, faulting)
        resident = _resident(timeline, kernels, within, duration)
        whole = timeline.operations[faulting].with_columns(
            bytes=pl.Series(sent),
            direction=pl.lit("h2d", timeline.operations["direction"].dtype),
            copy_count=pl.lit(1, pl.Int32),
        )
        sending = nanoseconds_prefetched(whole, setting.recorded_on)
        duration[faulting] = np.minimum(duration[faulting], resident[within > 0] + sending)
        changed = with_durations(timeline, duration)
        # What the host touches comes back in one piece, too, before it is touched.
        changed = _host_side(changed, moved, start, end, setting)
        return Applied(
            without_operations(changed, moved),
            int(moved.sum()),
            int(timeline.operations.filter(pl.Series(moved))["bytes"].sum()),
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


def _host_side(
    timeline: Timeline,
    moved: NDArray[np.bool_],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    setting: Setting,
) -> Timeline:
    """Host gaps shrink by what pages took to come back while no kernel ran, less one copy of them."""
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
