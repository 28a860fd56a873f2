"""The catalogue's node with the GPU that a trace names: the best guess of where it was recorded."""

from __future__ import annotations

import re

from busfare.node import Gpu, Node, load_node
from busfare.trace import Trace

__all__ = ["guess_node", "one_memory"]

#: What a profiler calls the GPU → the catalogue's node with such a GPU. First match wins.
NODE_OF_GPU: tuple[tuple[str, str], ...] = (
    (r"GB200|B200.*Grace", "gb200"),
    (r"\bB200\b", "dgx-b200"),
    (r"GH200", "gh200"),
    (r"H200", "h200-sxm"),
    (r"H100.*(PCIe|NVL)", "h100-pcie"),
    (r"H100", "h100-sxm"),
    (r"A100.*PCI", "a100-pcie"),
    (r"A100", "dgx-a100"),
    (r"L40S", "l40s"),
    (r"V100.*PCI", "v100-pcie"),
    (r"V100", "dgx-1-v100"),
    (r"P100", "dgx-1-p100"),
    (r"Tesla T4|\bT4\b", "t4"),
    (r"RTX 5090", "rtx-5090"),
    (r"RTX 4090", "rtx-4090"),
    (r"RTX 3090", "rtx-3090"),
    (r"2080 Ti", "rtx-2080-ti"),
    (r"MI300A", "mi300a"),
    (r"MI300X", "mi300x"),
    (r"MI250X", "mi250x"),
    (r"MI100", "mi100"),
)


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
    """The node of the first GPU that the trace names and the catalogue knows, or None."""
    for name in trace.devices["name"].drop_nulls():
        for pattern, node in NODE_OF_GPU:
            if re.search(pattern, name, re.IGNORECASE):
                return load_node(node)
    return None
