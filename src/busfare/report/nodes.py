"""The results of `nodes` and `price`."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from busfare import cost
from busfare.errors import InputError
from busfare.node import Node, catalogue_names, load_node
from busfare.node.gpus import Gpu as GpuSheet
from busfare.node.gpus import gpu_names, gpus
from busfare.node.link import Link
from busfare.results import Ranged, rows_of


class Price(Ranged, kw_only=True):
    model: str
    seconds: float
    bytes_per_second: float | None


class Trusted(Struct):
    model: str
    why: str


class Prices(Struct, tag_field="schema", tag="busfare.price/1"):
    node: str
    direction: str
    memory: str
    bytes: int
    prices: list[Price]
    trust: Trusted | None


class NodeRow(Struct, kw_only=True):
    name: str
    title: str
    gpus: int
    gpu: str
    host_link: str
    h2d_bytes_per_second: float
    d2h_bytes_per_second: float
    measured: list[str]


class NodeShown(NodeRow, tag_field="schema", tag="busfare.nodes/1", kw_only=True):
    """One node."""


class Nodes(Struct, tag_field="schema", tag="busfare.nodes/1", kw_only=True):
    """The catalogue, or the part of it that was asked for."""

    nodes: list[NodeRow]
    gpus_by_name: int | UnsetType = UNSET
    gpus: list[GpuSheet] | UnsetType = UNSET


def catalogue() -> Nodes:
    """Every node of the catalogue."""
    return Nodes(nodes=[_row(load_node(name)) for name in catalogue_names()], gpus_by_name=len(gpu_names()))


def nodes_with(words: str) -> Nodes:
    """The catalogue's nodes, and the GPUs by name, that have every one of `words`. Raises InputError where none has."""
    wanted = words.lower().split()

    def named(*texts: object) -> bool:
        return all(word in " ".join(map(str, texts)).lower() for word in wanted)

    nodes = [n for n in map(load_node, catalogue_names()) if named(n.name, n.title, n.gpu(0).title)]
    sheets = (gpus()[name] for name in gpu_names() if name not in catalogue_names())
    known = [gpu for gpu in sheets if named(gpu.name, gpu.title, gpu.called)]
    if not nodes and not known:
        raise InputError(f"nodes {words[:80]!r}: no node and no GPU has that in its name; try a part of it")
    return Nodes(nodes=[_row(node) for node in nodes], gpus=known)


def node_shown(node: Node) -> NodeShown:
    """One node: its GPUs, the narrowest link to the host, and what large copies reach over it."""
    return NodeShown(**asdict(_row(node)))


def prices(node: Node, direction: str, memory: str, bytes_: int, latency_from: Node | None = None) -> Prices:
    """One copy by every model that applies. Raises InputError for a direction, memory kind or size that no copy has."""
    rows = cost.price(node, direction, memory, bytes_, latency_from)
    trust = cost.trusted(node, direction, memory, rows)
    return Prices(
        node.name, direction, memory, bytes_, rows_of(Price, rows), Trusted(**trust) if trust else None
    )


def _row(node: Node) -> NodeRow:
    path = node.host_path(0)
    return NodeRow(
        name=node.name,
        title=node.title,
        gpus=len(node.gpus()),
        gpu=node.gpu(0).title,
        host_link=_named(path.narrowest("read")),
        h2d_bytes_per_second=path.bandwidth("read"),
        d2h_bytes_per_second=path.bandwidth("write"),
        measured=[f"{m.direction} {m.memory}" for m in node.curves if not m.faults],
    )


def _named(link: Link) -> str:
    """'pcie 4 x16'."""
    parts = [("generation", "{}"), ("lanes", "x{}"), ("links", "x{}")]
    values = [(getattr(link, attribute, None), text) for attribute, text in parts]
    return " ".join(
        [str(link.__struct_config__.tag), *(text.format(v) for v, text in values if v is not None)]
    )
