"""A machine as a graph of components and links, with what was measured on it; GPUs by name; the formulas of the links.

Imports no other package of busfare. Gives `load_node`, `Node` and its parts, and `gpus` with their data sheets. What an
operation costs on a node belongs in `cost`.
"""

from busfare.nodes.component import (
    Component,
    Cost,
    Cpu,
    FloatArray,
    Gemm,
    Gpu,
    Kernels,
    Memory,
    Nic,
    Source,
    Switch,
)
from busfare.nodes.contention import Contention, Shares
from busfare.nodes.file import load_node
from busfare.nodes.gpus import catalogue_names
from busfare.nodes.graph import Node, Path
from busfare.nodes.link import C2cLink, FabricLink, Flow, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.nodes.transfers import CollectiveCurve, Curve, Together

__all__ = [
    "C2cLink", "CollectiveCurve", "Component", "Contention", "Cost", "Cpu", "Curve", "FabricLink", "FloatArray", "Flow",
    "Gemm", "Gpu", "Kernels", "Link", "Memory", "MemoryLink", "Nic", "Node", "NvlinkLink", "Path", "PcieLink", "Shares",
    "SocketLink", "Source", "Switch", "Together", "catalogue_names", "load_node",
]  # fmt: skip
