"""`bench methods` as a page: the ranges of each method, as in S16's figures 3 and 6, and its own figures beside ours."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.bench_page import MEASURED, OTHERS, PREDICTED, heading, left_out, machine, words
from busfare.report.benches import seen
from busfare.report.document import document, section, table
from busfare.report.plots import Plot, bar_pattern, plot_layout
from busfare.report.ranges import with_range

__all__ = ["methods_page"]

#: Ranges from dark to light, with a pattern each.
_RANGES = {
    "initialise": ("#8c8c8c", ""), "h2d": ("#e69f00", "/"), "kernel": ("#56b4e9", ""), "d2h": ("#009e73", "\\"),
    "sum": ("#cc79a7", "x"),
}  # fmt: skip


def methods_page(result: dict[str, Any]) -> str:
    """The page of `bench methods`, from its JSON object."""
    plots: dict[str, Plot] = {}
    body = [heading("Migration methods", result)]
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
    body += [section("Every case", _methods(result)), left_out(result), machine(result)]
    return document(f"busfare bench methods: {result['gpu']}", body, plots, words(result))


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
            (f"{result['gpu']}, {seen(result)}", ours, MEASURED, ""),
            ("GT 740, published [S16]", theirs, OTHERS, "."),
        )
    ]  # fmt: skip
    axis = {"title": {"text": "time over zero-copy's, one access"}, "rangemode": "tozero"}
    return {"data": data, "layout": plot_layout(320, yaxis=axis, barmode="group")}


def _crossing(crossing: dict[str, Any], word: str) -> Plot:
    data = []
    for side, dash in (("measured", "solid"), ("predicted", "dash")):
        for method, colour in (("zero-copy", PREDICTED), ("pinned", MEASURED)):
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
                    "–" if m["predicted_seconds"] is None else with_range(m),
                    "–" if m["error_percent"] is None else f"{m['error_percent']:+.1f} %",
                )
            )
    return table(("method", "ints", "accesses", "measured", "±", *_RANGES, "predicted", "error"), rows)
