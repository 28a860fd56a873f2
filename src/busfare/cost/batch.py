"""Operations as arrays, sorted into batches of one path each, so that a model is one formula over a vector of sizes; and
the path of a batch through a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.nodes import FloatArray, Flow, Node, Path

__all__ = [
    "Batch", "Seconds", "batches", "flow_of", "moving_seconds", "path_of", "priced", "recorded_seconds",
    "stays_on_device",
]  # fmt: skip

#: float64 seconds, one an operation; NaN where the model does not apply.
Seconds = FloatArray

_KINDS = pl.Enum(["copy", "migration", "set"])
_DIRECTIONS = pl.Enum(["h2d", "d2h", "d2d", "p2p"])
_MEMORIES = pl.Enum(["pageable", "pinned", "managed", "mapped", "device"])


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
    """The batches of all copies, migrations and sets of known size, in the order of their first rows; other rows are in
    none.
    """
    sides = ("h2d", "source_memory"), ("d2h", "destination_memory")
    host = pl.coalesce(pl.when(pl.col("direction") == way).then(memory) for way, memory in sides)
    unsaid = host.is_null() | (host == "device")
    memory = pl.when(unsaid).then(pl.lit("pinned", _MEMORIES)).otherwise(host)
    found = (
        operations.select(
            kind=_words(operations, "kind", _KINDS),
            direction=_words(operations, "direction", _DIRECTIONS),
            source_memory=_words(operations, "source_memory", _MEMORIES),
            destination_memory=_words(operations, "destination_memory", _MEMORIES),
            device=_numbers(operations, "device", 0).clip(0),
            peer=_numbers(operations, "peer_device", -1),
            sizes=_numbers(operations, "bytes", -1),
            copies=_numbers(operations, "copy_count", 1).clip(1),
        )
        .with_row_index("rows")
        .with_columns(direction=pl.when(kind="set").then(pl.lit("d2d", _DIRECTIONS)).otherwise("direction"))
        .filter(pl.col("kind").is_not_null(), pl.col("direction").is_not_null(), pl.col("sizes") >= 0)
        .with_columns(
            memory=pl.when(pl.col("direction").is_in(["h2d", "d2h"]))
            .then(memory)
            .otherwise(pl.lit("device", _MEMORIES))
        )
        .group_by("kind", "direction", "memory", "device", "peer", maintain_order=True)
        .agg("rows", pl.col("sizes", "copies").cast(pl.Float64))
    )
    measures = zip(*(found[name] for name in ("rows", "sizes", "copies")), strict=True)
    paths = found.drop("rows", "sizes", "copies").rows()
    return [Batch(*path, *(one.to_numpy() for one in own)) for path, own in zip(paths, measures, strict=True)]


def _words(frame: pl.DataFrame, name: str, of: pl.Enum) -> pl.Expr:
    return pl.col(name).cast(of, strict=False) if name in frame.columns else pl.lit(None, of)


def _numbers(frame: pl.DataFrame, name: str, otherwise: int) -> pl.Expr:
    there = name in frame.columns
    return (
        pl.col(name).cast(pl.Int64, strict=False).fill_null(otherwise)
        if there
        else pl.lit(otherwise, pl.Int64)
    )


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
