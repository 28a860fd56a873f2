"""Fewer copies: without those of a direction, without bytes that the GPU has, and small ones packed into one."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.cost.models import packing_seconds
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.questions import Removable
from busfare.statements import statement
from busfare.timeline.build.work import before_in
from busfare.timeline.changes.durations import kernels_held
from busfare.timeline.edit import (
    Applied,
    Setting,
    applied,
    change,
    last_in_group,
    nanoseconds_packed,
    numbered_in,
    taken_out,
    with_durations,
    without_operations,
    without_waits_behind,
)  # fmt: skip
from busfare.timeline.model import (
    STAGED_ABOVE_BYTES,
    WAIT,
    Mask,
    Timeline,
    Times,
    activity,
    operations_touched,
    pageable,
)
from busfare.trace.totals import union_of
from busfare.trace.words import NONE

#: Smaller ones are flags and counters, which the host looks at and sets.
SMALLEST_BYTES = 64 * 1024
#: What shows that two copies carry the same bytes, the surest first, and the column that has it.
IDENTITY_COLUMNS = {"fingerprint": "fingerprint", "address": "source_address", "bytes": "bytes"}


@change("remove", lambda what: statement("change.remove", what=what))
def remove(timeline: Timeline, setting: Setting, what: Removable) -> Applied:
    """Operations of one direction or kind are gone, with their calls."""
    return without(timeline, timeline.among("direction", what) | timeline.among("kind", what))


def without(timeline: Timeline, removed: Mask) -> Applied:
    """The run without these operations, shape (operations,), their calls, the waits behind them and kernels' faults."""
    duration = np.where(removed, 0, timeline.columns["operation_duration"])
    return taken_out(with_durations(timeline, kernels_held(timeline, duration)), removed)


@change("dedupe", partial(statement, "change.dedupe"))
def dedupe(timeline: Timeline, setting: Setting) -> Applied:
    """Unchanged buffers that are copied again are sent once, and stay on the GPU."""
    repeated = repeated_copies(timeline.operations)
    if repeated is None:
        raise InputError(
            f"{timeline.trace.path}: the trace does not record the contents of the copied buffers; record it "
            "with `busfare record --fingerprint`"
        )
    rests_on = [statement("assumes.unwritten")]
    if repeated.elsewhere.any():
        kept = timeline.operations.filter(pl.Series(repeated.elsewhere)).unique(["bytes", "fingerprint"])
        rests_on.append(statement("assumes.room", megabytes=int(kept["bytes"].sum()) / 1e6))
    return taken_out(timeline, repeated.again, *rests_on)


@change("keep_on_gpu", partial(statement, "change.keep-on-gpu"))
def keep_on_gpu(timeline: Timeline, setting: Setting) -> Applied:
    """Copies back whose bytes go in again, and those that bring them in, are gone: the last state comes back once."""
    returned, identified_by = returned_copies(timeline.operations, setting.recorded_on)
    if not returned.any() and identified_by != "fingerprint":
        nothing = statement("assumes.none-shown", known_by=statement(f"common.by-{identified_by}"))
        return Applied(timeline, rests_on=[nothing])
    rests_on = [statement("assumes.unread")]
    if identified_by != "fingerprint":
        rests_on.insert(0, statement("assumes.shown", known_by=statement(f"common.by-{identified_by}")))
    return taken_out(timeline, returned, *rests_on)


class Repeated(NamedTuple):
    """Copies to the GPU whose bytes were sent before. Shape (operations,). `again`: such copies. `elsewhere`: those of them
    whose place on the GPU held other bytes meanwhile, or that went to another.
    """

    again: Mask
    elsewhere: Mask


def repeated_copies(operations: pl.DataFrame) -> Repeated | None:
    """None where the trace has no fingerprints."""
    if not {"fingerprint", "destination_address"}.issubset(operations.columns):
        return None
    fingerprint, address = pl.col("fingerprint"), pl.col("destination_address")
    if operations["fingerprint"].count() == 0:
        return None
    into = (pl.col("kind") == "copy") & (pl.col("direction") == "h2d") & fingerprint.is_not_null()
    place = ["process", "device", "bytes"]
    held = pl.when(address.is_not_null()).then(fingerprint.shift(1).over(*place, address))
    repeats = operations.with_row_index("at").filter(into)
    repeats = repeats.with_columns(elsewhere=held.ne(fingerprint).fill_null(True))
    repeats = repeats.filter(pl.int_range(pl.len()).over(*place, fingerprint) > 0)
    return Repeated(_mask(operations, repeats), _mask(operations, repeats.filter("elsewhere")))


