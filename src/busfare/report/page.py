"""Results as one page that opens offline: no request leaves it, and text from a trace stays text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.report.document import document as _document
from busfare.report.document import place
from busfare.report.document import section as _section
from busfare.report.document import table as _table
from busfare.report.document import words as _words
from busfare.report.gains import (
    basis_said,
    gain_said,
    nothing_found,
    overlaps_said,
    said_of_cost,
    unexplained_said,
    what_if_said,
)
from busfare.report.plots import Plot, histogram_plot, projection_plot, timeline_plot
from busfare.report.ranges import with_range
from busfare.trace import Trace

__all__ = ["projection_page", "report_page"]


def report_page(
    result: dict[str, Any],
    trace: Trace,
    projections: dict[str, Any] | None = None,
    projected: str = "On other nodes",
    more: Sequence[tuple[str, Plot, str]] = (),
) -> str:
    """The page of `report`; with `projections` (the result of `project`), that too, under the heading `projected`.

    `more`: sections for its top, each a heading, a plot and HTML.
    """
    plots: dict[str, Any] = {}
    body = [_header(result), _tiles(result)]
    for number, (title, drawn, content) in enumerate(more):
        plots[f"more-{number}"] = drawn
        body.append(_section(title, f'<div id="more-{number}" class="plot"></div>{content}'))
    if plot := timeline_plot(trace):
        plots["timeline"] = plot
        body.append(
            _section(
                "Time line, as recorded",
                '<div id="timeline" class="plot"></div>'
                '<p class="dim">Drag to zoom, double-click to go back. Operations too close to tell apart at '
                "this width are drawn as one bar; "
                "point at a bar to see how many it holds. For every operation by itself: "
                "<code>busfare export --to perfetto</code>.</p>",
            )
        )
    body += [_findings(result), _critical_path(result["critical_path"])]
    if projections:
        plots["projection"] = projection_plot(projections["projections"])
        body.append(_projections(projections, projected))
    if result["by_path"]:
        body.append(_by_path(result["by_path"]))
    if plot := histogram_plot(result["size_histogram"]):
        plots["histogram"] = plot
        body.append(_section("Transfers by size, as recorded", '<div id="histogram" class="plot"></div>'))
    body += [_gpus(result), _tops(result), _gaps(result), _omissions(result["omissions"])]
    return _document(f"busfare: {result['trace']['path']}", body, plots)


def projection_page(result: dict[str, Any], trace: Trace) -> str:
    """The page of `project`."""
    said = f"Recorded on {result['from']}; predicted for other nodes."
    heading = f"<h1>{place(str(trace.path))}</h1><p class='dim'>{escape(said)}</p>"
    plots = {"projection": projection_plot(result["projections"])}
    return _document(f"busfare: {trace.path}", [heading, _projections(result)], plots)


def _path(row: dict[str, Any]) -> str:
    return f"{row['direction'] or '?'}  {row['source_memory'] or 'unknown'} → {row['destination_memory'] or 'unknown'}"


def _header(result: dict[str, Any]) -> str:
    trace = result["trace"]
    facts = [trace["producer"], *sorted({d["name"] for d in trace["devices"] if d["name"]})]
    facts += [f"{key} {trace['host'][key]}" for key in ("cpu", "driver", "hostname") if key in trace["host"]]
    unexplained = unexplained_said(result)
    warning = f"<p><b>{escape(unexplained)}</b></p>" if unexplained else ""
    cut = f"<p><b>Incomplete: {escape(trace['incomplete'])}</b></p>" if trace["incomplete"] else ""
    return f'<h1>{place(trace["path"])}</h1><p class="dim">{escape(" · ".join(facts))}</p>{cut}{warning}'


def _tiles(result: dict[str, Any]) -> str:
    transfers, kernels = result["transfers"], result["kernels"]
    tiles = [
        (amounts.time(result["makespan_seconds"]), "whole run"),
        (
            amounts.time(transfers["seconds"]),
            f"{amounts.several(transfers['count'], 'transfer')} of {amounts.size(transfers['bytes'])}",
        ),
        (amounts.time(transfers["exposed_seconds"]), "of it exposed: no kernel computes meanwhile"),
        (f"{transfers['share_of_gpu_time']:.1%}", "of GPU time is transfers"),
        (amounts.time(kernels["seconds"]), f"{amounts.several(kernels['count'], 'kernel')}"),
    ]
    for key, what in (
        ("communication", "communication between GPUs"),
        ("graph_work", "inside graph launches"),
    ):
        if result[key]["count"]:
            tiles.append((amounts.time(result[key]["seconds"]), what))
    cards = "".join(f'<div class="tile"><b>{escape(value)}</b>{escape(what)}</div>' for value, what in tiles)
    return f'<div class="tiles">{cards}</div>'


def _findings(result: dict[str, Any]) -> str:
    if not result["findings"]:
        return _section("What to do", f"<p>{nothing_found(result)}</p>")
    items = []
    for finding in result["findings"]:
        said = gain_said(finding, result)
        more = [text for text in (overlaps_said(finding, result), what_if_said(finding)) if text]
        replayed = "".join(f"<br><span class='dim'>{_words(text)}</span>" for text in more)
        items.append(
            f"<li><b>{escape(finding['title'])}</b> <span class='gain'>{escape(said)}</span><br>"
            f"{_words(finding['evidence'])}<br>{_words(finding['change'])}{replayed}</li>"
        )
    cost = f" {said_of_cost(result['recording_cost'])}" if result["recording_cost"] else ""
    note = f"<p class='dim'>Gains are predicted ({escape(basis_said(result))}).{escape(cost)}</p>"
    return _section("What to do", f'{note}<ol class="findings">{"".join(items)}</ol>')


def _critical_path(parts: list[dict[str, Any]] | None) -> str:
    if not parts:
        return ""
    rows = ((p["part"], amounts.time(p["seconds"]), f"{p['share']:.1%}") for p in parts)
    note = "<p class='dim'>The chain of waits that makes the run as long as it is; only what lies on it can shorten it.</p>"
    return _section("Critical path, by replay", note + _table(("part", "time", "of the run"), rows))


def _projections(result: dict[str, Any], title: str = "On other nodes") -> str:
    rows = []
    for p in result["projections"]:
        moved, run = p["transfers"], p["makespan"]
        rows.append(
            (
                p["to"],
                amounts.time(moved["recorded_seconds"]),
                with_range(moved),
                amounts.time(run["recorded_seconds"]),
                with_range(run),
            )
        )
    columns = (
        "node",
        "transfers, recorded",
        "transfers, predicted",
        "whole run, recorded",
        "whole run, predicted",
    )
    basis = f"cost model {result['model']}; whole run: {result['makespan']['method']}"
    note = f"<p class='dim'>Recorded on {escape(result['from'])}; {escape(basis)}.</p>"
    return _section(title, f'{note}<div id="projection" class="plot"></div>{_table(columns, rows)}')


def _by_path(paths: list[dict[str, Any]]) -> str:
    rows = (
        (
            _path(r),
            amounts.count(r["count"]),
            amounts.size(r["bytes"]),
            amounts.time(r["seconds"]),
            amounts.rate(r["bytes_per_second"]),
        )
        for r in paths
    )
    return _section(
        "Transfers by path, as recorded", _table(("path", "count", "bytes", "time", "rate"), rows)
    )


def _gpus(result: dict[str, Any]) -> str:
    rows = (
        (
            str(g["device"]),
            amounts.time(g["kernels"]["seconds"]),
            amounts.time(g["communication"]["seconds"]),
            amounts.time(g["transfers"]["seconds"]),
            amounts.time(g["transfers"]["exposed_seconds"]),
            amounts.time(g["busy_seconds"]),
            amounts.time(g["idle_seconds"]),
        )
        for g in result["gpus"]
    )
    engines = (
        (
            f"GPU {e['device']}, {e['work']}",
            amounts.time(e["busy_seconds"]),
            f"{e['share_of_run']:.1%}",
            amounts.rate(e["bytes_per_second"]),
        )
        for e in result["engines"]
    )
    streams = (
        (
            f"GPU {s['device']}, stream {s['stream']}",
            amounts.count(s["kernels"]),
            amounts.count(s["communication"]),
            amounts.count(s["transfers"]),
            amounts.time(s["busy_seconds"]),
        )
        for s in result["streams"]
    )
    tables = (
        _table(("GPU", "kernels", "communication", "transfers", "exposed", "busy", "idle"), rows),
        _table(("engine", "busy", "of the run", "rate while busy"), engines),
        _table(("stream", "kernels", "communication", "transfers", "busy"), streams),
    )
    return _section("GPUs, engines and streams, as recorded", "<br>".join(tables))


def _tops(result: dict[str, Any]) -> str:
    kernels = (
        (r["name"] or "", amounts.count(r["count"]), amounts.time(r["seconds"]))
        for r in result["top_kernels"]
    )
    copies = (
        (
            _path(r),
            amounts.time(r["start_seconds"]),
            "–" if r["bytes"] is None else amounts.size(r["bytes"]),
            amounts.time(r["seconds"]),
        )
        for r in result["top_copies"]
    )
    return _section(
        "Longest kernels and copies, as recorded",
        _table(("kernel", "count", "time"), kernels)
        + "<br>"
        + _table(("copy", "at", "bytes", "time"), copies),
    )


def _gaps(result: dict[str, Any]) -> str:
    if not result["idle_gaps"]:
        return ""
    rows = (
        (
            f"GPU {g['device']}",
            f"{g['longest_call']} ({amounts.time(g['longest_call_seconds'])})"
            if g["longest_call"]
            else "no API call",
            amounts.time(g["start_seconds"]),
            amounts.time(g["seconds"]),
        )
        for g in result["idle_gaps"]
    )
    return _section(
        "Longest gaps on a GPU, as recorded",
        _table(("GPU", "longest API call meanwhile", "at", "idle for"), rows, 2),
    )


def _omissions(omissions: list[dict[str, Any]]) -> str:
    if not omissions:
        return ""
    items = "".join(
        f"<li><b>{escape(o['id'])}</b>: {amounts.count(o['count']) + ' ' if o['count'] else ''}{_words(o['what'])}</li>"
        for o in omissions
    )
    return _section("What this trace does not tell", f"<ul>{items}</ul>")
