"""`calibrated`: each copy's own recorded time, split into overhead, link and host share, each re-priced on
the new node.

The overhead is the trace's own L+o of that path. The link share is what the data sheet of the old node says
the wire needs, or all that is left where the copy was quicker. The host share is the rest: staging, a cold
cache, a busy memory. On the new node the link share changes as the data sheets do, the host share as the
processors do, and the overhead stays, or is that of `latency_from`.

Where the path was measured on both nodes, each part changes as what was measured of it does: `between_nodes`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, priced
from busfare.cost.between_nodes import carried_seconds, measured_on_both
from busfare.cost.latency import Latency, of_node, of_trace
from busfare.cost.model import Seconds
from busfare.cost.routes import moving_seconds, stays_on_device
from busfare.cost.staging import copying_pace, measured_copy, pace_ratio, staged_seconds
from busfare.errors import InputError
from busfare.node import Memory, Node
from busfare.node.arrays import FloatArray

__all__ = ["Calibrated", "how_staged"]


class Calibrated:
    """Re-prices a trace that was recorded on a known node. Raises InputError where that node is not given."""

    name = "calibrated"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        if recorded_on is None:
            raise InputError(
                "model 'calibrated': needs the node that the trace was recorded on; name it with --from"
            )
        self._old = recorded_on
        self._latency_from = latency_from

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every recorded copy on `node`: its recorded time where `node` is the one it was recorded
        on.
        """
        recorded = _recorded_seconds(operations)
        before = of_trace(operations)
        after = of_node(self._latency_from) if self._latency_from is not None else before
        return priced(operations, lambda batch: self._price(batch, node, recorded[batch.rows], before, after))

    def _price(
        self, batch: Batch, node: Node, recorded: FloatArray, before: Latency, after: Latency
    ) -> Seconds | None:
        overhead = np.minimum(recorded, batch.copies * before.of(batch))
        rest = recorded - overhead
        if self._latency_from is None and node != self._old:
            carried = carried_seconds(batch, recorded, overhead, self._old, node)
            if carried is not None:
                return carried
        old_link, new_link = moving_seconds(batch, self._old), moving_seconds(batch, node)
        if old_link is None or new_link is None:
            return None
        link = np.minimum(old_link, rest)
        moved = link * np.divide(new_link, old_link, out=np.ones_like(old_link), where=old_link > 0)
        if batch.memory == "pageable" and not stays_on_device(batch, node):
            moved = self._staged(batch, node, rest, link, moved)
        else:
            moved = moved + (rest - link) * _memory_ratio(self._old, node)
        return overhead * (after.of(batch) / before.of(batch)) + moved

    def _staged(
        self, batch: Batch, node: Node, rest: FloatArray, link: FloatArray, new_link: FloatArray
    ) -> FloatArray:
        """The staging pace that the recorded time shows, moved to the new processor and put beside the new
        link.
        """
        sizes = np.maximum(batch.sizes, 1.0)
        pace = copying_pace(sizes, rest, link / sizes)
        pace = pace * pace_ratio(sizes, self._old, node)
        return staged_seconds(sizes, new_link / sizes, pace)


def how_staged(direction: str, old: Node, new: Node) -> str:
    """By what pageable copies of one direction, recorded on `old`, change on `new`, in words."""
    if old == new:
        return "as recorded"
    if all(measured_on_both(direction, memory, 0, None, old, new) for memory in ("pinned", "pageable")):
        return "by what was measured of them on both nodes"
    rates = [(node.name, measured_copy(node)) for node in (old, new)]
    if missing := [name for name, rate in rates if rate is None]:
        return f"staged at the recorded pace, for that of {' and '.join(missing)} was not measured"
    return "staged at the recorded pace, changed as " + " to ".join(
        f"{(rate or 0.0) / 1e9:.3g} GB/s (measured, {name})" for name, rate in rates
    )


def _memory_ratio(old: Node, new: Node) -> float:
    """How much longer the new node's host memory takes over a byte; 1 where either data sheet is silent."""
    rates = [
        next((c.bandwidth_bytes_per_s for c in node.components if isinstance(c, Memory)), None)
        for node in (old, new)
    ]
    return rates[0] / rates[1] if rates[0] is not None and rates[1] is not None else 1.0


def _recorded_seconds(operations: pl.DataFrame) -> FloatArray:
    """Seconds that each row took; NaN where the trace lacks an end or has it before the start."""
    taken = (operations["end_ns"] - operations["start_ns"]).cast(pl.Float64).fill_null(
        np.nan
    ).to_numpy() * 1e-9
    return np.where(taken >= 0, taken, np.nan)
