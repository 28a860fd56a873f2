"""Pictures of a job: how far ranks are from the median, and what went over the node's links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busfare.advise.amounts import several, size
from busfare.answers.job import Traffic
from busfare.nodes import Cpu, Gpu, Memory, Nic, Node
from busfare.show.svg import COLOUR, WIDTH, drawn, escaped, text

#: Of a node's graph: the widest link, and how far its rows are apart.
WIDEST, ROW = 14.0, 90


@dataclass(frozen=True)
class Strip:
    """A row a label, a column a cell: how many times the median each value is; `hovers` has their words."""

    rows: Sequence[str]
    columns: Sequence[str]
    times: Sequence[Sequence[float]]
    hovers: Sequence[Sequence[str]]
    axis: str

    def markup(self) -> str:
        left, top, high = 150, 40, 30
        wide = (WIDTH - left - 10) / max(len(self.columns), 1)
        parts = [
            text(left, 18, "0", "end"),
            *_key(left + 6),
            text(left + 212, 18, "2 × the median, and more"),
        ]
        for r, (label, times) in enumerate(zip(self.rows, self.times, strict=True)):
            y = top + r * (high + 4)
            parts.append(text(left - 8, y + 20, label, "end"))
            parts += [
                f'<rect x="{left + c * wide:.2f}" y="{y}" width="{max(wide - 1, wide * 0.9):.2f}" height="{high}" '
                f'fill="{_shade(value)}"><title>{escaped(self.hovers[r][c])}</title></rect>'
                for c, value in enumerate(times)
            ]
        end = top + len(self.rows) * (high + 4)
        every = max(1, len(self.columns) // 12)
        for c in range(0, len(self.columns), every):
            parts.append(text(left + (c + 0.5) * wide, end + 14, self.columns[c], "middle"))
        return drawn(end + 44, [*parts, text(WIDTH / 2, end + 34, self.axis, "middle dim")])


def _shade(times: float) -> str:
    """Dark blue at 0 over grey at 1 to yellow at 2: as light as it is large."""
    part = min(max(times, 0.0), 2.0) / 2
    ends = ((0, 34, 78), (124, 123, 120), (254, 232, 56))
    low, high, t = (ends[0], ends[1], 2 * part) if part < 0.5 else (ends[1], ends[2], 2 * part - 1)
    return "#" + "".join(f"{round(a + (b - a) * t):02x}" for a, b in zip(low, high, strict=True))


def _key(left: float) -> list[str]:
    return [
        f'<rect x="{left + 20 * n}" y="6" width="20" height="14" fill="{_shade(n / 4.5)}"/>'
        for n in range(10)
    ]


@dataclass(frozen=True)
class LinkPicture:
    """The graph of `node`, each link as wide as its traffic."""

    node: Node
    links: Sequence[Traffic]

    def markup(self) -> str:
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
            title = f"<title>{escaped(_hover(used), but=chr(10))}</title>"
            parts.append(
                f'<path {line} stroke="{COLOUR["copies"]}" stroke-width="{width:.1f}">{title}</path>'
            )
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
