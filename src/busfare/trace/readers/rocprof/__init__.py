"""What AMD's profilers write: databases, JSON and CSV files of rocprofv3, of rocprof before it, and RPD."""

from __future__ import annotations

import re
from pathlib import Path

from busfare.errors import InputError
from busfare.trace.readers import Format, RecordAgain
from busfare.trace.readers.rocprof import csv_files, databases, results_json, v1
from busfare.trace.readers.rocprof.csv_files import CsvFiles

RPD_TABLES = {"rocpd_op", "rocpd_api", "rocpd_string"}

NOT_JSON = rb"(?![\xef\xbb\xbf \t\r\n]*[{\[])"
#: First lines of CSV files; by the second, of kernels, which stand for all files of a process.
CSV = re.compile(
    rb"(?i)" + NOT_JSON + rb"(?=[^\n]*,)"
    rb"[^\n]*\b(?:start_timestamp|beginns|kernelname|counter_name|totaldurationns|agent_type)\b"
)
CSV_KERNELS = re.compile(rb"(?i)[^\n]*\b(?:kernel_name\b[^\n]*start_timestamp|kernelname\b[^\n]*beginns)\b")


def _holds_csv(path: Path) -> bool:
    """Whether a directory holds CSV files of a process. Raises InputError if it holds those of several."""
    files = CsvFiles(path)
    if len(files.processes) > 1:
        raise InputError(
            f"{path}: CSV files of {len(files.processes)} processes ({', '.join(files.processes[:3])} …); give one file "
            "of the process that you mean, and those beside it are read with it"
        )
    return bool(files.names)


AGAIN = RecordAgain(gpu="`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace`")
FORMATS = (
    Format(
        name="rocpd",
        title="rocprofv3 (rocpd, JSON, CSV)",
        read=lambda source: databases.read(source.tables, source.launches),
        database=lambda file: databases.is_rocpd(file.names),
        suffixes=(".db",),
        record_again=AGAIN,
    ),
    Format(
        name="rpd",
        title="RPD",
        read=lambda source: databases.read(source.tables, source.launches),
        database=lambda file: file.names >= RPD_TABLES,
        suffixes=(".rpd",),
        record_again=RecordAgain(gpu="`runTracer.sh`"),
    ),
    Format(
        name="rocprofv3-json",
        read=lambda source: results_json.read(source.path, source.launches),
        json=re.compile(rb'"rocprofiler-sdk-tool"'),
        suffixes=(".json",),
        record_again=AGAIN,
    ),
    Format(
        name="rocprof-csv",
        read=lambda source: csv_files.read(CsvFiles(source.path), source.launches),
        begins=CSV,
        directory=_holds_csv,
        leads=CSV_KERNELS,
        record_again=AGAIN,
    ),
    Format(
        name="rocprof",
        title="rocprof",
        read=lambda source: v1.read(source.database or source.path, source.launches),
        json=re.compile(rb'"BeginNs"|"CPU (?:HIP|HSA) API"'),
        database=v1.has_rocprof_tables,
        suffixes=(".db", ".json"),
        record_again=AGAIN,
    ),
)
