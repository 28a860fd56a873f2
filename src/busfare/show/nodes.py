"""The results of `nodes` and `price`, and their documents."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from busfare import cost
from busfare.advise.amounts import Ranged, rate, size, time
from busfare.answers.report import rows_of
from busfare.cost.collectives import Fabric, price_collectives
from busfare.cost.kernels.price import price_kernel
from busfare.cost.ranges import seconds_between
from busfare.errors import InputError
from busfare.nodes import Node, catalogue_names, load_node
from busfare.nodes.gpus import Gpu as GpuSheet
from busfare.nodes.gpus import gpu_names, gpus
from busfare.nodes.link import Link
from busfare.quantities import parse_bytes, parse_count, parse_seconds
from busfare.show.blocks import change
from busfare.show.document import Block, Cells, Document, Text, table
from busfare.timeline.build.links import copy_seconds_at_once

AT_ONCE = (
    "Links and memories are shared evenly, as far as the node's file names their rates. A host's memory may carry less of "
    "GPUs' copies than its own rate: the one that was measured carried half."
)


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


class CopyAtOnce(Ranged, kw_only=True):
    """One of several copies that begin together; alone it takes `alone_seconds`."""

    gpu: int
    direction: str
    seconds: float
    alone_seconds: float
    bytes_per_second: float


class CopiesAtOnce(Struct, tag_field="schema", tag="busfare.price/1"):
    """Pinned copies of several GPUs."""

    node: str
    bytes: int
    at_once: list[CopyAtOnce]


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


def answer_price(asked: Mapping[str, Any]) -> Prices | CopiesAtOnce | KernelPrices | CollectivePrices:
    """A copy by every model that applies, copies of several GPUs at once, a collective, or a kernel recorded elsewhere: for
    the options of the command line by name. Raises InputError for what is missing, cannot be read, or is nothing that a
    node prices.
    """
    size = parse_bytes(asked["bytes_"], "--bytes") if asked["bytes_"] else None
    if len(both := [f"--{name}" for name in ("collective", "kernel", "gpus") if asked[name] is not None]) > 1:
        raise InputError(f"price: {' and '.join(both)} ask for different things; give one of them")
    if asked["collective"]:
        return _collective(load_node(asked["node"]), size, asked)
    if asked["kernel"]:
        return _kernel(load_node(asked["node"]), size, asked)
    if size is None:
        raise InputError(
            "price: give --bytes, the size of a copy or --collective, or --kernel with --from and --seconds"
        )
    node, direction = load_node(asked["node"]), asked["direction"]
    within = direction in ("d2d", "p2p")
    memory = asked["memory"] or ("device" if within else "pinned")
    if within and memory != "device":
        raise InputError(f"--memory {memory}: {direction} copies are between memories of GPUs; leave it out")
    if asked["gpus"] is not None:
        return _at_once(node, size, asked)
    latency_from = load_node(asked["latency_from"]) if asked["latency_from"] else None
    rows = cost.price(node, direction, memory, size, latency_from)
    trust = cost.trusted(node, direction, memory, rows)
    trusted = Trusted(**trust) if trust else None
    return Prices(node.name, direction, memory, size, rows_of(Price, rows), trusted)


def _at_once(node: Node, bytes_: int, asked: Mapping[str, Any]) -> CopiesAtOnce:
    gpus, directions = asked["gpus"], asked["direction"].split("+")
    if not 1 <= gpus <= len(node.gpus()):
        raise InputError(f"--gpus {gpus}: {node.name} has {len(node.gpus())}; give from 1 up to that many")
    if not set(directions) <= {"h2d", "d2h"} or asked["memory"] not in (None, "pinned"):
        raise InputError(
            "--gpus: prices pinned copies; give --direction h2d, d2h or h2d+d2h, and no --memory"
        )
    flows = [(direction, gpu) for gpu in range(gpus) for direction in dict.fromkeys(directions)]
    together = copy_seconds_at_once(node, flows, bytes_)
    rows = [
        CopyAtOnce(
            gpu=gpu,
            direction=direction,
            seconds=float(seconds),
            alone_seconds=float(copy_seconds_at_once(node, [(direction, gpu)], bytes_)[0]),
            bytes_per_second=bytes_ / max(float(seconds), 1e-12),
            **seconds_between(None, None, None),
        )
        for (direction, gpu), seconds in zip(flows, together, strict=True)
    ]
    return CopiesAtOnce(node.name, bytes_, rows)


def _kernel(node: Node, bytes_: int | None, asked: Mapping[str, Any]) -> KernelPrices:
    if asked["from_"] is None or asked["seconds"] is None:
        raise InputError(
            "--kernel: say where a launch was recorded, and what it took: --from NODE --seconds 1.2ms"
        )
    kernel, recorded_on, took = (
        asked["kernel"],
        load_node(asked["from_"]),
        _time(asked["seconds"], "--seconds"),
    )
    grid, block, shape = (_whole(asked[name], f"--{name}") for name in ("grid", "block", "shape"))
    rows = price_kernel(
        recorded_on,
        node,
        kernel,
        took,
        asked["number_type"],
        flops=parse_count(asked["flops"], "--flops") if asked["flops"] else None,
        bytes_=bytes_,
        shape=shape,
        blocks=prod(grid) if grid else None,
        threads=prod(block) if block else None,
        registers=asked["registers"],
        shared_bytes=parse_bytes(asked["shared_bytes"], "--shared-bytes") if asked["shared_bytes"] else None,
    )
    return KernelPrices(recorded_on.name, node.name, kernel, took, rows_of(KernelPrice, rows))


def _collective(node: Node, bytes_: int | None, asked: Mapping[str, Any]) -> CollectivePrices:
    kind, ranks, hosts = asked["collective"], asked["ranks"], asked["hosts"]
    if bytes_ is None or ranks is None:
        raise InputError(f"--collective {kind}: say how many GPUs, and how much: --ranks 8 --bytes 64MiB")
    fabric, size = Fabric.of(node, ranks, hosts, asked["nvls"] or None), np.array([float(bytes_)])
    by = {name: price_collectives(fabric, [kind], size, name == "measured") for name in ("measured", "nccl")}
    rows = [
        CollectivePrice(
            model=name,
            seconds=float(found.seconds[0]),
            bus_bytes_per_second=float(found.bus_bytes_per_second[0]),
            algorithm=found.algorithm[0],
            protocol=found.protocol[0],
            **seconds_between(float(found.low_seconds[0]), float(found.high_seconds[0]), found.rung),
        )
        for name, found in by.items()
        if name == "nccl" or found.rung == "probed"
    ]
    return CollectivePrices(node.name, kind, ranks, hosts, bytes_, fabric.through, rows)


def _time(text: str, option: str) -> float:
    """Seconds, with a unit or without."""
    try:
        return float(text)
    except ValueError:
        return parse_seconds(text, option)


def _whole(text: str | None, option: str) -> tuple[int, int, int] | None:
    """'128,1,1', or fewer numbers, as three."""
    if not text:
        return None
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
    values = [getattr(link, name, None) for name in ("generation", "lanes", "links")]
    parts = [
        f"{sign}{value}" for sign, value in zip(("", "x", "x"), values, strict=True) if value is not None
    ]
    return " ".join([str(link.__struct_config__.tag), *parts])


def price_document(result: Prices | CopiesAtOnce | KernelPrices | CollectivePrices) -> Document:
    """By every model or rung."""
    time_and = {"time (80 % range)": "seconds"}
    match result:
        case Prices():
            what = f"{result.direction}, {result.memory}, {size(result.bytes)} on {result.node} (predicted)"
            figures, rung = (
                time_and | {"rate": "bytes_per_second"},
                lambda row: row.rung or f"– ({row.reason})",
            )
            trust = [f"Trust {result.trust.model}: {result.trust.why}."] if result.trust else []
            shown = table(result.prices, what, {"model": "model"}, figures, {"rung": rung}, notes=trust)
        case CopiesAtOnce():
            what = f"copies of {size(result.bytes)} at once, pinned, on {result.node} (predicted)"
            each = {"time": "seconds", "alone": "alone_seconds", "rate": "bytes_per_second"}
            names: Cells[CopyAtOnce] = {"GPU": lambda row: str(row.gpu), "direction": "direction"}
            shown = table(result.at_once, what, names, each, notes=[AT_ONCE])
        case KernelPrices():
            took = f"{time(result.recorded_seconds)} on {result.recorded_on}"
            what = f"{result.kind} kernel on {result.node} (predicted), {took}"
            of_kernel: Cells[KernelPrice] = {
                "time (80 % range)": lambda row: row.shown(row.seconds) if row.seconds else "not predicted",
                "change": lambda row: change(result.recorded_seconds, row.seconds),
            }
            shown = table(result.prices, what, {"rung": "rung"}, of_kernel)
        case CollectivePrices():
            hosts = f" on each of {result.hosts} hosts" if result.hosts > 1 else ""
            among = f"{result.ranks // result.hosts} GPUs{hosts}, {result.node}"
            what = f"{result.collective} of {size(result.bytes)} among {among} ({result.links}; predicted)"
            figures = time_and | {"bus rate": "bus_bytes_per_second"}
            behind = {name: name for name in ("algorithm", "protocol", "rung")}
            shown = table(result.prices, what, {"model": "model"}, figures, behind)
    return Document(f"busfare price: {what}", "", "", [shown])


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
