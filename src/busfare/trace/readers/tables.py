"""Tables of profilers, of which any table and column may be missing, in directories of Parquet or Arrow files, and
in SQLite files that nobody vouches for, which are read from their pages where that can be done, else by SQLite.
"""

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl

from busfare.errors import InputError
from busfare.trace._sqlite_columns import Database, Kind, UnreadableError, Wanted
from busfare.trace.readers.compressed import journals
from busfare.trace.tables import Schema, conform

#: Columns of times, which are read as whole nanoseconds however they are stored.
TIME_COLUMNS = frozenset(("start", "end", "timestamp", "value"))
INT, SMALL, TEXT = pl.Int64(), pl.Int32(), pl.String()


def ints(names: str) -> dict[str, pl.DataType]:
    """Columns of whole numbers, their names apart by spaces."""
    return dict.fromkeys(names.split(), INT)


def smalls(names: str) -> dict[str, pl.DataType]:
    """Columns of whole numbers of 32 bits, their names apart by spaces."""
    return dict.fromkeys(names.split(), SMALL)


def texts(names: str) -> dict[str, pl.DataType]:
    """Columns of text, their names apart by spaces."""
    return dict.fromkeys(names.split(), TEXT)


def meant(
    column: str | pl.Expr, words: Mapping[int, str] | Mapping[str, str], kinds: Sequence[str]
) -> pl.Expr:
    """What the values of a column mean, as an Enum of `kinds`; null for those that are not listed."""
    values = pl.col(column) if isinstance(column, str) else column
    return values.replace_strict(words, default=None, return_dtype=pl.Enum(kinds))


