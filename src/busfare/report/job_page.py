"""A job's result as one page that opens offline."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.advise import amounts
from busfare.errors import InputError
from busfare.node import Node, load_node
from busfare.report.document import document, section, table, words
from busfare.report.gains import overlaps_said, what_if_said
from busfare.report.job_plots import largest_plot, spread_plot, strip_plot
from busfare.report.jobs import WORDS, amount, gain_said, name_of, slow_link
from busfare.report.link_picture import link_picture
from busfare.report.plots import Plot, histogram_plot
from busfare.report.terminal import path_of

__all__ = ["job_page"]

PAGE_WORDS = (
    "Recorded: read from the traces. Predicted: by a cost model. Exposed: a transfer runs and no kernel computes. "
    "Sums are over all traces; medians and quartiles are within half a percent."
)
#: Figures whose outermost traces are drawn.
DRAWN = ("makespan_seconds", "exposed_seconds")


def job_page(result: dict[str, Any], node: Node | None = None) -> str:
    """The page of `report` on many traces; `node` is where they were recorded, if the user named it."""
    plots: dict[str, Plot] = {}
    body = [_header(result), _tiles(result)]
    if plot := strip_plot(result):
        plots["strip"] = plot
        width = result["strip"]["ranks_per_cell"]
        note = (
            ""
            if width == 1
            else f" A cell stands for {width} neighbouring ranks and shows the largest of them."
        )
        body.append(
            section(
                "Along the ranks, as recorded",
                f'<div id="strip" class="plot"></div><p class="dim">Each figure over its median.{note}</p>',
            )
        )
    body.append(_spread(result, plots))
    body.append(_health(result))
    body.append(_links(result, node, plots))
    body.append(_findings(result))
    if result["by_path"]:
        body.append(_by_path(result["by_path"]))
    if plot := histogram_plot(result["size_histogram"]):
        plots["histogram"] = plot
        body.append(section("Transfers by size, as recorded", '<div id="histogram" class="plot"></div>'))
    body += [_failures(result), _omissions(result["omissions"])]
    return document(f"busfare: {amounts.several(result['traces']['read'], 'trace')}", body, plots, PAGE_WORDS)


def _header(result: dict[str, Any]) -> str:
    traces = result["traces"]
    facts = [f"{count:,} {name}" for name, count in traces["formats"].items()]
    facts += [gpu["name"] for gpu in result["gpus"][:4]]
    failed = (
        f" <b>{amounts.several(traces['failed'], 'file')} could not be read.</b>" if traces["failed"] else ""
    )
    read = amounts.several(traces["read"], "trace")
    return f'<h1>{read} of a job</h1><p class="dim">{escape(" · ".join(facts))}.{failed}</p>'


def _tiles(result: dict[str, Any]) -> str:
    transfers, slowest = result["transfers"], result["slowest"]
    hosts, ranks = result["hosts"]["count"], result["ranks"]["count"]
    places = (
        f"{amounts.several(ranks, 'rank')} on {amounts.several(hosts, 'host')}"
        if hosts and ranks
        else "ranks or hosts not named"
    )
    tiles = [
        (amounts.time(slowest["makespan_seconds"]), f"slowest: {name_of(slowest)}"),
        (amounts.time(transfers["seconds"]), f"transfers of {amounts.size(transfers['bytes'])}, all traces"),
        (amounts.time(transfers["exposed_seconds"]), "of it exposed: no kernel computes meanwhile"),
        (f"{transfers['share_of_gpu_time']:.1%}", "of GPU time is transfers"),
        (
            f"{len(result['link_health']['slow']):,}",
            f"slow links of {result['link_health']['links']:,}; {places}",
        ),
    ]
    cards = "".join(f'<div class="tile"><b>{escape(value)}</b>{escape(what)}</div>' for value, what in tiles)
    return f'<div class="tiles">{cards}</div>'


def _spread(result: dict[str, Any], plots: dict[str, Plot]) -> str:
    rows = (
        (
            WORDS[row["figure"]],
            *(
                amount(row["figure"], row[key])
                for key in ("least", "quartile", "median", "upper_quartile", "p95", "most", "sum")
            ),
            amounts.count(row["outliers"]["count"]),
        )
        for row in result["spread"]
    )
    columns = ("figure", "least", "quartile", "median", "upper quartile", "95 %", "most", "sum", "outliers")
    content = [table(columns, rows)]
    for row in result["spread"]:
        if row["figure"] not in DRAWN:
            continue
        for kind, plot in (("spread", spread_plot(row)), ("largest", largest_plot(row))):
            if plot:
                name = f"{kind}-{row['figure']}"
                plots[name] = plot
                content.append(f'<div id="{name}" class="plot"></div>')
    return section("Spread over the traces, as recorded", "".join(content))


def _health(result: dict[str, Any]) -> str:
    health = result["link_health"]
    if not health["groups"]:
        return section(
            "Link health", "<p>No large pinned copy (16 MiB or more) was recorded to judge a link by.</p>"
        )
    rows = (
        (
            group["gpu"] or "not named",
            group["direction"],
            amounts.count(group["links"]),
            *(
                amounts.rate(group[f"{key}_bytes_per_second"])
                for key in ("least", "median", "most", "data_sheet")
            ),
        )
        for group in health["groups"]
    )
    columns = ("GPU", "way", "links", "slowest", "median", "fastest", "data sheet (predicted)")
    slow = "".join(
        f"<li>{escape(slow_link(link))}<br><span class='dim'>{escape(link['path'])}</span></li>"
        for link in health["slow"]
    )
    said = (
        f"<ul>{slow}</ul>"
        if slow
        else f"<p>Every link reaches {health['slow_below']:.0%} of its peers' median and of the data sheet.</p>"
    )
    note = "<p class='dim'>The best rate of large pinned copies on each link.</p>"
    return section("Link health, as recorded", note + table(columns, rows, 2) + said)


def _links(result: dict[str, Any], node: Node | None, plots: dict[str, Plot]) -> str:
    rows = sorted(result["links"], key=lambda row: -(row["forward"]["bytes"] + row["back"]["bytes"]))
    if not rows:
        return ""
    content = []
    drawn = node or _catalogued(rows[0]["node"])
    if drawn and (plot := link_picture(drawn, rows)):
        plots["links"] = plot
        content.append(
            f'<div id="links" class="plot"></div><p class="dim">{escape(drawn.title or drawn.name)}; a link is as '
            "wide as what all traces sent over it. Point at a mark for its figures; dotted links carried nothing.</p>"
        )
    cells = (
        (
            row["node"],
            f"{row['link']}, {' → '.join(row['between'])}",
            amounts.count(row["copies"]),
            amounts.size(row["forward"]["bytes"]),
            amounts.size(row["back"]["bytes"]),
            _seconds(row["forward"]),
            _seconds(row["back"]),
        )
        for row in rows
    )
    columns = ("node", "link", "copies", "→", "←", "→ at full rate (predicted)", "← at full rate (predicted)")
    return section("Traffic over the links", "".join(content) + table(columns, cells, 2))


def _seconds(way: dict[str, Any]) -> str:
    return "–" if way["predicted_seconds"] is None else amounts.time(way["predicted_seconds"])


def _catalogued(name: str) -> Node | None:
    try:
        return load_node(name)
    except InputError:
        return None


def _findings(result: dict[str, Any]) -> str:
    if not result["findings"]:
        return section("What to do", "<p>Nothing worth doing about transfers was found.</p>")
    items = []
    for finding in result["findings"]:
        largest = finding["largest"]
        more = [text for text in (overlaps_said(finding, result), what_if_said(largest)) if text]
        shown = "".join(f"<br><span class='dim'>{words(text)}</span>" for text in more)
        items.append(
            f"<li><b>{escape(finding['title'])}</b> <span class='gain'>{escape(gain_said(finding, result))}</span><br>"
            f"Most in {escape(name_of(largest))}: {words(largest['evidence'])}<br>"
            f"{words(largest['change'])}{shown}</li>"
        )
    note = "<p class='dim'>Gains are predicted, each of the trace that it saves most in.</p>"
    return section("What to do", f'{note}<ol class="findings">{"".join(items)}</ol>')


def _by_path(paths: list[dict[str, Any]]) -> str:
    rows = (
        (
            path_of(row),
            amounts.count(row["count"]),
            amounts.size(row["bytes"]),
            amounts.time(row["seconds"]),
            amounts.rate(row["bytes_per_second"]),
        )
        for row in paths
    )
    return section("Transfers by path, as recorded", table(("path", "count", "bytes", "time", "rate"), rows))


def _failures(result: dict[str, Any]) -> str:
    if not result["failures"]:
        return ""
    items = "".join(f"<li>{escape(f['path'])}: {escape(f['why'])}</li>" for f in result["failures"])
    more = result["traces"]["failed"] - len(result["failures"])
    rest = f"<p class='dim'>and {more:,} more</p>" if more > 0 else ""
    return section("Files that could not be read", f"<ul>{items}</ul>{rest}")


def _omissions(omissions: list[dict[str, Any]]) -> str:
    if not omissions:
        return ""
    items = "".join(
        f"<li><b>{escape(o['id'])}</b>: {amounts.count(o['count']) + ' ' if o['count'] else ''}{words(o['what'])}"
        + (f" [{amounts.several(o['traces'], 'trace')}]" if o["traces"] else "")
        + "</li>"
        for o in omissions
    )
    return section("What this report does not tell", f"<ul>{items}</ul>")
