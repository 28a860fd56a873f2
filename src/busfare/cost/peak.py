"""`peak` and `envelope`: the two baselines that A19 prints beside its own model."""

from __future__ import annotations

import polars as pl

from busfare.cost.batch import Batch, priced
from busfare.cost.latency import latency_for
from busfare.cost.model import Seconds
from busfare.cost.routes import path_of
from busfare.node import Node
from busfare.node.arrays import FloatArray

__all__ = ["Envelope", "Peak"]


class Peak:
    """L+o, and the theoretical peak of the narrowest link in place of an effective bandwidth [A19 §VI-D]."""

    name = "peak"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from
        self._recorded = recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy that has a path on `node`."""
        latency = latency_for(operations, node, self._latency_from, self._recorded)

        def price(batch: Batch) -> Seconds | None:
            moving = _at_peak(batch, node)
            return None if moving is None else batch.copies * latency.of(batch) + moving

        return priced(operations, price)


class Envelope:
    """Bytes over the theoretical peak and nothing else: the back of an envelope [A19 §VI-D]."""

    name = "envelope"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        del latency_from, recorded_on  # an envelope's back has no latency

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy that has a path on `node`."""
        return priced(operations, lambda batch: _at_peak(batch, node))


def _at_peak(batch: Batch, node: Node) -> FloatArray | None:
    if batch.kind != "copy":
        return None
    if batch.direction == "d2d":
        rate = node.gpu(batch.device).memory_bandwidth_bytes_per_s
    else:
        path = path_of(batch, node)
        rate = None if path is None else path.peak()
    return None if rate is None else batch.sizes / rate
