"""The chunks of a recording as numpy columns, table by table. Format: docs/recording-format.md.

Needs numpy alone, so that recordings can be looked at where they are made.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from busfare.errors import InputError

__all__ = ["MAGIC", "TABLES", "Recording", "Table", "is_recording", "read_recording"]

MAGIC = b"\x89BFREC\r\n"
VERSION = 1
HEADER = struct.Struct("<8sIIQQQ")
HEADER_BYTES = 64
CHUNK_MAGIC = b"BFCK"
CHUNK = struct.Struct("<4sHHIIQII")
ENTRY = struct.Struct("<HBBIQ")
BLOB_WIDTH = 255

_STRINGS, _FACTS, _END = 1, 2, 22

#: Name and columns of each table, by the number that the file gives it; columns are numbered from 0.
TABLES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("strings", ("string", "length")),
    2: ("facts", ("key", "value")),
    3: (
        "kernels",
        (
            "start", "duration", "correlation", "device", "context", "stream", "name", "graph_node", "graph",
            "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
            "registers", "static_shared_bytes", "dynamic_shared_bytes", "local_bytes",
        ),
    ),
    4: (
        "copies",
        (
            "start", "duration", "bytes", "copy_kind", "source_kind", "destination_kind", "flags", "device",
            "context", "stream", "correlation", "graph_node", "graph", "copy_count", "source_device",
            "source_context", "destination_device", "destination_context", "peer",
        ),
    ),
    5: (
        "sets",
        (
            "start", "duration", "bytes", "value", "memory_kind", "device", "context", "stream", "correlation",
            "graph_node",
        ),
    ),
    6: ("calls", ("start", "duration", "domain", "name", "thread", "correlation", "result")),
    7: ("waits", ("start", "duration", "type", "correlation", "context", "stream", "event", "event_sync")),
    8: ("events", ("correlation", "device", "context", "stream", "event", "event_sync")),
    9: ("streams", ("context", "stream", "priority", "flag")),
    10: ("contexts", ("context", "device", "null_stream", "api")),
    11: (
        "devices",
        (
            "device", "name", "uuid_high", "uuid_low", "memory_bytes", "memory_bandwidth_bytes_per_s", "clock_hz",
            "multiprocessors", "capability_major", "capability_minor", "copy_engines", "l2_bytes",
        ),
    ),
    12: ("pcie_links", ("type", "device", "domain", "generation", "transfers_giga_per_s", "lanes", "upstream_bus")),
    13: (
        "nvlinks",
        (
            "version", "type_0", "type_1", "uuid_0_high", "uuid_0_low", "uuid_1_high", "uuid_1_low", "links",
            "bandwidth_bytes_per_s",
        ),
    ),
    14: ("managed", ("start", "duration", "counter", "value", "address", "source", "destination", "flags")),
    15: ("markers", ("time", "flags", "marker", "thread", "name", "domain", "object")),
    16: ("overheads", ("start", "duration", "kind", "correlation", "thread")),
    17: (
        "allocations",
        (
            "time", "operation", "memory_kind", "address", "bytes", "correlation", "device", "context", "stream",
            "asynchronous",
        ),
    ),
    18: ("graph_launches", ("start", "duration", "correlation", "device", "context", "stream", "graph")),
    19: ("copy_addresses", ("correlation", "source", "destination", "bytes", "fingerprint")),
    20: ("demangled", ("mangled", "readable")),
    21: ("losses", ("loss", "time", "count")),
    22: ("end", ("reason", "time", "rows", "chunks")),
}  # fmt: skip

Column = npt.NDArray[np.uint64]
Table = dict[str, Column]


@dataclass(slots=True)
class Recording:
    """One file, read. Values are unsigned 64-bit; columns that the file lacks are missing from their table."""

    path: Path
    process: int
    wall_clock_ns: int  # since the Unix epoch, at `trace_clock_ns` of the clock that the tables use
    trace_clock_ns: int
    tables: dict[str, Table]
    strings: dict[int, str]
    facts: dict[str, str]
    complete: bool  # false: the program ended without a word, and rows after its last flush are missing
    torn_bytes: int = 0  # bytes at the end that are no whole chunk
    damaged_chunks: int = 0
    unknown_chunks: int = 0
    sequence_gaps: int = 0
    notes: list[str] = field(default_factory=list)

    def table(self, name: str) -> Table:
        """The columns of a table, all of the same length; of length 0 where the recording has no such rows."""
        columns = next(columns for known, columns in TABLES.values() if known == name)
        held = self.tables.get(name, {})
        rows = len(next(iter(held.values()))) if held else 0
        return {column: held.get(column, np.zeros(rows, np.uint64)) for column in columns}


@dataclass(slots=True)
class _Chunk:
    table: int
    columns: int
    rows: int
    sequence: int
    payload: memoryview


def is_recording(path: Path) -> bool:
    """Whether the file at `path` begins as recordings do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _checksum(data: memoryview) -> int:
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib.crc32(data)
    return int(zlib_ng.crc32(data))


