"""Columns that a file lacks, as nulls, so that the code after it need not ask."""

from __future__ import annotations

import polars as pl

__all__ = ["with_missing"]


def with_missing(frame: pl.DataFrame, wanted: dict[str, pl.DataType]) -> pl.DataFrame:
    """`frame` with a column of nulls for each one of `wanted` that it lacks."""
    return frame.with_columns(
        pl.lit(None, dtype=kind).alias(name) for name, kind in wanted.items() if name not in frame.columns
    )
