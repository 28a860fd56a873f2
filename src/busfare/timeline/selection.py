"""Which operations a change is about: by name, path or marker, by a word of theirs, and the calls that made them."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.expressions import found_in
from busfare.timeline.model import Timeline
from busfare.trace.words import Words

__all__ = ["among", "bytes_of", "calls_of", "described", "matching"]

Mask = NDArray[np.bool_]


def described(timeline: Timeline) -> pl.Series:
    """What a REGEX is matched against: an operation's name, path, launching call, and the markers around that call."""
    operations = timeline.operations
    path = pl.format(
        "{} {} {}→{}",
        pl.col("name").cast(pl.String).fill_null(""),
        pl.col("direction").cast(pl.String).fill_null(""),
        pl.col("source_memory").cast(pl.String).fill_null(""),
        pl.col("destination_memory").cast(pl.String).fill_null(""),
    )
    text = operations.select(path.alias("text"))["text"]
    if timeline.calls.height == 0:
        return text
    called = pl.Series(np.maximum(timeline.columns["operation_call"], 0))
    names = timeline.calls["name"].cast(pl.String).fill_null("").gather(called)
    return text + " " + names + _markers_around(timeline, called)


def _markers_around(timeline: Timeline, called: pl.Series) -> pl.Series:
    """Names of the ranges that were open when each operation was called: the innermost few."""
    ranges = timeline.trace.markers.filter(pl.col("end_ns").is_not_null())
    none = pl.repeat("", called.len(), eager=True)
    if ranges.height == 0 or ranges.height > 100_000:
        return none
    times = timeline.calls["start_ns"].gather(called).to_numpy()
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    names = ranges["name"].cast(pl.String).fill_null("").to_list()
    order = np.argsort(starts, kind="stable")
    open_now: list[int] = []
    found: list[str] = [""] * called.len()
    at = 0
    for row in np.argsort(times, kind="stable"):
        while at < len(order) and starts[order[at]] <= times[row]:
            open_now.append(int(order[at]))
            at += 1
        open_now = [r for r in open_now if ends[r] >= times[row]]
        found[row] = "".join(f" {names[r]}" for r in open_now[-8:])
    return pl.Series(found)


def matching(timeline: Timeline, pattern: str) -> Mask:
    """Operations whose description matches. Raises InputError for what is no regular expression."""
    if not pattern:
        return np.ones(timeline.operations.height, bool)
    return np.array(found_in(pattern, described(timeline)))


def bytes_of(timeline: Timeline, mask: Mask) -> int:
    return int(timeline.operations["bytes"].filter(pl.Series(mask)).sum())


def among(timeline: Timeline, column: str, *words: str) -> Mask:
    return Words(timeline.operations).among(column, *words)


def calls_of(timeline: Timeline, operations: Mask) -> Mask:
    mask = np.zeros(len(timeline.columns["call_own"]), bool)
    launched = operations & (timeline.columns["operation_launched"] != 0)
    mask[timeline.columns["operation_call"][launched]] = True
    return mask
