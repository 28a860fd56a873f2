"""`bench ft` and `bench mg` as a page: where an iteration's time goes, as in U11's figure 11, beside its predicted limit."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.bench_page import PREDICTED, left_out, machine
from busfare.report.document import document, section, table
from busfare.report.nas_runs import LIMIT, beside, gain_sentence, heading, named, variant, verdict
from busfare.report.plots import Plot, bar_pattern, plot_layout

__all__ = ["nas_page"]

#: Parts of an iteration, in the order they are stacked: words, colour, pattern. Colours differ in lightness too.
_PARTS = {
    "fft_1d": ("1D FFT", "#0072b2", ""),
    "fft_2d": ("2D FFT", "#56b4e9", ""),
    "kernels": ("kernels", "#0072b2", ""),
    "coarse_levels": ("coarse levels", "#56b4e9", ""),
    "outstanding_communication": ("outstanding communication", "#d55e00", "\\"),
    "waited_for_ghost_cells": ("waiting for ghost cells", "#d55e00", "\\"),
    "synchronous_local_copies": ("synchronous local copies", "#009e73", "/"),
    "device_phases": ("transforms and copies, not told apart", "#009e73", "."),
    "copies": ("copies", "#009e73", "/"),
    "barrier": ("barrier", "#cc79a7", "x"),
    "rest": ("everything else", "#8c8c8c", ""),
}
#: Symbol, colour, size and width of line. The limit has a lighter ground, for it crosses bars of any colour.
_MEDIAN = ("diamond", "#000000", 9, 1)
_GROUND = ("line-ew-open", "#ffffff", 50, 9)
_LIMIT = ("line-ew-open", PREDICTED, 44, 3)
_WORDS = (
    "Measured: by the programs themselves, on the hosts' clock (kernels and copies on the GPU's), every result compared "
    "with NAS's official values. Bars: the parts of an iteration, means over ranks and iterations of a run whose parts "
    "were timed. Diamonds: the median iteration of a run whose parts were not, for timing them takes a little time too. "
    "Predicted: the limit alone, from rates and the fewest bytes that an iteration moves; it is a dash, never a bar."
)


def nas_page(result: dict[str, Any]) -> str:
    """The page of `bench ft` or `bench mg`, from its JSON object."""
    plots: dict[str, Plot] = {}
    title = heading(result)
    said = f"{result['date']} · {result['command']}"
    body = [
        f"<h1>{escape(title)}</h1><p class='dim'>{escape(said)}</p>",
        section("In short", _summary(result)),
    ]
    for size in dict.fromkeys(run["class"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["class"] == size]
        plots[f"parts{size}"] = _stacked(runs)
        content = f'<div id="parts{escape(size)}" class="plot"></div>{_parts(runs)}'
        body.append(section(f"Class {size}: where an iteration's time goes", content))
    body += [left_out({"disturbances": [], **result}), machine(result)]
    return document(f"busfare bench: {title}", body, plots, _WORDS)


def _summary(result: dict[str, Any]) -> str:
    rows = []
    for run in result["runs"]:
        limit = run["limit"]
        rows.append(
            (
                named(run),
                run["class"],
                variant(run),
                verdict(run),
                amounts.time(run["measured_iteration_seconds"]),
                f"{amounts.time(run['measured_seconds'])} ({run['iterations']})",
                "–" if limit is None else f"{amounts.time(limit['predicted_seconds'])} ({limit['by']})",
                "–" if limit is None else f"{run['limit_share_percent']:.1f} %",
            )
        )
    head = (
        "run", "class", "variant", "verified", "iteration, measured", "whole run (iterations), measured", "limit, predicted",
        "limit's share",
    )  # fmt: skip
    lines = "".join(f"<li>{escape(gain_sentence(gain))}</li>" for gain in result["gains"])
    rates = result["rates"]
    told = (
        f"{LIMIT}. {amounts.rate(rates['each_way_bytes_per_second'])} each way on the link, "
        f"{amounts.rate(rates['memory_bytes_per_second'])} in GPU memory: {rates['source']}.{beside(result)}"
        if rates
        else "No limit is predicted: no run used a GPU, and the model knows links and GPUs."
    )
    bad = "" if result["all_verified"] else "<p><b>NOT VERIFIED: a run missed the official values.</b></p>"
    return f"{bad}{table(head, rows, 4)}<ul>{lines}</ul><p class='dim'>{escape(told)}</p>"


def _stacked(runs: list[dict[str, Any]]) -> Plot:
    """A bar a run; labels differ, for runs that share one would be drawn into one bar."""
    labels = _labels(runs)
    data: list[dict[str, Any]] = []
    for part, (words, colour, pattern) in _PARTS.items():
        if not any(run["measured_parts_seconds"].get(part) for run in runs):
            continue
        seconds = [run["measured_parts_seconds"].get(part) for run in runs]
        data.append(
            {
                "type": "bar",
                "name": f"{words}, measured",
                "x": labels,
                "y": [None if s is None else s * 1e3 for s in seconds],
                "hovertext": ["" if s is None else f"{words}: {amounts.time(s)}" for s in seconds],
                "hoverinfo": "x+text",
                "marker": {"color": colour, "pattern": bar_pattern(pattern)},
            }
        )
    limits = [run["limit"]["predicted_seconds"] if run["limit"] else None for run in runs]
    if any(limit is not None for limit in limits):
        ground = _markers("", labels, limits, _GROUND)
        data.append(ground | {"showlegend": False, "hoverinfo": "skip"})
        data.append(_markers("limit, predicted", labels, limits, _LIMIT))
    medians = [run["measured_iteration_seconds"] for run in runs]
    data.append(_markers("median iteration, measured", labels, medians, _MEDIAN))
    axis = {"title": {"text": "milliseconds an iteration"}, "rangemode": "tozero"}
    return {"data": data, "layout": plot_layout(460, yaxis=axis, barmode="stack")}


def _markers(
    name: str, labels: list[str], seconds: list[float | None], look: tuple[str, str, int, int]
) -> dict[str, Any]:
    symbol, colour, size, width = look
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": labels,
        "y": [None if s is None else s * 1e3 for s in seconds],
        "hovertext": ["" if s is None else f"{name}: {amounts.time(s)}" for s in seconds],
        "hoverinfo": "x+text",
        "marker": {
            "symbol": symbol,
            "color": colour,
            "size": size,
            "line": {"width": width, "color": colour},
        },
    }


def _labels(runs: list[dict[str, Any]]) -> list[str]:
    made: list[str] = []
    for run in runs:
        label = escape(f"{run['mode']}, {run['ranks']}")
        label += f"<br>{escape(run['algorithm'])}" if run["algorithm"] else ""
        label += f"<br>{run['gpus']} GPUs" if run["gpus"] > 1 else ""
        same = [r for r in runs if named(r) == named(run)]
        label += f"<br>{escape(variant(run))}" if len(same) > 1 and run["variant"] else ""
        while label in made:
            label += " again"
        made.append(label)
    return made


def _parts(runs: list[dict[str, Any]]) -> str:
    found = [part for part in _PARTS if any(part in run["measured_parts_seconds"] for run in runs)]
    rows = [
        (
            named(run),
            variant(run),
            *(
                amounts.time(run["measured_parts_seconds"][part])
                if part in run["measured_parts_seconds"]
                else "–"
                for part in found
            ),
            "yes" if run["parts_timed"] or run["mode"] == "cpu" else "no",
        )
        for run in runs
    ]
    head = ("run", "variant", *(f"{_PARTS[part][0]}" for part in found), "parts timed")
    words = "An iteration's seconds, measured. MG's kernels and copies, by the GPU's clock, may overlap hosts' waits."
    return f"<details><summary>every part</summary>{table(head, rows, 2)}<p class='dim'>{escape(words)}</p></details>"
