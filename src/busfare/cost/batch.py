"""Operations as arrays, sorted into batches of one path each, so that a model is one formula over a vector of
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.cost.model import Seconds
from busfare.node.arrays import FloatArray

__all__ = ["Batch", "batches", "priced"]

#: Kinds that move data over a path.
_MOVES = ("copy", "migration")
_HOST_KINDS = ("pageable", "pinned", "managed", "mapped")
#: The words of the columns, as the small numbers that group fast.
_WORDS = pl.Enum(
    [*_MOVES, "set", "h2d", "d2h", "d2d", "p2p", *_HOST_KINDS, "device"],
)


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
    table = _columns(operations)
    keys = ["kind", "direction", "memory", "device", "peer"]
    for key, part in table.group_by(keys, maintain_order=True):
        kind, direction, memory, device, peer = key
        yield Batch(
            str(kind),
            str(direction),
            str(memory),
            int(str(device)),
            int(str(peer)),
            part["row"].to_numpy(),
            part["bytes"].cast(pl.Float64).to_numpy(),
            part["copies"].cast(pl.Float64).to_numpy(),
        )


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


def _column(frame: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Expr:
    return (
        pl.col(name).cast(kind, strict=False)
        if name in frame.columns
        else pl.lit(None, dtype=kind).alias(name)
    )


def _word(text: str) -> pl.Expr:
    return pl.lit(text, dtype=_WORDS)


def _columns(operations: pl.DataFrame) -> pl.DataFrame:
    text = ("kind", "direction", "source_memory", "destination_memory")
    numbers = ("bytes", "device", "peer_device", "copy_count")
    table = operations.select(
        *(_column(operations, name, _WORDS) for name in text),
        *(_column(operations, name, pl.Int64()) for name in numbers),
    ).with_row_index("row")
    direction = pl.when(pl.col("kind") == "set").then(_word("d2d")).otherwise(pl.col("direction"))
    host_side = (
        pl.when(direction == "h2d").then("source_memory").when(direction == "d2h").then("destination_memory")
    )
    memory = (
        pl.when(~direction.is_in(["h2d", "d2h"]))
        .then(_word("device"))
        .when(host_side.is_in(_HOST_KINDS))
        .then(host_side)
        .otherwise(_word("pinned"))
    )
    return table.select(
        "row",
        "kind",
        "bytes",
        direction=direction,
        memory=memory,
        device=pl.col("device").fill_null(0).clip(0),
        peer=pl.col("peer_device").fill_null(-1),
        copies=pl.col("copy_count").fill_null(1).clip(1),
    ).filter(
        pl.col("kind").is_in([*_MOVES, "set"]),
        pl.col("direction").is_not_null(),
        pl.col("bytes").is_not_null() & (pl.col("bytes") >= 0),
    )
