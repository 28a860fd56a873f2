"""What a reader of profiler tables needs of the file that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace.bounds import EARLIEST, LATEST
from busfare.trace.tables import Schema

__all__ = ["AS_THEY_ARE", "Change", "Codes", "TableSource", "bits_of", "changed", "with_all"]

A_CHUNK = 1 << 16


class Codes:
    """What stands for whole numbers: `of` (UInt8 or UInt32) for those from `least` on, `otherwise` for all else."""

    def __init__(self, least: int, of: npt.NDArray[Any], otherwise: int) -> None:
        self.least, self.of, self.otherwise = least, of, otherwise

    def of_codes(self, numbers: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """The codes of small numbers."""
        table = np.full(256, self.otherwise, self.of.dtype)
        table[self.least : self.least + len(self.of)] = self.of
        return table[numbers]

    def column(self, numbers: pl.Series) -> pl.Series:
        """The codes of a column; of one that is one of codes already, itself."""
        if numbers.dtype in (pl.UInt8, pl.UInt32):
            return numbers
        if numbers.null_count() == len(numbers) or not len(self.of):
            return pl.Series(numbers.name, np.full(len(numbers), self.otherwise, self.of.dtype))
        last = self.least + len(self.of) - 1
        inside = numbers.is_between(self.least, last).fill_null(False).to_numpy()
        table = np.append(self.of, self.of.dtype.type(self.otherwise))
        given = (numbers.fill_null(self.least) if numbers.null_count() else numbers).to_numpy()
        at = np.where(inside, given, self.least) - self.least
        return pl.Series(numbers.name, table[np.where(inside, at, len(self.of))])


class Change(NamedTuple):
    """What is made of a column's whole numbers while they are read, which takes no further memory.

    Usable times are counted from `less`; of other numbers `bits` are taken from `first_bit` on. A null stays one. With
    `codes`, the column is then of the codes that stand for its numbers, and has no nulls.
    """

    less: int = 0
    first_bit: int = 0
    bits: int = 64
    codes: Codes | None = None


Changes = Mapping[str, Change]
AS_THEY_ARE: Changes = {}


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

    def first(self, table: str, column: str) -> int | None:
        """What the first row has in a column of whole numbers; None if that is not to be had cheaply."""

    def most_rows(self, table: str) -> int | None:
        """No more rows than this are in `table`; None if that is not to be had cheaply."""

    def read(self, table: str, wanted: Schema, changes: Changes = AS_THEY_ARE) -> pl.DataFrame:
        """The columns of `wanted`, as those types, and changed so; one that `table` lacks is all null.

        No rows if the table is not there, or has none of the columns. Raises InputError if it cannot be read.
        """

    def close(self) -> None: ...


def with_all(frame: pl.DataFrame, wanted: Schema) -> pl.DataFrame:
    """`frame` with exactly the columns of `wanted`, in that order: what it lacks is all null."""
    lacking = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in wanted.items() if name not in frame.columns
    ]
    return frame.with_columns(lacking).select(*wanted)


def changed(frame: pl.DataFrame, changes: Changes) -> pl.DataFrame:
    """`frame` with its columns changed, where that was not done while they were read."""
    made = []
    for name, change in changes.items():
        if name in frame.columns:
            column = frame[name]
            if change.less:
                usable = pl.col(name).is_between(EARLIEST, LATEST)
                counted = pl.when(usable).then(pl.col(name) - change.less).otherwise(name)
                column = frame.select(counted.alias(name)).to_series()
            if change.bits < 64:
                column = bits_of(column, change.first_bit, change.bits)
            if change.codes is not None:
                column = change.codes.column(column)
            made.append(column.alias(name))
    return frame.with_columns(made)


def bits_of(numbers: pl.Series, first: int, bits: int) -> pl.Series:
    """Some bits of each number, from bit `first` on."""
    given = (numbers.fill_null(0) if numbers.null_count() else numbers).to_numpy()
    made = np.empty(len(given), np.int64)
    for at in range(0, len(given), A_CHUNK):  # a piece at a time stays in the processor's cache
        piece = made[at : at + A_CHUNK]
        np.right_shift(given[at : at + A_CHUNK], first, out=piece)
        np.bitwise_and(piece, (1 << bits) - 1, out=piece)
    if not numbers.null_count():
        return pl.Series(made)
    return pl.select(pl.when(numbers.is_not_null()).then(pl.Series(made))).to_series()
