"""The page of `what-if`: gains side by side, and the predicted time line below the recorded one."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.document import document, place, section, table, words
from busfare.report.gains import said_of_cost
from busfare.report.plots import runs_plot, timeline_plot
from busfare.report.ranges import whiskers, with_range
from busfare.trace import Trace

__all__ = ["what_if_page"]

WORDS = (
    "Recorded: read from the trace. Predicted: the run replayed with its dependencies after the change. "
    "Hatched bars are predictions."
)


def what_if_page(result: dict[str, Any], recorded: Trace, predicted: Trace) -> str:
    """The page; `predicted` is the run with all changes."""
    where = f"recorded on {result['from']}" if result["from"] else "recorded on a machine that is not known"
    body = [f"<h1>{place(result['trace'])}</h1><p class='dim'>{escape(where)}</p>"]
    plots: dict[str, Any] = {"gains": _gains(result)}
    rows = [
        (
            f"{row['title']} (predicted)",
            amounts.count(row["touched"]),
            with_range(row),
            f"{row['gain_percent']:+.1f} %",
            "–" if row["speedup"] is None else f"{row['speedup']:.3f}×",
        )
        for row in _rows(result)
    ]
    columns = ("change", "touched", "whole run", "gain", "speed-up")
    cost = result["baseline"]["recording_cost"]
    said = f"<p>{escape(said_of_cost(cost))}</p>" if cost else ""
    body.append(section("Whole run", f'<div id="gains" class="plot"></div>{table(columns, rows)}{said}'))
    if result["rests_on"]:
        items = "".join(f"<li>{words(text)}</li>" for text in result["rests_on"])
        body.append(section("Holds if", f"<ul>{items}</ul>"))
    for name, title, trace in (
        ("recorded", "Time line, as recorded", recorded),
        ("predicted", "Time line, predicted with all changes", predicted),
    ):
        if plot := timeline_plot(trace, f"{name} time, seconds"):
            plots[name] = plot
            body.append(section(title, f'<div id="{name}" class="plot"></div>'))
    body.append(section("Critical path", table(("part", "recorded", "predicted"), _path(result))))
    if result["omissions"]:
        items = "".join(
            f"<li><b>{escape(o['id'])}</b>: {amounts.count(o['count'])} {words(o['what'])}</li>"
            for o in result["omissions"]
        )
        body.append(section("What this trace does not tell", f"<ul>{items}</ul>"))
    return document(f"busfare what-if: {result['trace']}", body, plots, WORDS)


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return result["changes"] if len(result["changes"]) == 1 else [*result["changes"], result]


def _path(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    before = {part["part"]: part["seconds"] for part in result["baseline"]["critical_path"]}
    after = {part["part"]: part["seconds"] for part in result["critical_path"]}
    return [
        (name, amounts.time(before.get(name, 0.0)), amounts.time(after.get(name, 0.0)))
        for name in dict.fromkeys([*before, *after])
    ]


def _gains(result: dict[str, Any]) -> dict[str, Any]:
    rows = _rows(result)
    baseline = result["baseline"]
    bare = [baseline["replayed_seconds"]] if baseline["recording_cost"] else []
    unchanged = ["recorded", *["without the recorder's cost (predicted)" for _ in bare]]
    labels = [*unchanged, *(f"{row['title']} (predicted)" for row in rows)]
    seconds = [baseline["recorded_seconds"], *bare, *(row["predicted_seconds"] for row in rows)]
    return runs_plot(labels, seconds, whiskers([None, *(None for _ in bare), *rows]))
