"""Where an SQLite file has its tables and their columns, for those who read its pages past SQLite.

No numpy and no Polars here: reading begins before they are imported.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from busfare.trace._sqlite_columns import Database, UnreadableError

__all__ = ["Pages", "Place", "UnreadableError", "beside", "quoted"]

#: `PRAGMA table_xinfo`: computed when read, and so in no record.
VIRTUAL = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column stands in its table's records, whatever it is to be read as."""

    index: int
    is_rowid: bool
    real_affinity: bool
    has_default: bool


class Pages:
    """Those of the file that `database` has open; that connection says what columns there are, and where.

    The file stays open until the object goes: closing it would give up SQLite's lock on it, too.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Raises UnreadableError if the file is not one that can be read so."""
        if beside(path):
            raise UnreadableError("a journal stands beside the file")
        self._database = database
        self.file = Database(str(path))
        self._layouts: dict[str, dict[str, Place]] = {}
        self._roots: dict[str, object] = dict(
            database.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
        )

    def root(self, table: str) -> int:
        """The page where the table's tree begins. Raises UnreadableError if none is named."""
        root = self._roots[table]
        if not isinstance(root, int) or not 0 < root < 1 << 32:
            raise UnreadableError("no page of the table is named")
        return root

    def layout(self, table: str) -> dict[str, Place]:
        """Where each column of `table` stands."""
        if table not in self._layouts:
            self._layouts[table] = self._laid_out(table)
        return self._layouts[table]

    def _laid_out(self, table: str) -> dict[str, Place]:
        rows = self._database.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        keys = [row for row in rows if row[5]]
        indexed = any(row[3] == "pk" for row in self._database.execute(f"PRAGMA index_list({quoted(table)})"))
        layout = {}
        stored = 0
        for _number, name, declared, _not_null, default, key, hidden in rows:
            # Such a column is the rowid itself, if it is the whole key and the key has no index of its own.
            is_rowid = bool(key) and len(keys) == 1 and declared.upper() == "INTEGER" and not indexed
            has_default = default is not None and default.upper() != "NULL"
            layout[name] = Place(stored, is_rowid, _real(declared), has_default)
            stored += hidden != VIRTUAL
        return layout


def _real(declared: str) -> bool:
    """Whether values of a column so declared become floating-point [SQLite: determination of column affinity]."""
    name = declared.upper()
    if any(word in name for word in ("INT", "CHAR", "CLOB", "TEXT", "BLOB")) or not name:
        return False
    return any(word in name for word in ("REAL", "FLOA", "DOUB"))


def beside(path: Path) -> list[tuple[Path, str]]:
    """The files, with their suffix, in which a transaction of someone's on the SQLite file at `path` may be."""
    real = Path(os.path.realpath(path))  # SQLite looks there, too
    files = [(real.with_name(real.name + suffix), suffix) for suffix in ("-journal", "-wal")]
    return [(file, suffix) for file, suffix in files if file.is_file() and file.stat().st_size]


def quoted(name: str) -> str:
    """`name` as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
