"""A node as text: its graph as a tree from the processors down, then the links between GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from busfare.nodes.component import Component, Cpu, Gpu, Memory, Nic
from busfare.nodes.graph import Node
from busfare.nodes.link import Flow, Link, MemoryLink

__all__ = ["WIDTH", "draw"]

#: Columns that a drawing fits.
WIDTH = 100


def draw(node: Node) -> str:
    """The graph of `node` in at most 100 columns: processors with what hangs below them, then the links across."""
    roots = [c.name for c in node.components if isinstance(c, Cpu)] or [node.components[0].name]
    drawn: dict[str, Link | None] = dict.fromkeys(roots)
    lines = [f"{node.name}  {node.title}"]
    for root in roots:
        lines += ["", f"{root}  {_facts(node.component(root))}", *_below(node, root, "", drawn)]
    used = {id(link) for link in drawn.values()}
    across = sorted((link for link in node.links if id(link) not in used), key=_speed)
    lines += ["", "across"] if across else []
    for label, group in groupby(across, key=_speed):
        pairs = ["–".join(link.between) for link in group]
        lines += wrap(" ".join(pairs), WIDTH, initial_indent=f"  {label}: ", subsequent_indent=" " * 20)
    return "\n".join(map(_cut, lines))


def _below(node: Node, name: str, indent: str, drawn: dict[str, Link | None]) -> Iterator[str]:
    """The components first reached from `name`, each by the link that goes to `drawn`, as branches of a tree."""
    branches = []
    for link in node.links:
        other = link.between[link.between[0] == name]
        if (
            name in link.between
            and other not in drawn
            and not _are_peers(node.component(name), node.component(other))
        ):
            branches.append((other, link))
            drawn[other] = link
    for other, link in branches:
        last = other == branches[-1][0]
        wire = "" if isinstance(link, MemoryLink) else f"{_speed(link)} ── "
        yield f"{indent}{'└' if last else '├'}── {wire}{other}  {_facts(node.component(other))}"
        yield from _below(node, other, indent + ("    " if last else "│   "), drawn)


def _are_peers(one: Component, two: Component) -> bool:
    """GPUs do not hang below GPUs, nor processors below processors: those links go across."""
    return isinstance(one, Gpu) or (isinstance(one, Cpu) and isinstance(two, Cpu))


def _speed(link: Link) -> str:
    """The link's name and its data rate each way, as a long copy sees it."""
    flows: tuple[Flow, Flow] = ("read", "write")
    read, write = (link.bandwidth(flow) / 1e9 for flow in flows)
    rates = f"{read:.3g}" if f"{read:.3g}" == f"{write:.3g}" else f"{read:.3g}↓ {write:.3g}↑"
    return f"{link.label} {rates} GB/s"


def _facts(component: Component) -> str:
    """What is worth knowing of a component in a few words."""
    if isinstance(component, Gpu):
        size, rate = component.memory_bytes, component.memory_bandwidth_bytes_per_s
    else:
        size = component.size_bytes if isinstance(component, Memory) else None
        rate = component.bandwidth_bytes_per_s if isinstance(component, (Memory, Nic)) else None
    facts = [component.title]
    if size is not None:
        facts.append(f"{size / 2**30:.0f} GiB")
    if rate is not None:
        facts.append(f"{rate / 1e9:.4g} GB/s")
    if isinstance(component, Gpu) and component.copy_engines is not None:
        facts.append(f"{component.copy_engines} copy engine{'s' if component.copy_engines > 1 else ''}")
    return ", ".join(fact for fact in facts if fact)


def _cut(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
