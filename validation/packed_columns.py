"""Columns of whole numbers behind a line of JSON: a fifth less than as text, compressed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers are eight bytes at most.
WIDEST = 8


def write(held: dict[str, Any], columns: Sequence[NDArray[np.int64]]) -> bytes:
    """`held` as a line of JSON, then each column: its numbers, or each less the one before it where those are smaller,
    the sign in the lowest bit, all lowest bytes first, then all next ones.
    """
    headers, bodies = [], []
    for column in columns:
        steps = np.diff(column, prepend=np.int64(0))  # of wrapped differences the sums wrap back
        stepped = float(np.abs(steps.astype(float)).sum()) < float(np.abs(column.astype(float)).sum())
        values = steps if stepped else column
        unsigned = ((values << 1) ^ (values >> 63)).astype("<u8")
        width = max(-(-int(unsigned.max(initial=0)).bit_length() // 8), 1)
        headers.append([int(stepped), width, len(column)])
        bodies.append(unsigned.view(np.uint8).reshape(-1, WIDEST)[:, :width].T.tobytes())
    line = json.dumps(held | {"columns": headers}, separators=(",", ":")).encode()
    return b"\n".join((line, b"".join(bodies)))


def read(packed: bytes) -> tuple[dict[str, Any], list[NDArray[np.int64]]]:
    """What was written."""
    line, _, body = packed.partition(b"\n")
    held = json.loads(line)
    columns, at = [], 0
    for stepped, width, rows in held.pop("columns"):
        planes = np.frombuffer(body, np.uint8, width * rows, at).reshape(width, rows)
        at += width * rows
        unsigned = np.zeros((rows, WIDEST), np.uint8)
        unsigned[:, :width] = planes.T
        numbers = unsigned.view("<u8").reshape(-1)
        values = (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
        columns.append(np.cumsum(values) if stepped else values)
    return held, columns
