"""Tables of profilers, of which any table and column may be missing, and those in directories of Parquet or Arrow files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.tables import Schema, conform

INT, TEXT = pl.Int64(), pl.String()


def ints(names: str) -> dict[str, pl.DataType]:
    """Columns of whole numbers, their names apart by spaces."""
    return dict.fromkeys(names.split(), INT)


def texts(names: str) -> dict[str, pl.DataType]:
    """Columns of text, their names apart by spaces."""
    return dict.fromkeys(names.split(), TEXT)


def meant(column: str, words: Mapping[int, str] | Mapping[str, str], kinds: Sequence[str]) -> pl.Expr:
    """What the values of a column mean, as an Enum of `kinds`; null for those that are not listed."""
    return pl.col(column).replace_strict(words, default=None, return_dtype=pl.Enum(kinds))


class TableSource:
    """Named tables with named columns, any of which may be missing."""

    path: Path
    names: set[str]

    def columns(self, table: str) -> list[str]:
        """Columns of `table`; none if it is not there."""
        raise NotImplementedError

    def read(self, table: str, wanted: Schema) -> pl.DataFrame:
        """The columns of `wanted`, as those types; null is what `table` lacks, and a value of another type.

        No rows if the table is not there, or has none of the columns. Raises InputError if it cannot be read.
        """
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        return conform(self._read(table, present), wanted) if present else pl.DataFrame(schema=wanted)

    def _read(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        raise NotImplementedError


def typed(rows: Sequence[tuple[object, ...]], schema: Schema) -> pl.DataFrame:
    """A table of these rows; a value of another type than its column's, or beyond it, is null."""
    made = []
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    for (name, kind), values in zip(schema.items(), columns, strict=True):
        accepted = str if kind == pl.String else (int, float) if kind.is_float() else int
        known = [value if isinstance(value, accepted) else None for value in values]
        made.append(pl.Series(name, known, dtype=kind, strict=False))
    return pl.DataFrame(made)


SUFFIXES = (".parquet", ".arrow")


class DirectoryTables(TableSource):
    """The files of a directory (`nsys export --type parquetdir|arrowdir`), each a table."""

    def __init__(self, path: Path) -> None:
        """Raises InputError if `path` cannot be listed."""
        self.path = path
        try:
            found = sorted(path.iterdir())
        except OSError as error:
            raise InputError(
                f"{path}: cannot list the directory ({error.strerror}); check its permissions"
            ) from None
        self._files = {file.stem: file for file in found if file.suffix in SUFFIXES and file.is_file()}
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
            raise InputError(
                f"{file}: damaged or unreadable table ({first}); export the directory again"
            ) from None
        finally:
            if before >= 0:
                os.dup2(before, 2)
                os.close(before)
                kept.seek(0)
                if printed := kept.read():
                    os.write(2, printed)


def _as(name: str, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Column `name` as `wanted`; null where it holds something else, as in SQLite exports."""
    column = pl.col(name)
    if wanted.is_integer() and found == pl.UInt64:  # serialised ids use all 64 bits
        return column.reinterpret(signed=True)
    alike = found.is_integer() if wanted.is_integer() else found in (pl.String, pl.Categorical, pl.Enum)
    return column.cast(wanted, strict=False) if alike else pl.lit(None, dtype=wanted).alias(name)
