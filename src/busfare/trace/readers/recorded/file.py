"""The tables of a recording as numpy columns. Format: docs/recording-format.md."""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from busfare.errors import InputError

MAGIC = b"\x89BFREC\r\n"
VERSION = 1
HEADER = struct.Struct("<8sIIQQQ20xI")
HEADER_BYTES = HEADER.size
CHUNK_MAGIC = b"BFCK"
CHUNK = struct.Struct("<4sHHIIQII")
ENTRY = struct.Struct("<HBBIQ")
BLOB_WIDTH = 255

#: Name and columns of each table, by the number that the file gives it; columns are numbered from 0.
TABLES: dict[int, tuple[str, tuple[str, ...]]] = {
    number: (name, tuple(columns.split()))
    for number, name, columns in (
        (1, "strings", "string length"),
        (2, "facts", "key value"),
        (3, "kernels", "start duration correlation device context stream name graph_node graph grid_x grid_y grid_z "
         "block_x block_y block_z registers static_shared_bytes dynamic_shared_bytes local_bytes"),
        (4, "copies", "start duration bytes copy_kind source_kind destination_kind flags device context stream "
         "correlation graph_node graph copy_count source_device source_context destination_device "
         "destination_context peer"),
        (5, "sets", "start duration bytes value memory_kind device context stream correlation graph_node"),
        (6, "calls", "start duration domain name thread correlation result"),
        (7, "waits", "start duration type correlation context stream event event_sync"),
        (8, "events", "correlation device context stream event event_sync"),
        (9, "streams", "context stream priority flag"),
        (10, "contexts", "context device null_stream api"),
        (11, "devices", "device name uuid_high uuid_low memory_bytes memory_bandwidth_bytes_per_s clock_hz "
         "multiprocessors capability_major capability_minor copy_engines l2_bytes"),
        (12, "pcie_links", "type device domain generation transfers_giga_per_s lanes upstream_bus"),
        (13, "nvlinks", "version type_0 type_1 uuid_0_high uuid_0_low uuid_1_high uuid_1_low links "
         "bandwidth_bytes_per_s"),
        (14, "managed", "start duration counter value address source destination flags"),
        (15, "markers", "time flags marker thread name domain object"),
        (16, "overheads", "start duration kind correlation thread"),
        (17, "allocations", "time operation memory_kind address bytes correlation device context stream asynchronous"),
        (18, "graph_launches", "start duration correlation device context stream graph"),
        (19, "copy_addresses", "correlation source destination bytes fingerprint fingerprint_start fingerprint_duration"),
        (20, "demangled", "mangled readable"),
        (21, "losses", "loss time count"),
        (22, "end", "reason time rows chunks"),
        (23, "windows", "time on"),
        (26, "messages", "start duration thread name communicator bytes peer tag request result"),
        (27, "communicators", "number name members place size"),
        (28, "stacks", "stack depth module address symbol"),
        (29, "call_stacks", "correlation stack"),
        (30, "lines", "module address depth function file line"),
    )
}  # fmt: skip

#: Tables of earlier versions, by number: nothing is read of them. Their numbers are never used again.
RETIRED: dict[int, str] = {
    24: "counted_launches", 25: "counters", 31: "first_uses", 32: "storage", 33: "mapped_arguments",
    34: "stream_fingerprints", 35: "argument_memory",
}  # fmt: skip
#: Rows of `messages` of earlier versions, by what is called: nothing is read of them either.
RETIRED_MESSAGES = re.compile(r"(futex|pthread_cond_\w+|sem_\w+)$")

Column = npt.NDArray[np.uint64]


class Part(NamedTuple):
    """One column of one chunk: what is to be added to `base` in each row; None where that is nothing."""

    base: int = 0
    over: npt.NDArray[np.unsignedinteger[Any]] | None = None


