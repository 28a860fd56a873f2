"""Spans of host threads (ranges, operators, functions) that lie within one another, and what they are around."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import numbered

PLACE = ("process", "thread")
#: Of spans within one another, so many of the innermost are named.
MOST_NAMED = 16


def innermost(spans: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Of each point the row of the innermost span around it on its thread; null where there is none.

    Spans: process, thread, start_ns, end_ns; those of a thread lie within one another or apart. Points: process, thread,
    start_ns.
    """
    swept = _swept(spans, points.select(*PLACE, "start_ns"))
    return swept.filter(pl.col("order") == 2).sort("point").select(_open_span()).to_series()


def _open_span() -> pl.Expr:
    """The span that is open at a row of what `_swept` gives; null where none is."""
    return pl.when((pl.col("depth") > 0) & (pl.col("start_ns") < pl.col("end_ns"))).then("span")


def _swept(spans: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Beginnings of spans (order 1) and points (order 2) thread by thread in order of time, each with the `depth` in spans,
    and row and end of the last span that began as deep there.
    """
    at = pl.col("start_ns")
    spans = spans.select(*PLACE, "start_ns", "end_ns").with_row_index("span").filter(at < pl.col("end_ns"))
    edges = (
        spans.select(*PLACE, start_ns="end_ns", order=0, deeper=-1),
        spans.with_columns(order=1, deeper=1),
        points.with_columns(order=2, deeper=0).with_row_index("point"),
    )
    # The spans of a thread that are as deep lie apart: the last that has begun is the one. Each thread comes to a depth by
    # beginning a span there, so that none is another thread's.
    return (
        pl.concat(edges, how="diagonal")
        .sort([*PLACE, "start_ns", "order", -pl.col("end_ns")])
        .with_columns(depth=pl.col("deeper").cum_sum())
        .filter(pl.col("order") > 0)
        .with_columns(pl.col("span", "end_ns").forward_fill().over("depth"))
    )


def around_calls(spans: pl.DataFrame, calls: pl.DataFrame, rows: NDArray[np.int64]) -> pl.Series:
    """Of these rows of `calls` the row of the innermost span around each; null for row -1."""
    known = rows >= 0
    points = calls.select("process", "thread", "start_ns")[rows[known]]
    found = np.full(len(rows), -1, np.int64)
    found[known] = innermost(spans, points).cast(pl.Int64).fill_null(-1).to_numpy()
    return pl.Series(found).replace(-1, None).cast(pl.UInt32)


def stacks(
    spans: pl.DataFrame, points: pl.DataFrame, name: NDArray[np.int64]
) -> tuple[list[tuple[int, ...]], NDArray[np.uint32]]:
    """The names of the spans around points: different stacks, outermost first, and which one each point has.

    Spans and points as for `innermost`; `name` is the number of each span's name. A stack has its `MOST_NAMED` innermost.
    """
    swept = _swept(spans, points.select(*PLACE, "start_ns"))
    inner = swept.filter(pl.col("order") == 2).sort("point").select(_open_span()).to_series()
    row = inner.cast(pl.Int64).fill_null(-1).to_numpy()
    outer = _outer(swept, spans.height)
    levels = [np.where(row >= 0, name[row], -1)] if spans.height else [np.full(len(row), -1, np.int64)]
    while len(levels) < MOST_NAMED and (row >= 0).any():
        row = np.where(row >= 0, outer[row], -1)
        levels.append(np.where(row >= 0, name[row], -1))
    number, first = numbered(levels)
    return [tuple(int(level[at]) for level in reversed(levels) if level[at] >= 0) for at in first], number


def _outer(swept: pl.DataFrame, spans: int) -> NDArray[np.int64]:
    """Of each span the row of the one around it; -1 where there is none."""
    begun = swept.filter(pl.col("order") == 1).select("depth", "start_ns", "end_ns", "span")
    begun = begun.with_row_index("at")
    asked = begun.with_columns(pl.col("depth") - 1, inner="span", inside=True).drop("span", "end_ns")
    found = (
        pl.concat([begun, asked], how="diagonal")
        .sort("depth", "at")
        .with_columns(pl.col("span", "end_ns").forward_fill().over("depth"))
        .filter(pl.col("inside").is_not_null())
    )
    rows = found.select("inner", _open_span()).drop_nulls()
    outer = np.full(spans, -1, np.int64)
    outer[rows["inner"].to_numpy()] = rows["span"].to_numpy()
    return outer
