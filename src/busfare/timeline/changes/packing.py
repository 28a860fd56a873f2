"""Small copies that follow each other, packed into one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.quantities import parse_bytes
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting, size_text
from busfare.timeline.edit import bytes_of, without_operations, without_waits_behind
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import STAGED_ABOVE_BYTES, nanoseconds_packed, packing_nanoseconds, pageable
from busfare.trace.words import NONE, Words

__all__ = ["OPTIONS", "PLACE", "Batch", "Collect", "asked", "loop_nanoseconds"]

PLACE = 60
OPTIONS = (
    Option("--batch-below", "Pack copies smaller than this that follow each other.", "SIZE"),
    Option(
        "--with-loop",
        "With --batch-below: the loop that makes those copies goes with them; the program builds one array.",
    ),
    Option(
        "--collect-below",
        "Results smaller than this stay on the GPU and come back once, at the end.",
        "SIZE",
    ),
)


def asked(options: Asked) -> list[Change]:
    """Small copies packed, small results collected. Raises InputError for what is no size."""
    changes: list[Change] = []
    below, with_loop = options.text("batch_below"), options.flag("with_loop")
    if below is not None:
        changes.append(Batch(parse_bytes(below), with_loop))
    elif with_loop:
        raise InputError("--with-loop: goes with --batch-below SIZE, whose copies the loop makes")
    if (below := options.text("collect_below")) is not None:
        changes.append(Collect(parse_bytes(below)))
    return changes


@dataclass(frozen=True)
class Batch:
    """Copies smaller than `below_bytes` that one thread issues to one stream, one way and with nothing between them,
    become one copy where the last of them is.

    The host packs them, and what it does between their calls stays; `with_loop`: the loop that makes them goes with them,
    for the program builds what is copied as one array.
    """

    below_bytes: int
    with_loop: bool = False

    @property
    def title(self) -> str:
        loop = ", with their loop" if self.with_loop else ""
        return f"pack copies below {self.below_bytes} bytes{loop}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--batch-below", size_text(self.below_bytes), *(("--with-loop",) if self.with_loop else ()))

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        group, last = _groups(timeline, self.below_bytes)
        packed = group >= 0
        if not packed.any():
            return Applied(timeline, 0)
        columns = timeline.columns
        rows = np.flatnonzero(packed & last)
        numbers = group[rows]
        count = np.bincount(group[packed])[numbers]
        sizes = timeline.operations["bytes"].to_numpy()
        size = np.bincount(group[packed], weights=sizes[packed])[numbers]
        together = timeline.operations[rows].with_columns(
            bytes=pl.Series(size).cast(pl.Int64), copy_count=pl.lit(1, pl.Int32)
        )
        duration = columns["operation_duration"].copy()
        alone = np.bincount(group[packed], weights=duration[packed])[numbers]
        priced = nanoseconds_packed(together, setting.recorded_on)
        duration[rows] = np.rint(np.where(np.isfinite(priced), np.minimum(priced, alone), alone))
        packing = np.zeros(len(columns["call_gap"]), np.int64)
        if not self.with_loop:
            packing[columns["operation_call"][rows]] = np.rint(
                packing_nanoseconds(size.astype(np.float64), setting.recorded_on)
            )
        # A large copy of pageable memory holds its call up until it is staged; what that takes is in its price.
        staged = rows[pageable(together) & (size > STAGED_ABOVE_BYTES)]
        wait = columns["call_wait"].copy()
        wait[columns["operation_call"][staged]] = WAIT["operation"]
        extra = columns["operation_extra"].copy()
        extra[staged] = 0
        changed = replace(
            timeline.with_columns(operation_duration=duration, operation_extra=extra, call_wait=wait),
            operations=timeline.operations.with_columns(
                bytes=timeline.operations["bytes"].clone().scatter(rows, size.astype(np.int64))
            ),
        )
        removed = packed & ~last
        changed = without_operations(without_waits_behind(changed, removed), removed, bytes_stay=True)
        gap = changed.columns["call_gap"] + packing
        if self.with_loop:
            gap = np.where(_in_loops(timeline, group), np.minimum(gap, 0), gap)
            rests_on = (
                f"the program builds up to {int(count.max())} pieces as one array, in no time of its own"
            )
        else:
            gigabytes = 1 / float(packing_nanoseconds(np.ones(1), setting.recorded_on)[0])
            rests_on = f"up to {int(count.max())} pieces are ready when the last one is, "
            rests_on += f"and packing runs at {gigabytes:.2g} GB/s"
        return Applied(changed.with_columns(call_gap=gap), int(packed.sum()), int(size.sum()), [rests_on])


@dataclass(frozen=True)
class Collect:
    """Small results stay on the GPU and come back in one copy, where the last of them does.

    As `Batch`, for copies back with kernels between them.
    """

    below_bytes: int

    @property
    def title(self) -> str:
        return f"read results below {self.below_bytes} bytes once, at the end"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--collect-below", size_text(self.below_bytes))

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        small = _small(timeline, self.below_bytes, "d2h")
        last = np.zeros(len(small), bool)
        for stream in np.unique(timeline.columns["operation_stream"][small]):
            last[np.flatnonzero(small & (timeline.columns["operation_stream"] == stream))[-1]] = True
        removed = small & ~last
        if not removed.any():
            return Applied(timeline, 0)
        return Applied(
            without_operations(without_waits_behind(timeline, removed), removed),
            int(small.sum()),
            bytes_of(timeline, small),
            ["the host decides nothing by these results while the program runs"],
        )


def _small(timeline: Timeline, below: int, *directions: str) -> NDArray[np.bool_]:
    """Launched copies of these directions and fewer bytes; shape (operations,)."""
    words = Words(timeline.operations)
    sizes = timeline.operations["bytes"]
    size = (sizes.fill_null(below) if sizes.null_count() else sizes).to_numpy()
    found = words.among("kind", "copy") & words.among("direction", *directions) & (size < below)
    return np.asarray(found & (timeline.columns["operation_launched"] != 0))


def _groups(timeline: Timeline, below: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A number for each run of small copies (-1: in none), and whether an operation is the last of its run.

    A run ends where one is not small, goes another way or comes from another thread than the one before in its stream.
    """
    columns = timeline.columns
    words = Words(timeline.operations)
    path = np.zeros(timeline.operations.height, np.int64)
    known = np.ones(len(path), bool)
    for name in ("direction", "source_memory", "destination_memory"):
        codes = words.codes(name)
        path = path << 8 | codes
        known &= codes != NONE
    small = _small(timeline, below, "h2d", "d2h")
    calls = np.maximum(columns["operation_call"], 0)
    thread = columns["call_thread"][calls] if len(columns["call_thread"]) else np.zeros(len(path), np.int32)
    order = np.argsort(columns["operation_stream"], kind="stable")
    alike = np.ones(max(len(order) - 1, 0), bool)
    for values in (columns["operation_stream"], small, path, known, thread):
        alike &= values[order][1:] == values[order][:-1]
    alike &= known[order][1:]
    begins = np.flatnonzero(np.concatenate([np.ones(min(len(order), 1), bool), ~alike]))
    lengths = np.diff(np.append(begins, len(order)))
    last = np.zeros(len(order), bool)
    last[order[begins + lengths - 1]] = True
    number = np.empty(len(order), np.int64)
    number[order] = np.repeat(np.arange(len(begins)), lengths)
    long = np.empty(len(order), bool)
    long[order] = np.repeat(lengths > 1, lengths)
    return np.where(small & long, number, -1), last


