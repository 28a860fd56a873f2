"""Columns of the tables of an SQLite file that nobody vouches for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from busfare.errors import InputError
from busfare.trace.sqlite_direct import DirectColumns, UnreadableError, quoted
from busfare.trace.table_source import AS_THEY_ARE, Changes, changed, with_all
from busfare.trace.tables import Schema

__all__ = ["SqliteTables"]

#: What reading a damaged file raises. The module fails on a message of SQLite that quotes bytes that are no
#: text, and SQLite calls a value of impossible size a lack of memory.
DAMAGE = (sqlite3.Error, UnicodeDecodeError, MemoryError)
ROWS_A_FETCH = 1 << 10
ROWS_A_PIECE = 1 << 16
#: Write-ahead mode, in the bytes 18 and 19 of the file.
WRITE_AHEAD = 2
#: A row takes two bytes of its page's index, and at least four of its own.
LEAST_ROW = 6


class SqliteTables:
    """Reads whole columns from an SQLite file; read-only, and only from ordinary tables.

    Views, virtual tables and triggers are never run: a trace cannot execute anything. Columns come straight from
    the file's pages where that can be done; whatever it cannot, damage included, is left to SQLite's own judgement.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError if `path` is not a readable SQLite file."""
        self.path = path
        self._left_to_sqlite = ""  # why, for the message if SQLite cannot read it either
        try:
            self._database = sqlite3.connect(_address(path), uri=True, isolation_level=None)
            self._database.text_factory = lambda text: text.decode("utf-8", "replace")
            self._database.execute("PRAGMA trusted_schema=OFF")
            self._database.execute("PRAGMA cell_size_check=ON")
            # Until the end, so that no writer changes the file while it is read past SQLite.
            self._database.execute("BEGIN")
            rows = self._database.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
            ).fetchall()
        except DAMAGE as error:
            raise self._unusable(error) from None
        self.names = {
            name
            for name, sql in rows
            if isinstance(name, str)
            and isinstance(sql, str)
            and not sql.lstrip().upper().startswith("CREATE VIRTUAL")
        }
        self._columns: dict[str, list[str]] = {}
        self.direct: DirectColumns | None = None  # straight from the pages, where that can be done
        try:
            self.direct = DirectColumns(path, self._database)
        except (*DAMAGE, UnreadableError) as error:
            self._left_to_sqlite = str(error)

    def close(self) -> None:
        self._database.close()
        self.direct = None

    def columns(self, table: str) -> list[str]:
        """Names of the columns of `table`, none if it is not there."""
        if table not in self.names:
            return []
        if table not in self._columns:
            try:
                rows = self._database.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            except DAMAGE as error:
                raise self._unusable(error) from None
            self._columns[table] = [row[1] for row in rows]
        return self._columns[table]

    def first(self, table: str, column: str) -> int | None:
        """What the first row has in a column; None if that is no whole number, or there is none."""
        if column not in self.columns(table):
            return None
        return self._one(f"SELECT {quoted(column)} FROM {quoted(table)} LIMIT 1")

    def most_rows(self, table: str) -> int | None:
        """The largest rowid; None if there is none."""
        return self._one(f"SELECT max(rowid) FROM {quoted(table)}") if table in self.names else None

    def _one(self, query: str) -> int | None:
        try:
            row = self._database.execute(query).fetchone()
        except DAMAGE:  # whoever reads the table is told
            return None
        return row[0] if row and isinstance(row[0], int) else None

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
        if self.direct is None:
            return None
        try:
            return self.direct.read(table, present, changes)
        except (*DAMAGE, UnreadableError) as error:
            self._left_to_sqlite = str(error)
            return None

    def _stepped(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        """The columns from SQLite, row by row."""
        sql = f"SELECT {', '.join(quoted(name) for name in present)} FROM {quoted(table)}"
        # What a table gives cannot be more than the file holds; more is a loop in a damaged one.
        size = self.path.stat().st_size
        most_rows, most_text = size // LEAST_ROW, 2 * size
        texts = [i for i, kind in enumerate(present.values()) if kind == pl.String]
        pieces: list[pl.DataFrame] = []
        rows: list[tuple[object, ...]] = []
        count = text = 0
        try:
            cursor = self._database.execute(sql)
            while fetched := cursor.fetchmany(ROWS_A_FETCH):
                count += len(fetched)
                text += sum(len(v) for row in fetched for i in texts if isinstance(v := row[i], str))
                if count > most_rows or text > most_text:
                    raise self._unusable(f"table {table} never ends")
                rows += fetched
                if len(rows) >= ROWS_A_PIECE:
                    pieces.append(_typed(rows, present))
                    rows = []
        except DAMAGE as error:
            raise self._unusable(error) from None
        if rows:
            pieces.append(_typed(rows, present))
        return pl.concat(pieces) if pieces else pl.DataFrame(schema=present)

    def _unusable(self, reason: object) -> InputError:
        why = f"{reason}; {self._left_to_sqlite}" if self._left_to_sqlite else str(reason)
        return InputError(
            f"{self.path}: damaged or unreadable SQLite file ({why}); export the trace again, "
            "or check that the copy is complete"
        )


def _address(path: Path) -> str:
    """What SQLite is to open. It leaves files beside one in write-ahead mode, if that is not immutable."""
    with path.open("rb") as file:
        modes = file.read(20)[18:20]
    writer = path.with_name(path.name + "-wal").exists()
    immutable = "&immutable=1" if WRITE_AHEAD in modes and not writer else ""
    return f"file:{quote(str(path))}?mode=ro{immutable}"


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
