"""When, as recorded, what a change touches was under way: how much of the run it can make longer or shorter."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.timeline.model import Mask, Timeline
from busfare.trace.api_calls import HOST_FUNCTION
from busfare.trace.lanes import Union

__all__ = ["NOTHING", "either", "under_way"]

#: What touches nothing.
NOTHING = Union.of(np.empty(0, np.int64), np.empty(0, np.int64))


def under_way(
    timeline: Timeline,
    operations: Mask | None = None,
    calls: Mask | None = None,
    after_gaps: Mask | None = None,
) -> Union | None:
    """When, as recorded, one of these operations, of their calls, or of these calls is under way, or the host's own time
    before one of the calls `after_gaps`. Shapes (operations,) and (calls,).

    None, maybe all the time, where streams run functions of the host: what waits for those is not recorded.
    """
    if timeline.calls_named(HOST_FUNCTION).any():
        return None
    chosen = np.zeros(timeline.calls.height, bool) if calls is None else calls
    frames = []
    if operations is not None:
        chosen = chosen | timeline.calls_of(operations)
        frames.append(timeline.operations.filter(pl.Series(operations)))
    frames.append(timeline.calls.filter(pl.Series(chosen)))
    if after_gaps is not None:
        gap = pl.Series(timeline.columns["call_gap"].astype(np.int64).clip(0))
        before = timeline.calls.with_columns(start_ns=pl.col("start_ns") - gap, end_ns="start_ns")
        frames.append(before.filter(pl.Series(after_gaps)))
    starts, ends = (
        np.concatenate([frame[name].to_numpy() for frame in frames]) for name in ("start_ns", "end_ns")
    )
    return Union.of(starts, ends)


def either(one: Union | None, other: Union | None) -> Union | None:
    """When one of both is under way; None, maybe all the time, where one of them is that."""
    if one is None or other is None:
        return None
    return Union.of(np.append(one.starts, other.starts), np.append(one.ends, other.ends))
