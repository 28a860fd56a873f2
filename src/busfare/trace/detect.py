"""Finds the format of a trace from its content, and reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from busfare.errors import InputError
from busfare.trace import kineto, nsys, nvprof, rocpd, rpd
from busfare.trace.directory_tables import DirectoryTables
from busfare.trace.sound import make_sound
from busfare.trace.sqlite_tables import SqliteTables
from busfare.trace.table_source import TableSource
from busfare.trace.trace import Trace

__all__ = ["read"]

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
KNOWN = (
    "Nsight Systems (.sqlite, or a directory of .parquet/.arrow), PyTorch profiler (.json, .json.gz), "
    "nvprof, rocprofv3 rocpd, RPD"
)
#: Files that people try, and what to do with them.
FAMILIAR: tuple[tuple[bytes, str], ...] = (
    (b"QDSTRM", "an unfinished Nsight Systems capture (.qdstrm); import it with the Nsight Systems that made it"),
    (b"<?xml", "XML: a .nvvp that holds only a session; give the file that nvprof wrote"),
    (b"PK\x03\x04", "a zip archive; unpack it and give the trace inside"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; decompress it first"),
    (b"BZh", "bzip2-compressed; decompress it first"),
    (b"\xfd7zXZ", "xz-compressed; decompress it first"),
    (b"PAR1", "a single Parquet file; give the directory that holds all tables of the export"),
)

TABLE_READERS: tuple[tuple[Callable[[TableSource], bool], Callable[[TableSource], Trace]], ...] = (
    (nsys.matches, nsys.read),
    (nvprof.matches, nvprof.read),
    (rocpd.matches, rocpd.read),
    (rpd.matches, rpd.read),
)


def read(path: str | Path) -> Trace:
    """Reads the trace at `path`, whatever profiler wrote it; the format is found from the content.

    Raises InputError, with a one-line message, if it is not a trace, or too damaged to give one.
    """
    path = Path(path)
    try:
        trace = _read(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path and its permissions") from None
    except ValueError as error:  # an embedded NUL in the path, from the operating system's interface
        raise InputError(f"{str(path)!r}: not a usable path ({error})") from None
    make_sound(trace)
    return trace


def _read(path: Path) -> Trace:
    if path.is_dir():
        return _read_tables(DirectoryTables(path))
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:
        raise InputError(f"{path}: the file is empty; export or record the trace again")
    if head.startswith(SQLITE_MAGIC):
        return _read_tables(SqliteTables(path))
    for magic, what in FAMILIAR:
        if head.startswith(magic):
            raise InputError(f"{path}: this is {what}")
    if head.startswith(GZIP_MAGIC) or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return kineto.read(path)
    if b"NVIDIA Nsight" in head or head.startswith(b"NSYS"):
        raise InputError(f"{path}: an Nsight Systems report; convert it with `nsys export --type sqlite {path.name}`")
    raise InputError(f"{path}: not a trace that busfare knows; it reads {KNOWN}")


def _read_tables(tables: TableSource) -> Trace:
    try:
        for matches, read_trace in TABLE_READERS:
            if matches(tables):
                return read_trace(tables)
    finally:
        tables.close()
    raise InputError(f"{tables.path}: no tables of a trace that busfare knows; it reads {KNOWN}")
