"""A node's graph as a picture: components in rows, and on each link what was sent over it."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.node import Cpu, Gpu, Memory, Nic, Node
from busfare.report.plots import COLOUR, Plot, plot_layout

__all__ = ["link_picture"]

WIDEST = 14.0
QUIET = "rgba(128,128,128,0.45)"


def link_picture(node: Node, links: list[dict[str, Any]]) -> Plot | None:
    """The graph of `node`, each link as wide as its traffic (`links` of the job's result); None if there is none."""
    sent = {tuple(row["between"]): row for row in links if row["node"] == node.name and _bytes(row) > 0}
    if not sent:
        return None
    places = _places(node)
    most = max(_bytes(row) for row in sent.values())
    data: list[dict[str, Any]] = []
    for link in sorted(node.links, key=lambda link: link.between in sent):  # the used ones on top
        (x0, y0), (x1, y1) = places[link.between[0]], places[link.between[1]]
        row = sent.get(link.between)
        width = 1.0 if row is None else 2 + (WIDEST - 2) * _bytes(row) / most
        colour = QUIET if row is None else COLOUR["h2d"]
        line = {"width": round(width, 2), "color": colour, **({"dash": "dot"} if row is None else {})}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x0, x1],
                "y": [y0, y1],
                "line": line,
                "hoverinfo": "skip",
            }
        )
        if row is not None:
            # Lines answer the pointer at their ends only: a mark in the middle does too.
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [(x0 + x1) / 2],
                    "y": [(y0 + y1) / 2],
                    "marker": {"size": 9, "color": COLOUR["d2h"], "symbol": "diamond"},
                    "hovertext": [_told(row)],
                    "hoverinfo": "text",
                }
            )
    names = list(places)
    data.append(
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [places[name][0] for name in names],
            "y": [places[name][1] for name in names],
            "text": [escape(name) for name in names],
            "textposition": "bottom center",
            "hovertext": [escape(f"{name}  {node.component(name).title}") for name in names],
            "hoverinfo": "text",
            "marker": {"size": 16, "color": COLOUR["kernels"], "symbol": "square"},
        }
    )
    axis = {"visible": False, "fixedrange": True}
    rows = len({y for _, y in places.values()})
    layout = plot_layout(
        90 * rows + 60, xaxis=axis, yaxis=axis | {"range": [-0.6, rows - 0.5]}, showlegend=False
    )
    return {"data": data, "layout": layout}


def _bytes(row: dict[str, Any]) -> int:
    return int(row["forward"]["bytes"] + row["back"]["bytes"])


def _told(row: dict[str, Any]) -> str:
    first, second = row["between"]
    lines = [f"{row['link']}: {amounts.several(row['copies'], 'copy')}"]
    for way, start, end in (("forward", first, second), ("back", second, first)):
        sent = row[way]
        lines.append(
            f"{start} → {end}: {amounts.size(sent['bytes'])}, {amounts.size(sent['wire_bytes'])} on the wire"
        )
    return "<br>".join(escape(line) for line in lines)


def _places(node: Node) -> dict[str, tuple[float, float]]:
    """Where each component stands: memories above, then processors, switches, GPUs and network cards below."""
    level = {Memory: 0, Cpu: 1, Gpu: 3, Nic: 3}
    rows: dict[int, list[str]] = {}
    for component in node.components:
        rows.setdefault(level.get(type(component), 2), []).append(component.name)
    places = {}
    for height, number in enumerate(sorted(rows, reverse=True)):
        names = rows[number]
        for place, name in enumerate(names):
            # Rows are centred; a half step each keeps a lone switch from standing on a straight link.
            places[name] = ((place + 0.5) / len(names), float(height))
    return places
