"""Writes the directories of `nsys export --type parquetdir|arrowdir`: a file a table, widths of their own."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

UNSIGNED_64 = ("globalPid", "globalTid", "endGlobalTid", "virtualAddress")
UNSIGNED_32 = (
    "deviceId", "contextId", "streamId", "correlationId", "eventId", "nameId", "demangledName", "priority",
)  # fmt: skip


def arrow_type(column: str, values: Sequence[object]) -> pa.DataType:
    if any(isinstance(value, str) for value in values):
        return pa.string()
    if column in UNSIGNED_64:
        return pa.uint64()
    return pa.uint32() if column in UNSIGNED_32 else pa.int64()


def export_directory(sqlite: Path, folder: Path, suffix: str) -> Path:
    """Every table of `sqlite` as `folder`/TABLE.parquet or .arrow."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(sqlite)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            cursor = database.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
            write_table(folder / f"{table}{suffix}", columns)
    return folder


def write_table(path: Path, columns: dict[str, list[object]]) -> None:
    arrays = {}
    for name, values in columns.items():
        kind = arrow_type(name, values)
        unsigned = [
            v & 0xFFFFFFFFFFFFFFFF if kind == pa.uint64() and isinstance(v, int) else v for v in values
        ]
        arrays[name] = pa.array(unsigned, kind)
    table = pa.table(arrays)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path, compression="uncompressed")
