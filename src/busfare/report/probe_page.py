"""`probe` as one page: bandwidth and latency curves, peers, residuals, what was seen of the machine."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.document import document, section, table
from busfare.report.plots import COLOUR, plot_layout

__all__ = ["probe_page"]

_LOG = {"type": "log", "exponentformat": "power", "title": {"text": "bytes of the copy"}}
_DASHES = {
    "pinned": "solid",
    "pageable": "dot",
    "registered": "dash",
    "write-combined": "dashdot",
    "mapped": "longdash",
}
_FOOTER = (
    "Measured: the middle of raw samples of the device's clock; of the host's clock for pageable copies. "
    "Predicted: by the parameters of the node file, on sizes that were not fitted."
)


def probe_page(result: dict[str, Any]) -> str:
    """The page of `probe`, from its JSON object."""
    node = result["node"]
    label = "VIRTUAL: played, not measured. " if result["virtual"] else ""
    body = [f"<h1>{escape(label + node['title'])}</h1>", _state(result)]
    plots: dict[str, Any] = {}
    curves = [c for c in result["cases"] if c["mode"] in ("copies", "kernel") and c["count"] == 1]
    for name, title, key in (
        ("bandwidth", "Bandwidth of one copy, as measured", "rate"),
        ("latency", "Time of one copy, as measured", "seconds"),
    ):
        plots[name] = _curves(curves, key)
        body.append(section(title, f'<div id="{name}" class="plot"></div>'))
    if result["residual_cases"]:
        plots["residuals"] = _residuals(result["residual_cases"])
        body.append(
            section("Predicted over measured, on sizes not fitted", '<div id="residuals" class="plot"></div>')
        )
    body += [_peers(curves), _facts(result)]
    return document(f"busfare probe: {node['name']}", [part for part in body if part], plots, _FOOTER)


def _state(result: dict[str, Any]) -> str:
    items = [f"<b>disturbed</b>: {escape(sentence)}" for sentence in result["disturbances"]]
    for h in result["health"]:
        seen, due = (amounts.rate(h[f"{key}_bytes_per_second"]) for key in ("measured", "predicted"))
        rates = f"{seen} measured, {due} by the data sheet"
        items.append(f"GPU {h['gpu']} {escape(h['direction'])}: {rates}: {escape(h['verdict'] or 'sound')}")
    return section("Is it sound?", "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>")


def _curves(cases: list[dict[str, Any]], key: str) -> dict[str, Any]:
    data = []
    paths = sorted(
        {(c["gpu"], c["direction"], c["memory"], c["peer"] or 0) for c in cases if c["direction"] != "p2p"}
    )
    for gpu, way, memory, _ in paths:
        own = sorted(
            (c for c in cases if (c["gpu"], c["direction"], c["memory"]) == (gpu, way, memory)),
            key=lambda c: c["bytes"],
        )
        seconds = [c["api_seconds"] if memory == "pageable" else c["device_seconds"] for c in own]
        sizes = [c["bytes"] for c in own]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"GPU {gpu} {way} {memory}",
                "x": sizes,
                "y": [n / s / 1e9 for n, s in zip(sizes, seconds, strict=True)]
                if key == "rate"
                else [s * 1e6 for s in seconds],
                "line": {
                    "color": COLOUR.get(way, COLOUR["other copies"]),
                    "dash": _DASHES.get(memory, "solid"),
                },
                "marker": {"size": 4},
            }
        )
    title = "GB/s" if key == "rate" else "microseconds"
    return {
        "data": data,
        "layout": plot_layout(420, xaxis=_LOG, yaxis={"type": "log", "title": {"text": title}}),
    }


def _residuals(cases: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [100 * (c["predicted_seconds"] / c["measured_seconds"] - 1) for c in cases]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [c["measured_seconds"] * 1e6 for c in cases],
        "y": errors,
        "text": [escape(c["case"]) for c in cases],
        "hovertemplate": "%{text}: %{y:.2f} %<extra></extra>",
        "marker": {"color": COLOUR["h2d"]},
    }
    axis = {"type": "log", "title": {"text": "measured microseconds"}}
    return {"data": [dots], "layout": plot_layout(320, xaxis=axis, yaxis={"title": {"text": "error, %"}})}


def _peers(cases: list[dict[str, Any]]) -> str:
    """GB/s of the largest copy between every ordered pair of GPUs."""
    largest: dict[tuple[int, int], dict[str, Any]] = {}
    for case in cases:
        if case["direction"] == "p2p":
            pair = (case["gpu"], case["peer"])
            if pair not in largest or case["bytes"] > largest[pair]["bytes"]:
                largest[pair] = case
    if not largest:
        return ""
    gpus = sorted({gpu for pair in largest for gpu in pair})
    rows = [[f"from GPU {a}", *(_pair(largest.get((a, b))) for b in gpus)] for a in gpus]
    return section("Between GPUs, as measured", table(["", *(f"to GPU {b}" for b in gpus)], rows))


def _pair(case: dict[str, Any] | None) -> str:
    return "–" if case is None else amounts.rate(case["bytes"] / case["device_seconds"])


def _facts(result: dict[str, Any]) -> str:
    facts = result["facts"]
    rows = [(key, str(value)) for key, value in facts.items() if key != "gpus"]
    rows += [
        (f"GPU {n} {key}", str(value)) for n, gpu in enumerate(facts["gpus"]) for key, value in gpu.items()
    ]
    left = "".join(f"<li>{escape(row['case'])}: {escape(row['why'])}</li>" for row in result["left_out"])
    more = f"<h2>Left out</h2><ul>{left}</ul>" if left else ""
    return section("What the system says", table(("", ""), rows, 2) + more)
