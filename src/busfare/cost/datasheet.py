"""`datasheet`: what the wires must carry, from published figures alone; the L+o comes from another node or
the trace.

[A19 eq 2, 9, 10] with corrected packet costs (`busfare.node.link`), a path as fast as its slowest part, host
memory as a limit of its own, staging as drivers do it, and device memory that is read *and* written.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, batches, moving_seconds, priced, stays_on_device
from busfare.cost.latency import Latency, latency_for
from busfare.cost.model import Seconds
from busfare.cost.pageable import copy_seconds_per_byte, staged_seconds
from busfare.node import Node

__all__ = ["Datasheet"]


class Datasheet:
    """Our model of a machine that nobody has measured."""

    name = "datasheet"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from
        self._recorded = recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy, migration and set that has a path on `node`."""
        found = batches(operations)
        latency = latency_for(operations, found, node, self._latency_from, self._recorded)
        return priced(operations.height, found, lambda batch: _seconds(batch, node, latency))


def _seconds(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    moving = moving_seconds(batch, node)
    if moving is None:
        return None
    if batch.memory == "pageable" and not stays_on_device(batch, node):
        link_s_per_byte = np.divide(moving, batch.sizes, out=np.zeros_like(moving), where=batch.sizes > 0)
        moving = staged_seconds(batch.sizes, link_s_per_byte, copy_seconds_per_byte(batch.sizes, node))
    return batch.copies * latency.of(batch) + moving
