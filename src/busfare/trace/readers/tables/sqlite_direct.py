"""Columns of an SQLite file straight from its pages, past SQLite, which would hand out value by value."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.trace._sqlite_columns import Codes, Kind, Wanted
from busfare.trace.bounds import EARLIEST, LATEST
from busfare.trace.readers.tables.source import AS_THEY_ARE, Change, Changes, with_all
from busfare.trace.readers.tables.sqlite_pages import Pages, Place, UnreadableError

__all__ = ["read_columns"]

KIND_OF: dict[pl.DataType, Kind] = {
    pl.Int64(): Kind.INTEGER,
    pl.Int32(): Kind.SMALL,
    pl.Float64(): Kind.REAL,
    pl.String(): Kind.TEXT,
}


def read_columns(
    pages: Pages, table: str, columns: dict[str, pl.DataType], changes: Changes = AS_THEY_ARE
) -> pl.DataFrame:
    """The columns of `table`, which it has, as those types, and changed so; rows in order of rowid.

    A value of another type than its column's is null. Raises UnreadableError if SQLite had better answer: the
    table is damaged, WITHOUT ROWID, or has columns of types or defaults that are not read here.
    """
    root = pages.root(table)
    if not set(columns.values()) <= set(KIND_OF):
        raise UnreadableError("a type that only SQLite reads")
    layout = pages.layout(table)
    wanted = [
        _wanted(layout[name], KIND_OF[kind], changes.get(name, Change())) for name, kind in columns.items()
    ]
    read = pages.file.read(root, wanted, pl.thread_pool_size())
    # A column of nothing but nulls takes no memory as a constant.
    kept = [
        # A name given to the series beside the column would not be heeded.
        pl.Series(column).alias(name)
        for number, (name, column) in enumerate(zip(columns, read, strict=True))
        if number == 0 or column.null_count < len(column)
    ]
    return with_all(pl.DataFrame(kept), columns)


def _wanted(place: Place, kind: Kind, change: Change) -> Wanted:
    if place.is_rowid and (kind != Kind.INTEGER or change != Change()):
        raise UnreadableError("a rowid that is not to be a whole number, or to be changed")
    codes = None
    if change.codes is not None:
        codes = Codes(change.codes.least, change.codes.of.astype(np.uint32), change.codes.otherwise)
        kind = Kind.CODE8 if change.codes.of.dtype == np.uint8 else Kind.CODE32
    return Wanted(
        place.index,
        kind,
        is_rowid=place.is_rowid,
        real_affinity=place.real_affinity,
        has_default=place.has_default,
        less=change.less,
        least=EARLIEST,
        most=LATEST,
        first_bit=change.first_bit,
        bits=change.bits,
        codes=codes,
    )
