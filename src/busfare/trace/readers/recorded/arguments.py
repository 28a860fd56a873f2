"""What memory recorded kernels get by their arguments: pinned memory of the host, and allocations of the GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace.columns import first_rows
from busfare.trace.model import Omissions
from busfare.trace.readers.recorded.counters import SHAPE
from busfare.trace.readers.recorded.process import RecordedProcess, at, readable_names

MAPPED_SEEN = (
    "memory of the host that kernels get is known where a pointer to it is among their arguments; not where it lies in "
    "other memory, in CUDA graphs, or where the memory was pinned before the recording began"
)
#: Launches of one kernel, grid and block of which a tenth takes so many times as long as a tenth are of different data, of
#: which only the first one's was looked at (how far they lie apart: `python validation/kernels.py --arguments`).
DIFFERENT_DATA = 2.0
#: How far into an allocation an array may begin, in thousandths, and still be taken for the whole of it.
POOLED = 63


def with_arguments(kernels: pl.DataFrame, process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """`kernels` with `argument_bytes`, where the recording notes them; null for those whose launch was not looked at."""
    noted = process.recording.facts.get("arguments")
    if noted is None:
        return kernels
    if noted != "first launches":
        name = process.recording.path.name
        omissions.add(
            "no-arguments", f"{name}: what memory of the GPU kernels get could not be seen ({noted})"
        )
        return kernels
    table = process.recording.table("argument_memory")
    # A pointer into the midst of an allocation is that of a pool, and says nothing of where its array ends.
    whole = pl.when(pl.col("inside").is_between(0, POOLED) & (pl.col("bytes") >= 0)).then("bytes")
    reached = process.frame(table, "bytes", "inside", *SHAPE).select(*SHAPE, argument_bytes=whole)
    reached = reached.with_columns(name=readable_names(process, table["name"]))
    reached = reached.unique(["name", *SHAPE], keep="first").join(
        of_different_data(kernels), on=["name", *SHAPE], how="anti", nulls_equal=True
    )
    return kernels.join(reached, on=["name", *SHAPE], how="left", maintain_order="left")


def of_different_data(kernels: pl.DataFrame) -> pl.DataFrame:
    """Name and shape of kernels whose launches take such different times."""
    took = pl.col("end_ns") - pl.col("start_ns")
    shortest, longest = took.quantile(0.1, "nearest"), took.quantile(0.9, "nearest")
    alike = kernels.group_by("name", *SHAPE).agg(different=longest > DIFFERENT_DATA * shortest)
    return alike.filter("different").drop("different")


def with_mapped(kernels: pl.DataFrame, process: RecordedProcess, omissions: Omissions) -> pl.DataFrame:
    """`kernels` with `mapped_bytes`, where the recording notes them; null in graphs, whose correlation is the launch's."""
    noted = process.recording.facts.get("mapped")
    if noted is None:
        return kernels
    name, table = process.recording.path.name, process.recording.table("mapped_arguments")
    if noted != "arguments":
        omissions.add("no-mapped", f"{name}: what memory kernels get could not be seen ({noted})")
        return kernels
    omissions.add("mapped", f"{name}: {MAPPED_SEEN}")
    rows = first_rows(table["correlation"], kernels["correlation"].fill_null(0).to_numpy().astype(np.uint64))
    reached = pl.Series(at(table["bytes"], rows)).cast(pl.Int64, strict=False)
    known = pl.col("graph_node").is_null() & pl.col("correlation").is_not_null()
    return kernels.with_columns(mapped_bytes=pl.when(known).then(reached))
