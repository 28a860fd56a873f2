"""What a cost model is: a name, and seconds for every operation of a table on a node."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from busfare.node import Node
from busfare.node.arrays import FloatArray

__all__ = ["CostModel", "Seconds"]

#: float64 seconds, one an operation; NaN where the model does not apply.
Seconds = FloatArray


class CostModel(Protocol):
    """Anything that prices operations. Third parties register theirs under the entry-point group
    `busfare.cost_models`.

    An entry point names a callable `(latency_from: Node | None, recorded_on: Node | None) -> CostModel`.
    """

    @property
    def name(self) -> str:
        """The word that picks the model."""
        ...

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of each operation on `node`: shape (rows,), float64, NaN where the model does not apply."""
        ...
