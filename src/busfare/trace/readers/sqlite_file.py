"""An SQLite file that nobody vouches for, open: its tables, their columns, and where they lie in its pages."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from busfare.errors import InputError
from busfare.trace._sqlite_columns import Database, Kind, UnreadableError, Wanted
from busfare.trace.readers.compressed import room

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
        named = [row for row in rows if isinstance(row[0], str) and isinstance(row[1], str)]
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


#: `PRAGMA table_xinfo`: computed when read, and so in no record.
VIRTUAL = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column stands in its table's records, whatever it is to be read as."""

    index: int
    is_rowid: bool
    real_affinity: bool
    has_default: bool

    def wanted(self, kind: Kind) -> Wanted:
        """The column as values of `kind`."""
        return Wanted(
            self.index,
            kind,
            is_rowid=self.is_rowid,
            real_affinity=self.real_affinity,
            has_default=self.has_default,
        )


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


@contextmanager
def at_rest(path: Path) -> Iterator[Path]:
    """The SQLite file at `path` with nothing beside it: itself, or a whole copy elsewhere, which goes afterwards.

    SQLite would write beside the file to read such a transaction. Raises InputError where the copy cannot be made.
    """
    waiting = beside(path)
    if not waiting:
        yield path
        return
    with room(path) as (place, copying):
        with copying:
            shutil.copyfile(path, place)
            for file, suffix in waiting:
                shutil.copyfile(file, f"{place}{suffix}")
        # Whoever reads a damaged one is told.
        with suppress(sqlite3.Error), closing(sqlite3.connect(place)) as database:
            database.execute("PRAGMA journal_mode=DELETE").fetchall()
        yield place
