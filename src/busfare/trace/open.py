"""Finds the format of a trace from its content, and reads it. Only that format's reader is imported."""

from __future__ import annotations

import re
import stat
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from busfare.errors import InputError
from busfare.printable import printable
from busfare.trace.readers.compressed import COMPRESSIONS, head_of, whole
from busfare.trace.readers.nsys.report_file import MAGIC as REPORT_MAGIC
from busfare.trace.readers.nsys.report_file import SUFFIXES as REPORTS
from busfare.trace.readers.recorded import MAGIC, holds_recording
from busfare.trace.readers.refused import refusal

if TYPE_CHECKING:
    from busfare.trace.model import Trace
    from busfare.trace.readers.nsys.scan import Scanning
    from busfare.trace.readers.tables import TableSource

SQLITE_MAGIC = b"SQLite format 3\0"
KNOWN = (
    "Nsight Systems (.nsys-rep, .sqlite, or a directory of .parquet/.arrow), PyTorch profiler (.json, .json.gz), "
    "JAX and TensorFlow (.xplane.pb, .trace.json.gz), nvprof (its file), rocprofv3 (rocpd, JSON, CSV), rocprof, RPD, "
    "and busfare's own recordings"
)
TRACE_SUFFIXES = (
    ".json",
    ".gz",
    ".zst",
    ".bz2",
    ".xz",
    ".sqlite",
    ".bf",
    ".nvvp",
    ".nvprof",
    ".db",
    ".rpd",
    ".pb",
    *REPORTS,
)
#: How an XSpace protobuf begins: with a plane, which begins with its number and its name.
XSPACE = re.compile(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:[^\x00-\x1f]{0,60}/(?:host|device):|Task Environment)"
)
#: PyTorch's execution traces, which lie beside those of its profiler: operators without times.
EXECUTION_TRACE = re.compile(rb'\s*\{\s*"schema":\s*"\d')
#: Modules that read tables, of which the first that matches them does.
TABLE_READERS = ("nsys.read", "nvprof", "rocprof.databases", "rocprof.csv_files", "rocprof.v1")
#: What stands in the first bytes of JSON of other profilers, and the module that reads it.
JSON_READERS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb'"rocprofiler-sdk-tool"'), "rocprof.results_json"),
    (re.compile(rb'"BeginNs"|"CPU (?:HIP|HSA) API"'), "rocprof.v1"),
    # What names a process in the time line that XLA's profiler makes, and TensorFlow's of old.
    (re.compile(rb'"(?:[\w.:-]{0,60} )?/(?:device:[A-Z]+:\d|host:CPU|job:\w)'), "xla.chrome"),
)
#: First lines of the CSV files that profilers write; by the second, of kernels, which stand for all files of a process.
CSV = re.compile(
    rb"(?i)(?=[^\n]*,)[^\n]*\b(?:start_timestamp|beginns|kernelname|counter_name|totaldurationns|agent_type)\b"
)
CSV_KERNELS = re.compile(rb"(?i)[^\n]*\b(?:kernel_name\b[^\n]*start_timestamp|kernelname\b[^\n]*beginns)\b")


def read(path: str | Path, sums_above: int | None = None, launches: bool = False) -> Trace:
    """Reads the trace at `path`, whatever profiler wrote it; the format is found from the content.

    With `sums_above`, a reader may give a trace of more calls and operations together as sums (`Trace.sums`). With
    `launches`, which no sums have, the trace has its table `launches`, and its operations the column `launch`.
    Raises InputError, with a one-line message, if it is not a trace, or too damaged to give one.
    """
    path = Path(path)
    try:
        trace = _read(path, None if launches else sums_above, launches)
        if launches:
            from busfare.trace.launches import number_launches

            number_launches(trace)
        from busfare.trace.sound import make_sound

        make_sound(trace)
    except InputError as error:  # names of files and tables, and what libraries say, may hold anything
        raise InputError(printable(str(error))) from None
    except OSError as error:
        reason = f"{path}: cannot be read ({error.strerror or error}); check the path and its permissions"
        raise InputError(printable(reason)) from None
    except BaseException as panic:
        if not _is_panic(panic):
            raise
        reason = next(iter(str(panic).splitlines()), "no reason given")
        raise InputError(printable(f"{path}: damaged beyond reading ({reason}); export it again")) from None
    return trace


def _is_panic(error: BaseException) -> bool:
    """Whether Polars met data that it did not foresee: not an Exception."""
    panic = getattr(sys.modules.get("polars.exceptions"), "PanicException", None)
    return panic is not None and isinstance(error, panic)


def is_trace_directory(path: Path) -> bool:
    """Whether the directory at `path` is one trace itself: it holds recordings, or the tables of an export."""
    try:
        if holds_recording(path):
            return True
        tables = _tables_in(path)
        return bool(tables.names) and _reader_of(tables) is not None
    except (InputError, OSError):
        return False


