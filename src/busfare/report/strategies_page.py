"""`bench strategies` as a page: measured and predicted bars side by side, as in W14's figures 8 to 10."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.bench_page import MEASURED, OTHERS, PREDICTED, heading, left_out, machine, words
from busfare.report.benches import fastest, seen
from busfare.report.document import document, section, table
from busfare.report.plots import Plot, bar_pattern, plot_layout
from busfare.report.ranges import whiskers, with_range

__all__ = ["strategies_page"]


def strategies_page(result: dict[str, Any]) -> str:
    """The page of `bench strategies`, from its JSON object."""
    plots: dict[str, Plot] = {}
    body = [heading("Overlap strategies", result), section("In short", _summary(result))]
    for n, cell in enumerate(result["cells"]):
        bars, sweep = f"cell{n}", f"sweep{n}"
        plots[bars], plots[sweep] = _bars(cell, seen(result)), _sweep(cell, seen(result))
        content = (
            f"<p class='dim'>{escape(_facts(cell))}</p>"
            f'<div id="{bars}" class="plot"></div><div id="{sweep}" class="plot"></div>{_versions(cell)}'
        )
        body.append(section(cell["name"], content))
    body += [left_out(result), machine(result)]
    return document(f"busfare bench strategies: {result['gpu']}", body, plots, words(result))


def _summary(result: dict[str, Any]) -> str:
    rows, word = [], seen(result)
    for cell in result["cells"]:
        best, streams = cell["best"], cell["streams"]
        cost = best["cost_percent"]
        rows.append(
            (
                cell["name"],
                best["measured"]["strategy"],
                best["predicted"]["strategy"],
                "yes" if best["picked"] else "NO",
                "–" if cost is None else f"{cost:.1f} %",
                str(streams["measured_best"]),
                str(streams["predicted_best"]),
                f"{cell['limit']['streams_share_percent']:.1f} %",
            )
        )
    head = (
        "cell",
        f"best, {word}",
        "best, predicted",
        "picked",
        "costs",
        f"n, {word}",
        "n, predicted",
        "of the limit",
    )
    words = (
        "costs: what the predicted best takes more than the fastest, of the limit: what the streams version reaches of "
        f"the slower of link and kernel; both {word}. n: streams."
    )
    return table(head, rows, 3) + f"<p class='dim'>{escape(words)}</p>"


def _facts(cell: dict[str, Any]) -> str:
    checked = f"checked against {cell['checked_against']}" if cell["checked_against"] else "not checked"
    return (
        f"{cell['title']}; {amounts.several(cell['levels'], 'level')} of {cell['level_elements']:,} doubles; "
        f"{amounts.size(cell['h2d_bytes'])} in, {amounts.size(cell['d2h_bytes'])} out; kernel alone "
        f"{amounts.time(cell['measured_kernel_seconds'])}, link both ways {amounts.time(cell['measured_link_seconds'])}; "
        f"{checked}"
    )


def _bars(cell: dict[str, Any], word: str) -> Plot:
    """Each strategy at its fastest number of streams."""
    shown = fastest(cell)
    labels = [v["strategy"] + (f" ({v['streams']})" if v["streams"] > 1 else "") for v in shown]
    data = [
        _bar(word, labels, [v["measured_seconds"] for v in shown], MEASURED, ""),
        _bar("predicted", labels, [v["predicted_seconds"] for v in shown], PREDICTED, "/")
        | {"error_y": whiskers([*shown], unit=1e3)},
    ]
    limit = cell["limit"]["seconds"] * 1e3
    line = {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit, "y1": limit,
        "line": {"dash": "dot", "color": OTHERS},
    }  # fmt: skip
    axis = {"title": {"text": "milliseconds; dotted: the limit"}, "rangemode": "tozero"}
    return {"data": data, "layout": plot_layout(340, yaxis=axis, barmode="group", shapes=[line])}


def _bar(
    name: str, labels: list[str], seconds: list[float | None], colour: str, pattern: str
) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": [escape(label) for label in labels],
        "y": [None if s is None else s * 1e3 for s in seconds],
        "text": ["" if s is None else amounts.time(s) for s in seconds],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "x+text+name",
        "marker": {"color": colour, "pattern": bar_pattern(pattern)},
    }


def _sweep(cell: dict[str, Any], word: str) -> Plot:
    """Against the number of streams."""
    data = []
    for strategy, symbol in (("streams", "circle"), ("hybrid", "square")):
        own = [v for v in cell["versions"] if v["strategy"] == strategy]
        numbers = [v["streams"] for v in own]
        for side, colour, dash in (("measured", MEASURED, "solid"), ("predicted", PREDICTED, "dash")):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{strategy}, {word if side == 'measured' else side}",
                    "x": numbers,
                    "y": [None if v[f"{side}_seconds"] is None else v[f"{side}_seconds"] * 1e3 for v in own],
                    "line": {"color": colour, "dash": dash},
                    "marker": {"symbol": symbol, "size": 6},
                }
            )
    return {
        "data": data,
        "layout": plot_layout(
            320,
            xaxis={"type": "log", "title": {"text": "streams"}},
            yaxis={"title": {"text": "milliseconds"}},
        ),
    }


def _versions(cell: dict[str, Any]) -> str:
    rows = [
        (
            v["strategy"],
            str(v["streams"]),
            amounts.time(v["measured_seconds"]),
            " – ".join(amounts.time(s) for s in v["measured_interval_seconds"]),
            "–" if v["predicted_seconds"] is None else with_range(v),
            "–" if v["error_percent"] is None else f"{v['error_percent']:+.1f} %",
            "–" if v["measured_host_seconds"] is None else amounts.time(v["measured_host_seconds"]),
            "yes" if v["checked"] else "no",
        )
        for v in cell["versions"]
    ]
    head = (
        "strategy",
        "streams",
        "measured",
        "interval",
        "predicted",
        "error",
        "host's clock, measured",
        "checked",
    )
    return f"<details><summary>every version</summary>{table(head, rows)}</details>"
