"""What a reader of profiler tables needs of the file that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl

from busfare.trace.tables import Schema

__all__ = ["INT", "TEXT", "TableSource", "ints", "meant", "texts", "with_all"]

INT, TEXT = pl.Int64(), pl.String()


def ints(names: str) -> dict[str, pl.DataType]:
    """Columns of whole numbers, their names apart by spaces."""
    return dict.fromkeys(names.split(), INT)


def texts(names: str) -> dict[str, pl.DataType]:
    """Columns of text, their names apart by spaces."""
    return dict.fromkeys(names.split(), TEXT)


def meant(column: str, words: Mapping[int, str] | Mapping[str, str], kinds: Sequence[str]) -> pl.Expr:
    """What the values of a column mean, as an Enum of `kinds`; null for those that are not listed."""
    return pl.col(column).replace_strict(words, default=None, return_dtype=pl.Enum(kinds))


class TableSource(Protocol):
    """Named tables with named columns, any of which may be missing."""

    @property
    def path(self) -> Path:
        """The file or directory."""

    @property
    def names(self) -> set[str]:
        """The tables that are there."""

    def columns(self, table: str) -> list[str]:
        """Columns of `table`; none if it is not there."""

    def read(self, table: str, wanted: Schema) -> pl.DataFrame:
        """The columns of `wanted`, as those types; one that `table` lacks is all null.

        No rows if the table is not there, or has none of the columns. Raises InputError if it cannot be read.
        """

    def close(self) -> None: ...


def with_all(frame: pl.DataFrame, wanted: Schema) -> pl.DataFrame:
    """`frame` with exactly the columns of `wanted`, in that order: what it lacks is all null."""
    lacking = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in wanted.items() if name not in frame.columns
    ]
    return frame.with_columns(lacking).select(*wanted)
