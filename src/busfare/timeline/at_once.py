"""Copies of several GPUs that begin together: how long each takes where they share the node's links and memories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from busfare.cost import model
from busfare.cost.price import one_copy
from busfare.nodes import Node
from busfare.nodes.arrays import FloatArray
from busfare.timeline import _core
from busfare.timeline.build.links import shared_links
from busfare.timeline.model import at_rest
from busfare.trace.tables import OPERATIONS

__all__ = ["copy_seconds_at_once"]


def copy_seconds_at_once(
    node: Node, copies: Sequence[tuple[str, int]], bytes_: int | Sequence[int]
) -> FloatArray:
    """Seconds of each of `copies`, a direction (h2d or d2h) and a GPU, of `bytes_` pinned bytes (each, or one by one), all
    begun at once.

    Alone each takes what was measured on the node, else what its data sheet says; together they share links as in a replay,
    max-min fair. Shape (copies,).
    """
    sizes = [bytes_] * len(copies) if isinstance(bytes_, int) else bytes_
    rows = [
        one_copy(direction, "pinned", [size]).with_columns(device=pl.lit(gpu))
        for (direction, gpu), size in zip(copies, sizes, strict=True)
    ]
    operations = pl.concat(rows, how="vertical_relaxed")
    operations = operations.cast({name: OPERATIONS[name] for name in operations.columns})
    measured, from_sheet = (model(name).seconds(operations, node) for name in ("loggp", "datasheet"))
    alone = np.rint(np.where(np.isfinite(measured), measured, from_sheet) * 1e9).astype(np.int64)
    operations = operations.with_columns(start_ns=pl.lit(0, pl.Int64), end_ns=pl.Series(alone))
    count = len(copies)
    columns = at_rest(0, count, count, operation_duration=alone, operation_stream=range(count))
    if (links := shared_links(operations, node)) is not None:
        columns |= links.columns(operations, columns)
    ends: FloatArray = _core.play(columns)["operation_end"] * 1e-9
    return ends
