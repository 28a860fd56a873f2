"""Copies by what is known of a node: a formula a model, each over the vector of sizes of a batch.

`datasheet`: what the wires must carry, from published figures alone [A19 eq 2, 9, 10] with corrected packet costs
(`busfare.nodes.link`), a path as fast as its slowest part, host memory as a limit of its own, staging as drivers do it, and
device memory that is read *and* written. `loggp`: what somebody measured on the node itself [W14 §V], piecewise in the size.
To stand beside them: `ahead`, the formulas of A19 exactly as published, and its baselines `peak` and `envelope`.

L+o, the latency and overhead of a copy of no length, is measured on the node, or taken from the old node, because it changes
far less from node to node than the bandwidth does [A19 §IV-C].

A pageable copy is carried by the driver through pinned buffers of its own, by one core's `memcpy`. Seen alike in published
size sweeps of Xeon, POWER8 and POWER9 hosts: up to 1 MiB each chunk is first copied and then sent, one after the other;
beyond it the two work at once and the slower one counts. Sources that outgrow the processor's cache are copied at memory
speed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from busfare.cost.batches import Batch, Seconds, batches, priced, recorded_seconds
from busfare.nodes import Cpu, FloatArray, Link, Node, NvlinkLink, PcieLink
from busfare.nodes.transfers import DEFAULT_LATENCY_S

#: Up to here a copy's time is its latency on every machine known; data-sheet bandwidths add under 0.1 µs.
SHORT_BYTES = 1024
#: What stands in for a memory kind that has no figure of its own; `pinned` for the others.
_STAND_IN = {"pinned": "pageable", "device": "device"}
#: From here on, staging and sending overlap. The knee of [A19 §VII-A], at 1 MiB in every published H2D sweep.
SERIAL_BYTES = float(1 << 20)
#: One core's `memcpy` of cached data, of a host that says nothing (forums.developer.nvidia.com/t/56270, derived); the same
#: beyond the cache (the same sweep, 64 MiB and above), and where that sweep leaves the cache.
CACHED_COPY_BYTES_PER_S, COPY_BYTES_PER_S, CACHE_BYTES = 15e9, 8.3e9, float(32 << 20)
#: A small copy is staged nowhere: the host writes its bytes into the command. At most 4 GB/s: on an H100 copies of 32 KiB
#: start 8.6 µs later than those of 4 KiB.
HANDED_OVER_SECONDS_PER_BYTE = 0.25e-9
#: Overhead bytes of a packet with 64-bit addresses; 8 with 32-bit ones [A19 §IV-A].
PACKET_OVERHEAD_BYTES = 12
#: 'Typical values for MPS are 128B or 256B' [A19 §IV-A]; the smaller, which is the one of its hosts' days.
MPS_BYTES = 128
RCB_BYTES = 128
MRRS_BYTES = 512
NVLINK_PAYLOAD_BYTES = 256
FLIT_BYTES = 16


def is_staged(batch: Batch, node: Node) -> bool:
    """Whether the driver stages the bytes in pinned buffers: pageable memory that the GPU does not read in place."""
    on_host = batch.memory == "pageable" and not batch.stays_on_device(node)
    return on_host and not node.host_path(batch.device).is_c2c


def moving_seconds(batch: Batch, node: Node) -> FloatArray | None:
    """Seconds that the path, or the device's memory, is busy with each row; None where the node has neither
    figure.

    Device memory is read and written by a copy, and only written by a set. Staging and L+o are not in it. What pageable
    memory that is read in place was measured to reach is.
    """
    if batch.stays_on_device(node):
        gpu = node.gpu(batch.device)
        if gpu.copy_bandwidth_bytes_per_s is not None and batch.kind != "set":
            return batch.sizes / gpu.copy_bandwidth_bytes_per_s
        rate = gpu.memory_bandwidth_bytes_per_s
        return None if rate is None else (1 if batch.kind == "set" else 2) * batch.sizes / rate
    path = batch.path(node)
    if path is None:
        return None
    seconds = path.seconds(batch.sizes, batch.flow)
    rate = measured_copy(node) if batch.memory == "pageable" and path.is_c2c else None
    return np.maximum(seconds, batch.sizes / rate) if rate else seconds


class Latency(NamedTuple):
    """L+o in seconds by (direction, memory kind). `of_another`: of a node that was named for it."""

    seconds: dict[tuple[str, str], float]
    of_another: bool = False

    def measured(self, direction: str, memory: str) -> float | None:
        """L+o of a path, else of the kind that stands in for its memory; None where neither was measured."""
        stand_in = self.seconds.get((direction, _STAND_IN.get(memory, "pinned")))
        return self.seconds.get((direction, memory), stand_in)

    def of(self, batch: Batch) -> float:
        """L+o of one copy of the batch, else the default."""
        direction, memory = _path(batch)
        seconds = self.measured(direction, memory)
        return DEFAULT_LATENCY_S.get(direction, DEFAULT_LATENCY_S["h2d"]) if seconds is None else seconds


def _path(batch: Batch) -> tuple[str, str]:
    return "set" if batch.kind == "set" else batch.direction, batch.memory


def of_node(node: Node, of_another: bool = False) -> Latency:
    """What was measured on `node`; empty for a node of data-sheet values only."""
    by_path: dict[tuple[str, str], float] = {}
    for curve in node.curves:
        if not curve.only_long and not curve.faults:
            by_path.setdefault((curve.direction, curve.memory), curve.latency_overhead_s[0])
    return Latency(by_path, of_another)


def of_trace(operations: pl.DataFrame, path_batches: list[Batch]) -> Latency:
    """The median of each path's recorded copies of up to 1 KiB: A19's one-byte copy, read off the trace itself."""
    recorded = recorded_seconds(operations)
    short: dict[tuple[str, str], list[FloatArray]] = {}
    for batch in path_batches:
        seconds = recorded[batch.rows]
        wanted = (batch.sizes <= SHORT_BYTES) & (batch.copies == 1) & (seconds > 0)
        if wanted.any():
            short.setdefault(_path(batch), []).append(seconds[wanted])
    return Latency({key: float(np.median(np.concatenate(parts))) for key, parts in short.items()})


def _cpu(node: Node) -> Cpu | None:
    return next((c for c in node.components if isinstance(c, Cpu)), None)


def cache_bytes(node: Node) -> float:
    """The size of the processor's cache, as its file has it or as typical."""
    cpu = _cpu(node)
    return float((cpu and cpu.cache_bytes) or CACHE_BYTES)


