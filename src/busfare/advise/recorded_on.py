"""The node with the GPU that a trace names: the best guess of where it was recorded."""

from __future__ import annotations

import re

from busfare.errors import InputError
from busfare.nodes import Gpu, Node, load_node
from busfare.nodes.gpus import Recorded, gpu_of_device_name, node_of_gpu
from busfare.trace import Trace

__all__ = ["guess_node", "one_memory", "where_recorded"]


#: GPUs inside a processor, where the trace does not say so itself: Tegra modules, Grace-Blackwell desktops, APUs.
INTEGRATED = r"\b(Orin|Xavier|Tegra|Jetson|Thor|GB10|MI300A)\b|Radeon.* Graphics$"


def one_memory(trace: Trace, node: Node | None) -> bool:
    """Whether the GPUs of `trace` and their host share one memory, so that copies between them stay within it."""
    if node is not None and any(isinstance(part, Gpu) and part.unified_memory for part in node.components):
        return True
    gpus = trace.devices.select("name", "integrated").rows()
    said = [
        bool(re.search(INTEGRATED, name or "", re.IGNORECASE)) if integrated is None else integrated
        for name, integrated in gpus
    ]
    return bool(said) and all(said)


def guess_node(trace: Trace) -> Node | None:
    """The node of the first GPU of the trace that is known by name, of several kinds the one that ran most: the
    catalogue's machine with it, else a host of which nothing is known with that GPU on the link of its data sheet.
    None where no GPU is known.
    """
    devices = trace.devices
    if devices["name"].n_unique() > 1:
        ran = trace.operations.group_by("device").len(name="ran")
        devices = devices.join(ran, on="device", how="left", maintain_order="left")
        devices = devices.sort("ran", descending=True, nulls_last=True, maintain_order=True)
    for device in devices.iter_rows(named=True):
        facts = Recorded(**{key: device[key] for key in Recorded.__struct_fields__})
        gpu = gpu_of_device_name(device["name"] or "", facts)
        if gpu is not None and gpu.has_node:
            if gpu.node:
                return load_node(gpu.node)
            return node_of_gpu(gpu, device["pcie_generation"], device["pcie_lanes"])
    return None


def where_recorded(trace: Trace, named: Node | None, option: str) -> Node:
    """The node `named`, or the one whose GPU the trace names. Raises InputError with `option` where there is none."""
    known = named or guess_node(trace)
    if known is None:
        raise InputError(
            f"{trace.path}: the trace names no GPU that busfare knows; say where it was recorded with {option} NODE"
        )
    return known