def returned_copies(operations: pl.DataFrame, node: Node | None) -> tuple[Mask, str]:
    """Copies back whose bytes went in again and the copies that took them there, shape (operations,); and what shows it.

    Where no fingerprint shows it, a pair is one whose copy in begins before the host, free between the two, could have
    written the buffer anew.
    """
    to_host, into = (pl.col("direction") == direction for direction in ("d2h", "h2d"))
    copies = operations.with_row_index("at").filter(
        (pl.col("kind") == "copy") & (to_host | into) & (pl.col("bytes") > SMALLEST_BYTES)
    )
    identified_by = next(
        by
        for by, column in IDENTITY_COLUMNS.items()
        if column == "bytes" or (column in operations.columns and operations[column].count())
    )
    if identified_by == "address":
        host = pl.when(to_host).then("destination_address").otherwise("source_address")
        copies = copies.with_columns(address=host)
    keys = list(dict.fromkeys(["process", "device", "bytes", identified_by]))
    copies = copies.drop_nulls(identified_by).sort("start_ns", "at")
    # Those that came back wait in a line of their key; one that goes in takes the first of it, where there is one.
    waiting = pl.when(to_host).then(1).otherwise(-1).cum_sum().over(keys)
    least = pl.min_horizontal(waiting.cum_min().over(keys), 0)
    matched = into & (least == least.shift(1).over(keys).fill_null(0))
    number = pl.when(to_host).then(to_host.cum_sum().over(keys)).otherwise(matched.cum_sum().over(keys))
    copies = copies.select("at", *keys, "direction", "start_ns", "end_ns", number=number, matched=matched)
    pairs = copies.filter(to_host).join(
        copies.filter("matched"), [*keys, "number"], suffix="_in", nulls_equal=True
    )
    if identified_by != "fingerprint" and pairs.height:
        begin, end = pairs["end_ns"].to_numpy(), pairs["start_ns_in"].to_numpy()
        free = (end - begin) - union_of(copies).covered_within(begin, np.maximum(begin, end))
        sizes = pairs["bytes"].to_numpy().astype(np.float64)
        pairs = pairs.filter(pl.Series(free < 1e9 * packing_seconds(sizes, node)))
    return _mask(operations, pairs) | _mask(operations, pairs.select(at="at_in")), identified_by


def _mask(operations: pl.DataFrame, rows: pl.DataFrame) -> Mask:
    """Whether each operation is among `rows`, by their places `at`; shape (operations,)."""
    mask = np.zeros(operations.height, bool)
    mask[rows["at"].to_numpy()] = True
    return mask


@change("batch_below", lambda below_bytes: statement("change.batch-below", bytes=below_bytes))
def batch(timeline: Timeline, setting: Setting, below_bytes: int) -> Applied:
    """Copies smaller than `below_bytes` that one thread issues to one stream, one way and with nothing between them, become
    one copy where the last of them is. The host packs them, and what it does between their calls stays.
    """
    group = _groups(timeline, below_bytes)
    packed = group >= 0
    if not packed.any():
        return Applied(timeline)
    columns, operations = timeline.columns, timeline.operations
    last = last_in_group(group, packed)
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
    packing = np.rint(1e9 * packing_seconds(size.astype(np.float64), setting.recorded_on)).astype(np.int64)
    gap[columns["operation_call"][rows]] += packing
    rate = 1e-9 / float(packing_seconds(np.ones(1), setting.recorded_on)[0])
    rests_on = statement("assumes.packing", pieces=pieces, gigabytes_per_second=rate)
    # What the host does between their calls may go, too.
    between = np.where(_in_loops(timeline, group), np.maximum(timeline.columns["call_gap"], 0), 0)
    touched = activity(timeline, packed, before_calls=between)
    after = changed.with_columns(call_gap=gap)
    return Applied(after, operations_touched(timeline, packed), [rests_on], touched)


@change("collect_below", lambda below_bytes: statement("change.collect-below", bytes=below_bytes))
def collect(timeline: Timeline, setting: Setting, below_bytes: int) -> Applied:
    """Small results stay on the GPU and come back with the last of them: as `batch`, with kernels between the copies."""
    small = _small(timeline, below_bytes, "d2h")
    removed = small & ~last_in_group(timeline.columns["operation_stream"], small)
    if not removed.any():
        return Applied(timeline)
    changed = without_operations(without_waits_behind(timeline, removed), removed)
    return applied(timeline, changed, small, statement("assumes.decides-nothing"))


def loop_nanoseconds(timeline: Timeline, below_bytes: int) -> int:
    """The host's time between the calls of small copies that `batch` packs, and outside of any call."""
    gap = np.maximum(timeline.columns["call_gap"], 0)
    return int(gap[_in_loops(timeline, _groups(timeline, below_bytes))].sum())


def _small(timeline: Timeline, below: int, *directions: str) -> Mask:
    """Launched copies of these directions and fewer bytes; shape (operations,)."""
    sizes = timeline.operations["bytes"].fill_null(below).to_numpy()
    return timeline.copies(*directions) & timeline.launched & (sizes < below)


def _groups(timeline: Timeline, below: int) -> Times:
    """A number for each run of small copies, -1: in none; shape (operations,). A run ends where one is not small, goes
    another way or comes from another thread than the one before in its stream.
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