def copy_seconds_per_byte(sizes: FloatArray, node: Node) -> FloatArray:
    """Seconds a byte of the node's `memcpy` for buffers of `sizes` bytes, in its cache or beyond it."""
    cpu = _cpu(node)
    slow = measured_copy(node) or COPY_BYTES_PER_S
    fast = (cpu and cpu.cached_copy_bandwidth_bytes_per_s) or CACHED_COPY_BYTES_PER_S
    return 1 / np.where(sizes <= cache_bytes(node), max(fast, slow), slow)


def measured_copy(node: Node) -> float | None:
    """The node's own rate of large pageable copies (bytes/s), one core's `memcpy` on most; None where its file has none."""
    cpu = _cpu(node)
    return cpu.copy_bandwidth_bytes_per_s if cpu else None


def in_place_share(node: Node) -> float | None:
    """The part of the time of a pageable copy that it takes from pinned memory, where the GPU reads the host's memory in
    place: as both were measured, else all of it. None where the driver stages pageable copies.
    """
    if not node.host_path(0).is_c2c:
        return None
    pinned, pageable = (node.curve("h2d", memory) for memory in ("pinned", "pageable"))
    if pinned is not None and pageable is not None:
        return min(1.0, pinned.long_gap_per_byte_s / pageable.long_gap_per_byte_s)
    cpu, rate = _cpu(node), measured_copy(node)
    from_pinned = cpu.pinned_copy_bandwidth_bytes_per_s if cpu else None
    return min(1.0, rate / from_pinned) if rate and from_pinned else 1.0


