"""An SQLite file that nobody vouches for, open: its tables, their columns, and where they lie.

No numpy and no Polars here: reading begins before they are imported.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from busfare.errors import InputError
from busfare.trace.readers.tables.sqlite_pages import Pages, UnreadableError, beside, quoted

__all__ = ["DAMAGE", "SqliteFile"]

#: What reading a damaged file raises. The module fails on a message of SQLite that quotes bytes that are no
#: text, and SQLite calls a value of impossible size a lack of memory.
DAMAGE = (sqlite3.Error, UnicodeDecodeError, MemoryError)
#: Write-ahead mode, in the bytes 18 and 19 of the file.
WRITE_AHEAD = 2


class SqliteFile:
    """Open read-only, and locked against writers until it is closed.

    Views, virtual tables and triggers are never run: a trace cannot execute anything.
    """

    def __init__(self, path: Path, place: Path | None = None) -> None:
        """Of the file at `place`, by default `path`, which names it. Raises InputError if SQLite cannot read it."""
        self.path = path
        self.place = place or path
        self.left_to_sqlite = ""  # why, for the message if SQLite cannot read it either
        try:
            self.database = sqlite3.connect(_address(self.place), uri=True, isolation_level=None)
            self.database.text_factory = lambda text: text.decode("utf-8", "replace")
            self.database.execute("PRAGMA trusted_schema=OFF")
            self.database.execute("PRAGMA cell_size_check=ON")
            # Until the end, so that no writer changes the file while it is read past SQLite.
            self.database.execute("BEGIN")
            rows = self.database.execute(
                "SELECT name, sql, type FROM sqlite_schema WHERE type IN ('table', 'view')"
            ).fetchall()
        except DAMAGE as error:
            raise self.unusable(error) from None
        named = [
            (name, sql, kind) for name, sql, kind in rows if isinstance(name, str) and isinstance(sql, str)
        ]
        self._made_up = {
            name
            for name, sql, kind in named
            if kind == "view" or sql.lstrip().upper().startswith("CREATE VIRTUAL")
        }
        self.names = {name for name, _, _ in named} - self._made_up
        self._columns: dict[str, list[str]] = {}
        self.pages: Pages | None = None  # to be read past SQLite, where that can be done
        try:
            self.pages = Pages(self.place, self.database)
        except (*DAMAGE, UnreadableError) as error:
            self.left_to_sqlite = str(error)

    def close(self) -> None:
        self.database.close()
        self.pages = None

    def columns(self, table: str) -> list[str]:
        """Names of the columns of `table`, none if it is not there. Raises InputError if it is no table but a view."""
        if table in self._made_up:
            raise InputError(
                f"{self.path}: {table} is a view or virtual table, which is not run; give the file as the profiler wrote it"
            )
        if table not in self.names:
            return []
        if table not in self._columns:
            try:
                rows = self.database.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            except DAMAGE as error:
                raise self.unusable(error) from None
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
            row = self.database.execute(query).fetchone()
        except DAMAGE:  # whoever reads the table is told
            return None
        return row[0] if row and isinstance(row[0], int) else None

    def unusable(self, reason: object) -> InputError:
        """The error to raise, whatever `reason` it is damaged for."""
        why = f"{reason}; {self.left_to_sqlite}" if self.left_to_sqlite else str(reason)
        return InputError(
            f"{self.path}: damaged or unreadable SQLite file ({why}); export the trace again, "
            "or check that the copy is complete"
        )


def _address(path: Path) -> str:
    """What SQLite is to open. It leaves files beside one in write-ahead mode, if that is not immutable."""
    with path.open("rb") as file:
        modes = file.read(20)[18:20]
    immutable = "&immutable=1" if WRITE_AHEAD in modes and not beside(path) else ""
    return f"file:{quote(str(path))}?mode=ro{immutable}"
