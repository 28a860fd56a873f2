"""`bench` as pages: measured and predicted bars side by side, as in W14's figures 8 to 10 and S16's figures 3 and 6."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.benches import fastest, seen
from busfare.report.document import document, section, table
from busfare.report.plots import Plot, bar_pattern, plot_layout

__all__ = ["methods_page", "strategies_page"]

_MEASURED, _PREDICTED, _OTHERS = "#0072b2", "#e69f00", "#8c8c8c"
#: Ranges from dark to light, with a pattern each.
_RANGES = {
    "initialise": ("#8c8c8c", ""), "h2d": ("#e69f00", "/"), "kernel": ("#56b4e9", ""), "d2h": ("#009e73", "\\"),
    "sum": ("#cc79a7", "x"),
}  # fmt: skip
_WORDS = (
    "Measured: by events on the GPU (strategies) or the host's clock (methods), the middle or mean of several runs, "
    "every result checked. Predicted: by plan, from the node's parameters and the kernel's time alone."
)
_VIRTUAL = "VIRTUAL: a node was played; nothing was measured and nothing was checked. 'Measured' is what was played. "


def strategies_page(result: dict[str, Any]) -> str:
    """The page of `bench strategies`, from its JSON object."""
    plots: dict[str, Plot] = {}
    body = [_title("Overlap strategies", result), section("In short", _summary(result))]
    for n, cell in enumerate(result["cells"]):
        bars, sweep = f"cell{n}", f"sweep{n}"
        plots[bars], plots[sweep] = _bars(cell, seen(result)), _sweep(cell, seen(result))
        content = (
            f"<p class='dim'>{escape(_facts(cell))}</p>"
            f'<div id="{bars}" class="plot"></div><div id="{sweep}" class="plot"></div>{_versions(cell)}'
        )
        body.append(section(cell["name"], content))
    body += [_left_out(result), _machine(result)]
    return document(f"busfare bench strategies: {result['gpu']}", body, plots, _words(result))


def _title(what: str, result: dict[str, Any]) -> str:
    label = "VIRTUAL: played, not measured. " if result["virtual"] else ""
    node = result["node"]
    said = f"predicted by the parameters of {node['name']} ({node['source']}) · {result['date']} · {result['command']}"
    return f"<h1>{escape(label)}{escape(what)} on {escape(str(result['gpu']))}</h1><p class='dim'>{escape(said)}</p>"


def _words(result: dict[str, Any]) -> str:
    return (_VIRTUAL if result["virtual"] else "") + _WORDS


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
        f"{cell['title']}; {cell['levels']} levels of {cell['level_elements']:,} doubles; "
        f"{amounts.size(cell['h2d_bytes'])} in, {amounts.size(cell['d2h_bytes'])} out; kernel alone "
        f"{amounts.time(cell['measured_kernel_seconds'])}, link both ways {amounts.time(cell['measured_link_seconds'])}; "
        f"{checked}"
    )


def _bars(cell: dict[str, Any], word: str) -> Plot:
    """Each strategy at its fastest number of streams."""
    shown = fastest(cell)
    labels = [v["strategy"] + (f" ({v['streams']})" if v["streams"] > 1 else "") for v in shown]
    data = [
        _bar(word, labels, [v["measured_seconds"] for v in shown], _MEASURED, ""),
        _bar("predicted", labels, [v["predicted_seconds"] for v in shown], _PREDICTED, "/"),
    ]
    limit = cell["limit"]["seconds"] * 1e3
    line = {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit, "y1": limit,
        "line": {"dash": "dot", "color": _OTHERS},
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
        for side, colour, dash in (("measured", _MEASURED, "solid"), ("predicted", _PREDICTED, "dash")):
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
            "–" if v["predicted_seconds"] is None else amounts.time(v["predicted_seconds"]),
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


def methods_page(result: dict[str, Any]) -> str:
    """The page of `bench methods`, from its JSON object."""
    plots: dict[str, Plot] = {}
    body = [_title("Migration methods", result)]
    for number, accesses in ((1, 1), (2, 50)):
        cells = [c for c in result["cells"] if c["accesses"] == accesses]
        if cells:
            name = f"situation{number}"
            plots[name] = _ranges(cells, seen(result))
            title = f"Situation {number}: {accesses} access{'es' * (accesses > 1)} an element, over the slowest method"
            body.append(section(title, f'<div id="{name}" class="plot"></div>'))
    plots["published"] = _published(result)
    body.append(
        section(
            "Over zero-copy, beside the paper's GT 740 (published)", '<div id="published" class="plot"></div>'
        )
    )
    if result["crossover"]:
        plots["crossover"] = _crossing(result["crossover"], seen(result))
        body.append(
            section("Zero-copy against pinned copies", _crossing_words(result["crossover"], seen(result)))
        )
    body += [section("Every case", _methods(result)), _left_out(result), _machine(result)]
    return document(f"busfare bench methods: {result['gpu']}", body, plots, _words(result))


def _ranges(cells: list[dict[str, Any]], word: str) -> Plot:
    """Stacked ranges of each method at each size, over the slowest method of that size [S16 figures 3 and 6]."""
    labels: list[list[str]] = [[], []]
    shares: dict[str, list[float]] = {name: [] for name in _RANGES}
    for cell in cells:
        slowest = max(m["measured_seconds"] for m in cell["methods"])
        for m in sorted(cell["methods"], key=lambda m: str(m["method"])):
            labels[0].append(f"{cell['elements']:,} ints")
            labels[1].append(escape(m["method"]))
            for name, own in shares.items():
                own.append(m["measured_ranges_seconds"][name] / slowest)
    data = [
        {
            "type": "bar", "name": f"{name}, {word}", "x": labels, "y": shares[name],
            "marker": {"color": colour, "pattern": bar_pattern(pattern)},
        }
        for name, (colour, pattern) in _RANGES.items()
    ]  # fmt: skip
    return {"data": data, "layout": plot_layout(460, yaxis={"rangemode": "tozero"}, barmode="stack")}


def _published(result: dict[str, Any]) -> Plot:
    ours, theirs = result["normalised"]["situation_1"], result["published"]["situation_1"]
    methods = list(dict.fromkeys((*theirs, *ours)))
    data = [
        {
            "type": "bar", "name": name, "x": [escape(m) for m in methods], "y": [side.get(m) for m in methods],
            "marker": {"color": colour, "pattern": bar_pattern(pattern)},
        }
        for name, side, colour, pattern in (
            (f"{result['gpu']}, {seen(result)}", ours, _MEASURED, ""),
            ("GT 740, published [S16]", theirs, _OTHERS, "."),
        )
    ]  # fmt: skip
    axis = {"title": {"text": "time over zero-copy's, one access"}, "rangemode": "tozero"}
    return {"data": data, "layout": plot_layout(320, yaxis=axis, barmode="group")}


def _crossing(crossing: dict[str, Any], word: str) -> Plot:
    data = []
    for side, dash in (("measured", "solid"), ("predicted", "dash")):
        for method, colour in (("zero-copy", _PREDICTED), ("pinned", _MEASURED)):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{method}, {word if side == 'measured' else side}",
                    "x": crossing["accesses"],
                    "y": [s * 1e3 for s in crossing[f"{side}_seconds"][method]],
                    "line": {"color": colour, "dash": dash},
                }
            )
    axis = {"type": "log", "title": {"text": "milliseconds, copies and kernel"}}
    return {
        "data": data,
        "layout": plot_layout(
            360, xaxis={"type": "log", "title": {"text": "accesses an element"}}, yaxis=axis
        ),
    }


def _crossing_words(crossing: dict[str, Any], word: str) -> str:
    seen, due = (crossing[f"{side}_accesses"] for side in ("measured", "predicted"))
    texts = [
        "zero-copy stays faster" if n is None else f"pinned from {n:.2f} accesses on" for n in (seen, due)
    ]
    said = f"{word.capitalize()}: {texts[0]}. Predicted: {texts[1]}. At {crossing['elements']:,} ints."
    return f'<p>{escape(said)}</p><div id="crossover" class="plot"></div>'


def _methods(result: dict[str, Any]) -> str:
    rows = []
    for cell in result["cells"]:
        for m in cell["methods"]:
            ranges = m["measured_ranges_seconds"]
            rows.append(
                (
                    m["method"],
                    f"{cell['elements']:,}",
                    str(cell["accesses"]),
                    amounts.time(m["measured_seconds"]),
                    f"{50 * m['spread']:.1f} %",
                    *(amounts.time(ranges[name]) for name in _RANGES),
                    "–" if m["predicted_seconds"] is None else amounts.time(m["predicted_seconds"]),
                    "–" if m["error_percent"] is None else f"{m['error_percent']:+.1f} %",
                )
            )
    return table(("method", "ints", "accesses", "measured", "±", *_RANGES, "predicted", "error"), rows)


def _left_out(result: dict[str, Any]) -> str:
    lines = "".join(f"<li><b>disturbed</b>: {escape(sentence)}</li>" for sentence in result["disturbances"])
    lines += "".join(f"<li>{escape(row['case'])}: {escape(row['why'])}</li>" for row in result["left_out"])
    return section("Left out, or disturbed", f"<ul>{lines}</ul>" if lines else "<p>Nothing.</p>")


def _machine(result: dict[str, Any]) -> str:
    rows = [(key, str(value)) for key, value in result["facts"].items() if key != "gpus"]
    rows += [
        (f"GPU {n} {key}", str(value))
        for n, gpu in enumerate(result["facts"]["gpus"])
        for key, value in gpu.items()
    ]
    return section("The machine", table(("", ""), rows, 2))