def copy_ratio(sizes: FloatArray, old: Node, new: Node) -> FloatArray:
    """How much longer the new node's `memcpy` takes over buffers of `sizes` bytes; 1 unless it was measured on both. A rate
    that one file has, beside the default that stands in for the other's, would tell of the default.
    """
    if measured_copy(old) is None or measured_copy(new) is None:
        return np.ones_like(sizes)
    return copy_seconds_per_byte(sizes, new) / copy_seconds_per_byte(sizes, old)


def staged_seconds(sizes: FloatArray, link_s_per_byte: FloatArray, copy_s_per_byte: FloatArray) -> FloatArray:
    """Seconds of pageable copies, without L+o, from the seconds a byte of the link and of the `memcpy`."""
    serial, slower = np.minimum(sizes, SERIAL_BYTES), np.maximum(link_s_per_byte, copy_s_per_byte)
    return serial * (link_s_per_byte + copy_s_per_byte) + (sizes - serial) * slower


def copying_seconds_per_byte(
    sizes: FloatArray, seconds: FloatArray, link_s_per_byte: FloatArray
) -> FloatArray:
    """The seconds a byte of `memcpy` with which `staged_seconds` gives `seconds`: its inverse; zero where none does."""
    serial = np.minimum(sizes, SERIAL_BYTES)
    with np.errstate(divide="ignore", invalid="ignore"):
        copy_bound = (seconds - serial * link_s_per_byte) / sizes
        link_bound = (seconds - sizes * link_s_per_byte) / serial
    copying: FloatArray = np.where(copy_bound >= link_s_per_byte, copy_bound, link_bound)
    return np.maximum(np.where(np.isfinite(copying), copying, 0.0), 0.0)


class ByFormula:
    """The model whose formula is called `name`."""

    def __init__(self, name: str, latency_from: Node | None = None, recorded_on: Node | None = None) -> None:
        self.name = name
        self._latency_from, self._recorded = latency_from, recorded_on is not None

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of every operation that the formula has a time of: with L+o of the node named for it, else of the trace
        where it is a recorded one, else of `node` itself.
        """
        path_batches, formula = batches(operations), FORMULAS[self.name]
        if self._latency_from is not None:
            latency = of_node(self._latency_from, of_another=True)
        else:
            latency = of_trace(operations, path_batches) if self._recorded else of_node(node)
        return priced(operations.height, path_batches, lambda batch: formula(batch, node, latency))


def _datasheet(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """Every copy, migration and set that has a path."""
    moving = moving_seconds(batch, node)
    if moving is None:
        return None
    if is_staged(batch, node):
        link_s_per_byte = np.divide(moving, batch.sizes, out=np.zeros_like(moving), where=batch.sizes > 0)
        moving = staged_seconds(batch.sizes, link_s_per_byte, copy_seconds_per_byte(batch.sizes, node))
    return batch.copies * latency.of(batch) + moving


def _loggp(batch: Batch, node: Node, latency: Latency) -> Seconds | None:
    """T = (L+o) + k·G + g·(n-1) for a row of n copies and k bytes, of paths that were measured."""
    curve = node.curve(batch.direction, batch.memory, batch.device, batch.to_peer)
    if batch.kind != "copy" or curve is None:
        return None
    measured_start = curve.latency_overhead_s[0]
    first = latency.of(batch) if latency.of_another else measured_start
    further = float(curve.issue_interval(1)) if curve.issue_interval_s else first
    return first - measured_start + curve.seconds(batch.sizes) + (batch.copies - 1) * further


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
    path = batch.path(node)
    if path is None:
        return None
    link = min(path.links, key=lambda hop: hop.line_rate)
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
        path = batch.path(node)
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
