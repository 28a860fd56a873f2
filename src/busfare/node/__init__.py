"""A machine as a graph of components and links; the catalogue; the wire maths of the links."""

from busfare.node.component import Component, Cost, Cpu, Gemm, Gpu, Kernels, Memory, Nic, Switch
from busfare.node.contention import Contention, Shares
from busfare.node.curve import CollectiveCurve, Curve, Together
from busfare.node.file import catalogue_names
from busfare.node.graph import Node, Path
from busfare.node.link import C2cLink, FabricLink, Flow, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.node.load import load_node
from busfare.node.source import Source

__all__ = [
    "C2cLink",
    "CollectiveCurve",
    "Component",
    "Contention",
    "Cost",
    "Cpu",
    "Curve",
    "FabricLink",
    "Flow",
    "Gemm",
    "Gpu",
    "Kernels",
    "Link",
    "Memory",
    "MemoryLink",
    "Nic",
    "Node",
    "NvlinkLink",
    "Path",
    "PcieLink",
    "Shares",
    "SocketLink",
    "Source",
    "Switch",
    "Together",
    "catalogue_names",
    "load_node",
]
