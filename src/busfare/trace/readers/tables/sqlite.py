"""Columns of the tables of an SQLite file that nobody vouches for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from busfare.trace._sqlite_columns import Kind, Wanted
from busfare.trace.readers.tables.source import with_all
from busfare.trace.readers.tables.sqlite_file import DAMAGE, Pages, SqliteFile, UnreadableError, quoted
from busfare.trace.tables import Schema

__all__ = ["SqliteTables", "read_columns"]

ROWS_A_FETCH = 1 << 10
ROWS_A_PIECE = 1 << 16
#: A row takes two bytes of its page's index, and at least four of its own.
LEAST_ROW = 6
KIND_OF: dict[pl.DataType, Kind] = {
    pl.Int64(): Kind.INTEGER,
    pl.Int32(): Kind.SMALL,
    pl.Float64(): Kind.REAL,
    pl.String(): Kind.TEXT,
}


class SqliteTables:
    """Reads whole columns from an SQLite file; only from ordinary tables.

    Columns come straight from the file's pages where that can be done; whatever it cannot, damage included, is left to
    SQLite's own judgement.
    """

    def __init__(self, file: SqliteFile | Path) -> None:
        """Of an open file, or of a path. Raises InputError if that is not a readable SQLite file."""
        self.file = file if isinstance(file, SqliteFile) else SqliteFile(file)
        self.path, self.names = self.file.path, self.file.names
        self.columns, self.close = self.file.columns, self.file.close

    def read(self, table: str, wanted: Schema) -> pl.DataFrame:
        """The columns of `wanted`, as those types; one that `table` lacks is null. No rows without `table`.

        A value of another type than its column's becomes null. Raises InputError if the file is damaged.
        """
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        if not present:
            return pl.DataFrame(schema=wanted)
        frame = self._straight(table, present)
        return with_all(self._stepped(table, present) if frame is None else frame, wanted)

    def _straight(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame | None:
        """The columns from the file's pages; None if SQLite is to read them."""
        if self.file.pages is None:
            return None
        try:
            return read_columns(self.file.pages, table, present)
        except (*DAMAGE, UnreadableError) as error:
            self.file.left_to_sqlite = str(error)
            return None

    def _stepped(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        """The columns from SQLite, row by row."""
        sql = f"SELECT {', '.join(quoted(name) for name in present)} FROM {quoted(table)}"
        # What a table gives cannot be more than the file holds; more is a loop in a damaged one.
        size = self.file.place.stat().st_size
        most_rows, most_text = size // LEAST_ROW, 2 * size
        texts = [i for i, kind in enumerate(present.values()) if kind == pl.String]
        pieces: list[pl.DataFrame] = []
        rows: list[tuple[object, ...]] = []
        count = text = 0
        try:
            cursor = self.file.database.execute(sql)
            while fetched := cursor.fetchmany(ROWS_A_FETCH):
                count += len(fetched)
                text += sum(len(v) for row in fetched for i in texts if isinstance(v := row[i], str))
                if count > most_rows or text > most_text:
                    raise self.file.unusable(f"table {table} never ends")
                rows += fetched
                if len(rows) >= ROWS_A_PIECE:
                    pieces.append(_typed(rows, present))
                    rows = []
        except DAMAGE as error:
            raise self.file.unusable(error) from None
        if rows:
            pieces.append(_typed(rows, present))
        return pl.concat(pieces) if pieces else pl.DataFrame(schema=present)


def _typed(rows: Sequence[tuple[object, ...]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    columns = zip(*rows, strict=True)
    return pl.DataFrame(
        [_column(name, kind, values) for (name, kind), values in zip(schema.items(), columns, strict=True)]
    )


def _column(name: str, kind: pl.DataType, values: tuple[object, ...]) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=kind, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        accepted = str if kind == pl.String else (int, float) if kind.is_float() else int
        return pl.Series(
            name, [v if isinstance(v, accepted) else None for v in values], dtype=kind, strict=False
        )


def read_columns(pages: Pages, table: str, columns: dict[str, pl.DataType]) -> pl.DataFrame:
    """The columns of `table`, which it has, as those types, straight from the file's pages; rows in order of rowid.

    A value of another type than its column's is null. Raises UnreadableError if SQLite had better answer: the
    table is damaged, WITHOUT ROWID, or has columns of types or defaults that are not read here.
    """
    root = pages.root(table)
    if not set(columns.values()) <= set(KIND_OF):
        raise UnreadableError("a type that only SQLite reads")
    layout = pages.layout(table)
    wanted = []
    for name, kind in columns.items():
        place = layout[name]
        if place.is_rowid and KIND_OF[kind] != Kind.INTEGER:
            raise UnreadableError("a rowid that is not to be a whole number")
        wanted.append(
            Wanted(
                place.index,
                KIND_OF[kind],
                is_rowid=place.is_rowid,
                real_affinity=place.real_affinity,
                has_default=place.has_default,
            )
        )
    read = pages.file.read(root, wanted, pl.thread_pool_size())
    # A column of nothing but nulls takes no memory as a constant.
    kept = [
        # A name given to the series beside the column would not be heeded.
        pl.Series(column).alias(name)
        for number, (name, column) in enumerate(zip(columns, read, strict=True))
        if number == 0 or column.null_count < len(column)
    ]
    return with_all(pl.DataFrame(kept), columns)
