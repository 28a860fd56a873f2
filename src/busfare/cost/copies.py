"""Copies by what is known of a node, a formula a model, each over one batch.

`datasheet`: what the wires must carry, from published figures alone [A19 eq 2, 9, 10] with corrected packet costs
(`busfare.nodes.link`), a path as fast as its slowest part, host memory as a limit of its own, staging as drivers do it, and
device memory that is read *and* written. `loggp`: what somebody measured on the node itself [W14 §V], piecewise in the size.
To stand beside them: `ahead`, the formulas of A19 exactly as published, and its baselines `peak` and `envelope`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, Seconds, batches, moving_seconds, path_of, priced, stays_on_device
from busfare.cost.latency import Latency, latency_for
from busfare.cost.pageable import copy_seconds_per_byte, staged_seconds
from busfare.nodes import FloatArray, Link, Node, NvlinkLink, PcieLink

__all__ = ["FORMULAS", "ByFormula", "effective_bytes"]

#: Overhead bytes of a packet with 64-bit addresses; 8 with 32-bit ones [A19 §IV-A].
PACKET_OVERHEAD_BYTES = 12
#: 'Typical values for MPS are 128B or 256B' [A19 §IV-A]; the smaller, which is the one of its hosts' days.
MPS_BYTES = 128
RCB_BYTES = 128
MRRS_BYTES = 512
NVLINK_PAYLOAD_BYTES = 256
FLIT_BYTES = 16


class ByFormula:
    """The model whose formula is called `name`."""

    def __init__(self, name: str, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self.name = name
        self._latency_from, self._recorded = latency_from, recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every operation that the formula has a time of."""
        found, formula = batches(operations), FORMULAS[self.name]
        latency = latency_for(operations, found, node, self._latency_from, self._recorded)
        return priced(operations.height, found, lambda batch: formula(batch, node, latency))


def _datasheet(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """Every copy, migration and set that has a path."""
    moving = moving_seconds(batch, node)
    if moving is None:
        return None
    if batch.memory == "pageable" and not stays_on_device(batch, node):
        link_s_per_byte = np.divide(moving, batch.sizes, out=np.zeros_like(moving), where=batch.sizes > 0)
        moving = staged_seconds(batch.sizes, link_s_per_byte, copy_seconds_per_byte(batch.sizes, node))
    return batch.copies * latency.of(batch) + moving


def _loggp(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """T = (L+o) + k·G + g·(n-1) for a row of n copies and k bytes, of paths that were measured."""
    curve = node.curve(batch.direction, batch.memory, batch.device, batch.to_peer)
    if batch.kind != "copy" or curve is None:
        return None
    own = curve.latency_overhead_s[0]
    first = latency.of(batch) if latency.of_another else own
    further = float(curve.issue_interval(1)) if curve.issue_interval_s else first
    return first - own + curve.seconds(batch.sizes) + (batch.copies - 1) * further


def effective_bytes(sizes: FloatArray, link: Link, direction: str) -> FloatArray:
    """n̂, the bytes on the wire for copies of `sizes` bytes [A19 eq 4–7]; other links carry no overhead."""
    reads = direction == "h2d"
    if isinstance(link, PcieLink):
        if reads:
            first = PACKET_OVERHEAD_BYTES + MRRS_BYTES
            return first + np.ceil(sizes / RCB_BYTES) * PACKET_OVERHEAD_BYTES + sizes
        return np.ceil(sizes / MPS_BYTES) * PACKET_OVERHEAD_BYTES + sizes
    if isinstance(link, NvlinkLink):
        first = FLIT_BYTES if reads else 0
        return first + np.ceil(sizes / NVLINK_PAYLOAD_BYTES) * FLIT_BYTES + sizes
    return sizes


def _ahead(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """L+o and the effective bandwidth; pageable copies with two more passes over host memory at its peak [A19 eq 9]."""
    if batch.kind != "copy" or batch.direction == "d2d":
        return _peak(batch, node, latency)
    path = path_of(batch, node)
    if path is None:
        return None
    link = min(path.links, key=lambda one: one.line_rate)
    fixed = batch.copies * latency.of(batch)
    seconds = fixed + effective_bytes(batch.sizes, link, batch.direction) / link.line_rate
    if batch.memory != "pageable":
        return seconds
    rate = path.memory and path.memory.bandwidth_bytes_per_s
    return seconds + 2 * batch.sizes / rate if rate else None


def _peak(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """L+o, and the theoretical peak of the narrowest link in place of an effective bandwidth [A19 §VI-D]."""
    moving = _envelope(batch, node, latency)
    return None if moving is None else batch.copies * latency.of(batch) + moving


def _envelope(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """Bytes over the theoretical peak and nothing else: the back of an envelope [A19 §VI-D]."""
    if batch.kind != "copy":
        return None
    if batch.direction == "d2d":
        rate = node.gpu(batch.device).memory_bandwidth_bytes_per_s
    else:
        path = path_of(batch, node)
        rate = None if path is None else path.peak()
    return None if rate is None else batch.sizes / rate


#: By the word that picks the model.
FORMULAS: dict[str, Callable[[Batch, Node, Latency], Seconds | None]] = {
    "datasheet": _datasheet,
    "loggp": _loggp,
    "ahead": _ahead,
    "peak": _peak,
    "envelope": _envelope,
}