def may_be_trace(path: Path) -> bool:
    """Whether a file begins as a trace does, or as a file that becomes one (an .nsys-rep, a compressed trace).

    A cheap look at its first bytes, for files that nobody named. Raises OSError if it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:  # a trace of which nothing was written, if its name says so
        return path.suffix in TRACE_SUFFIXES
    if EXECUTION_TRACE.match(head_of(path)[0]):
        return False
    magics = (magic for magic, _ in COMPRESSIONS.values())
    return (
        head.startswith((SQLITE_MAGIC, MAGIC, REPORT_MAGIC, *magics))
        or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
        or XSPACE.match(head) is not None
        or path.suffix in REPORTS
        or CSV_KERNELS.match(head) is not None
        or refusal(head, path) is not None
    )


def _read(path: Path, sums_above: int | None, launches: bool) -> Trace:
    if "\0" in str(path):
        raise InputError(f"{path}: not a usable path (it holds a NUL)")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        if holds_recording(path):
            from busfare.trace.readers.recorded import read as recorded

            return recorded.read(path, launches)
        return _read_tables(_tables_in(path), launches)
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise InputError(f"{path}: a pipe or device, not a file; save the trace to a file and give that")
    head, packed = head_of(path)
    if not head and not packed:
        raise InputError(f"{path}: the file is empty; export or record the trace again")
    if not head:
        raise InputError(f"{path}: nothing of this {packed} file can be unpacked; copy or compress it again")
    if head.startswith(SQLITE_MAGIC):
        with whole(path, packed is not None) as place:
            return _read_sqlite(path, place, None if packed else sums_above, launches)
    if head.startswith(MAGIC):
        from busfare.trace.readers.recorded import read as recorded

        with whole(path, packed is not None) as place:
            trace: Trace = recorded.read(place, launches)
            trace.path = path
            return trace
    if XSPACE.match(head):
        from busfare.trace.readers.xla import read as xspace

        with whole(path, packed is not None) as place:
            return xspace.read(path, place)
    if what := refusal(head, path):
        raise InputError(f"{path}: this is {what}")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        if CSV.match(head):
            from busfare.trace.readers.rocprof.csv_files import CsvFiles

            return _read_tables(CsvFiles(path), launches)
        if head.startswith(REPORT_MAGIC) or {*path.suffixes} & {*REPORTS}:
            from busfare.trace.readers.nsys.report_file import exported

            with whole(path, packed is not None) as place:
                export = exported(path, place)
            return _read_sqlite(path, export, sums_above, launches)
        raise InputError(f"{path}: not a trace that busfare knows; it reads {KNOWN}")
    name = next((module for mark, module in JSON_READERS if mark.search(head)), "kineto")
    of_json: Trace = import_module(f"busfare.trace.readers.{name}").read(path, launches)
    return of_json


def _tables_in(path: Path) -> TableSource:
    """The tables of a directory: an export of them, or the CSV files of a process."""
    from busfare.trace.readers.tables import DirectoryTables

    tables = DirectoryTables(path)
    if tables.names:
        return tables
    from busfare.trace.readers.rocprof.csv_files import CsvFiles

    files = CsvFiles(path)
    if len(files.processes) > 1:
        raise InputError(
            f"{path}: CSV files of {len(files.processes)} processes ({', '.join(files.processes[:3])} …); give one file "
            "of the process that you mean, and those beside it are read with it"
        )
    return files


def _read_sqlite(path: Path, file: Path, sums_above: int | None, launches: bool) -> Trace:
    """The trace `path` that is the database `file`."""
    from busfare.trace.readers.nsys.scan import begin
    from busfare.trace.readers.sqlite_file import SqliteFile, at_rest

    with at_rest(file) as place:
        database = SqliteFile(path, place)
        # What is added up is read again later, when a copy is gone. Native code reads while Polars is imported.
        scanning = None if sums_above is None or place is not file else begin(database, sums_above)
        try:
            from busfare.trace.readers.tables import SqliteTables

            return _read_tables(SqliteTables(database), launches, scanning)
        finally:
            if scanning is not None:
                scanning.end()
            database.close()


def _read_tables(tables: TableSource, launches: bool, scanning: Scanning | None = None) -> Trace:
    reader = _reader_of(tables)
    if reader is None and tables.path.is_dir():
        raise InputError(
            f"{tables.path}: no tables of a trace in this folder; name a trace in it "
            "(`busfare report FOLDER` and `what-if FOLDER` take the traces of a job)"
        )
    if reader is None:
        raise InputError(f"{tables.path}: no tables of a trace that busfare knows; it reads {KNOWN}")
    more = {} if scanning is None else {"scanning": scanning}
    trace: Trace = reader.read(tables, launches, **more)
    return trace


def _reader_of(tables: TableSource) -> ModuleType | None:
    for name in TABLE_READERS:
        reader = import_module(f"busfare.trace.readers.{name}")
        if reader.matches(tables):
            return reader
    return None
