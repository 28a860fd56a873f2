"""A pageable copy: the driver carries it through pinned buffers of its own, by one core's `memcpy`.

Seen alike in published size sweeps of Xeon, POWER8 and POWER9 hosts: up to 1 MiB each chunk is first copied and then sent,
one after the other; beyond it the two work at once and the slower one counts. Sources that outgrow the processor's cache are
copied at memory speed.
"""

from __future__ import annotations

import numpy as np

from busfare.nodes import Cpu, FloatArray, Node

__all__ = [
    "COPY_BYTES_PER_S",
    "HANDED_OVER_SECONDS_PER_BYTE",
    "SERIAL_BYTES",
    "cache_bytes",
    "copy_ratio",
    "copy_seconds_per_byte",
    "copying_seconds_per_byte",
    "measured_copy",
    "staged_seconds",
]

#: From here on, staging and sending overlap. The knee of [A19 §VII-A], at 1 MiB in every published H2D sweep.
SERIAL_BYTES = float(1 << 20)
#: One core's `memcpy` of cached data, of a host that says nothing (forums.developer.nvidia.com/t/56270, derived); the same
#: beyond the cache (the same sweep, 64 MiB and above), and where that sweep leaves the cache.
CACHED_COPY_BYTES_PER_S, COPY_BYTES_PER_S, CACHE_BYTES = 15e9, 8.3e9, float(32 << 20)
#: A small copy is staged nowhere: the host writes its bytes into the command. At most 4 GB/s: on an H100 copies of 32 KiB
#: start 8.6 µs later than those of 4 KiB.
HANDED_OVER_SECONDS_PER_BYTE = 0.25e-9


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


def copy_ratio(sizes: FloatArray, old: Node, new: Node) -> FloatArray:
    """How much longer the new node's `memcpy` takes over buffers of `sizes` bytes; 1 unless it was measured on both.

    A rate that one file has, beside the default that stands in for the other's, would tell of the default.
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
    found: FloatArray = np.where(copy_bound >= link_s_per_byte, copy_bound, link_bound)
    return np.maximum(np.where(np.isfinite(found), found, 0.0), 0.0)
