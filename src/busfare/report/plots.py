"""The pictures of a page, as plotly.js data and layout. Colours differ in lightness too, and patterns tell them apart."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report import timeline
from busfare.report.ranges import whiskers
from busfare.trace import Trace

__all__ = [
    "COLOUR",
    "Plot",
    "bar_pattern",
    "histogram_plot",
    "plot_layout",
    "projection_plot",
    "timeline_plot",
]

COLOUR = {
    "kernels": "#56b4e9",
    "communication": "#0072b2",
    "h2d": "#e69f00",
    "d2h": "#009e73",
    "other copies": "#cc79a7",
}
PATTERN = {"kernels": "", "communication": ".", "h2d": "/", "d2h": "\\", "other copies": "x"}
GRID = "rgba(128,128,128,0.25)"
LONGEST_NAME = 90

Plot = dict[str, Any]


def plot_layout(height: int, **more: Any) -> dict[str, Any]:
    """The layout that all plots share, `height` pixels high; `more` are further keys of plotly's layout."""
    axis = {"gridcolor": GRID, "zerolinecolor": GRID}
    return {
        "height": height,
        "margin": more.pop("margin", {"l": 10, "r": 10, "t": 10, "b": 40}),
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "xaxis": axis | {"automargin": True} | more.pop("xaxis", {}),
        "yaxis": axis | {"automargin": True} | more.pop("yaxis", {}),
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        **more,
    }


def bar_pattern(shape: str | list[str]) -> dict[str, Any]:
    """Drawn over the bar's colour, in one that contrasts."""
    return {"shape": shape, "fillmode": "overlay", "size": 6, "solidity": 0.35}


def timeline_plot(trace: Trace, axis: str = "recorded time, seconds") -> Plot | None:
    """Operations over time; None if there are none."""
    rows = timeline.rows(trace)
    if not rows:
        return None
    several = len({row.gpu for row in rows}) > 1
    data = []
    shown: set[str] = set()
    for row in rows:
        label = f"GPU {row.gpu} {row.work}" if several else row.work
        hover = [
            f"{escape(_short(name))}<br>{amounts.time(length)}"
            + (f"<br>{amounts.several(int(n), 'operation')}, busy {busy:.0%}" if n > 1 else "")
            for name, length, n, busy in zip(row.longest, row.lengths, row.operations, row.busy, strict=True)
        ]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": row.work,
                "legendgroup": row.work,
                "showlegend": row.work not in shown,
                "y": [label] * len(row.starts),
                "base": row.starts.round(9).tolist(),
                "x": row.lengths.round(9).tolist(),
                "hovertext": hover,
                "hoverinfo": "text",
                "marker": {
                    "color": COLOUR[row.work],
                    "line": {"width": 0},
                    "pattern": bar_pattern(PATTERN[row.work]),
                },
            }
        )
        shown.add(row.work)
    labels = len({name for trace_ in data for name in trace_["y"][:1]})
    layout = plot_layout(
        90 + 42 * labels,
        xaxis={"title": {"text": axis}},
        yaxis={"autorange": "reversed", "fixedrange": True},
        barmode="overlay",
        bargap=0.25,
        dragmode="zoom",
    )
    return {"data": data, "layout": layout}


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def histogram_plot(rows: list[dict[str, Any]]) -> Plot | None:
    """Share of transfers in each decade of size, by count and by time [A19 figure 1]; None if there are none."""
    counts, seconds = sum(r["count"] for r in rows), sum(r["seconds"] for r in rows)
    if not counts:
        return None
    labels = [f"{amounts.size(r['lower_bytes'])} – {amounts.size(r['upper_bytes'])}" for r in rows]
    by_count = [100 * r["count"] / counts for r in rows]
    by_time = [100 * r["seconds"] / seconds if seconds else 0.0 for r in rows]
    data = [
        {
            "type": "bar",
            "name": name,
            "x": labels,
            "y": values,
            "hovertemplate": "%{y:.1f} %<extra>" + name + "</extra>",
        }
        | {"marker": {"color": colour, "pattern": bar_pattern(pattern)}}
        for name, values, colour, pattern in (
            ("by count", by_count, COLOUR["kernels"], ""),
            ("by time", by_time, COLOUR["h2d"], "/"),
        )
    ]
    return {
        "data": data,
        "layout": plot_layout(320, yaxis={"title": {"text": "% of transfers (recorded)"}}, barmode="group"),
    }


def runs_plot(labels: list[str], seconds: list[float], whiskers: dict[str, Any] | None = None) -> Plot:
    """Whole runs below each other; those whose label says that they are predicted are hatched, with `whiskers` as ranges."""
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [escape(label) for label in labels],
        "x": seconds,
        "text": [amounts.time(value) for value in seconds],
        **({"error_x": whiskers} if whiskers else {}),
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "y+text",
        "marker": {
            "color": COLOUR["kernels"],
            "pattern": bar_pattern(["/" if label.endswith("(predicted)") else "" for label in labels]),
        },
    }
    layout = plot_layout(
        90 + 42 * len(labels),
        xaxis={"title": {"text": "whole run, seconds"}, "rangemode": "tozero"},
        yaxis={"autorange": "reversed"},
        margin={"l": 10, "r": 70, "t": 10, "b": 40},
    )
    return {"data": [bars], "layout": layout}


def projection_plot(projections: list[dict[str, Any]]) -> Plot:
    """Recorded transfers and whole run beside what is predicted for other nodes; predicted bars are hatched."""
    first = projections[0]
    labels = [f"{first['from']} (recorded)"] + [f"{p['to']} (predicted)" for p in projections]
    bars = {
        "transfers": [first["transfers"]["recorded_seconds"]]
        + [p["transfers"]["predicted_seconds"] for p in projections],
        "whole run": [first["makespan"]["recorded_seconds"]]
        + [p["makespan"]["predicted_seconds"] for p in projections],
    }
    shapes = [""] + ["/"] * len(projections)
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [escape(label) for label in labels],
            "y": values,
            "text": [amounts.time(v) for v in values],
            "textposition": "outside",
            "cliponaxis": False,
            "hoverinfo": "x+text+name",
            "error_y": whiskers(
                [None, *(p["transfers" if name == "transfers" else "makespan"] for p in projections)]
            ),
            "marker": {"color": colour, "pattern": bar_pattern(shapes)},
        }
        for (name, values), colour in zip(bars.items(), (COLOUR["h2d"], COLOUR["kernels"]), strict=True)
    ]
    return {
        "data": data,
        "layout": plot_layout(
            340, yaxis={"title": {"text": "seconds"}, "rangemode": "tozero"}, barmode="group"
        ),
    }
