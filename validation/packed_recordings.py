"""Recordings of `busfare record` as columns of steps: half of what they take, compressed.

A recording that is unpacked holds the same rows, those of a table in one chunk (docs/recording-format.md).
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Collection
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from busfare.trace.readers.recorded.file import (
    BLOB_WIDTH,
    CHUNK_MAGIC,
    ENTRY,
    HEADER_BYTES,
    TABLES,
    Recording,
    read_recording,
)
from busfare.trace.readers.recorded.wakes import WAITS


def pack(path: Path, grain_ns: int = 1, without: Collection[str] = ()) -> bytes:
    """A recording `without` some of its tables, nor waits of threads before its first call, times to `grain_ns`: a length
    is that of what was rounded, so that what lay within a call still does.
    """
    recording = read_recording(path)
    tables = {}
    for number, (name, columns) in TABLES.items():
        table = recording.tables[name]
        if not len(table) or name in (*without, "strings"):
            continue
        values = {column: table.signed(column) for column in columns}
        if name == "messages":
            kept = _kept(recording, values)
            values = {column: rows[kept] for column, rows in values.items()}
        if {"start", "duration"} <= {*columns}:
            end = _grains(values["start"] + values["duration"], grain_ns)
            values["start"] = _grains(values["start"], grain_ns)
            values["duration"] = end - values["start"]
        tables[number] = [_shorter(values[column].tolist()) for column in columns]
    held = {
        "header": path.read_bytes()[:HEADER_BYTES].hex(),
        "grain_ns": grain_ns,
        "strings": list(recording.strings.items()),
        "tables": tables,
    }
    return json.dumps(held, separators=(",", ":")).encode()


def _kept(recording: Recording, messages: dict[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Which rows of the messages are kept: not the waits of threads that ended before the first call of the window."""
    names = [recording.strings.get(number, "") for number in messages["name"].tolist()]
    waits = np.array([re.match(WAITS, name) is not None for name in names], bool)
    calls = recording.tables["calls"]["start"]
    first = int(calls.min()) + recording.wall_clock_ns - recording.trace_clock_ns if len(calls) else 0
    return ~waits | (messages["start"] + messages["duration"] >= first)


def _grains(times: NDArray[np.int64], grain_ns: int) -> NDArray[np.int64]:
    return (times + grain_ns // 2) // grain_ns


def unpack(packed: bytes) -> bytes:
    """The recording that was packed."""
    held = json.loads(packed)
    texts = [(number, text.encode()) for number, text in held["strings"]]
    strings = [[number for number, _ in texts], [len(text) for _, text in texts]]
    chunks = [_chunk(1, 0, strings, b"".join(text for _, text in texts))]
    for key, columns in held["tables"].items():
        names = TABLES[int(key)][1]
        values = [[*accumulate(of["steps"])] if isinstance(of, dict) else of for of in columns]
        if {"start", "duration"} <= {*names}:
            for name in ("start", "duration"):
                at = names.index(name)
                values[at] = [held["grain_ns"] * value for value in values[at]]
        chunks.append(_chunk(int(key), len(chunks), values))
    return bytes.fromhex(held["header"]) + b"".join(chunks)


def _shorter(values: list[int]) -> Any:
    """`values`, or each less the one before it: what is shorter to write."""
    steps = [to - at for at, to in pairwise([0, *values])]
    return {"steps": steps} if sum(map(abs, steps)) < sum(map(abs, values)) else values


def _chunk(table: int, sequence: int, columns: list[list[int]], blob: bytes | None = None) -> bytes:
    parts = [
        (8, 0, np.array(values, np.int64).tobytes()) for values in columns
    ]  # 8 bytes a row over a base of 0
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
