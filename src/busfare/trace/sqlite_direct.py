"""Columns of an SQLite file straight from its pages, past SQLite, which would hand out value by value."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import polars as pl

from busfare.trace._sqlite_columns import Codes, Database, Kind, UnreadableError, Wanted
from busfare.trace.table_source import AS_THEY_ARE, Change, Changes, with_all
from busfare.trace.tables import EARLIEST, LATEST

__all__ = ["DirectColumns", "UnreadableError", "quoted"]

KIND_OF: dict[pl.DataType, Kind] = {
    pl.Int64(): Kind.INTEGER,
    pl.Int32(): Kind.SMALL,
    pl.Float64(): Kind.REAL,
    pl.String(): Kind.TEXT,
}
#: `PRAGMA table_xinfo`: computed when read, and so in no record.
VIRTUAL = 2


class DirectColumns:
    """Reads tables of the file that `database` has open; that connection says what columns there are, and where.

    The file stays open until the object goes: closing it would give up SQLite's lock on it, too.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Raises UnreadableError if the file is not one that can be read so."""
        if _unfinished(path):
            raise UnreadableError("a journal stands beside the file")
        self._database = database
        self.file = Database(str(path))
        self._layouts: dict[str, dict[str, Place]] = {}
        self._roots: dict[str, object] = dict(
            database.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
        )

    def read(
        self, table: str, columns: dict[str, pl.DataType], changes: Changes = AS_THEY_ARE
    ) -> pl.DataFrame:
        """The columns of `table`, which it has, as those types, and changed so; rows in order of rowid.

        A value of another type than its column's is null. Raises UnreadableError if SQLite had better answer: the
        table is damaged, WITHOUT ROWID, or has columns of types or defaults that are not read here.
        """
        root = self.root(table)
        if not set(columns.values()) <= set(KIND_OF):
            raise UnreadableError("a type that only SQLite reads")
        layout = self.layout(table)
        wanted = [layout[name](KIND_OF[kind], changes.get(name, Change())) for name, kind in columns.items()]
        read = self.file.read(root, wanted, pl.thread_pool_size())
        # A column of nothing but nulls takes no memory as a constant.
        kept = [
            # A name given to the series beside the column would not be heeded.
            pl.Series(column).alias(name)
            for number, (name, column) in enumerate(zip(columns, read, strict=True))
            if number == 0 or column.null_count < len(column)
        ]
        return with_all(pl.DataFrame(kept), columns)

    def root(self, table: str) -> int:
        """The page where the table's tree begins."""
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
            layout[name] = Place(
                stored, is_rowid, _real(declared), default is not None and default.upper() != "NULL"
            )
            stored += hidden != VIRTUAL
        return layout


class Place:
    """Where a column stands, whatever it is to be read as."""

    def __init__(self, index: int, is_rowid: bool, real_affinity: bool, has_default: bool) -> None:
        self.index = index
        self.is_rowid = is_rowid
        self.real_affinity = real_affinity
        self.has_default = has_default

    def __call__(self, kind: Kind, change: Change) -> Wanted:
        if self.is_rowid and (kind != Kind.INTEGER or change != Change()):
            raise UnreadableError("a rowid that is not to be a whole number, or to be changed")
        codes = None
        if change.codes is not None:
            codes = Codes(change.codes.least, change.codes.of.astype(np.uint32), change.codes.otherwise)
            kind = Kind.CODE8 if change.codes.of.dtype == np.uint8 else Kind.CODE32
        return Wanted(
            self.index,
            kind,
            is_rowid=self.is_rowid,
            real_affinity=self.real_affinity,
            has_default=self.has_default,
            less=change.less,
            least=EARLIEST,
            most=LATEST,
            first_bit=change.first_bit,
            bits=change.bits,
            codes=codes,
        )


def _real(declared: str) -> bool:
    """Whether values of a column so declared become floating-point [SQLite: determination of column affinity]."""
    name = declared.upper()
    if any(word in name for word in ("INT", "CHAR", "CLOB", "TEXT", "BLOB")) or not name:
        return False
    return any(word in name for word in ("REAL", "FLOA", "DOUB"))


def _unfinished(path: Path) -> bool:
    """Whether a transaction of someone's may be in a file beside."""
    for suffix in ("-journal", "-wal"):
        try:
            if path.with_name(path.name + suffix).stat().st_size:
                return True
        except OSError:
            continue
    return False


def quoted(name: str) -> str:
    """`name` as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
