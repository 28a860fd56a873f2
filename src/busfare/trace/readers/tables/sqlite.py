"""Columns of the tables of an SQLite file that nobody vouches for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from busfare.trace.readers.tables.source import AS_THEY_ARE, Changes, changed, with_all
from busfare.trace.readers.tables.sqlite_direct import read_columns
from busfare.trace.readers.tables.sqlite_file import DAMAGE, SqliteFile
from busfare.trace.readers.tables.sqlite_pages import UnreadableError, quoted
from busfare.trace.tables import Schema

__all__ = ["SqliteTables"]

ROWS_A_FETCH = 1 << 10
ROWS_A_PIECE = 1 << 16
#: A row takes two bytes of its page's index, and at least four of its own.
LEAST_ROW = 6


class SqliteTables:
    """Reads whole columns from an SQLite file; only from ordinary tables.

    Columns come straight from the file's pages where that can be done; whatever it cannot, damage included, is left to
    SQLite's own judgement.
    """

    def __init__(self, file: SqliteFile | Path) -> None:
        """Of an open file, or of a path. Raises InputError if that is not a readable SQLite file."""
        self.file = file if isinstance(file, SqliteFile) else SqliteFile(file)
        self.path, self.names = self.file.path, self.file.names
        self.columns, self.first, self.most_rows = self.file.columns, self.file.first, self.file.most_rows
        self.close = self.file.close

    def read(self, table: str, wanted: Schema, changes: Changes = AS_THEY_ARE) -> pl.DataFrame:
        """The columns of `wanted`, as those types; one that `table` lacks is null. No rows without `table`.

        A value of another type than its column's becomes null. Raises InputError if the file is damaged.
        """
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        if not present:
            return pl.DataFrame(schema=wanted)
        frame = self._straight(table, present, changes)
        return with_all(changed(self._stepped(table, present), changes) if frame is None else frame, wanted)

    def _straight(self, table: str, present: dict[str, pl.DataType], changes: Changes) -> pl.DataFrame | None:
        """The columns from the file's pages; None if SQLite is to read them."""
        if self.file.pages is None:
            return None
        try:
            return read_columns(self.file.pages, table, present, changes)
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
