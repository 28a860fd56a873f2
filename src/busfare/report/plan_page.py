"""The page of `plan`: the words, the ranking, the sweep and the roofline as plots, and what it all rests on."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.document import document, section, table, words
from busfare.report.plan_terminal import NOTE, amount_of
from busfare.report.plots import COLOUR, Plot, bar_pattern, plot_layout
from busfare.report.ranges import whiskers, with_range

__all__ = ["plan_page"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
MOST_KERNELS = 1000


def plan_page(result: dict[str, Any]) -> str:
    """The page of `plan`'s result: one document that opens offline. Every time on it is predicted."""
    title = f"{result['name']} on {result['node']}"
    facts = f"{result['device']['gpu'] or 'GPU'} · {result['device']['category']} · every time is predicted"
    body = [f"<h1>{escape(title)}</h1><p class='dim'>{escape(facts)}</p>"]
    body.append(section("What to do", "".join(f"<p>{words(said)}</p>" for said in result["words"])))
    plots: dict[str, Plot] = {"ranking": _ranking_plot(result)}
    body.append(section("Strategies, predicted", f'<div id="ranking" class="plot"></div>{_ranking(result)}'))
    if "sweep" in result:
        plots["sweep"] = _sweep_plot(result["sweep"])
        body.append(section(f"Against {result['sweep']['parameter']}", _sweep(result["sweep"])))
    if result["roofline"]:
        plots["roofline"] = _roofline_plot(result["roofline"])
        body.append(section("Roofline with transfers", '<div id="roofline" class="plot"></div>'))
    if "nodes" in result:
        body.append(section("On other nodes, predicted", _answers(result["nodes"], "node")))
    if "kernels" in result:
        body.append(section("Every kernel, predicted", _answers(result["kernels"][:MOST_KERNELS], "name")))
    body.append(section("What it rests on", _basis(result["basis"])))
    return document(f"busfare plan: {title}", body, plots)


def _ranking(result: dict[str, Any]) -> str:
    rows = (
        (r["strategy"], (NOTE if r["assumes"] else "") + r["by"], str(r["streams"]), with_range(r))
        for r in result["ranking"]
    )
    bounds = result["bounds"]
    said = (
        f"Bounds: full overlap {amounts.time(bounds['full_overlap_seconds'])}, none "
        f"{amounts.time(bounds['no_overlap_seconds'])}, mapped {amounts.time(bounds['mapped_seconds'])}."
    )
    return table(("strategy", "by", "streams", "predicted"), rows, 2) + f"<p class='dim'>{escape(said)}</p>"


def _answers(answers: list[dict[str, Any]], name: str) -> str:
    rows = (
        (
            a[name],
            a["dominant"],
            a["ranking"][0]["strategy"],
            str(a["ranking"][0]["streams"]),
            with_range(a["ranking"][0]),
            amounts.time(a["bounds"]["no_overlap_seconds"]),
        )
        for a in answers
    )
    return table((name, "dominant", "best", "streams", "predicted", "explicit"), rows, 3)


def _basis(basis: list[dict[str, Any]]) -> str:
    rows = (
        (
            b["parameter"],
            b["kind"],
            b["source"],
            b["value"] if isinstance(b["value"], str) else f"{b['value']:.6g} {b['unit']}",
        )
        for b in basis
    )
    return table(("parameter", "kind", "source", "value"), rows, 3)


def _sweep(found: dict[str, Any]) -> str:
    said = [
        f"From {amount_of(c['value'], found['parameter'])} on: {c['to']} instead of {c['from']}."
        for c in found["changes"]
    ] or ["The best strategy stays the same over this range."]
    return '<div id="sweep" class="plot"></div>' + "".join(f"<p>{escape(line)}</p>" for line in said)


def _ranking_plot(result: dict[str, Any]) -> Plot:
    rows = result["ranking"][::-1]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [r["strategy"] for r in rows],
        "x": [r["predicted_seconds"] for r in rows],
        "text": [with_range(r) for r in rows],
        "textposition": "auto",
        "error_x": whiskers([*rows]),
        "hoverinfo": "y+text",
        "marker": {"color": COLOUR["h2d"], "pattern": bar_pattern("/")},
    }
    bounds = result["bounds"]
    line = {
        "type": "line",
        "x0": bounds["full_overlap_seconds"],
        "x1": bounds["full_overlap_seconds"],
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"dash": "dot", "color": COLOUR["d2h"]},
    }
    return {
        "data": [bar],
        "layout": plot_layout(
            120 + 30 * len(rows),
            xaxis={"title": {"text": "predicted seconds; dotted: full overlap"}, "rangemode": "tozero"},
            shapes=[line],
        ),
    }


def _sweep_plot(found: dict[str, Any]) -> Plot:
    points = found["points"]
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [p["value"] for p in points],
            "y": [p["predicted_seconds"][name] for p in points],
            "line": {"color": COLOURS[n % len(COLOURS)], "dash": DASHES[n % len(DASHES)]},
        }
        for n, name in enumerate(points[0]["predicted_seconds"])
    ]
    shapes = [
        {
            "type": "line",
            "x0": c["value"],
            "x1": c["value"],
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"dash": "dot", "color": "#8c8c8c"},
        }
        for c in found["changes"]
    ]
    return {
        "data": lines,
        "layout": plot_layout(
            420,
            xaxis={
                "type": "log",
                "title": {"text": f"{found['parameter']} ({found['unit']}); dotted: the best changes"},
            },
            yaxis={"type": "log", "title": {"text": "predicted seconds"}},
            shapes=shapes,
        ),
    }


def _roofline_plot(roof: dict[str, float]) -> Plot:
    """The three bounds against flops per byte over the link, and where this kernel stands [W14 §III-A]."""
    here = roof["data_intensity"]
    ratio = roof["operational_intensity"] / here
    accessed = roof["mapped"] / here if roof["mapped"] < roof["peak"] else roof["duplex_bytes_per_s"]
    span = [here * 2**n for n in range(-10, 11)]
    roofs = [min(roof["peak"], roof["memory_bytes_per_s"] * x * ratio) for x in span]
    curves = {
        "kernel alone": roofs,
        "full overlap": [min(r, roof["duplex_bytes_per_s"] * x) for x, r in zip(span, roofs, strict=True)],
        "no overlap": [
            1 / (1 / (roof["link_bytes_per_s"] * x) + 1 / r) for x, r in zip(span, roofs, strict=True)
        ],
        "mapped": [min(roof["peak"], accessed * x) for x in span],
    }
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": span,
            "y": values,
            "line": {"color": COLOURS[n], "dash": DASHES[n]},
        }
        for n, (name, values) in enumerate(curves.items())
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "this kernel, bounds",
            "x": [here] * 3,
            "y": [roof["full_overlap"], roof["no_overlap"], roof["mapped"]],
            "marker": {"size": 11, "symbol": "diamond", "color": COLOURS[5]},
        }
    )
    return {
        "data": data,
        "layout": plot_layout(
            420,
            xaxis={"type": "log", "title": {"text": "flops per byte over the link"}},
            yaxis={"type": "log", "title": {"text": "predicted flops per second, at most"}},
        ),
    }
