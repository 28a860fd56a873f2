"""Columns out of a directory with one Parquet or Arrow file a table (`nsys export --type parquetdir|arrowdir`)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from busfare.errors import InputError

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
            raise InputError(f"{path}: cannot list the directory ({error.strerror}); check its permissions") from None
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
                schema = pl.read_parquet_schema(file) if file.suffix == ".parquet" else pl.read_ipc_schema(file)
            except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise _unusable(file, error) from None
            self._columns[table] = list(schema)
        return self._columns[table]

    def read(self, table: str, wanted: dict[str, pl.DataType]) -> pl.DataFrame:
        present = [name for name in wanted if name in self.columns(table)]
        if not present:
            return pl.DataFrame()
        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                frame = pl.read_parquet(file, columns=present, use_pyarrow=False)
            else:
                frame = pl.read_ipc(file, columns=present, memory_map=False)
            return frame.select(_as(name, frame.schema[name], wanted[name]) for name in present)
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _unusable(file, error) from None


def _as(name: str, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if wanted.is_integer() and found == pl.UInt64:
        return column.reinterpret(signed=True) if wanted == pl.Int64 else column.cast(wanted, strict=False)
    if wanted.is_numeric() and not (found.is_numeric() or found == pl.Boolean):
        return pl.lit(None, dtype=wanted).alias(name)
    return column.cast(wanted, strict=False)


def _unusable(file: Path, reason: object) -> InputError:
    first = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    return InputError(f"{file}: damaged or unreadable table ({first}); export the directory again")
