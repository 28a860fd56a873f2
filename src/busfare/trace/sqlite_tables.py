"""Columns of the tables of an SQLite file that nobody vouches for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from busfare.errors import InputError

__all__ = ["SqliteTables"]

ROWS_A_FETCH = 1 << 16


class SqliteTables:
    """Reads whole columns from an SQLite file; read-only, and only from ordinary tables.

    Views, virtual tables and triggers are never run: a trace cannot execute anything.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError if `path` is not a readable SQLite file."""
        self.path = path
        try:
            self._database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
            self._database.text_factory = lambda text: text.decode("utf-8", "replace")
            self._database.execute("PRAGMA trusted_schema=OFF")
            self._database.execute("PRAGMA cell_size_check=ON")
            rows = self._database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        self.names = {
            name
            for name, sql in rows
            if isinstance(name, str) and isinstance(sql, str) and not sql.lstrip().upper().startswith("CREATE VIRTUAL")
        }
        self._columns: dict[str, list[str]] = {}

    def close(self) -> None:
        self._database.close()

    def columns(self, table: str) -> list[str]:
        """Names of the columns of `table`, none if it is not there."""
        if table not in self.names:
            return []
        if table not in self._columns:
            try:
                rows = self._database.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
            except sqlite3.Error as error:
                raise self._unusable(error) from None
            self._columns[table] = [row[1] for row in rows]
        return self._columns[table]

    def read(self, table: str, wanted: dict[str, pl.DataType]) -> pl.DataFrame:
        """The columns of `wanted` that `table` has, as those types; no columns at all if the table is not there.

        A value of another type than its column's becomes null. Raises InputError if the file is damaged.
        """
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        if not present:
            return pl.DataFrame()
        sql = f"SELECT {', '.join(_quoted(name) for name in present)} FROM {_quoted(table)}"
        # A row takes at least two bytes in its page; more rows than that is a loop in a damaged file.
        most_rows = self.path.stat().st_size
        pieces: list[pl.DataFrame] = []
        count = 0
        try:
            cursor = self._database.execute(sql)
            while rows := cursor.fetchmany(ROWS_A_FETCH):
                count += len(rows)
                if count > most_rows:
                    raise self._unusable(f"table {table} never ends")
                pieces.append(_typed(rows, present))
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        return pl.concat(pieces) if pieces else pl.DataFrame(schema=present)

    def _unusable(self, reason: object) -> InputError:
        return InputError(
            f"{self.path}: damaged or unreadable SQLite file ({reason}); export the trace again, "
            "or check that the copy is complete"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
        return pl.Series(name, [v if isinstance(v, accepted) else None for v in values], dtype=kind, strict=False)
