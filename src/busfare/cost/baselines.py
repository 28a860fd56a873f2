"""The models to stand beside ours: `ahead`, the formulas of A19 exactly as published, and the baselines that A19 prints
beside them: `peak` and `envelope`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.cost.batch import Batch, batches, path_of, priced
from busfare.cost.latency import Latency, latency_for
from busfare.cost.model import Seconds
from busfare.node import Link, Memory, Node, NvlinkLink, PcieLink
from busfare.node.arrays import FloatArray

__all__ = ["Ahead", "Envelope", "Peak", "effective_bytes"]

#: Overhead bytes of a packet with 64-bit addresses; 8 with 32-bit ones [A19 §IV-A].
PACKET_OVERHEAD_BYTES = 12
#: 'Typical values for MPS are 128B or 256B' [A19 §IV-A]; the smaller, which is the one of its hosts' days.
MPS_BYTES = 128
RCB_BYTES = 128
MRRS_BYTES = 512
NVLINK_PAYLOAD_BYTES = 256
FLIT_BYTES = 16


class Ahead:
    """A19's estimator: effective bandwidth from the data sheet, and the old node's L+o."""

    name = "ahead"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from
        self._recorded = recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy whose path is PCIe or NVLink (other links as plain bandwidth), and of copies
        in place.
        """
        found = batches(operations)
        latency = latency_for(operations, found, node, self._latency_from, self._recorded)
        return priced(operations.height, found, lambda batch: _seconds(batch, node, latency))


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


def _seconds(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    if batch.kind != "copy":
        return None
    fixed = batch.copies * latency.of(batch)
    if batch.direction == "d2d":
        rate = node.gpu(batch.device).memory_bandwidth_bytes_per_s
        return None if rate is None else fixed + batch.sizes / rate
    path = path_of(batch, node)
    if path is None:
        return None
    link = min(path.links, key=lambda one: one.line_rate)
    seconds = fixed + effective_bytes(batch.sizes, link, batch.direction) / link.line_rate
    return seconds if batch.memory != "pageable" else _staged(batch, seconds, path.memory)


def _staged(batch: Batch, seconds: FloatArray, memory: Memory | None) -> Seconds | None:
    """[A19 eq 9]: two more passes over host memory at its peak; None where the peak is not known."""
    if memory is None or memory.bandwidth_bytes_per_s is None:
        return None
    return seconds + 2 * batch.sizes / memory.bandwidth_bytes_per_s


class Peak:
    """L+o, and the theoretical peak of the narrowest link in place of an effective bandwidth [A19 §VI-D]."""

    name = "peak"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self._latency_from = latency_from
        self._recorded = recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy that has a path on `node`."""
        found = batches(operations)
        latency = latency_for(operations, found, node, self._latency_from, self._recorded)

        def price(batch: Batch) -> Seconds | None:
            moving = _at_peak(batch, node)
            return None if moving is None else batch.copies * latency.of(batch) + moving

        return priced(operations.height, found, price)


class Envelope:
    """Bytes over the theoretical peak and nothing else: the back of an envelope [A19 §VI-D]."""

    name = "envelope"

    def __init__(self, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        del latency_from, recorded_on  # an envelope's back has no latency

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every copy that has a path on `node`."""
        return priced(operations.height, batches(operations), lambda batch: _at_peak(batch, node))


def _at_peak(batch: Batch, node: Node) -> FloatArray | None:
    if batch.kind != "copy":
        return None
    if batch.direction == "d2d":
        rate = node.gpu(batch.device).memory_bandwidth_bytes_per_s
    else:
        path = path_of(batch, node)
        rate = None if path is None else path.peak()
    return None if rate is None else batch.sizes / rate
