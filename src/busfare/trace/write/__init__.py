"""A trace in forms that others' tools read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.output import check_place, replacing
from busfare.trace.model import Trace

FORMATS = ("parquet", "csv", "perfetto", "nsys-sqlite", "otf2")
FOLDERS = ("parquet", "csv", "otf2")
TABLES = ("operations", "calls", "events", "markers", "devices", "streams", "launches")


def export(trace: Trace, to: str, output: Path) -> None:
    """Writes `trace` to `output`: a directory of one Parquet or CSV file a table, one JSON file for ui.perfetto.dev, an
    SQLite file that readers of Nsight Systems exports take, or an OTF2 archive.

    Raises InputError for an unknown format, a library that is missing, or if `output` cannot be written.
    """
    check_export(to, output)
    with replacing(output) as place:
        if to in ("parquet", "csv"):
            _write_tables(trace, to, place)
        elif to == "nsys-sqlite":
            from busfare.trace.write.nsys import export_nsys

            export_nsys(trace, place)
        elif to == "otf2":
            from busfare.trace.write.otf2 import write_otf2

            write_otf2(trace, place)
        else:
            from busfare.trace.write.perfetto import perfetto

            place.write_bytes(perfetto(trace))


def check_export(to: str, output: Path) -> None:
    """Raises InputError for an unknown format, or where it cannot be written to `output`: before a trace is read."""
    if to not in FORMATS:
        raise InputError(f"--to {to}: not a format that busfare writes; one of {', '.join(FORMATS)}, chakra")
    if to == "nsys-sqlite" and output.exists():
        raise InputError(f"{output}: exists; choose another name, or remove it")
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
