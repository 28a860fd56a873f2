"""Nsight Systems: its reports, and exports of them as SQLite files and as directories of Parquet or Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from busfare.trace.readers.format import Format, RecordAgain, Source

if TYPE_CHECKING:
    from busfare.trace.model import Trace

#: How a report begins, of versions 2020 to 2026, and what it is called.
MAGIC = b"NVIDIA Tegra Profiler Report"
REPORTS = (".nsys-rep", ".qdrep")
STRINGS = "StringIds"
FAMILIES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "META_DATA_", "EXPORT_META_DATA")


def _is_export(names: AbstractSet[str]) -> bool:
    """Whether tables of these names are an export."""
    return STRINGS in names and any(name.startswith(FAMILIES) for name in names)


def _is_directory(path: Path) -> bool:
    from busfare.trace.readers.tables import DirectoryTables

    return _is_export(DirectoryTables(path).names)


def _export(path: Path, place: Path) -> Path:
    from busfare.trace.readers.nsys.report_file import exported

    return exported(path, place)


def _read_database(source: Source) -> Trace:
    from busfare.trace.readers.nsys import read
    from busfare.trace.readers.tables import SqliteTables

    assert source.database is not None
    return read.read(SqliteTables(source.database), source.launches)


def _read_directory(source: Source) -> Trace:
    from busfare.trace.readers.nsys import read
    from busfare.trace.readers.tables import DirectoryTables

    return read.read(DirectoryTables(source.path), source.launches)


AGAIN = RecordAgain(gpu="`nsys profile --trace=cuda`", allocations="nsys --cuda-memory-usage=true")
FORMATS = (
    Format(
        name="nsys-sqlite",
        title="Nsight Systems (.nsys-rep, .sqlite, or a directory of .parquet/.arrow)",
        read=_read_database,
        begins=re.compile(re.escape(MAGIC)),
        database=lambda file: _is_export(file.names),
        suffixes=(".sqlite",),
        sure_suffixes=REPORTS,
        export=_export,
        record_again=AGAIN,
    ),
    Format(
        name="nsys-directory",
        read=_read_directory,
        directory=_is_directory,
        record_again=AGAIN,
    ),
)