def _header_of_chunk(data: memoryview, at: int) -> tuple[_Chunk, int] | None:
    """The chunk whose header is at `at` (its payload unchecked) and its payload's checksum; None if there is none."""
    if at + CHUNK.size > len(data):
        return None
    magic, table, columns, rows, sequence, size, checksum, own = CHUNK.unpack_from(data, at)
    if magic != CHUNK_MAGIC or zlib.crc32(data[at : at + CHUNK.size - 4]) != own:
        return None
    end = at + CHUNK.size + size
    return _Chunk(table, columns, rows, sequence, data[at + CHUNK.size : end]), checksum if end <= len(data) else -1


def _chunks(data: memoryview, recording: Recording) -> Iterator[_Chunk]:
    """Every sound chunk, in order; what is not sound is counted in `recording`."""
    at = HEADER_BYTES
    expected = 0
    while at < len(data):
        found = _header_of_chunk(data, at)
        if found is None:
            following = _next_header(data, at + 1)
            if following is None:
                recording.torn_bytes = len(data) - at
                return
            recording.damaged_chunks += 1
            at = following
            continue
        chunk, checksum = found
        if checksum < 0:
            recording.torn_bytes = len(data) - at
            return
        at += CHUNK.size + len(chunk.payload)
        if _checksum(chunk.payload) != checksum:
            recording.damaged_chunks += 1
            continue
        recording.sequence_gaps += chunk.sequence != expected
        expected = chunk.sequence + 1
        yield chunk


def _next_header(data: memoryview, at: int) -> int | None:
    """Where the next sound chunk header is, from `at` on."""
    text = bytes(data[at:])
    found = text.find(CHUNK_MAGIC)
    while found >= 0:
        if _header_of_chunk(data, at + found) is not None:
            return at + found
        found = text.find(CHUNK_MAGIC, found + 1)
    return None


def _columns(chunk: _Chunk) -> tuple[dict[int, Column], bytes] | None:
    """The columns of a chunk by number, and its blob; None when the directory contradicts the payload."""
    columns: dict[int, Column] = {}
    blob = b""
    size = len(chunk.payload)
    if chunk.columns * ENTRY.size > size:
        return None
    for index in range(chunk.columns):
        number, width, _, offset, base = ENTRY.unpack_from(chunk.payload, index * ENTRY.size)
        length = base if width == BLOB_WIDTH else chunk.rows * width
        if width not in (0, 1, 2, 4, 8, BLOB_WIDTH) or offset + length > size:
            return None
        if width == BLOB_WIDTH:
            blob = bytes(chunk.payload[offset : offset + base])
        elif width == 0:
            columns[number] = np.full(chunk.rows, base, np.uint64)
        else:
            narrow = np.frombuffer(chunk.payload, f"<u{width}", chunk.rows, offset)
            # Bases and differences add up modulo 2**64, as they were taken.
            columns[number] = np.add(narrow, np.uint64(base), dtype=np.uint64)
    return columns, blob


def _read_strings(columns: dict[int, Column], blob: bytes, strings: dict[int, str]) -> None:
    ends = np.cumsum(columns[1]).tolist()
    for number, begin, end in zip(columns[0].tolist(), [0, *ends[:-1]], ends, strict=True):
        strings[number] = blob[begin:end].decode("utf-8", "replace")


def read_recording(path: Path) -> Recording:
    """Reads one file. Whatever its end or middle looks like, all sound chunks are there.

    Raises InputError when the file cannot be opened, is no recording, or is of a later version.
    """
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if len(data) < HEADER_BYTES or bytes(data[: len(MAGIC)]) != MAGIC:
        raise InputError(f"{path}: not a busfare recording; make one with `busfare record -o FILE -- PROGRAM`")
    _, version, header_bytes, process, wall, clock = HEADER.unpack_from(data, 0)
    if version != VERSION or header_bytes != HEADER_BYTES:
        raise InputError(f"{path}: recording format {version} is not known here (1 is); update busfare")
    recording = Recording(path, process, wall, clock, {}, {}, {}, complete=False)
    if zlib.crc32(data[: HEADER_BYTES - 4]) != struct.unpack_from("<I", data, HEADER_BYTES - 4)[0]:
        recording.notes.append("the file header is damaged: process and clock may be wrong")
    parts: dict[int, dict[int, list[Column]]] = {}
    facts: list[tuple[int, int]] = []
    for chunk in _chunks(data, recording):
        decoded = _columns(chunk)
        if decoded is None:
            recording.damaged_chunks += 1
            continue
        columns, blob = decoded
        if chunk.table not in TABLES:
            recording.unknown_chunks += 1
        elif chunk.table == _STRINGS:
            _read_strings(columns, blob, recording.strings)
        elif chunk.table == _FACTS:
            facts += zip(columns[0].tolist(), columns[1].tolist(), strict=True)
        else:
            recording.complete = recording.complete or chunk.table == _END
            held = parts.setdefault(chunk.table, {})
            for number in range(len(TABLES[chunk.table][1])):
                held.setdefault(number, []).append(
                    columns[number] if number in columns else np.zeros(chunk.rows, np.uint64)
                )
    for table, held in parts.items():
        name, names = TABLES[table]
        recording.tables[name] = {
            names[number]: pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            for number, pieces in held.items()
        }
    recording.facts = {recording.strings.get(k, "?"): recording.strings.get(v, "") for k, v in facts}
    return recording
