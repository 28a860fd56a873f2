"""A trace in forms that others' tools read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.output import check_place, replacing
from busfare.trace.model import Trace

FORMATS = ("parquet", "csv", "perfetto")
FOLDERS = ("parquet", "csv")
#: Formats of earlier versions, and what to use instead.
REMOVED = {"nsys-sqlite": "use --to parquet", "otf2": "use --to perfetto, or parquet"}
TABLES = ("operations", "calls", "events", "markers", "devices", "streams", "launches")


def export(trace: Trace, to: str, output: Path) -> None:
    """Writes `trace` to `output`: a directory of one Parquet or CSV file a table, or one JSON file for ui.perfetto.dev.

    Raises InputError for an unknown format, or if `output` cannot be written.
    """
    check_export(to, output)
    with replacing(output) as place:
        if to in FOLDERS:
            _write_tables(trace, to, place)
        else:
            from busfare.trace.write.perfetto import perfetto

            place.write_bytes(perfetto(trace))


def check_export(to: str, output: Path) -> None:
    """Raises InputError for an unknown format, or where it cannot be written to `output`: before a trace is read."""
    if to in REMOVED:
        raise InputError(f"export --to {to} was removed; {REMOVED[to]}")
    if to not in FORMATS:
        raise InputError(f"--to {to}: not a format that busfare writes; one of {', '.join(FORMATS)}, chakra")
    if to in FOLDERS and output.is_file():
        raise InputError(f"{output}: a file, and {to} is a folder of them; name another place")
    check_place(output, folder=to in FOLDERS)


def _write_tables(trace: Trace, to: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(o.id, o.count, o.what) for o in trace.omissions]
    schema = {"id": pl.String, "count": pl.Int64, "what": pl.String}
    omissions = pl.DataFrame(rows, schema=schema, orient="row")
    for name, table in [*((name, getattr(trace, name)) for name in TABLES), ("omissions", omissions)]:
        if to == "csv":
            table.write_csv(folder / f"{name}.csv")
        else:
            table.write_parquet(folder / f"{name}.parquet")
