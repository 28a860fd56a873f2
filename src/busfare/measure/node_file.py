"""The node of a probed machine: its graph, as the system tells it; and any node as text, to the measured digits."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec

from busfare.measure.cases import Record
from busfare.nodes import Node, Source, load_node
from busfare.nodes.component import Component, Cpu, Gpu, Memory, Switch
from busfare.nodes.link import Link, MemoryLink, NvlinkLink, PcieLink

#: The tag under which a node file says that its figures are from this probe.
SOURCE = "probe"
#: Transfers per second and lane that the system's files name, by PCIe generation.
_SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
#: NVML's number of a remote end that is a switch; a virtual machine may not be told what is there.
_SWITCH, _UNKNOWN = 2, (None, 255)
_LANES = (1, 2, 4, 8, 12, 16, 32)
#: NVLink's generation by the first number of the compute capability: Pascal, Volta, Ampere, Hopper; Blackwell and later.
_NVLINKS, _NEWEST_NVLINK = {6: 1, 7: 2, 8: 3, 9: 4}, 5


def named(node: Node, record: Record) -> Node:
    """The node of a record, with what it is called and where its parameters are from."""
    what = "simulated, not measured: a virtual node" if record.virtual else "measured on this machine"
    gpu = record.facts["gpus"][0]["name"]
    short = "".join(c if c.isalnum() else "-" for c in gpu.lower()).strip("-")[:48] or "node"
    quick = " --quick" * ("--quick" in record.command.split())
    cite = f"busfare probe{quick}, {record.date}, driver {record.facts.get('driver') or 'unknown'}: {what}"
    kind: Any = "estimated" if record.virtual else "measured"
    return replace(
        node,
        name=f"virtual-{record.facts['plays']}" if record.virtual else short,
        title=f"{'virtual: ' if record.virtual else ''}{gpu}, probed {record.date[:10]}",
        sources=node.sources | {SOURCE: Source(kind, cite)},
    )


def bare_node(record: Record) -> Node:
    """The graph alone. A virtual node has that of the node it plays."""
    if record.virtual:
        played = load_node(record.facts["plays"])
        # Without what others measured on it.
        return Node(played.name, played.components, played.links, sources=played.sources)
    gpus = record.facts["gpus"]
    memory = Memory(name="memory0", size_bytes=record.facts.get("memory_bytes"), source=SOURCE)
    title, cores = record.facts.get("cpu") or "", record.facts.get("cores")
    components: list[Component] = [memory, Cpu(name="cpu0", title=title, cores=cores, source=SOURCE)]
    links: list[Link] = [MemoryLink(between=("memory0", "cpu0"))]
    for ordinal, gpu in enumerate(gpus):
        components.append(_gpu(gpu, ordinal))
        if (link := link_of(record, ordinal)) is not None:
            links.append(link)
    joined = _nvlinks(gpus)
    if any("switch" in link.between[0] for link in joined):
        components.append(Switch(name="nvswitch"))
    return Node("probed", tuple(components), (*links, *joined))


def _gpu(facts: dict[str, Any], ordinal: int) -> Gpu:
    major, minor = facts["compute_capability"]
    # Two transfers a clock of a memory bus that is so many bits wide.
    rate = 2 * facts["memory_clock_hz"] * facts["memory_bus_bits"] / 8
    return Gpu(
        name=f"gpu{ordinal}",
        title=facts["name"],
        memory_bytes=facts["memory_bytes"],
        memory_bandwidth_bytes_per_s=rate or None,
        multiprocessors=facts["multiprocessors"],
        clock_hz=facts["clock_hz"] or None,
        compute_capability=f"{major}.{minor}",
        copy_engines=facts["copy_engines"] or None,
        coherent=facts["coherent"],
        unified_memory=facts["integrated"],
        source=SOURCE,
    )


def link_of(record: Record, ordinal: int, most: bool = False) -> PcieLink | None:
    """The PCIe link of a GPU as it was under load, or at most; PCIe 3.0 x16 where nothing tells."""
    suffix = "_most" if most else ""
    generation, width = (most_of(record, ordinal, f"link_{what}{suffix}") for what in ("generation", "width"))
    facts = record.facts["gpus"][ordinal]
    speed, _, _ = str(facts.get(f"link_speed{suffix}") or "").partition(" ")
    generation = generation or _SPEEDS.get(speed, 3)
    width = width or facts.get(f"link_width{suffix}") or 16
    if width not in _LANES or generation not in _SPEEDS.values():
        return None
    between = ("cpu0", f"gpu{ordinal}")
    fields = {"kind": "pcie", "between": between, "generation": generation, "lanes": width, "source": SOURCE}
    return msgspec.convert(fields, PcieLink)


def most_of(record: Record, ordinal: int, key: str) -> int:
    """The highest that was seen of a GPU: an idle link rests at a lower generation than the copies had. 0: not known."""
    return max((state[key] or 0 for state in record.states if state["gpu"] == ordinal), default=0)


def _nvlinks(gpus: list[dict[str, Any]]) -> list[NvlinkLink]:
    """NVLinks to switches, and between each two GPUs."""
    joined = []
    for ordinal, gpu in enumerate(gpus):
        up = gpu["nvlinks"]
        to_switch = [link for link in up if link["remote_type"] == _SWITCH]
        # Of several GPUs, whose links end nowhere that is named: only a switch joins them all.
        if len(gpus) > 1 and all(link["remote_type"] in _UNKNOWN and not link["remote"] for link in up):
            to_switch = up
        ends = {"nvswitch": len(to_switch)}
        for peer in range(ordinal + 1, len(gpus)):
            far = gpus[peer]["bus_id"][-10:]
            ends[f"gpu{peer}"] = sum(str(link["remote"] or "").lower().endswith(far) for link in up)
        generation: Any = _NVLINKS.get(gpu["compute_capability"][0], _NEWEST_NVLINK)
        joined += [
            NvlinkLink(between=(end, f"gpu{ordinal}"), generation=generation, links=links, source=SOURCE)
            for end, links in ends.items()
            if links
        ]
    return joined


#: Two probes of one machine agree in three digits.
DIGITS = 4
#: What a table is of stands before its figures.
_FIRST = (
    "kind", "name", "between", "call", "ranks", "hosts", "direction", "memory", "faults", "gpu", "peer", "streams",
)  # fmt: skip
#: Beyond this a value of a list stands on a line of its own.
_WIDE = 100


def encode(node: Node) -> str:
    """TOML of `node`: figures that are not known are left out, and the tag that most tables name stands on top."""
    measured = (node.curves, node.contentions, node.costs, node.kernels, node.collectives)
    tags = Counter(table.source for tables in measured for table in tables if table.source)
    tag = max(tags, key=tags.__getitem__, default=None)
    top = {"name": node.name, "title": node.title, "description": node.description, "source": tag}
    lines = [f"{key} = {_value(text)}" for key, text in top.items() if text]
    for name, source in node.sources.items():
        lines.append(f"sources.{json.dumps(name)} = {_value(msgspec.to_builtins(source))}")
    short = {"component": node.components, "link": node.links, "cost": node.costs}
    for group, rows in short.items():
        if rows:
            lines += ["", f"{group} = [", *(f"  {_value(_given(row, tag))}," for row in rows), "]"]
    long = {"contention": node.contentions, "kernels": node.kernels, "curve": node.curves}
    for group, tables in (long | {"collectives": node.collectives}).items():
        for table in tables:
            lines += ["", f"[[{group}]]"]
            lines += [f"{key} = {_value(value)}" for key, value in _given(table, tag).items()]
    return "\n".join(lines) + "\n"


def _given(table: msgspec.Struct, tag: str | None) -> dict[str, Any]:
    """What a table has beyond its defaults and the file's own source; a link and a component their kind first."""
    kind = table.__struct_config__.tag
    defaults = dict(zip(table.__struct_fields__[::-1], table.__struct_defaults__[::-1], strict=False))
    given = {"kind": kind} if isinstance(kind, str) else {}
    values: dict[str, Any] = msgspec.to_builtins(table, str_keys=True)
    for key, value in sorted(values.items(), key=lambda pair: pair[0] not in _FIRST):
        empty = value is None or value is False or value in ("", (), [], {})
        usual = key in given or getattr(table, key) == defaults.get(key) or (key == "source" and value == tag)
        if not (empty or usual):
            given[key] = value
    return given


def _value(value: Any) -> str:
    if isinstance(value, dict):
        given = {k: v for k, v in value.items() if v is not None and v not in ([], {})}
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in given.items()) + " }"
    if isinstance(value, (list, tuple)):
        rows = [_value(inner) for inner in value]
        long = sum(map(len, rows)) > _WIDE and isinstance(value[0], dict)
        return "[\n" + "".join(f"  {row},\n" for row in rows) + "]" if long else "[" + ", ".join(rows) + "]"
    if isinstance(value, float) and value and not (value.is_integer() and abs(value) > 1):
        return repr(float(f"{value:.{DIGITS}g}"))
    # JSON's strings and numbers are TOML's too, and so are the names of true and false.
    return json.dumps(value, ensure_ascii=False)
