"""The grid of a kernel, of which a trace keeps the number of blocks: whether it fills the GPU."""

from __future__ import annotations

import polars as pl

__all__ = ["GRID", "MOST_BLOCKS", "with_blocks"]

#: Columns of SQLite traces: how many blocks lie in each direction.
GRID: dict[str, pl.DataType] = {"gridX": pl.Int64(), "gridY": pl.Int64(), "gridZ": pl.Int64()}
#: Sides of the largest grid; their product fits 64 bits.
MOST_BLOCKS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)


def with_blocks(frame: pl.DataFrame) -> pl.DataFrame:
    """`blocks` in place of the columns of `GRID`: null of what no grid can have; as it was where it has none of them."""
    if not GRID.keys() <= set(frame.columns):
        return frame
    possible = pl.all_horizontal(
        pl.col(side).is_between(1, most) for side, most in zip(GRID, MOST_BLOCKS, strict=True)
    )
    blocks = pl.when(possible).then(pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"))
    return frame.with_columns(blocks=blocks).drop(*GRID)
