"""The tables of a recording as numpy columns. Format: docs/recording-format.md.

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
from busfare.trace.readers.recorded.files import MAGIC

__all__ = ["TABLES", "Recording", "Table", "read_recording"]

VERSION = 1
HEADER = struct.Struct("<8sIIQQQ")
HEADER_BYTES = 64
CHUNK_MAGIC = b"BFCK"
CHUNK = struct.Struct("<4sHHIIQII")
ENTRY = struct.Struct("<HBBIQ")
BLOB_WIDTH = 255

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
    19: (
        "copy_addresses",
        (
            "correlation", "source", "destination", "bytes", "fingerprint", "fingerprint_start",
            "fingerprint_duration",
        ),
    ),
    20: ("demangled", ("mangled", "readable")),
    21: ("losses", ("loss", "time", "count")),
    22: ("end", ("reason", "time", "rows", "chunks")),
    23: ("windows", ("time", "on")),
}  # fmt: skip

Column = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Part:
    """One column of one chunk: its rows, and either bytes of `width` a row or, at width 0, nothing but the base."""

    rows: int
    base: int = 0
    width: int = 0
    payload: memoryview = field(default_factory=lambda: memoryview(b""))
    offset: int = 0


class Table:
    """The rows of one table; a column is decoded when it is asked for.

    `table["start"]` is an array of unsigned 64-bit values, one a row. A column that a chunk lacks (an older or
    newer recorder's) reads as 0 there.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._rows = 0
        self._parts: list[dict[int, _Part]] = []
        self._rows_of_parts: list[int] = []

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> Column:
        number = self.columns.index(name)
        parts = [
            columns.get(number, _Part(rows))
            for columns, rows in zip(self._parts, self._rows_of_parts, strict=True)
        ]
        if len({(part.width, part.base) for part in parts}) == 1 and parts[0].width == 0:
            return np.broadcast_to(np.uint64(parts[0].base), self._rows)
        out = np.empty(self._rows, np.uint64)
        end = 0
        for part in parts:
            begin, end = end, end + part.rows
            if part.width == 0:
                out[begin:end] = part.base
            else:
                narrow = np.frombuffer(part.payload, f"<u{part.width}", part.rows, part.offset)
                # Bases and differences add up modulo 2**64, as they were taken.
                np.add(narrow, np.uint64(part.base), out=out[begin:end])
        return out

    def signed(self, name: str) -> npt.NDArray[np.int64]:
        """The column as signed values: negative numbers are stored modulo 2**64."""
        return self[name].view(np.int64)

    def _add(self, rows: int, columns: dict[int, _Part]) -> None:
        self._rows += rows
        self._parts.append(columns)
        self._rows_of_parts.append(rows)


@dataclass(slots=True)
class Recording:
    """One file, read."""

    path: Path
    process: int
    wall_clock_ns: int  # since the Unix epoch, at `trace_clock_ns` of the clock that the tables use
    trace_clock_ns: int
    tables: dict[str, Table]
    strings: dict[int, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    torn_bytes: int = 0  # bytes at the end that are no whole chunk
    damaged_chunks: int = 0
    unknown_chunks: int = 0  # of tables that only a later version knows
    missing_chunks: int = 0
    header_damaged: bool = False  # process and clock may be wrong

    @property
    def complete(self) -> bool:
        """False: the program ended without a word, and rows after its last flush are missing."""
        return len(self.tables["end"]) > 0

    def table(self, name: str) -> Table:
        return self.tables[name]


@dataclass(slots=True)
class _Chunk:
    table: int
    columns: int
    rows: int
    sequence: int
    payload: memoryview


def _checksum(data: memoryview) -> int:
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib.crc32(data)
    return int(zlib_ng.crc32(data))


def _header_of_chunk(data: memoryview, at: int) -> tuple[_Chunk, int] | None:
    """The chunk whose header is at `at` (its payload unchecked) and its payload's checksum; None if there is none.

    The checksum is -1 where the file ends before the payload does.
    """
    if at + CHUNK.size > len(data):
        return None
    magic, table, columns, rows, sequence, size, checksum, own = CHUNK.unpack_from(data, at)
    if magic != CHUNK_MAGIC or zlib.crc32(data[at : at + CHUNK.size - 4]) != own:
        return None
    end = at + CHUNK.size + size
    return _Chunk(table, columns, rows, sequence, data[at + CHUNK.size : end]), checksum if end <= len(
        data
    ) else -1


def _chunks(text: bytes, recording: Recording) -> Iterator[_Chunk]:
    """Every sound chunk, in order; what is not sound is counted in `recording`."""
    data = memoryview(text)
    at = HEADER_BYTES
    expected = 0
    while at < len(data):
        found = _header_of_chunk(data, at)
        if found is None:
            following = text.find(CHUNK_MAGIC, at + 1)
            while following >= 0 and _header_of_chunk(data, following) is None:
                following = text.find(CHUNK_MAGIC, following + 1)
            if following < 0:
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
        recording.missing_chunks += max(chunk.sequence - expected, 0)
        expected = chunk.sequence + 1
        yield chunk


def _parts(chunk: _Chunk) -> tuple[dict[int, _Part], bytes] | None:
    """The columns of a chunk by number, and its blob; None when the directory contradicts the payload."""
    parts: dict[int, _Part] = {}
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
        else:
            parts[number] = _Part(chunk.rows, base, width, chunk.payload, offset)
    return parts, blob


def read_recording(path: Path) -> Recording:
    """Reads one file. Whatever its end or middle looks like, all sound chunks are there.

    Raises InputError when the file cannot be opened, is no recording, or is of a later version.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if not text.startswith(MAGIC):
        raise InputError(
            f"{path}: not a busfare recording; make one with `busfare record -o FILE -- PROGRAM`"
        )
    if len(text) < HEADER_BYTES:
        raise InputError(
            f"{path}: the recording was cut within its header, so it holds nothing; record again"
        )
    _, version, header_bytes, process, wall, clock = HEADER.unpack_from(text, 0)
    if version != VERSION or header_bytes != HEADER_BYTES:
        raise InputError(f"{path}: recording format {version} is not known here (1 is); update busfare")
    tables = {name: Table(columns) for name, columns in TABLES.values()}
    recording = Recording(path, process, wall, clock, tables)
    recording.header_damaged = zlib.crc32(text[: HEADER_BYTES - 4]) != int.from_bytes(
        text[HEADER_BYTES - 4 : HEADER_BYTES], "little"
    )
    blobs: list[bytes] = []
    for chunk in _chunks(text, recording):
        found = _parts(chunk)
        if found is None:
            recording.damaged_chunks += 1
        elif chunk.table not in TABLES:
            recording.unknown_chunks += 1
        else:
            parts, blob = found
            tables[TABLES[chunk.table][0]]._add(chunk.rows, parts)
            blobs.append(blob)
    _read_strings(tables["strings"], b"".join(blobs), recording.strings)
    keys, values = tables["facts"]["key"].tolist(), tables["facts"]["value"].tolist()
    recording.facts = {
        recording.strings.get(key, "?"): recording.strings.get(value, "")
        for key, value in zip(keys, values, strict=True)
    }
    return recording


def _read_strings(table: Table, text: bytes, strings: dict[int, str]) -> None:
    ends = np.cumsum(table["length"]).tolist()
    for number, begin, end in zip(table["string"].tolist(), [0, *ends], ends, strict=False):
        strings[number] = text[begin:end].decode("utf-8", "replace")
