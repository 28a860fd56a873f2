"""Which operations or calls a REGEX of the user's chooses."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.expressions import found_in
from busfare.timeline.model import Mask, Timeline

__all__ = ["NoMatchError", "chosen_by", "matching"]


class NoMatchError(InputError):
    """A REGEX that is found in nothing of what it chooses from; of a job, another rank may have some."""


def matching(timeline: Timeline, pattern: str, of: Mask, option: str) -> Mask:
    """Those `of` the operations that match: by name, path, launching call, and the markers around that call; shape
    (operations,).

    Raises InputError, naming `option`, for what is no regular expression, and NoMatchError where none of them matches.
    """
    if not pattern:
        return of
    told = ("name", "direction", "source_memory", "destination_memory")
    words = [pl.col(name).cast(pl.String).fill_null("") for name in told]
    text = timeline.operations.select(pl.format("{} {} {}→{}", *words).alias("text")).to_series()
    if timeline.calls.height:
        called = pl.Series(np.maximum(timeline.columns["operation_call"], 0))
        names = timeline.calls["name"].cast(pl.String).fill_null("").gather(called)
        text = text + " " + names + _markers_around(timeline, called)
    return chosen_by(pattern, of, text, option)


def chosen_by(pattern: str, of: Mask, texts: pl.Series, option: str) -> Mask:
    """Those `of` the rows in whose text `pattern` is found; shape (rows,). Raises as `matching`."""
    found: Mask = of & found_in(pattern, texts, option).to_numpy()
    if of.any() and not found.any():
        one = texts.filter(pl.Series(of))[0].strip()
        raise NoMatchError(
            f"{option} {pattern[:80]!r}: a regular expression, found in nothing of what it chooses from ({of.sum():,}, such "
            f"as {one[:80]!r}); correct it, or leave it out for all"
        )
    return found


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
