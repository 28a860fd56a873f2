"""Operations as arrays, sorted into batches of one path each, so that a model is one formula over a vector of sizes; and
the path of a batch through a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Flow, Node, Path
from busfare.node.arrays import FloatArray

__all__ = [
    "Batch",
    "Seconds",
    "batches",
    "flow_of",
    "moving_seconds",
    "path_of",
    "priced",
    "recorded_seconds",
    "stays_on_device",
]

#: float64 seconds, one an operation; NaN where the model does not apply.
Seconds = FloatArray

#: Kinds that move data over a path.
_MOVES = ("copy", "migration")
_HOST_KINDS = ("pageable", "pinned", "managed", "mapped")
#: The words of the columns, as the small numbers that group fast.
_WORDS = (*_MOVES, "set", "h2d", "d2h", "d2d", "p2p", *_HOST_KINDS, "device")
_WORDS_TYPE = pl.Enum(_WORDS)
_CODE = {word: code for code, word in enumerate(_WORDS)}
#: In place of a null; no table has so many words.
NONE = 255


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

    @property
    def to_peer(self) -> int | None:
        """The other GPU, where there is one."""
        return self.peer if self.peer >= 0 else None


def batches(operations: pl.DataFrame) -> list[Batch]:
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
        return []
    on, device_code = _dense(device[rows])
    other, peer_code = _dense(peer[rows])
    words = (kind[rows] * len(_WORDS) + direction[rows]) * len(_WORDS) + memory[rows]
    group = (words * len(on) + device_code) * len(other) + peer_code
    present = np.flatnonzero(np.bincount(group)) if len(on) * len(other) <= 64 else np.unique(group)
    # Ordered by the first row of each, as the operations are.
    ordered = sorted(present.tolist(), key=lambda one: int(np.argmax(group == one)))
    found = []
    for mine in (rows[group == code] for code in ordered):
        first = mine[0]
        words = (_WORDS[codes[first]] for codes in (kind, direction, memory))
        ends, measures = (int(device[first]), int(peer[first])), (size[mine], copies[mine])
        found.append(Batch(*words, *ends, mine, *(one.astype(np.float64) for one in measures)))
    return found


def _dense(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different values, and the place of each of `values` among them; shape (rows,)."""
    if (values == values[0]).all():
        return values[:1], np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)


def priced(height: int, found: Iterable[Batch], price: Callable[[Batch], Seconds | None]) -> Seconds:
    """`price` applied to every batch, put back in the order of the table's `height` rows; NaN where it gives None or no
    batch holds a row.
    """
    seconds = np.full(height, np.nan)
    for batch in found:
        own = price(batch)
        if own is not None:
            seconds[batch.rows] = own
    return seconds


def path_of(batch: Batch, node: Node) -> Path | None:
    """The path of a host or peer copy; None where the copy stays inside one memory or the node has no such
    path.
    """
    try:
        if batch.direction in ("h2d", "d2h"):
            return node.host_path(batch.device)
        if batch.direction == "p2p" and batch.peer >= 0:
            path = node.peer_path(batch.device, batch.peer)
            return path if path.links else None
    except InputError:
        return None
    return None


def flow_of(batch: Batch) -> Flow:
    """A host-to-device copy reads over the link; every other one writes."""
    return "read" if batch.direction == "h2d" else "write"


def stays_on_device(batch: Batch, node: Node) -> bool:
    """Whether the bytes never leave the GPU's memory: copies in place, sets, and host copies where memory is
    one.
    """
    return batch.direction == "d2d" or (
        batch.direction in ("h2d", "d2h") and node.gpu(batch.device).unified_memory
    )


def moving_seconds(batch: Batch, node: Node) -> FloatArray | None:
    """Seconds that the path, or the device's memory, is busy with each row; None where the node has neither
    figure.

    Device memory is read and written by a copy, and only written by a set. Staging and L+o are not in it.
    """
    if stays_on_device(batch, node):
        gpu = node.gpu(batch.device)
        if gpu.copy_bandwidth_bytes_per_s is not None and batch.kind != "set":
            return batch.sizes / gpu.copy_bandwidth_bytes_per_s
        rate = gpu.memory_bandwidth_bytes_per_s
        return None if rate is None else (1 if batch.kind == "set" else 2) * batch.sizes / rate
    path = path_of(batch, node)
    return None if path is None else path.seconds(batch.sizes, flow_of(batch))


def recorded_seconds(operations: pl.DataFrame) -> FloatArray:
    """Seconds that each row took; NaN where the trace lacks an end or has it before the start."""
    taken = (operations["end_ns"] - operations["start_ns"]).cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.where(taken >= 0, taken * 1e-9, np.nan)


def _words(frame: pl.DataFrame, name: str) -> NDArray[np.int64]:
    """The places of a column's words in `_WORDS`, -1 for none; shape (rows,)."""
    if name not in frame.columns or frame[name].null_count() == frame.height:
        return np.full(frame.height, -1, np.int64)
    column = frame[name]
    if not isinstance(column.dtype, pl.Enum):
        column = column.cast(_WORDS_TYPE, strict=False)
    numbers = column.to_physical()
    if numbers.null_count():
        numbers = numbers.fill_null(NONE)
    return np.asarray(_places(column.dtype)[numbers.to_numpy()], np.int64)


@lru_cache
def _places(words: pl.Enum) -> NDArray[np.int64]:
    """The place in `_WORDS` of each word of a type, -1 for others and behind the last."""
    places = np.full(NONE + 1, -1, np.int64)
    for number, word in enumerate(words.categories):
        places[number] = _CODE.get(word, -1)
    return places


def _numbers(frame: pl.DataFrame, name: str, otherwise: int) -> NDArray[np.int64]:
    if name not in frame.columns:
        return np.full(frame.height, otherwise, np.int64)
    column = frame[name].cast(pl.Int64, strict=False).fill_null(otherwise)
    return column.to_numpy().astype(np.int64, copy=False)
