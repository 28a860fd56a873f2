"""`loggp`: the parameters that somebody measured on the node itself [W14 §V], piecewise in the size."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, priced
from busfare.cost.latency import of_node
from busfare.cost.model import Seconds
from busfare.node import Measured, Node
from busfare.node.arrays import FloatArray

__all__ = ["Loggp", "piecewise_seconds"]


class Loggp:
    """T = (L+o) + k·G + g·(n−1) for a row of n copies and k bytes; NaN for a path that was not measured."""

    name = "loggp"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from
        self._recorded = recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy of a direction and memory kind that `node` has measurements of."""
        other = of_node(self._latency_from) if self._latency_from is not None else None

        def price(batch: Batch) -> Seconds | None:
            measured = node.measurement(batch.direction, batch.memory, batch.device)
            if batch.kind != "copy" or measured is None or not measured.pieces:
                return None
            own = measured.latency_overhead_s or 0.0
            first = own if other is None else other.of(batch)
            further = measured.gap_s if measured.gap_s is not None else first
            return first - own + piecewise_seconds(measured, batch.sizes) + (batch.copies - 1) * further

        return priced(operations, price)


def piecewise_seconds(measured: Measured, sizes: FloatArray) -> FloatArray:
    """(L+o) + k·G with the parameters of the piece that holds each size."""
    ends = np.array([piece.up_to_bytes or np.inf for piece in measured.pieces], dtype=np.float64)
    fixed = np.array([piece.latency_overhead_s or 0.0 for piece in measured.pieces], dtype=np.float64)
    slope = np.array([piece.gap_per_byte_s for piece in measured.pieces], dtype=np.float64)
    which = np.searchsorted(ends, sizes, side="left")
    return fixed[which] + slope[which] * sizes
