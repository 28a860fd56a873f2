"""A node's graph as a picture: components in rows, and on each link what was sent over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from busfare.advise.amounts import several, size
from busfare.job.results import Traffic
from busfare.node import Cpu, Gpu, Memory, Nic, Node
from busfare.printable import printable
from busfare.report.svg import COLOUR, WIDTH, drawn, text

WIDEST, ROW = 14.0, 90


@dataclass(frozen=True)
class LinkPicture:
    """The graph of `node`, each link as wide as its traffic."""

    node: Node
    links: Sequence[Traffic]

    def svg(self) -> str:
        sent = {tuple(link.between): link for link in self.links}
        most = max((link.bytes for link in self.links), default=0) or 1
        places, parts = _places(self.node), []
        for link in sorted(self.node.links, key=lambda link: link.between in sent):  # the used ones on top
            (x0, y0), (x1, y1) = places[link.between[0]], places[link.between[1]]
            line, used = f'd="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}"', sent.get(link.between)
            if used is None:
                parts.append(f'<path class="mark" {line}/>')
                continue
            width = 2 + (WIDEST - 2) * used.bytes / most
            title = f"<title>{escape(printable(_hover(used), but=chr(10)))}</title>"
            parts.append(f'<path {line} stroke="{COLOUR["h2d"]}" stroke-width="{width:.1f}">{title}</path>')
        for name, (x, y) in places.items():
            parts.append(f'<rect class="box" x="{x - 8:.0f}" y="{y - 8:.0f}" width="16" height="16"/>')
            parts.append(text(x, y + 24, name, "middle", hover=self.node.component(name).title or name))
        return drawn(max(y for _, y in places.values()) + 40, parts)


def _hover(link: Traffic) -> str:
    first, second = link.between
    lines = [f"{link.link}: {several(link.copies, 'copy')}"]
    for sent, start, end in ((link.forward, first, second), (link.back, second, first)):
        lines.append(f"{start} → {end}: {size(sent.bytes)}, {size(sent.wire_bytes)} on the wire")
    return "\n".join(lines)


def _places(node: Node) -> dict[str, tuple[float, float]]:
    """Where each component stands: memories above, then processors, switches, GPUs and network cards below."""
    level = {Memory: 0, Cpu: 1, Gpu: 3, Nic: 3}
    rows: dict[int, list[str]] = {}
    for component in node.components:
        rows.setdefault(level.get(type(component), 2), []).append(component.name)
    return {
        name: (WIDTH * (place + 0.5) / len(rows[number]), 30.0 + ROW * height)
        for height, number in enumerate(sorted(rows))
        for place, name in enumerate(rows[number])
    }
