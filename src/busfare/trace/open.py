"""Finds the format of a trace from its content, and reads it; names those that are refused, and what to give instead."""

import re
import stat
from dataclasses import replace
from pathlib import Path

from polars.exceptions import PanicException

from busfare.errors import InputError
from busfare.printable import printable
from busfare.trace.launches import number_launches
from busfare.trace.model import Trace
from busfare.trace.readers import Format, Source, formats
from busfare.trace.readers.compressed import COMPRESSIONS, SQLITE_MAGIC, SUFFIXES, at_rest, head_of
from busfare.trace.readers.tables import SqliteTables
from busfare.trace.sound import make_sound

JSON = rb"\A(?:\xef\xbb\xbf)?\s*[{\[](?s:.*?)"
COMPUTE = "an Nsight Compute report, which has single kernels and no copies; record with `nsys profile`"
SUMS = "only sums by name, without the times of single records"
#: Formats that are known and not read: what stands in their first bytes, and what to say. Of several the first one counts.
REFUSED = {
    rb"\AQDSTRM": "an unfinished Nsight Systems capture (.qdstrm); import it with the Nsight Systems version that "
    "recorded it",
    rb"\A<\?xml": "XML: a .nvvp with only a session; give the file that nvprof wrote",
    rb"\APK\x03\x04": "a zip archive; unpack it and give the trace inside",
    rb"\A(?s:.{257})ustar": "a tar archive; unpack it and give the trace inside",
    rb"\AARROW1": "a single Arrow file; give the directory with all tables of the export",
    rb"\APAR1": "a single Parquet file; give the directory with all tables of the export",
    rb"\ANVR\0": COMPUTE,
    # A packet, its length, and one of the fields that the first packet has.
    rb"\A\n[\x80-\xff]{0,3}[\0-\x7f][\x18\x32\x40\x50\x6a]": "a Perfetto trace, as written by rocprofv3 and ROCm "
    "Systems Profiler; record with `rocprofv3 --runtime-trace --output-format rocpd -- ./app`",
    # Lines that nvprof prints about itself, or the head of a table.
    rb"\A(?!(?:\xef\xbb\xbf)?\s*[{\[])(?s:.*?)(?m:^)"
    rb'(?:==(?:\d+|====)== (?:NVPROF|Profiling (?:application|result))|"Start","Duration",)': "the printed output of "
    "nvprof; record with `nvprof -o run.nvprof ./app`",
    rb"\A# CUDA_(?:PROFILE_LOG_VERSION|DEVICE \d)": "a log of the command-line profiler of CUDA 7 and before "
    "(COMPUTE_PROFILE); record with `busfare record -o run.bf -- ./app`",
    rb'\A"?(?:Time ?\(%\)"?,"?Total Time|Total \(MB\))': f"a summary of `nsys stats`, with {SUMS}; give the .nsys-rep or "
    ".sqlite behind it, or record with `nsys profile --trace=cuda ./app`",
    rb'\A(?:"?Type"?,)?"?Time\(%\)"?,"?Time"?,': f"a summary of nvprof, with {SUMS}; record with `nvprof -o "
    "run.nvprof ./app`",
    rb"\AStart \(ns\),": "a table of `nsys stats`; give the .nsys-rep or .sqlite behind it",
    JSON
    + rb'"schema": ?"busfare\.': "the --json of a busfare command, not a trace; give the trace. `busfare report TRACE "
    "--baseline FILE` reads that of `report`, and `busfare bench METHOD --from FILE` a measurement",
    JSON
    + rb'"writer":\s*"busfare export"': "a timeline that `busfare export` wrote for ui.perfetto.dev; give the "
    "original trace",
    JSON
    + rb'"pid":\s*"(?:CPU|CUDA) functions"': "a trace of PyTorch's older profiler, without copies and calls; record "
    "with `torch.profiler`",
    JSON + rb'"cat": ?"(?:gpu_op|(?:CL_)?Flow_(?:H2D|D2H)_\d)': "a timeline of Intel's unitrace; record with "
    "`torch.profiler` and `ProfilerActivity.XPU`",
    JSON
    + rb'"inspector_output_format_version"': "records of NCCL Inspector; record each rank with `busfare record "
    "-o run.bf -- ./app`",
}
#: Formats of files that are no JSON by what they are called.
REFUSED_SUFFIXES = {
    ".ncu-rep": COMPUTE,
    ".otf2": "OTF2 of rocprofv3; record with `--output-format rocpd`, and give its .db",
}


