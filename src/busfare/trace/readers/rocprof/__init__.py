"""What AMD's profilers write: databases, JSON and CSV files of rocprofv3, of rocprof before it, and RPD."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from busfare.errors import InputError
from busfare.trace.readers.format import Format, RecordAgain, Source

if TYPE_CHECKING:
    from busfare.trace.model import Trace
    from busfare.trace.readers.sqlite_file import SqliteFile

#: What rocprofv3 puts behind the names of its tables, one set of them a process.
SUFFIX = r"(_[0-9a-fA-F_-]+)?"
ROCPD_KERNELS = "rocpd_kernel_dispatch"
RPD_TABLES = {"rocpd_op", "rocpd_api", "rocpd_string"}
#: rocprof's tables of calls and operations, and what they hold.
TABLES = {"HIP": "HIP", "HSA": "HSA", "rocTX": "MARKER", "COPY": "COPY", "OPS": "GPU"}
#: Kernels that rocprof measured, as newer versions name their table and as older ones do; OPS has the same where it has any.
MEASURED = ("KERN", "A")

NOT_JSON = rb"(?![\xef\xbb\xbf \t\r\n]*[{\[])"
#: First lines of CSV files; by the second, of kernels, which stand for all files of a process.
CSV = re.compile(
    rb"(?i)" + NOT_JSON + rb"(?=[^\n]*,)"
    rb"[^\n]*\b(?:start_timestamp|beginns|kernelname|counter_name|totaldurationns|agent_type)\b"
)
CSV_KERNELS = re.compile(rb"(?i)[^\n]*\b(?:kernel_name\b[^\n]*start_timestamp|kernelname\b[^\n]*beginns)\b")


def _has_rocprof_tables(file: SqliteFile) -> bool:
    """Whether it has HIP's calls or operations, with times, and no table of texts."""
    present = {*TABLES, *MEASURED} & file.names
    return "STR_TABLE" not in file.names and any("BeginNs" in file.columns(table) for table in present)


def _holds_csv(path: Path) -> bool:
    """Whether a directory holds CSV files of a process. Raises InputError if it holds those of several."""
    from busfare.trace.readers.rocprof.csv_files import CsvFiles

    files = CsvFiles(path)
    if len(files.processes) > 1:
        raise InputError(
            f"{path}: CSV files of {len(files.processes)} processes ({', '.join(files.processes[:3])} …); give one file "
            "of the process that you mean, and those beside it are read with it"
        )
    return bool(files.names)


def _read_database(source: Source) -> Trace:
    from busfare.trace.readers.rocprof import databases
    from busfare.trace.readers.tables import SqliteTables

    assert source.database is not None
    return databases.read(SqliteTables(source.database), source.launches)


def _read_json(source: Source) -> Trace:
    from busfare.trace.readers.rocprof import results_json

    return results_json.read(source.path, source.launches)


def _read_csv(source: Source) -> Trace:
    from busfare.trace.readers.rocprof import csv_files

    return csv_files.read(csv_files.CsvFiles(source.path), source.launches)


def _read_v1(source: Source) -> Trace:
    from busfare.trace.readers.rocprof import v1
    from busfare.trace.readers.tables import SqliteTables

    return v1.read(SqliteTables(source.database) if source.database else source.path, source.launches)


AGAIN = RecordAgain(gpu="`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace`")
FORMATS = (
    Format(
        name="rocpd",
        title="rocprofv3 (rocpd, JSON, CSV)",
        read=_read_database,
        database=lambda file: any(re.fullmatch(ROCPD_KERNELS + SUFFIX, name) for name in file.names),
        suffixes=(".db",),
        record_again=AGAIN,
    ),
    Format(
        name="rpd",
        title="RPD",
        read=_read_database,
        database=lambda file: file.names >= RPD_TABLES,
        suffixes=(".rpd",),
        record_again=RecordAgain(gpu="`runTracer.sh`"),
    ),
    Format(
        name="rocprofv3-json",
        read=_read_json,
        json=re.compile(rb'"rocprofiler-sdk-tool"'),
        suffixes=(".json",),
        record_again=AGAIN,
    ),
    Format(
        name="rocprof-csv",
        read=_read_csv,
        begins=CSV,
        directory=_holds_csv,
        leads=CSV_KERNELS,
        record_again=AGAIN,
    ),
    Format(
        name="rocprof",
        title="rocprof",
        read=_read_v1,
        json=re.compile(rb'"BeginNs"|"CPU (?:HIP|HSA) API"'),
        database=_has_rocprof_tables,
        suffixes=(".db", ".json"),
        record_again=AGAIN,
    ),
)
