"""The pictures of a job's page: figures along the ranks, over the traces, and of the outermost ones."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise.amounts import several
from busfare.report.jobs import WORDS, amount, name_of
from busfare.report.plots import COLOUR, Plot, bar_pattern, plot_layout

__all__ = ["largest_plot", "spread_plot", "strip_plot"]

LONGEST_NAME = 60


def strip_plot(result: dict[str, Any]) -> Plot | None:
    """A row a figure, a column a rank (or neighbouring ranks): how far each is from the median; None without ranks."""
    cells, figures = result["strip"]["cells"], result["strip"]["figures"]
    if len(cells) < 2:
        return None
    medians = {row["figure"]: row["median"] for row in result["spread"]}
    shown = [figure for figure in figures if medians[figure] > 0]
    columns = [
        f"{c['first_rank']}" if c["first_rank"] == c["last_rank"] else f"{c['first_rank']}–{c['last_rank']}"
        for c in cells
    ]
    rows, texts = [], []
    for figure in shown:
        values = [cell["most"][figures.index(figure)] for cell in cells]
        rows.append([round(value / medians[figure], 4) for value in values])
        texts.append([f"rank {c}: {amount(figure, v)}" for c, v in zip(columns, values, strict=True)])
    data = {
        "type": "heatmap",
        "x": columns,
        "y": [WORDS[figure] for figure in shown],
        "z": rows,
        "text": texts,
        "hovertemplate": "%{text}, %{z:.2f} × the median<extra>%{y}</extra>",
        "colorscale": "Cividis",  # told apart by lightness too
        "zmin": 0,
        "zmax": 2,
        "colorbar": {"title": {"text": "× median"}, "thickness": 12},
        "xgap": 1 if len(cells) <= 64 else 0,
        "ygap": 2,
    }
    layout = plot_layout(
        110 + 34 * len(shown),
        xaxis={"title": {"text": "rank"}, "type": "category"},
        yaxis={"autorange": "reversed", "fixedrange": True},
    )
    return {"data": [data], "layout": layout}


def spread_plot(row: dict[str, Any]) -> Plot | None:
    """How many traces have how much of a figure; None where all are alike or zero."""
    bars = row["bars"]
    if len(bars) < 2:
        return None
    figure = row["figure"]
    data = {
        "type": "bar",
        "x": [(bar["lower"] * bar["upper"]) ** 0.5 for bar in bars],
        "width": [(bar["upper"] - bar["lower"]) * 0.92 for bar in bars],
        "y": [bar["count"] for bar in bars],
        "hovertext": [
            f"{several(bar['count'], 'trace')}<br>{amount(figure, bar['lower'])} – {amount(figure, bar['upper'])}"
            for bar in bars
        ],
        "hoverinfo": "text",
        "marker": {"color": COLOUR["kernels"]},
    }
    unit = "bytes" if figure.endswith("bytes") else "seconds"
    layout = plot_layout(
        260,
        xaxis={"title": {"text": f"{WORDS[figure]}, {unit} (recorded); dotted: median"}},
        yaxis={"title": {"text": "traces"}},
        shapes=[_line(row["median"])],
    )
    return {"data": [data], "layout": layout}


def largest_plot(row: dict[str, Any]) -> Plot | None:
    """The traces with most of a figure beside the median; None if there is nothing of it."""
    if not row["most"]:
        return None
    largest, figure = row["largest"], row["figure"]
    above = row["outliers"]["above"]
    data = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(largest))),
        "x": [rank["value"] for rank in largest],
        "text": [amount(figure, rank["value"]) for rank in largest],
        "textposition": "auto",
        "hovertext": [escape(rank["path"]) for rank in largest],
        "hoverinfo": "text",
        "marker": {
            "color": COLOUR["h2d"],
            "pattern": bar_pattern(["/" if above and rank["value"] > above else "" for rank in largest]),
        },
    }
    unit = "bytes" if figure.endswith("bytes") else "seconds"
    layout = plot_layout(
        110 + 24 * len(largest),
        xaxis={
            "title": {"text": f"{WORDS[figure]}, {unit} (recorded); dotted: median; hatched: outliers"},
            "rangemode": "tozero",
        },
        yaxis={
            "autorange": "reversed",
            "tickvals": list(range(len(largest))),
            "ticktext": [escape(_short(name_of(rank))) for rank in largest],
        },
        shapes=[_line(row["median"])],
    )
    return {"data": [data], "layout": layout}


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]


def _line(at: float) -> dict[str, Any]:
    line = {"dash": "dot", "color": COLOUR["d2h"]}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": line}