def loop_nanoseconds(timeline: Timeline, below_bytes: int) -> int:
    """The host's time between the calls of small copies that `Batch` packs, and outside of any call."""
    group, _ = _groups(timeline, below_bytes)
    return int(np.maximum(timeline.columns["call_gap"], 0)[_in_loops(timeline, group)].sum())


def _in_loops(timeline: Timeline, group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The calls behind the first one that made a copy of a group, up to its last one, on the same thread. Shape (calls,)."""
    columns = timeline.columns
    threads = columns["call_thread"]
    order = np.argsort(threads, kind="stable")
    place = np.empty(len(threads), np.int64)
    place[order] = np.arange(len(order))
    packed = group >= 0
    called = place[columns["operation_call"][packed]]
    begins = np.full(int(group.max(initial=-1)) + 1, len(threads), np.int64)
    ends = np.zeros(len(begins), np.int64)
    np.minimum.at(begins, group[packed], called)
    np.maximum.at(ends, group[packed], called)
    used = begins < ends
    steps = np.zeros(len(threads) + 1, np.int64)
    np.add.at(steps, begins[used] + 1, 1)
    np.add.at(steps, ends[used] + 1, -1)
    inside = np.empty(len(threads), bool)
    inside[order] = np.cumsum(steps)[:-1] > 0
    return inside
