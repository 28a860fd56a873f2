"""How much memory of the GPU a process has allocated: the most that one of its kernels can reach."""

from __future__ import annotations

import polars as pl

from busfare.trace.tables import LAUNCH_SHAPE, Schema

__all__ = ["ALLOCATIONS", "OF_GPU", "with_allocated"]

#: What readers give: `bytes` is below 0 where they are freed, `device` null where every GPU may reach them; `in_stream`:
#: made and freed in the order of a stream, by a host that does not wait for it.
ALLOCATIONS: Schema = {
    "process": pl.Int64(),
    "device": pl.Int32(),
    "start_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "in_stream": pl.Boolean(),
}
#: Kinds of memory that allocations of a GPU are of.
OF_GPU = ("device", "array", "managed", "static")
#: No GPU has more, and sums of many stay numbers.
MOST_BYTES = 1 << 44
_GPU = ["process", "device"]


def with_allocated(operations: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """`operations` with `allocated_bytes` of kernels: the most that their process held of their GPU's memory when one of
    that name and launch ended; of memory that is freed in a stream's order the most until then, for hosts free it before
    kernels have run.

    Null where not every allocation was seen: where none was, more was freed than allocated, or more was copied at once.
    """
    kernels = operations.with_row_index("row").filter(kind="kernel").drop_nulls([*_GPU, "end_ns"])
    held = _held(allocations, kernels.select(_GPU).unique(), operations)
    if held.is_empty():
        return operations
    ended = kernels.sort("end_ns").join_asof(
        held, left_on="end_ns", right_on="start_ns", by=_GPU, check_sortedness=False
    )
    alike = [*_GPU, "name", *(name for name in LAUNCH_SHAPE if name in operations.columns)]
    most = ended.select("row", pl.col("allocated_bytes").max().over(alike))
    return (
        operations.with_row_index("row").join(most, on="row", how="left", maintain_order="left").drop("row")
    )


def _held(allocations: pl.DataFrame, gpus: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """`allocated_bytes` of each of `gpus` (process, device) from each `start_ns` on, by time, where they can be true."""
    sound = allocations.filter(pl.col("bytes").is_between(-MOST_BYTES, MOST_BYTES)).drop_nulls("start_ns")
    anywhere = sound.filter(pl.col("device").is_null()).drop("device").join(gpus, on="process")
    each = pl.concat([sound.join(gpus, on=_GPU, how="semi"), anywhere.select(sound.columns)])
    in_stream = pl.col("in_stream").fill_null(False)
    waited, unwaited = (
        pl.when(those).then("bytes").otherwise(0).cum_sum() for those in (~in_stream, in_stream)
    )
    held = each.sort("start_ns").with_columns(
        least=pl.min_horizontal(waited, unwaited).over(_GPU),
        allocated_bytes=(waited + unwaited.cum_max()).over(_GPU),
    )
    sides = [pl.col(f"{side}_memory").is_in(OF_GPU) for side in ("source", "destination")]
    copied = operations.filter(pl.any_horizontal(sides)).group_by(_GPU).agg(copied=pl.col("bytes").max())
    whole = held.group_by(_GPU).agg(pl.col("least").min(), most=pl.col("allocated_bytes").max())
    whole = whole.join(copied, on=_GPU, how="left").filter(
        (pl.col("least") >= 0) & (pl.col("copied").fill_null(0) <= pl.col("most"))
    )
    return held.join(whole, on=_GPU, how="semi", maintain_order="left").select(
        *_GPU, "start_ns", "allocated_bytes"
    )