class Table:
    """The rows of one table; a column is decoded when it is asked for. `table["start"]` is an array of unsigned 64-bit
    values, one a row. A column that a chunk lacks (an older or newer recorder's) reads as 0 there.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.chunks: list[tuple[int, dict[int, Part]]] = []  # rows, and columns by their numbers

    def __len__(self) -> int:
        return sum(rows for rows, _ in self.chunks)

    def __getitem__(self, name: str) -> Column:
        number = self.columns.index(name)
        parts = [(rows, columns.get(number, Part())) for rows, columns in self.chunks]
        if all(part.over is None for _, part in parts) and len({part.base for _, part in parts}) == 1:
            return np.broadcast_to(np.uint64(parts[0][1].base), len(self))
        out = np.empty(len(self), np.uint64)
        end = 0
        for rows, (base, over) in parts:
            begin, end = end, end + rows
            # Bases and differences add up modulo 2**64, as they were taken.
            np.add(np.uint64(0) if over is None else over, np.uint64(base), out=out[begin:end])
        return out

    def signed(self, name: str) -> npt.NDArray[np.int64]:
        """The column as signed values: negative numbers are stored modulo 2**64."""
        return self[name].view(np.int64)


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
    retired_rows: dict[str, int] = field(default_factory=dict)  # by name of the table
    missing_chunks: int = 0
    header_damaged: bool = False  # process and clock may be wrong

    @property
    def complete(self) -> bool:
        """False: the program ended without a word, and rows after its last flush are missing."""
        return len(self.tables["end"]) > 0

    def table(self, name: str) -> Table:
        return self.tables[name]


class _Chunk(NamedTuple):
    table: int
    columns: int
    rows: int
    sequence: int
    size: int
    checksum: int
    payload: memoryview  # unchecked, and cut where the file ends


def _chunk_at(data: memoryview, at: int) -> _Chunk | None:
    """The chunk whose header is at `at`; None if there is none."""
    begin = at + CHUNK.size
    if begin > len(data):
        return None
    magic, table, columns, rows, sequence, size, checksum, header_checksum = CHUNK.unpack_from(data, at)
    if magic != CHUNK_MAGIC or zlib.crc32(data[at : begin - 4]) != header_checksum:
        return None
    return _Chunk(table, columns, rows, sequence, size, checksum, data[begin : begin + size])


def _chunks(text: bytes, recording: Recording) -> Iterator[_Chunk]:
    """Every sound chunk, in order; what is not sound is counted in `recording`."""
    data = memoryview(text)
    at = HEADER_BYTES
    expected = 0
    while at < len(data):
        chunk = _chunk_at(data, at)
        if chunk is None:
            following = text.find(CHUNK_MAGIC, at + 1)
            while following >= 0 and _chunk_at(data, following) is None:
                following = text.find(CHUNK_MAGIC, following + 1)
            if following >= 0:
                recording.damaged_chunks += 1
                at = following
                continue
        if chunk is None or len(chunk.payload) < chunk.size:
            recording.torn_bytes = len(data) - at
            return
        at += CHUNK.size + chunk.size
        if zlib_ng.crc32(chunk.payload) != chunk.checksum:
            recording.damaged_chunks += 1
            continue
        recording.missing_chunks += max(chunk.sequence - expected, 0)
        expected = chunk.sequence + 1
        yield chunk


def _parts(chunk: _Chunk) -> tuple[dict[int, Part], bytes] | None:
    """The columns of a chunk by number, and its blob; None when the directory contradicts the payload."""
    parts: dict[int, Part] = {}
    blob = b""
    if chunk.columns * ENTRY.size > chunk.size:
        return None
    for index in range(chunk.columns):
        number, width, _, offset, base = ENTRY.unpack_from(chunk.payload, index * ENTRY.size)
        length = base if width == BLOB_WIDTH else chunk.rows * width
        if width not in (0, 1, 2, 4, 8, BLOB_WIDTH) or offset + length > chunk.size:
            return None
        if width == BLOB_WIDTH:
            blob = bytes(chunk.payload[offset : offset + base])
        else:
            over = np.frombuffer(chunk.payload, f"<u{width}", chunk.rows, offset) if length else None
            parts[number] = Part(base, over)
    return parts, blob


def is_recording(path: Path) -> bool:
    """Whether the file at `path` begins as recordings do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_recording(path: Path) -> Recording:
    """Reads one file. Whatever its end or middle looks like, all sound chunks are there. Raises InputError when the file
    cannot be opened, is no recording, or is of a later version.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if not text.startswith(MAGIC):
        why = "not a busfare recording; make one with `busfare record -o FILE -- PROGRAM`"
        raise InputError(f"{path}: {why}")
    if len(text) < HEADER_BYTES:
        raise InputError(f"{path}: the recording ends inside its header and is empty; record again")
    _, version, header_bytes, process, wall, clock, checksum = HEADER.unpack_from(text, 0)
    if version != VERSION or header_bytes != HEADER_BYTES:
        why = f"recording format {version} is unknown (this version reads 1); update busfare"
        raise InputError(f"{path}: {why}")
    tables = {name: Table(columns) for name, columns in TABLES.values()}
    recording = Recording(path, process, wall, clock, tables)
    recording.header_damaged = zlib.crc32(text[: HEADER_BYTES - 4]) != checksum
    blobs: list[bytes] = []
    for chunk in _chunks(text, recording):
        decoded = _parts(chunk)
        if decoded is None:
            recording.damaged_chunks += 1
        elif name := RETIRED.get(chunk.table):
            recording.retired_rows[name] = recording.retired_rows.get(name, 0) + chunk.rows
        elif chunk.table not in TABLES:
            recording.unknown_chunks += 1
        else:
            parts, blob = decoded
            tables[TABLES[chunk.table][0]].chunks.append((chunk.rows, parts))
            blobs.append(blob)
    text, lengths = b"".join(blobs), tables["strings"]["length"]
    ends = np.cumsum(lengths).tolist()
    for number, begin, end in zip(tables["strings"]["string"].tolist(), [0, *ends], ends, strict=False):
        recording.strings[number] = text[begin:end].decode("utf-8", "replace")
    for key, value in zip(tables["facts"]["key"].tolist(), tables["facts"]["value"].tolist(), strict=True):
        recording.facts[recording.strings.get(key, "?")] = recording.strings.get(value, "")
    # Rows among the messages that only recordings of earlier versions hold.
    numbers, counts = np.unique(tables["messages"]["name"], return_counts=True)
    retired = [bool(RETIRED_MESSAGES.match(recording.strings.get(number, ""))) for number in numbers.tolist()]
    if any(retired):
        recording.retired_rows["waits of threads"] = int(counts[retired].sum())
    return recording
