"""Writes small SQLite files with exactly the tables, columns and values that a test names."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

#: A value as SQLite stores it.
Value = int | float | str | bytes | None
Row = Mapping[str, Value]


def write_sqlite(
    path: Path, columns: Mapping[str, Iterable[str]], rows: Mapping[str, Iterable[Row]], after: str = ""
) -> Path:
    """Creates `path` with a table for each entry of `columns`, untyped so that any value stays as it is.

    A row may leave columns out (NULL) but may not name one that its table lacks: sqlite3 would raise. `after`
    is a script to run at the end: views, indexes, edits of the schema.
    """
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        for table, names in columns.items():
            database.execute(f'CREATE TABLE "{table}" ({", ".join(quoted(n) for n in names)})')
            for row in rows.get(table, ()):
                marks = ", ".join("?" * len(row))
                database.execute(
                    f'INSERT INTO "{table}" ({", ".join(quoted(n) for n in row)}) VALUES ({marks})',
                    list(row.values()),
                )
        database.commit()
        if after:
            database.executescript(after)
    return path


def quoted(name: str) -> str:
    return f'"{name}"'
