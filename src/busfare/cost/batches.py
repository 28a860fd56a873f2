"""Operations as arrays, sorted into batches of one path each, and what of a node each batch uses."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.nodes import FloatArray, Flow, Node, Path

#: float64 seconds, one an operation; NaN where the model does not apply.
Seconds = FloatArray

_MEMORIES = pl.Enum(["pageable", "pinned", "managed", "mapped", "device"])
#: What batches need of a table of operations.
_COLUMNS = {
    "kind": pl.Enum(["copy", "migration", "set"]),
    "direction": pl.Enum(["h2d", "d2h", "d2d", "p2p"]),
    "source_memory": _MEMORIES,
    "destination_memory": _MEMORIES,
    **dict.fromkeys(("device", "peer_device", "bytes", "copy_count"), pl.Int64()),
}


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

    @property
    def flow(self) -> Flow:
        """A host-to-device copy reads over the link; every other one writes."""
        return "read" if self.direction == "h2d" else "write"

    def path(self, node: Node) -> Path | None:
        """The path of a host or peer copy; None where the copy stays inside one memory or the node has no such path."""
        of_host = self.direction in ("h2d", "d2h")
        if not of_host and (self.direction != "p2p" or self.peer < 0):
            return None
        try:
            path = node.host_path(self.device) if of_host else node.peer_path(self.device, self.peer)
        except InputError:
            return None
        return path if path.links else None

    def stays_on_device(self, node: Node) -> bool:
        """Whether the bytes never leave the GPU's memory: copies in place, sets, and host copies where memory is one."""
        of_host = self.direction in ("h2d", "d2h")
        return self.direction == "d2d" or (of_host and node.gpu(self.device).unified_memory)


def batches(operations: pl.DataFrame) -> list[Batch]:
    """The batches of all copies, migrations and sets of known size, in the order of their first rows."""
    sides = ("h2d", "source_memory"), ("d2h", "destination_memory")
    host = pl.coalesce(pl.when(pl.col("direction") == direction).then(memory) for direction, memory in sides)
    unsaid = host.is_null() | (host == "device")
    memory = pl.when(unsaid).then(pl.lit("pinned", _MEMORIES)).otherwise(host)
    grouped = (
        operations.select(
            pl.col(name).cast(of, strict=False)
            if name in operations.columns
            else pl.lit(None, of).alias(name)
            for name, of in _COLUMNS.items()
        )
        .with_row_index("rows")
        .with_columns(
            pl.col("device").fill_null(0).clip(0),
            direction=pl.when(kind="set").then(pl.lit("d2d", _COLUMNS["direction"])).otherwise("direction"),
            peer=pl.col("peer_device").fill_null(-1),
            sizes=pl.col("bytes").cast(pl.Float64),
            copies=pl.col("copy_count").fill_null(1).clip(1).cast(pl.Float64),
        )
        .filter(pl.col("kind").is_not_null(), pl.col("direction").is_not_null(), pl.col("sizes") >= 0)
        .with_columns(
            memory=pl.when(pl.col("direction").is_in(["h2d", "d2h"]))
            .then(memory)
            .otherwise(pl.lit("device", _MEMORIES))
        )
        .group_by("kind", "direction", "memory", "device", "peer", maintain_order=True)
        .agg("rows", "sizes", "copies")
    )
    measures = zip(*(grouped[name] for name in ("rows", "sizes", "copies")), strict=True)
    paths = grouped.drop("rows", "sizes", "copies").rows()
    return [Batch(*path, *map(pl.Series.to_numpy, row)) for path, row in zip(paths, measures, strict=True)]


def priced(height: int, path_batches: Iterable[Batch], price: Callable[[Batch], Seconds | None]) -> Seconds:
    """`price` of every batch, in the order of the table's `height` rows; NaN where it gives None or no batch holds a row."""
    seconds = np.full(height, np.nan)
    for batch in path_batches:
        batch_seconds = price(batch)
        if batch_seconds is not None:
            seconds[batch.rows] = batch_seconds
    return seconds


def recorded_seconds(operations: pl.DataFrame) -> FloatArray:
    """Seconds that each row took; NaN where the trace lacks an end or has it before the start."""
    taken = (operations["end_ns"] - operations["start_ns"]).cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.where(taken >= 0, taken * 1e-9, np.nan)
