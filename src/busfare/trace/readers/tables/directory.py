"""Columns out of a directory of Parquet or Arrow tables (`nsys export --type parquetdir|arrowdir`)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.readers.tables.source import with_all
from busfare.trace.tables import Schema

__all__ = ["DirectoryTables"]

SUFFIXES = (".parquet", ".arrow")


class DirectoryTables:
    """Reads columns from the files of a directory; a missing file is a missing table."""

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

    def close(self) -> None:
        """Nothing stays open between reads."""

    def columns(self, table: str) -> list[str]:
        if table not in self._files:
            return []
        if table not in self._columns:
            file = self._files[table]
            try:
                with _panics_unprinted():
                    schema_of = pl.read_parquet_schema if file.suffix == ".parquet" else pl.read_ipc_schema
                    self._columns[table] = list(schema_of(file))
            except (OSError, pl.exceptions.PolarsError) as error:
                raise _unusable(file, error) from None
        return self._columns[table]

    def read(self, table: str, wanted: Schema) -> pl.DataFrame:
        present = [name for name in wanted if name in self.columns(table)]
        if not present:
            return pl.DataFrame(schema=wanted)
        file = self._files[table]
        try:
            read = pl.read_parquet if file.suffix == ".parquet" else pl.read_ipc
            # Not by path, which Polars maps into memory: a file cut meanwhile would end the process.
            with _panics_unprinted(), file.open("rb") as opened:
                frame = read(opened, columns=present)
            typed = frame.with_columns(_as(name, frame.schema[name], wanted[name]) for name in present)
            return with_all(typed, wanted)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise _unusable(file, error) from None


@contextmanager
def _panics_unprinted() -> Iterator[None]:
    """Keeps from standard error what Polars prints of a panic before it raises it, and nothing else."""
    try:
        before = os.dup(2)
    except OSError:  # there is none
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except pl.exceptions.PanicException:
            kept.truncate(0)
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
            kept.seek(0)
            if said := kept.read():
                os.write(2, said)


def _as(name: str, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Column `name` as `wanted`; null where it holds something else, as in SQLite exports."""
    column = pl.col(name)
    if wanted.is_integer():
        if found == pl.UInt64:  # serialised ids use all 64 bits
            return column.reinterpret(signed=True)
        alike = found.is_integer()
    else:
        alike = found in (pl.String, pl.Categorical, pl.Enum)
    return column.cast(wanted, strict=False) if alike else pl.lit(None, dtype=wanted).alias(name)


def _unusable(file: Path, reason: object) -> InputError:
    first = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    return InputError(f"{file}: damaged or unreadable table ({first}); export the directory again")
