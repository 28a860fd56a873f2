"""A machine as a graph of components and links; the catalogue; the wire maths of the links."""

from busfare.nodes.component import Component, Cost, Cpu, Gemm, Gpu, Kernels, Memory, Nic, Switch
from busfare.nodes.contention import Contention, Shares
from busfare.nodes.curve import CollectiveCurve, Curve, Together
from busfare.nodes.file import catalogue_names
from busfare.nodes.graph import Node, Path
from busfare.nodes.link import C2cLink, FabricLink, Flow, Link, MemoryLink, NvlinkLink, PcieLink, SocketLink
from busfare.nodes.load import load_node
from busfare.nodes.source import Source

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
