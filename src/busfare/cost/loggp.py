"""`loggp`: the parameters that somebody measured on the node itself [W14 §V], piecewise in the size."""

from __future__ import annotations

import polars as pl

from busfare.cost.batch import Batch, batches, priced
from busfare.cost.latency import of_node
from busfare.cost.model import Seconds
from busfare.node import Node

__all__ = ["Loggp"]


class Loggp:
    """T = (L+o) + k·G + g·(n−1) for a row of n copies and k bytes; NaN for a path that was not measured."""

    name = "loggp"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy of a direction and memory kind that `node` has a curve of."""
        other = of_node(self._latency_from) if self._latency_from is not None else None

        def price(batch: Batch) -> Seconds | None:
            peer = batch.peer if batch.peer >= 0 else None
            curve = node.curve(batch.direction, batch.memory, batch.device, peer)
            if batch.kind != "copy" or curve is None:
                return None
            own = curve.latency_overhead_s[0]
            first = own if other is None else other.of(batch)
            further = float(curve.issue_interval(1)) if curve.issue_interval_s else first
            return first - own + curve.seconds(batch.sizes) + (batch.copies - 1) * further

        return priced(operations.height, batches(operations), price)
