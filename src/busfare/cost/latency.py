"""L+o, the latency and overhead of a copy of no length, and where it can be had for a machine nobody has touched.

[A19 §IV-C]: take it from the old node, because it changes far less from node to node than the bandwidth does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, recorded_seconds
from busfare.nodes import FloatArray, Node

__all__ = ["DEFAULT_LATENCY_S", "Latency", "latency_for", "of_node", "of_trace"]

#: What a further copy adds when the calls before it hide everything but the copy engine's own start [W14 table I, g].
DEFAULT_LATENCY_S = {"h2d": 2.503e-6, "d2h": 2.674e-6, "d2d": 2.503e-6, "p2p": 2.674e-6, "set": 2.503e-6}
#: Up to here a copy's time is its latency on every machine known; data-sheet bandwidths add under 0.1 µs.
SHORT_BYTES = 1024
#: What stands in for a memory kind that has no figure of its own; `pinned` for the others.
_STAND_IN = {"pinned": "pageable", "device": "device"}


class Latency(NamedTuple):
    """L+o in seconds by (direction, memory kind). `of_another`: of a node that was named for it."""

    seconds: dict[tuple[str, str], float]
    of_another: bool = False

    def of(self, batch: Batch) -> float:
        """L+o of one copy of the batch, else of the kind that stands in for its, else the default."""
        direction, memory = _path(batch)
        for kind in (memory, _STAND_IN.get(memory, "pinned")):
            if (direction, kind) in self.seconds:
                return self.seconds[direction, kind]
        return DEFAULT_LATENCY_S.get(direction, DEFAULT_LATENCY_S["h2d"])


def _path(batch: Batch) -> tuple[str, str]:
    return "set" if batch.kind == "set" else batch.direction, batch.memory


def of_node(node: Node, of_another: bool = False) -> Latency:
    """What was measured on `node`; empty for a node of data-sheet values only."""
    found: dict[tuple[str, str], float] = {}
    for curve in node.curves:
        # 0 says that only long copies were measured.
        if curve.latency_overhead_s[0] and not curve.faults:
            found.setdefault((curve.direction, curve.memory), curve.latency_overhead_s[0])
    return Latency(found, of_another)


def of_trace(operations: pl.DataFrame, found: list[Batch]) -> Latency:
    """The median of each path's recorded copies of up to 1 KiB: A19's one-byte copy, read off the trace itself."""
    recorded = recorded_seconds(operations)
    short: dict[tuple[str, str], list[FloatArray]] = {}
    for batch in found:
        seconds = recorded[batch.rows]
        wanted = (batch.sizes <= SHORT_BYTES) & (batch.copies == 1) & (seconds > 0)
        if wanted.any():
            short.setdefault(_path(batch), []).append(seconds[wanted])
    return Latency({key: float(np.median(np.concatenate(parts))) for key, parts in short.items()})


def latency_for(
    operations: pl.DataFrame, found: list[Batch], node: Node, latency_from: Node | None, recorded: bool
) -> Latency:
    """The L+o to use: of the node named for it, else of the trace where it is a recorded one, else of `node` itself."""
    if latency_from is not None:
        return of_node(latency_from, of_another=True)
    return of_trace(operations, found) if recorded else of_node(node)
