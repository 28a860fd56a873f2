"""Operations as arrays, sorted into batches of one path each, so that a model is one formula over a vector of
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.model import Seconds
from busfare.node.arrays import FloatArray

__all__ = ["Batch", "batches", "priced"]

#: Kinds that move data over a path.
_MOVES = ("copy", "migration")
_HOST_KINDS = ("pageable", "pinned", "managed", "mapped")
#: The words of the columns, as the small numbers that group fast.
_WORDS = (*_MOVES, "set", "h2d", "d2h", "d2d", "p2p", *_HOST_KINDS, "device")
_WORDS_TYPE = pl.Enum(_WORDS)
_CODE = {word: code for code, word in enumerate(_WORDS)}


@dataclass(frozen=True)
class Batch:
    """Operations of one kind on one path. `rows` index the table; `sizes` (bytes) and `copies` are parallel
    to them.

    `memory` is the kind of the host's side for `h2d` and `d2h`, and `device` otherwise. A trace that does not
    say the kind is priced as pinned: no staging is assumed where none was seen.
    """

    kind: str
    direction: str
    memory: str
    device: int
    peer: int
    rows: np.ndarray
    sizes: FloatArray
    copies: FloatArray


def batches(operations: pl.DataFrame) -> Iterator[Batch]:
    """The batches of all copies, migrations and sets of known size; other rows are in none."""
    kind, direction = _words(operations, "kind"), _words(operations, "direction")
    direction = np.where(kind == _CODE["set"], _CODE["d2d"], direction)
    to_gpu, to_host = direction == _CODE["h2d"], direction == _CODE["d2h"]
    source, destination = _words(operations, "source_memory"), _words(operations, "destination_memory")
    host_side = np.where(to_gpu, source, np.where(to_host, destination, _CODE["device"]))
    known = np.isin(host_side, [_CODE[word] for word in _HOST_KINDS])
    memory = np.where(to_gpu | to_host, np.where(known, host_side, _CODE["pinned"]), _CODE["device"])
    size = _numbers(operations, "bytes", -1)
    copies = np.maximum(_numbers(operations, "copy_count", 1), 1)
    device = np.maximum(_numbers(operations, "device", 0), 0)
    peer = _numbers(operations, "peer_device", -1)
    moves = np.isin(kind, [_CODE[word] for word in (*_MOVES, "set")]) & (direction >= 0) & (size >= 0)
    rows = np.flatnonzero(moves)
    if len(rows) == 0:
        return
    on, device_code = _dense(device[rows])
    other, peer_code = _dense(peer[rows])
    words = (kind[rows] * len(_WORDS) + direction[rows]) * len(_WORDS) + memory[rows]
    group = (words * len(on) + device_code) * len(other) + peer_code
    present = np.flatnonzero(np.bincount(group)) if len(on) * len(other) <= 64 else np.unique(group)
    # Ordered by the first row of each, as the operations are.
    for code in sorted(present.tolist(), key=lambda one: int(np.argmax(group == one))):
        mine = rows[group == code]
        first = mine[0]
        yield Batch(
            _WORDS[kind[first]],
            _WORDS[direction[first]],
            _WORDS[memory[first]],
            int(device[first]),
            int(peer[first]),
            mine,
            size[mine].astype(np.float64),
            copies[mine].astype(np.float64),
        )


def _dense(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different values, and the place of each of `values` among them; shape (rows,)."""
    if (values == values[0]).all():
        return values[:1], np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)


def priced(operations: pl.DataFrame, price: Callable[[Batch], Seconds | None]) -> Seconds:
    """`price` applied to every batch, put back in the order of the rows; NaN where it gives None or no batch
    holds a row.
    """
    seconds = np.full(operations.height, np.nan)
    for batch in batches(operations):
        found = price(batch)
        if found is not None:
            seconds[batch.rows] = found
    return seconds


def _words(frame: pl.DataFrame, name: str) -> NDArray[np.int64]:
    """The places of a column's words in `_WORDS`, -1 for none; shape (rows,)."""
    if name not in frame.columns:
        return np.full(frame.height, -1, np.int64)
    return frame[name].cast(_WORDS_TYPE, strict=False).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()


def _numbers(frame: pl.DataFrame, name: str, otherwise: int) -> NDArray[np.int64]:
    if name not in frame.columns:
        return np.full(frame.height, otherwise, np.int64)
    return frame[name].cast(pl.Int64, strict=False).fill_null(otherwise).to_numpy()
