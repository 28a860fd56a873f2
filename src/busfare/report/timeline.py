"""The operations of a trace as few enough bars to draw: a row a GPU and kind of work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import Trace
from busfare.trace.lanes import is_communication, is_transfer, is_work
from busfare.trace.totals import union_of
from busfare.trace.words import CLASSES, kind_codes, of_codes

__all__ = ["BARS_A_ROW", "Row", "rows"]

#: What is closer together than this part of the run is drawn as one bar.
BARS_A_ROW = 1500
MOST_GPUS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Bars of one row. Arrays of shape (bars,): seconds from the start, operations merged, share of the bar busy."""

    gpu: int | None
    work: str  # kernels, communication, h2d, d2h, other copies
    starts: NDArray[np.float64]
    lengths: NDArray[np.float64]
    operations: NDArray[np.int64]
    busy: NDArray[np.float64]
    longest: list[str]  # name of the longest operation in each bar


def rows(trace: Trace) -> list[Row]:
    """Rows of the busiest GPUs, in order of ordinal; empty rows are left out."""
    operations = trace.operations
    if operations.is_empty():
        return []
    kinds = of_codes(kind_codes(operations), pl.Series(dtype=CLASSES))
    operations = operations.with_columns(kind=kinds)
    first, last = int(operations["start_ns"].min()), int(operations["end_ns"].max())  # type: ignore[arg-type]
    resolution = max(1, (last - first) // BARS_A_ROW)
    busiest = (
        operations.group_by("device")
        .len()
        .sort("len", descending=True)
        .head(MOST_GPUS)["device"]
        .sort(nulls_last=True)
    )
    found = []
    for device in busiest:
        of_gpu = operations.filter(pl.col("device").eq_missing(device))
        to_host = pl.col("direction").is_in(["h2d", "d2h"])
        groups = {
            "kernels": of_gpu.filter(is_work()),
            "communication": of_gpu.filter(is_communication()),
            "h2d": of_gpu.filter(is_transfer() & (pl.col("direction") == "h2d")),
            "d2h": of_gpu.filter(is_transfer() & (pl.col("direction") == "d2h")),
            "other copies": of_gpu.filter(is_transfer() & ~to_host.fill_null(False)),
        }
        found += [_row(device, work, part, resolution) for work, part in groups.items() if part.height]
    return found


def _row(gpu: int | None, work: str, operations: pl.DataFrame, resolution: int) -> Row:
    operations = operations.sort("start_ns")
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    reached = np.maximum.accumulate(ends)
    new = np.ones(len(starts), bool)
    new[1:] = starts[1:] - reached[:-1] > resolution
    bar = np.cumsum(new) - 1
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(starts)) - 1
    union = union_of(operations)
    covered = union.covered_within(starts[firsts], reached[lasts])
    length = np.maximum(reached[lasts] - starts[firsts], 1)
    label = (
        pl.when(is_work() | is_communication()).then(pl.col("name").cast(pl.String)).otherwise(pl.lit(work))
    )
    longest = (
        operations.with_columns(bar=pl.Series(bar), duration=pl.Series(ends - starts), label=label)
        .sort("duration", descending=True)
        .unique("bar", keep="first", maintain_order=True)
        .sort("bar")["label"]
        .fill_null("")
        .to_list()
    )
    return Row(gpu, work, starts[firsts] / 1e9, length / 1e9, lasts - firsts + 1, covered / length, longest)
