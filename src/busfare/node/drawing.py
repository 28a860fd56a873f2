"""A node as text: its graph as a tree from the processors down, then the links between GPUs."""

from __future__ import annotations

from itertools import groupby

from busfare.node.component import Component, Cpu, Gpu, Memory, Nic
from busfare.node.graph import Node
from busfare.node.link import Flow, Link, MemoryLink

__all__ = ["WIDTH", "draw"]

#: Columns that a drawing fits.
WIDTH = 100


def draw(node: Node) -> str:
    """The graph of `node` in at most 100 columns: processors with what hangs below them, then the links
    across.
    """
    lines = [_cut(f"{node.name}  {node.title}".rstrip())]
    seen: set[str] = set()
    used: set[int] = set()
    roots = [c.name for c in node.components if isinstance(c, Cpu)] or [node.components[0].name]
    seen.update(roots)
    for root in roots:
        lines += ["", _cut(f"{root}  {_facts(node.component(root))}".rstrip())]
        lines += _below(node, root, "", seen, used)
    lines += _across(node, used)
    return "\n".join(lines)


def _below(node: Node, name: str, indent: str, seen: set[str], used: set[int]) -> list[str]:
    """The components first reached from `name`, each with its link, drawn as branches."""
    branches = []
    for number, link in enumerate(node.links):
        other = _other(link, name)
        if other is not None and other not in seen and not _is_peer(node, name, other):
            branches.append((number, other, link))
            seen.add(other)
    lines = []
    for position, (number, other, link) in enumerate(branches):
        used.add(number)
        last = position == len(branches) - 1
        wire = "" if isinstance(link, MemoryLink) else f"{_speed(link)} ── "
        lines.append(
            _cut(f"{indent}{'└' if last else '├'}── {wire}{other}  {_facts(node.component(other))}".rstrip())
        )
        lines += _below(node, other, indent + ("    " if last else "│   "), seen, used)
    return lines


def _is_peer(node: Node, a: str, b: str) -> bool:
    """GPUs do not hang below GPUs, nor processors below processors: those links go across."""
    one, two = node.component(a), node.component(b)
    return isinstance(one, Gpu) or (isinstance(one, Cpu) and isinstance(two, Cpu))


def _across(node: Node, used: set[int]) -> list[str]:
    """The links that the trees do not show, those of one kind counted together."""
    rest = [link for number, link in enumerate(node.links) if number not in used]
    if not rest:
        return []
    lines = ["", "across"]
    for label, group in groupby(sorted(rest, key=_speed), key=_speed):
        pairs = [f"{a}–{b}" for a, b in (link.between for link in group)]
        lines += _wrapped(f"  {label}: ", pairs)
    return lines


def _wrapped(head: str, words: list[str]) -> list[str]:
    lines, line = [], head
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * min(len(head), 20)
        line += word + " "
    return [*lines, _cut(line.rstrip())]


def _other(link: Link, name: str) -> str | None:
    a, b = link.between
    return b if a == name else a if b == name else None


def _speed(link: Link) -> str:
    """The link's name and its data rate each way, as a long copy sees it."""
    flows: tuple[Flow, Flow] = ("read", "write")
    read, write = (link.bandwidth(flow) / 1e9 for flow in flows)
    rates = f"{read:.3g}" if f"{read:.3g}" == f"{write:.3g}" else f"{read:.3g}↓ {write:.3g}↑"
    return f"{link.label} {rates} GB/s"


def _facts(component: Component) -> str:
    """What is worth knowing of a component in a few words."""
    if isinstance(component, Memory):
        size, rate = component.size_bytes, component.bandwidth_bytes_per_s
    elif isinstance(component, Gpu):
        size, rate = component.memory_bytes, component.memory_bandwidth_bytes_per_s
    else:
        size, rate = None, component.bandwidth_bytes_per_s if isinstance(component, Nic) else None
    facts = [component.title]
    if size is not None:
        facts.append(f"{size / 2**30:.0f} GiB")
    if rate is not None:
        facts.append(f"{rate / 1e9:.4g} GB/s")
    if isinstance(component, Gpu) and component.copy_engines is not None:
        facts.append(f"{component.copy_engines} copy engine{'s' if component.copy_engines > 1 else ''}")
    return ", ".join(fact for fact in facts if fact)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
