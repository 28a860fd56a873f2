"""The results of `nodes` and `price`, and their documents."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from busfare import cost
from busfare.advise.amounts import rate, size, time
from busfare.cost.collectives import Fabric, price_collectives
from busfare.cost.kernels.price import price_kernel
from busfare.cost.ranges import seconds_between
from busfare.errors import InputError
from busfare.node import Node, catalogue_names, load_node
from busfare.node.gpus import Gpu as GpuSheet
from busfare.node.gpus import gpu_names, gpus
from busfare.node.link import Link
from busfare.quantities import parse_bytes, parse_count, parse_seconds
from busfare.report.blocks import change
from busfare.report.document import Block, Cells, Document, Table, Text, table
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


class KernelPrice(Ranged, kw_only=True):
    """One kernel by one rung: from the data sheets (`class`), by what both nodes measured (`probed`) or counted bytes."""

    seconds: float | None


class KernelPrices(Struct, tag_field="schema", tag="busfare.price/1"):
    """The best rung first."""

    recorded_on: str = field(name="from")
    node: str
    kind: str = field(name="kernel")
    recorded_seconds: float
    prices: list[KernelPrice]


class CollectivePrice(Ranged, kw_only=True):
    """One collective by what the node's file measured (`measured`) or by NCCL's model of its links (`nccl`)."""

    model: str
    seconds: float
    bus_bytes_per_second: float
    algorithm: str | None
    protocol: str | None


class CollectivePrices(Struct, tag_field="schema", tag="busfare.price/1"):
    """The best rung first. `links`: what lies between the GPUs of a node."""

    node: str
    collective: str
    ranks: int
    hosts: int
    bytes: int
    links: str
    prices: list[CollectivePrice]


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


def kernel_price(
    node: Node,
    bytes_: int | None,
    kernel: str,
    from_: str | None,
    seconds: str | None,
    number_type: str,
    flops: str | None,
    shape: str | None,
    **launch: Any,
) -> KernelPrices:
    """One kernel on `node`, of options as they were given. Raises InputError for what is missing or cannot be read."""
    if from_ is None or seconds is None:
        raise InputError(
            "--kernel: say where a launch was recorded, and what it took: --from NODE --seconds 1.2ms"
        )
    recorded_on, took = load_node(from_), _time(seconds)
    sizes = {name: _whole(launch[name], f"--{name}") for name in ("grid", "block") if launch.get(name)}
    rows = price_kernel(
        recorded_on,
        node,
        kernel,
        took,
        number_type,
        flops=parse_count(flops) if flops else None,
        bytes_=bytes_,
        shape=_whole(shape, "--shape") if shape else None,
        blocks=prod(sizes["grid"]) if "grid" in sizes else None,
        threads=prod(sizes["block"]) if "block" in sizes else None,
        registers=launch["registers"],
        shared_bytes=parse_bytes(launch["shared_bytes"]) if launch["shared_bytes"] else None,
    )
    return KernelPrices(recorded_on.name, node.name, kernel, took, rows_of(KernelPrice, rows))


def collective_price(
    node: Node, kind: str, bytes_: int | None, ranks: int | None, hosts: int, nvls: bool
) -> CollectivePrices:
    """One collective on `node`. Raises InputError for what is missing, and where the node does not say enough."""
    if bytes_ is None or ranks is None:
        raise InputError(f"--collective {kind}: say how many GPUs, and how much: --ranks 8 --bytes 64MiB")
    fabric = Fabric.of(node, ranks, hosts, nvls or None)
    rows: list[CollectivePrice] = []
    for measured in (True, False):
        found = price_collectives(fabric, [kind], np.array([float(bytes_)]), measured)
        if measured and found.rung != "probed":
            continue
        rows.append(
            CollectivePrice(
                model="measured" if measured else "nccl",
                seconds=float(found.seconds[0]),
                bus_bytes_per_second=float(found.bus_bytes_per_second[0]),
                algorithm=found.algorithm[0],
                protocol=found.protocol[0],
                **seconds_between(float(found.low_seconds[0]), float(found.high_seconds[0]), found.rung),
            )
        )
    return CollectivePrices(node.name, kind, ranks, hosts, bytes_, fabric.through, rows)


def _time(text: str) -> float:
    """Seconds, with a unit or without."""
    try:
        return float(text)
    except ValueError:
        return parse_seconds(text)


def _whole(text: str, option: str) -> tuple[int, int, int]:
    """'128,1,1', or fewer numbers, as three."""
    parts = [part.strip() for part in text.split(",")]
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise InputError(f"{option} {text!r}: give up to three whole numbers above 0, as 128,1,1")
    x, y, z = [*map(int, parts), 1, 1][:3]
    return x, y, z


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


def prices_document(result: Prices) -> Document:
    """One copy by every model."""
    what = f"{result.direction}, {result.memory}, {size(result.bytes)} on {result.node} (predicted)"
    figures = {"time (80 % range)": "seconds", "rate": "bytes_per_second"}
    behind: Cells[Price] = {"rung": lambda row: row.rung or f"– ({row.reason})"}
    trust = [f"Trust {result.trust.model}: {result.trust.why}."] if result.trust else []
    return _priced(what, table(result.prices, what, {"model": "model"}, figures, behind, notes=trust))


def kernel_price_document(result: KernelPrices) -> Document:
    """One kernel by every rung."""
    what = f"{result.kind} kernel on {result.node} (predicted), {time(result.recorded_seconds)} on {result.recorded_on}"
    figures: Cells[KernelPrice] = {
        "time (80 % range)": lambda row: "not predicted" if row.seconds is None else row.shown(row.seconds),
        "change": lambda row: change(result.recorded_seconds, row.seconds),
    }
    return _priced(what, table(result.prices, what, {"rung": "rung"}, figures))


def collective_price_document(result: CollectivePrices) -> Document:
    """One collective by every rung."""
    hosts = f" on each of {result.hosts} hosts" if result.hosts > 1 else ""
    among = f"{result.ranks // result.hosts} GPUs{hosts}, {result.node}"
    what = f"{result.collective} of {size(result.bytes)} among {among} ({result.links}; predicted)"
    figures = {"time (80 % range)": "seconds", "bus rate": "bus_bytes_per_second"}
    behind = {name: name for name in ("algorithm", "protocol", "rung")}
    return _priced(what, table(result.prices, what, {"model": "model"}, figures, behind))


def _priced(what: str, prices: Table) -> Document:
    return Document(f"busfare price: {what}", "", "", [prices])


def nodes_document(result: Nodes) -> Document:
    """The catalogue, or what was found in it."""
    blocks: list[Block] = []
    if result.nodes:
        blocks.append(
            table(
                result.nodes,
                "Nodes (rates of large copies, predicted from data sheets)",
                {"node": "name"},
                {"GPUs": "gpus"},
                {"host link": "host_link"},
                {"h2d": "h2d_bytes_per_second", "d2h": "d2h_bytes_per_second"},
                {"what": "title"},
            )
        )
    if isinstance(result.gpus_by_name, int):
        more = f"{result.gpus_by_name} GPUs more by name: busfare nodes 3060 shows those with 3060 in it."
        blocks.append(Text(more))
    if isinstance(result.gpus, list) and result.gpus:
        blocks.append(
            table(
                result.gpus,
                "GPUs by name",
                {"GPU": "name", "link": lambda gpu: gpu.link or "one memory"},
                {
                    "memory": lambda gpu: f"{gpu.memory_bytes / 2**30:.0f} GiB" if gpu.memory_bytes else "",
                    "rate": lambda gpu: rate(known) if (known := gpu.memory_bandwidth_bytes_per_s) else "",
                    "SMs or CUs": lambda gpu: str(gpu.multiprocessors or ""),
                    "copy engines": lambda gpu: str(gpu.copy_engines or ""),
                },
                {"node": lambda gpu: gpu.node or ""},
            )
        )
    return Document("busfare nodes", "", "", blocks)
