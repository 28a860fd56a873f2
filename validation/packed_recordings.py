"""Recordings of `busfare record` as columns: less than half of what they take, compressed.

A recording that is unpacked holds the same rows, those of a table in one chunk (docs/recording-format.md), without tables of
earlier versions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from packed_columns import read, write

from busfare.trace.readers.recorded.file import (
    BLOB_WIDTH,
    CHUNK_MAGIC,
    ENTRY,
    HEADER_BYTES,
    RETIRED,
    TABLES,
    read_recording,
)


def pack(path: Path, grain_ns: int = 1, without: Collection[str] = ()) -> bytes:
    """A recording `without` some of its tables, times to `grain_ns`: a length is that of what was rounded, so that what lay
    within a call still does.
    """
    recording = read_recording(path)
    tables, kept = {}, []
    for number, (name, columns) in TABLES.items():
        table = recording.tables[name]
        if not len(table) or name in (*without, "strings"):
            continue
        values = {column: table.signed(column) for column in columns}
        if {"start", "duration"} <= {*columns}:
            end = _grains(values["start"] + values["duration"], grain_ns)
            values["start"] = _grains(values["start"], grain_ns)
            values["duration"] = end - values["start"]
        tables[number] = len(columns)
        kept += [values[column] for column in columns]
    held = {
        "header": path.read_bytes()[:HEADER_BYTES].hex(),
        "grain_ns": grain_ns,
        "strings": list(recording.strings.items()),
        "tables": tables,
    }
    return write(held, kept)


def _grains(times: NDArray[np.int64], grain_ns: int) -> NDArray[np.int64]:
    return (times + grain_ns // 2) // grain_ns


def unpack(packed: bytes) -> bytes:
    """The recording that was packed."""
    held, columns = read(packed)
    texts = [(number, text.encode()) for number, text in held["strings"]]
    strings = [np.array(column, np.int64) for column in ([n for n, _ in texts], [len(t) for _, t in texts])]
    chunks = [_chunk(1, 0, strings, b"".join(text for _, text in texts))]
    rest = iter(columns)
    for key, count in held["tables"].items():
        values = [next(rest) for _ in range(count)]
        if int(key) in RETIRED:
            continue
        names = TABLES[int(key)][1]
        if {"start", "duration"} <= {*names}:
            for name in ("start", "duration"):
                values[names.index(name)] *= held["grain_ns"]
        chunks.append(_chunk(int(key), len(chunks), values))
    return bytes.fromhex(held["header"]) + b"".join(chunks)


def _chunk(table: int, sequence: int, columns: list[NDArray[np.int64]], blob: bytes | None = None) -> bytes:
    # 8 bytes a row over a base of 0.
    parts = [(8, 0, np.ascontiguousarray(values, np.int64).tobytes()) for values in columns]
    parts += [(BLOB_WIDTH, len(blob), blob)] if blob is not None else []
    directory, body = b"", b""
    for number, (width, base, content) in enumerate(parts):
        directory += ENTRY.pack(number, width, 0, ENTRY.size * len(parts) + len(body), base)
        body += content + bytes(-len(content) % 8)
    payload = directory + body
    rows = len(columns[0])
    fields = (CHUNK_MAGIC, table, len(parts), rows, sequence, len(payload), zlib.crc32(payload))
    head = struct.pack("<4sHHIIQI", *fields)
    return head + struct.pack("<I", zlib.crc32(head)) + payload
