"""The result of `nodes`, and the documents of `nodes`, `price` and `doctor`."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from busfare.advise.amounts import rate, several, size, time
from busfare.answers.doctor import Doctor
from busfare.answers.price import CollectivePrices, CopiesAtOnce, KernelPrice, KernelPrices, Price, Prices
from busfare.cost.ranges import is_wide
from busfare.errors import InputError
from busfare.nodes import Node, catalogue_names, load_node
from busfare.nodes.component import Component
from busfare.nodes.gpus import Gpu as GpuSheet
from busfare.nodes.gpus import gpu_names, gpus
from busfare.nodes.link import Flow, Link, MemoryLink
from busfare.show.blocks import change
from busfare.show.document import Block, Document, Items, Text, table
from busfare.show.words import worded

AT_ONCE = (
    "Copies share links and memories evenly, where the node file has their rates. Host memory may sustain less than "
    "its own rate for GPU copies: the one that was measured sustained half."
)
#: Of one copy: what the program sees, and where that is from.
WITH_CALL = "These are times on the GPU. Including the call and a wait, the program sees {} ({})."
UNTOUCHED = "If nothing has written to the destination yet, the host maps its pages during the copy: {} (published; {})."


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
    matches = [gpu for gpu in sheets if named(gpu.name, gpu.title, gpu.called)]
    if not nodes and not matches:
        raise InputError(f"nodes {words[:80]!r}: matches no node and no GPU; try a part of the name")
    return Nodes(nodes=[_row(node) for node in nodes], gpus=matches)


def node_shown(node: Node) -> NodeShown:
    """One node: its GPUs, the narrowest link to the host, and what large pinned copies reach over it."""
    return NodeShown(**asdict(_row(node)))


def _row(node: Node) -> NodeRow:
    path = node.host_path(0)
    curves = {direction: node.curve(direction, "pinned") for direction in ("h2d", "d2h")}
    measured = {direction: 1 / curve.long_gap_per_byte_s for direction, curve in curves.items() if curve}
    return NodeRow(
        name=node.name,
        title=node.title,
        gpus=len(node.gpus()),
        gpu=node.gpu(0).title,
        host_link=_named(path.narrowest("read")),
        h2d_bytes_per_second=measured.get("h2d", path.bandwidth("read")),
        d2h_bytes_per_second=measured.get("d2h", path.bandwidth("write")),
        measured=[f"{m.direction} {m.memory}" for m in node.curves if not m.faults],
    )


def _named(link: Link) -> str:
    """'pcie 4 x16'."""
    values = [getattr(link, name, None) for name in ("generation", "lanes", "links")]
    parts = [
        f"{sign}{value}" for sign, value in zip(("", "x", "x"), values, strict=True) if value is not None
    ]
    return " ".join([str(link.__struct_config__.tag), *parts])


def _rate(price: Price, bytes_: int) -> str:
    """The rate of a copy; its two ends where the time is shown as such."""
    low, high = price.low_seconds, price.high_seconds
    if low and high and is_wide(low, high):
        return f"{rate(bytes_ / high)} – {rate(bytes_ / low)}"
    return rate(price.bytes_per_second)


def _kernel_time(row: KernelPrice) -> str:
    """The time of a kernel, or its two bounds where nothing says where it lies between them."""
    if row.seconds:
        return row.shown(row.seconds)
    if row.low_seconds is None or row.high_seconds is None:
        return "not predicted"
    return f"{time(row.low_seconds)} – {time(row.high_seconds)}"


def price_document(result: Prices | CopiesAtOnce | KernelPrices | CollectivePrices) -> Document:
    """By every model or rung."""
    result = worded(result)
    time_and: dict[str, str | Callable[[Any], str]] = {"time (80 % range)": "seconds"}
    match result:
        case Prices():
            what = f"{result.direction}, {result.memory}, {size(result.bytes)} on {result.node} (predicted)"
            figures, rung = (
                time_and | {"rate": lambda row: _rate(row, result.bytes)},
                lambda row: row.rung or f"– ({row.reason})",
            )
            trust = [f"Trust {result.trust.model}: {result.trust.why}."] if result.trust else []
            for seen, what_seen in ((result.with_call, WITH_CALL), (result.untouched, UNTOUCHED)):
                trust += [what_seen.format(seen, seen.why)] if seen else []
            shown = table(result.prices, what, {"model": "model"}, figures, {"rung": rung}, notes=trust)
        case CopiesAtOnce():
            what = f"copies of {size(result.bytes)} at once, pinned, on {result.node} (predicted)"
            shown = table(
                result.at_once,
                what,
                {"GPU": "gpu", "direction": "direction"},
                {
                    "time": "seconds",
                    "alone": "alone_seconds",
                    "rate": lambda row: rate(result.bytes / max(row.seconds, 1e-12)),
                },
                notes=[AT_ONCE],
            )
        case KernelPrices():
            took = f"{time(result.recorded_seconds)} on {result.recorded_on}"
            what = f"{result.kind} kernel on {result.node} (predicted), {took}"
            shown = table(
                result.prices,
                what,
                {"rung": "rung"},
                {
                    "time (80 % range)": _kernel_time,
                    "change": lambda row: change(result.recorded_seconds, row.seconds),
                },
            )
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
                "Nodes (rates of large pinned copies: measured where the node file has them, else from data sheets)",
                {"node": "name"},
                {"GPUs": "gpus"},
                {"host link": "host_link"},
                {"h2d": "h2d_bytes_per_second", "d2h": "d2h_bytes_per_second"},
                {"what": "title"},
            )
        )
    if isinstance(result.gpus_by_name, int):
        more = f"{result.gpus_by_name} more GPUs by name: `busfare nodes 3060` lists those with 3060 in their name."
        blocks.append(Text(more))
    if isinstance(result.gpus, list) and result.gpus:
        blocks.append(
            table(
                result.gpus,
                "GPUs by name",
                {"GPU": "name", "link": lambda gpu: gpu.link or "one memory"},
                {
                    "memory": lambda gpu: _memory(gpu.memory_bytes),
                    "rate": lambda gpu: rate(speed) if (speed := gpu.memory_bandwidth_bytes_per_s) else "",
                    "SMs or CUs": lambda gpu: str(gpu.multiprocessors or ""),
                    "copy engines": lambda gpu: str(gpu.copy_engines or ""),
                },
                {"node": lambda gpu: gpu.node or ""},
            )
        )
    return Document("busfare nodes", "", "", blocks)


def node_document(node: Node) -> Document:
    """The components of one node, and its links by kind and rate."""
    ends: dict[str, list[str]] = {}
    for link in node.links:
        ends.setdefault(_speed(link), []).append("–".join(link.between))
    components = table(
        node.components,
        "Components",
        {"component": "name", "what": "title"},
        {"memory": lambda part: _memory(_figure(part, "memory_bytes", "size_bytes"))}
        | {"rate": lambda part: rate(_figure(part, "memory_bandwidth_bytes_per_s", "bandwidth_bytes_per_s"))}
        | {"": lambda part: several(n, "copy engine") if (n := _figure(part, "copy_engines")) else ""},
    )
    links = Items([f"{speed}: {', '.join(pairs)}" for speed, pairs in ends.items()], "Links")
    return Document(
        "busfare nodes", f"{node.name}: {node.title}", "", [components, links, Text(node.description)]
    )


def _figure(part: Component, *keys: str) -> int | None:
    """The first of these figures that the component has."""
    return next((figure for key in keys if (figure := getattr(part, key, None))), None)


def _memory(size: int | None) -> str:
    return f"{size / 2**30:.0f} GiB" if size else ""


def _speed(link: Link) -> str:
    """The link's name and its data rate each way, as a long copy sees it; a memory holds the rate of its own link."""
    if isinstance(link, MemoryLink):
        return link.label
    flows: tuple[Flow, Flow] = ("read", "write")
    read, write = (f"{link.bandwidth(flow) / 1e9:.3g}" for flow in flows)
    return f"{link.label} {read if read == write else f'{read}↓ {write}↑'} GB/s"


def doctor_document(result: Doctor) -> Document:
    """What works here, and what to do for the rest."""
    checks = table(
        result.checks,
        "",
        {
            "": lambda check: "works" if check.works else "missing",
            "what": "what",
            "needed for": "needed_for",
            "what is there": "is_there",
        },
    )
    missing = [check for check in result.checks if not check.works]
    change = [f"{check.what} (for {check.needed_for}): {check.change}" for check in missing]
    last: Block = Items(change, "How to fix the rest") if missing else Text("Everything works here.")
    facts = f"Python {result.python} · {result.machine}"
    return Document("busfare: this machine", f"busfare {result.version}", facts, [checks, last])