def read(path: str | Path, launches: bool = False, activity: bool = False) -> Trace:
    """Reads the trace at `path` of any supported profiler; the content determines the format.

    With `launches`, the trace has the table `launches`, and its operations the column `launch`. With `activity`, it has the
    table `activity` if the profiler recorded host activity between API calls, and `launches` if it recorded shapes. Raises
    InputError, with a one-line message, if the file is not a trace, or too damaged.
    """
    path = Path(path)
    try:
        trace = _read(path, launches, activity)
        if launches or not trace.launches.is_empty():
            number_launches(trace)
        make_sound(trace)
    except InputError as error:  # names of files and tables, and what libraries say, may hold anything
        raise InputError(printable(str(error))) from None
    except OSError as error:
        reason = f"{path}: cannot be read ({error.strerror or error}); check the path and its permissions"
        raise InputError(printable(reason)) from None
    except PanicException as panic:  # Polars met data that it did not foresee
        reason = next(iter(str(panic).splitlines()), "no reason given")
        raise InputError(printable(f"{path}: damaged and unreadable ({reason}); export it again")) from None
    return trace


def is_trace_directory(path: Path) -> bool:
    """Whether the directory at `path` is one trace itself: it holds recordings, or the tables of an export."""
    try:
        return _of_directory(path) is not None
    except (InputError, OSError):
        return False


def may_be_trace(path: Path) -> bool:
    """Whether a file begins as a trace does, or as a file that becomes one (an .nsys-rep, a compressed trace). A cheap look
    at its first bytes, for files that nobody named. Raises OSError if it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:  # a trace of which nothing was written, if its name says so
        suffixes = {suffix for format in formats() for suffix in (*format.suffixes, *format.sure_suffixes)}
        return path.suffix in suffixes | {*SUFFIXES}
    unpacked = head_of(path)[0]
    if any(format.companions.match(unpacked) for format in formats() if format.companions):
        return False
    magics = (magic for magic, _ in COMPRESSIONS.values())
    return (
        head.startswith((SQLITE_MAGIC, *magics))
        or _is_json(head)
        or any(path.suffix in format.sure_suffixes for format in formats())
        # Of a run of several files the one that is read for all of them.
        or any(mark.match(head) for format in formats() if (mark := format.leads or format.begins))
        or _refusal(head, path) is not None
    )


def _refusal(head: bytes, path: Path) -> str | None:
    """What a file of a refused format is and what to do, by its first bytes `head` and its name; None for other files."""
    by_mark = (what for mark, what in REFUSED.items() if re.search(mark, head))
    by_name = (REFUSED_SUFFIXES.get(suffix) for suffix in path.suffixes if not _is_json(head))
    return next(filter(None, by_name), None) or next(by_mark, None)


def _is_json(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _read(path: Path, launches: bool, activity: bool) -> Trace:
    if "\0" in str(path):
        raise InputError(f"{path}: not a usable path (it contains a NUL)")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        format = _of_directory(path)
        if format is None:
            raise InputError(
                f"{path}: this folder has no trace tables; name a trace in it "
                "(`busfare report FOLDER` and `what-if FOLDER` take the traces of a job)"
            )
        return format.read(Source(path, launches=launches, activity=activity))
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise InputError(f"{path}: a pipe or device, not a file; save the trace to a file and give that")
    head, packed = head_of(path)
    if not head and not packed:
        raise InputError(f"{path}: the file is empty; export or record the trace again")
    if not head:
        raise InputError(f"{path}: cannot unpack this {packed} file; copy or compress it again")
    source = Source(path, packed is not None, launches, activity)
    if head.startswith(SQLITE_MAGIC):
        with source.unpacked() as place:
            return _read_database(source, place)
    format = _of_file(head, path)
    if format.export is None:
        return format.read(source)
    with source.unpacked() as place:
        export = format.export(path, place)
    return _read_database(source, export)


def _of_directory(path: Path) -> Format | None:
    """The format of the directory at `path`."""
    return next((format for format in formats() if format.directory and format.directory(path)), None)


def _of_file(head: bytes, path: Path) -> Format:
    """The format of the file that begins with `head`. Raises InputError for a refused one, and where none is known."""
    for format in formats():
        if format.begins and format.begins.match(head):
            return format
    if what := _refusal(head, path):
        raise InputError(f"{path}: this is {what}")
    if _is_json(head):
        of_json = [format for format in formats() if format.json and format.json.search(head)]
        return next(iter(of_json + [format for format in formats() if format.any_json]))
    for format in formats():
        if {*path.suffixes} & {*format.sure_suffixes}:
            return format
    raise _unknown(path, "not a trace")


def _unknown(path: Path, what: str) -> InputError:
    *titles, last = (format.title for format in formats() if format.title)
    return InputError(f"{path}: {what} that busfare knows; it reads {', '.join(titles)}, and {last}")


def _read_database(source: Source, file: Path) -> Trace:
    """The trace of `source`, which is the SQLite file `file`."""
    with at_rest(file) as place:
        database = SqliteTables(source.path, place)
        try:
            for format in formats():
                if format.database and format.database(database):
                    return format.read(replace(source, database=database))
        finally:
            database.close()
    raise _unknown(source.path, "no trace tables")