class TableSource:
    """Named tables with named columns, any of which may be missing."""

    path: Path
    names: set[str]

    def columns(self, table: str) -> list[str]:
        """Columns of `table`; none if it is not there."""
        raise NotImplementedError

    def read(self, table: str, wanted: Schema) -> pl.DataFrame:
        """The columns of `wanted`, as those types; null is what `table` lacks, and a value of another type. No rows if the
        table is not there, or has none of the columns. Raises InputError if it cannot be read.
        """
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        return conform(self._read(table, present), wanted) if present else pl.DataFrame(schema=wanted)

    def _read(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        raise NotImplementedError


def _nanoseconds(value: object) -> object:
    """A time, rounded where it is stored with a fraction or as text; null where that is no time."""
    if not isinstance(value, float | str):
        return value
    try:
        return int(value) if isinstance(value, str) and value.isdecimal() else round(float(value))
    except (OverflowError, ValueError):
        return None


def typed(rows: Sequence[tuple[object, ...]], schema: Schema) -> pl.DataFrame:
    """A table of these rows; a value of another type than its column's, or beyond it, is null, but for times."""
    made = []
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    for (name, kind), values in zip(schema.items(), columns, strict=True):
        if kind == INT and name in TIME_COLUMNS:
            values = tuple(map(_nanoseconds, values))
        accepted = str if kind == pl.String else (int, float) if kind.is_float() else int
        sound = [value if isinstance(value, accepted) else None for value in values]
        made.append(pl.Series(name, sound, dtype=kind, strict=False))
    return pl.DataFrame(made)


SUFFIXES = (".parquet", ".arrow")


class DirectoryTables(TableSource):
    """The files of a directory (`nsys export --type parquetdir|arrowdir`), each a table."""

    def __init__(self, path: Path) -> None:
        """Raises InputError if `path` cannot be listed."""
        self.path = path
        try:
            listing = sorted(path.iterdir())
        except OSError as error:
            why = f"cannot list the directory ({error.strerror}); check its permissions"
            raise InputError(f"{path}: {why}") from None
        self._files = {file.stem: file for file in listing if file.suffix in SUFFIXES and file.is_file()}
        self.names = set(self._files)
        self._columns: dict[str, list[str]] = {}

    def columns(self, table: str) -> list[str]:
        if table in self._files and table not in self._columns:
            file = self._files[table]
            schema_of = pl.read_parquet_schema if file.suffix == ".parquet" else pl.read_ipc_schema
            with _read_from(file):
                self._columns[table] = list(schema_of(file))
        return self._columns.get(table, [])

    def _read(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        file = self._files[table]
        read = pl.read_parquet if file.suffix == ".parquet" else pl.read_ipc
        # Not by path, which Polars maps into memory: a file cut meanwhile would end the process.
        with _read_from(file), file.open("rb") as opened:
            frame = read(opened, columns=list(present))
            return frame.with_columns(_as(name, frame.schema[name], kind) for name, kind in present.items())


@contextmanager
def _read_from(file: Path) -> Iterator[None]:
    """Raises InputError where Polars cannot read; of a panic, nothing that it prints stays on standard error."""
    try:
        before = os.dup(2)
    except OSError:  # there is none
        before = -1
    with tempfile.TemporaryFile() as kept:
        if before >= 0:
            os.dup2(kept.fileno(), 2)
        try:
            yield
        except pl.exceptions.PanicException:
            kept.truncate(0)
            raise
        except (OSError, pl.exceptions.PolarsError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            why = f"damaged or unreadable table ({first}); export the directory again"
            raise InputError(f"{file}: {why}") from None
        finally:
            if before >= 0:
                os.dup2(before, 2)
                os.close(before)
                kept.seek(0)
                if printed := kept.read():
                    os.write(2, printed)


def _as(name: str, held: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Column `name` as `wanted`; null where it holds something else, as in SQLite exports."""
    column = pl.col(name)
    if wanted.is_integer() and held == pl.UInt64:  # serialised ids use all 64 bits
        return column.reinterpret(signed=True)
    alike = held.is_integer() if wanted.is_integer() else held in (pl.String, pl.Categorical, pl.Enum)
    return column.cast(wanted, strict=False) if alike else pl.lit(None, dtype=wanted).alias(name)


#: What reading a damaged file raises. The module fails on a message of SQLite that quotes bytes that are no
#: text, and SQLite calls a value of impossible size a lack of memory.
DAMAGE = (sqlite3.Error, UnicodeDecodeError, MemoryError)
#: Write-ahead mode, in the bytes 18 and 19 of the file.
WRITE_AHEAD = 2
#: Types of columns that keep numbers as text, and as REAL [SQLite: determination of column affinity].
KEEPS_TEXT = re.compile("(?is)(?!.*INT).*(CHAR|CLOB|TEXT)")
KEEPS_REAL = re.compile("(?is)(?!.*(INT|CHAR|CLOB|TEXT|BLOB)).*(REAL|FLOA|DOUB)")
#: What views may do, and how many steps of SQLite's machine they take between two looks at how many are left.
SELECTING, STEPS_AT_ONCE = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ), 100_000
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


class SqliteTables(TableSource):
    """The ordinary tables of a file, open read-only, and locked against writers until it is closed.

    Virtual tables and triggers are never run, and views only where they select columns: a trace cannot execute anything.
    Columns come straight from the file's pages where that can be done; whatever it cannot, damage included, is left to
    SQLite's own judgement.
    """

    def __init__(self, path: Path, place: Path | None = None) -> None:
        """Of the file at `place`, by default `path`, which names it. Raises InputError if SQLite cannot read it."""
        self.path = path
        self.place = place or path
        self.left_to_sqlite = ""  # why, for the message if SQLite cannot read it either
        try:
            with self.place.open("rb") as file:
                modes = file.read(20)[18:20]
            # SQLite leaves files beside one in write-ahead mode, if that is not immutable.
            immutable = "&immutable=1" if WRITE_AHEAD in modes and not journals(self.place) else ""
            address = f"file:{quote(os.fsencode(self.place))}?mode=ro{immutable}"
            self.database = sqlite3.connect(address, uri=True, isolation_level=None)
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
        self._views = {name for name, _, kind in named if kind == "view"}
        self._virtual = {name for name, sql, _ in named if sql.lstrip().upper().startswith("CREATE VIRTUAL")}
        self.names = {name for name, _, _ in named} - self._virtual
        # Views that unite tables, whose names go on behind theirs, stand for what is read from the tables themselves.
        self.names -= {view for view in self._views if any(n.startswith(f"{view}_") for n in self.names)}
        self._types: dict[str, dict[str, str]] = {}
        self.pages: Pages | None = None  # to be read past SQLite, where that can be done
        try:
            self.pages = Pages(self.place, self.database)
        except (*DAMAGE, UnreadableError) as error:
            self.left_to_sqlite = str(error)

    def close(self) -> None:
        self.database.close()
        self.pages = None

    def columns(self, table: str) -> list[str]:
        """Names of the columns of `table`, none if it is not there. Raises InputError if it is a virtual table."""
        if table in self._virtual:
            what = f"{table} is a virtual table, which busfare does not run"
            raise InputError(f"{self.path}: {what}; give the file as the profiler wrote it")
        if table not in self.names:
            return []
        if table not in self._types:
            try:
                rows = self.database.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            except DAMAGE as error:
                raise self.unusable(error) from None
            self._types[table] = {row[1]: row[2] for row in rows}
        return [*self._types[table]]

    def _read(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        types = self._types[table]
        textual = [n for n in present.keys() - TIME_COLUMNS if KEEPS_TEXT.match(types[n])]
        numerals = [name for name in textual if present[name] != TEXT]
        stored = present | dict.fromkeys(numerals, TEXT)
        frame = self._viewed(table, stored) if table in self._views else self._stored(table, stored)
        return frame.cast({name: present[name] for name in numerals}, strict=False) if numerals else frame

    def _viewed(self, view: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        """The columns of a view that does nothing but select, in a number of steps that the file's size bounds."""
        steps = iter(range(1 + self.place.stat().st_size // 1000))
        self.database.set_authorizer(lambda action, *_: 0 if action in SELECTING else 1)
        self.database.set_progress_handler(lambda: next(steps, None) is None, STEPS_AT_ONCE)
        try:
            return self._stepped(view, present)
        except InputError as error:
            what = f"{view} is a view that does more than select columns, so busfare does not run it"
            raise InputError(f"{self.path}: {what}; give the file as the profiler wrote it") from error
        finally:
            self.database.set_authorizer(None)
            self.database.set_progress_handler(None, 0)

    def _stored(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        if self.pages is not None:
            try:
                frame = self.pages.read(table, present)
                if not (nulls := [n for n in TIME_COLUMNS & {*present} if frame[n].null_count()]):
                    return frame
                unread = " OR ".join(f"typeof({quoted(name)}) IN ('real', 'text')" for name in nulls)
                sql = f"SELECT 1 FROM {quoted(table)} WHERE {unread} LIMIT 1"
                if self.database.execute(sql).fetchone() is None:
                    return frame
            except (*DAMAGE, UnreadableError) as error:
                self.left_to_sqlite = str(error)
        return self._stepped(table, present)

    def _stepped(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        """The columns from SQLite, row by row."""
        sql = f"SELECT {', '.join(quoted(name) for name in present)} FROM {quoted(table)}"
        # What a table gives cannot be more than the file holds; more is a loop in a damaged one.
        size = self.place.stat().st_size
        most_rows, most_text = size // LEAST_ROW, 2 * size
        texts = [i for i, kind in enumerate(present.values()) if kind == pl.String]
        pieces = [pl.DataFrame(schema=present)]
        rows: list[tuple[object, ...]] = []
        count = text = 0
        try:
            cursor = self.database.execute(sql)
            while fetched := cursor.fetchmany(ROWS_A_FETCH):
                count += len(fetched)
                text += sum(len(v) for row in fetched for i in texts if isinstance(v := row[i], str))
                if count > most_rows or text > most_text:
                    raise self.unusable(f"table {table} never ends")
                rows += fetched
                if len(rows) >= ROWS_A_PIECE:
                    pieces.append(typed(rows, present))
                    rows = []
        except DAMAGE as error:
            raise self.unusable(error) from None
        return pl.concat([*pieces, typed(rows, present)])

    def unusable(self, reason: object) -> InputError:
        """The error to raise, whatever `reason` it is damaged for."""
        why = f"{reason}; {self.left_to_sqlite}" if self.left_to_sqlite else str(reason)
        return InputError(
            f"{self.path}: damaged or unreadable SQLite file ({why}); export the trace again, "
            "or check that the copy is complete"
        )


#: `PRAGMA table_xinfo`: computed when read, and so in no record.
VIRTUAL = 2


class Pages:
    """Those of the file that `database` has open; that connection says what columns there are, and where. The file stays
    open until the object goes: closing it would give up SQLite's lock on it, too.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Raises UnreadableError if the file is not one that can be read so."""
        if journals(path):
            raise UnreadableError("the file has a journal next to it")
        self._database = database
        try:
            self.file = Database(str(path))
        except TypeError:
            raise UnreadableError("its path is not UTF-8") from None
        self._roots: dict[str, object] = dict(
            database.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
        )

    def read(self, table: str, columns: dict[str, pl.DataType]) -> pl.DataFrame:
        """Those of the columns of `table`, which it has, that hold anything: in order of rowid.

        A value of another type than its column's is null. Raises UnreadableError if SQLite had better answer: the
        table is damaged, WITHOUT ROWID, or has columns of types or defaults that are not read here.
        """
        root = self._roots[table]
        if not isinstance(root, int) or not 0 < root < 1 << 32:
            raise UnreadableError("no page of the table is named")
        wanted = self._wanted(table, columns)
        read = self.file.read(root, [wanted[name] for name in columns], pl.thread_pool_size())
        # A column of nothing but nulls takes no memory as a constant.
        kept = [
            # A name given to the series beside the column would not be heeded.
            pl.Series(column).alias(name)
            for number, (name, column) in enumerate(zip(columns, read, strict=True))
            if number == 0 or column.null_count < len(column)
        ]
        return conform(pl.DataFrame(kept), columns)

    def _wanted(self, table: str, columns: dict[str, pl.DataType]) -> dict[str, Wanted]:
        """The columns, each with its place in the table's records."""
        rows = self._database.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        keys = [row for row in rows if row[5]]
        indexed = any(row[3] == "pk" for row in self._database.execute(f"PRAGMA index_list({quoted(table)})"))
        wanted = {}
        stored = 0
        for _number, name, declared, _not_null, default, key, hidden in rows:
            if kind := columns.get(name):
                # Such a column is the rowid itself, if it is the whole key and the key has no index of its own.
                is_rowid = bool(key) and len(keys) == 1 and declared.upper() == "INTEGER" and not indexed
                if is_rowid and kind != INT:
                    raise UnreadableError("a rowid that is not to be a whole number")
                wanted[name] = Wanted(
                    stored,
                    KIND_OF[kind],
                    is_rowid=is_rowid,
                    real_affinity=bool(KEEPS_REAL.match(declared)),
                    has_default=default is not None and default.upper() != "NULL",
                )
            stored += hidden != VIRTUAL
        return wanted


def quoted(name: str) -> str:
    """`name` as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
