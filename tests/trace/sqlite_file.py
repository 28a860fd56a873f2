"""Writes small SQLite files with exactly the tables, columns and values that a test names."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
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


@dataclass
class Tables:
    """A file in the making: its tables, their columns, and the texts that it numbers."""

    columns: dict[str, list[str]]
    rows: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def text(self, value: str) -> int:
        """The number of a text."""
        return self.strings.setdefault(value, len(self.strings) + 1)

    def without(self, table: str, column: str | None) -> None:
        """Takes a column away, or the whole table."""
        if column is None:
            self.columns.pop(table)
            self.rows.pop(table, None)
            return
        self.columns[table] = [name for name in self.columns[table] if name != column]
        self.rows[table] = [
            {name: value for name, value in row.items() if name != column} for row in self.rows.get(table, [])
        ]

    def twice(self, *tables: str) -> None:
        """Gives every row of these tables again."""
        for table in tables:
            self.rows[table] = [dict(row) for row in self.rows[table] * 2]
