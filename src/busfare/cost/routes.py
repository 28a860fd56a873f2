"""The path of a batch through a node, which way its data flows, and how long it keeps the path busy."""

from __future__ import annotations

from busfare.cost.batch import Batch
from busfare.errors import InputError
from busfare.node import Flow, Node, Path
from busfare.node.arrays import FloatArray

__all__ = ["flow_of", "moving_seconds", "path_of", "stays_on_device"]


def path_of(batch: Batch, node: Node) -> Path | None:
    """The path of a host or peer copy; None where the copy stays inside one memory or the node has no such
    path.
    """
    try:
        if batch.direction in ("h2d", "d2h"):
            return node.host_path(batch.device)
        if batch.direction == "p2p" and batch.peer >= 0:
            path = node.peer_path(batch.device, batch.peer)
            return path if path.links else None
    except InputError:
        return None
    return None


def flow_of(batch: Batch) -> Flow:
    """A host-to-device copy reads over the link; every other one writes."""
    return "read" if batch.direction == "h2d" else "write"


def stays_on_device(batch: Batch, node: Node) -> bool:
    """Whether the bytes never leave the GPU's memory: copies in place, sets, and host copies where memory is
    one.
    """
    return batch.direction == "d2d" or (
        batch.direction in ("h2d", "d2h") and node.gpu(batch.device).unified_memory
    )


def moving_seconds(batch: Batch, node: Node) -> FloatArray | None:
    """Seconds that the path, or the device's memory, is busy with each row; None where the node has neither
    figure.

    Device memory is read and written by a copy, and only written by a set. Staging and L+o are not in it.
    """
    if stays_on_device(batch, node):
        gpu = node.gpu(batch.device)
        if gpu.copy_bandwidth_bytes_per_s is not None and batch.kind != "set":
            return batch.sizes / gpu.copy_bandwidth_bytes_per_s
        rate = gpu.memory_bandwidth_bytes_per_s
        return None if rate is None else (1 if batch.kind == "set" else 2) * batch.sizes / rate
    path = path_of(batch, node)
    return None if path is None else path.seconds(batch.sizes, flow_of(batch))
