"""Small copies that follow each other, packed into one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from busfare.statements import statement
from busfare.timeline.build.host_calls import before_in
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    applied,
    last_of_each,
    numbered_in,
    without_operations,
    without_waits_behind,
)
from busfare.timeline.model import WAIT, Mask, Timeline, Times
from busfare.timeline.prices import STAGED_ABOVE_BYTES, nanoseconds_packed, packing_nanoseconds, pageable
from busfare.timeline.touched import under_way
from busfare.trace.words import NONE

__all__ = ["batch", "collect", "loop_nanoseconds"]


def batch(below_bytes: int) -> Change:
    """Copies smaller than `below_bytes` that one thread issues to one stream, one way and with nothing between them,
    become one copy where the last of them is.

    The host packs them, and what it does between their calls stays.
    """

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        return _packed(timeline, below_bytes, setting)

    return Change("--batch-below", statement("change.batch-below", bytes=below_bytes), apply)


def collect(below_bytes: int) -> Change:
    """Small results stay on the GPU and come back in one copy, where the last of them does.

    As `batch`, for copies back with kernels between them.
    """

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        small = _small(timeline, below_bytes, "d2h")
        removed = small & ~last_of_each(timeline.columns["operation_stream"], small)
        if not removed.any():
            return Applied(timeline, 0)
        changed = without_operations(without_waits_behind(timeline, removed), removed)
        return applied(timeline, changed, small, statement("assumes.decides-nothing"))

    return Change("--collect-below", statement("change.collect-below", bytes=below_bytes), apply)


def loop_nanoseconds(timeline: Timeline, below_bytes: int) -> int:
    """The host's time between the calls of small copies that `batch` packs, and outside of any call."""
    gap = np.maximum(timeline.columns["call_gap"], 0)
    return int(gap[_in_loops(timeline, _groups(timeline, below_bytes))].sum())


def _packed(timeline: Timeline, below_bytes: int, setting: Setting) -> Applied:
    group = _groups(timeline, below_bytes)
    packed = group >= 0
    if not packed.any():
        return Applied(timeline, 0)
    columns, operations = timeline.columns, timeline.operations
    last = last_of_each(group, packed)
    rows = np.flatnonzero(last)
    count, size, alone = (
        np.bincount(group[packed], weights=weights)[group[rows]]
        for weights in (None, operations["bytes"].to_numpy()[packed], columns["operation_duration"][packed])
    )
    together = operations[rows].with_columns(
        bytes=pl.Series(size).cast(pl.Int64), copy_count=pl.lit(1, pl.Int32)
    )
    priced = nanoseconds_packed(together, setting.recorded_on)
    duration, extra, wait = (
        columns[name].copy() for name in ("operation_duration", "operation_extra", "call_wait")
    )
    duration[rows] = np.rint(np.where(np.isfinite(priced), np.minimum(priced, alone), alone))
    # A large copy of pageable memory holds its call up until it is staged; what that takes is in its price.
    staged = rows[pageable(together) & (size > STAGED_ABOVE_BYTES)]
    wait[columns["operation_call"][staged]] = WAIT["operation"]
    extra[staged] = 0
    changed = replace(
        timeline.with_columns(operation_duration=duration, operation_extra=extra, call_wait=wait),
        operations=operations.with_columns(
            bytes=operations["bytes"].clone().scatter(rows, together["bytes"])
        ),
    )
    removed = packed & ~last
    changed = without_operations(without_waits_behind(changed, removed), removed, bytes_stay=True)
    gap, pieces = changed.columns["call_gap"].copy(), int(count.max())
    packing = np.rint(packing_nanoseconds(size.astype(np.float64), setting.recorded_on)).astype(np.int64)
    gap[columns["operation_call"][rows]] += packing
    rate = 1 / float(packing_nanoseconds(np.ones(1), setting.recorded_on)[0])
    rests_on = statement("assumes.packing", pieces=pieces, gigabytes_per_second=rate)
    # What the host does between their calls may go, too.
    touched = under_way(timeline, packed, after_gaps=_in_loops(timeline, group))
    after = changed.with_columns(call_gap=gap)
    return Applied(after, int(packed.sum()), int(size.sum()), [rests_on], touched=touched)


def _small(timeline: Timeline, below: int, *directions: str) -> Mask:
    """Launched copies of these directions and fewer bytes; shape (operations,)."""
    known = timeline.operations["bytes"].fill_null(below).to_numpy()
    return timeline.copies(*directions) & timeline.launched & (known < below)


def _groups(timeline: Timeline, below: int) -> Times:
    """A number for each run of small copies, -1: in none; shape (operations,).

    A run ends where one is not small, goes another way or comes from another thread than the one before in its stream.
    """
    columns = timeline.columns
    before = before_in(columns["operation_stream"])
    alike = before >= 0
    codes = [timeline.words.codes(name) for name in ("direction", "source_memory", "destination_memory")]
    for path in codes:
        alike &= path != NONE
    small = _small(timeline, below, "h2d", "d2h")
    thread = np.append(columns["call_thread"], 0)[columns["operation_call"]]
    for values in (small, thread, *codes):
        alike &= values == values[before]
    number = numbered_in(columns["operation_stream"], ~alike)
    return np.where(small & (np.bincount(number)[number] > 1), number, -1)


def _in_loops(timeline: Timeline, group: Times) -> Mask:
    """The calls behind the first one that made a copy of a group, up to its last one, on the same thread. Shape (calls,)."""
    threads = timeline.columns["call_thread"]
    order = np.argsort(threads, kind="stable")
    place = np.empty(len(threads), np.int64)
    place[order] = np.arange(len(order))
    packed = group >= 0
    called = place[timeline.columns["operation_call"][packed]]
    begins = np.full(int(group.max(initial=-1)) + 1, len(threads), np.int64)
    ends = np.zeros(len(begins), np.int64)
    np.minimum.at(begins, group[packed], called)
    np.maximum.at(ends, group[packed], called)
    used = begins < ends
    steps = np.bincount(begins[used] + 1, minlength=len(threads) + 1)
    steps -= np.bincount(ends[used] + 1, minlength=len(threads) + 1)
    inside = np.empty(len(threads), bool)
    inside[order] = np.cumsum(steps)[:-1] > 0
    return inside
