"""A job's result as tables in a terminal."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.gains import overlaps_said, what_if_said
from busfare.report.ranges import with_range
from busfare.report.tables import Indented, Screen, headed
from busfare.report.tables import console as _console
from busfare.report.tables import plain as _plain
from busfare.report.tables import table as _table
from busfare.report.terminal import path_of

__all__ = ["WORDS", "amount", "gain_said", "name_of", "show_job", "slow_link"]

#: What the figures are called.
WORDS = {
    "makespan_seconds": "whole run",
    "kernel_seconds": "kernels",
    "communication_seconds": "communication",
    "transfer_seconds": "transfers",
    "exposed_seconds": "exposed transfers",
    "transfer_bytes": "bytes moved",
}
MOST_ROWS = 10
LONGEST_PATH = 48


def amount(figure: str, value: float) -> str:
    """A value of one of the figures, with its unit."""
    return amounts.size(value) if figure.endswith("bytes") else amounts.time(value)


def name_of(rank: dict[str, Any]) -> str:
    """'rank 3 on b12'; with as much of the file's path as is needed and fits, where that is not known."""
    path, host = rank["path"], rank["host"]
    if rank["rank"] is None:
        return _end_of(path) + (f" on {host}" if host else "")
    return f"rank {rank['rank']} on {host}" if host else f"rank {rank['rank']} ({_end_of(path)})"


def _end_of(path: str) -> str:
    return path if len(path) <= LONGEST_PATH else "…" + path[1 - LONGEST_PATH :]


def show_job(result: dict[str, Any]) -> None:
    """The report of many traces."""
    console = _console()
    _head(console, result)
    _spread(console, result)
    _outliers(console, result)
    _health(console, result)
    _links(console, result)
    if result["by_path"]:
        console.print()
        paths = _table("path ", "count", "bytes", "time", "rate", title="Transfers by path, all traces")
        for row in result["by_path"][:MOST_ROWS]:
            paths.add_row(
                path_of(row),
                amounts.count(row["count"]),
                amounts.size(row["bytes"]),
                amounts.time(row["seconds"]),
                amounts.rate(row["bytes_per_second"]),
            )
        console.print(paths)
    _findings(console, result)
    _left_out(console, result)


def _head(console: Screen, result: dict[str, Any]) -> None:
    traces, transfers = result["traces"], result["transfers"]
    formats = ", ".join(f"{count:,} {name}" for name, count in traces["formats"].items())
    console.print(headed(f"{amounts.several(traces['read'], 'trace')} of a job", formats))
    gpus = ", ".join(gpu["name"] for gpu in result["gpus"][:3]) or "GPU not named"
    hosts = result["hosts"]["count"]
    known = [
        f"{'' if result['hosts']['exact'] else 'about '}{amounts.several(hosts, 'host')}"
        if hosts
        else "hosts not named"
    ]
    known += [
        amounts.several(result["ranks"]["count"], "rank") if result["ranks"]["count"] else "ranks not named",
        gpus,
    ]
    console.print(_plain(" · ".join(known)), style="dim")
    if traces["failed"]:
        console.print(
            f"{amounts.several(traces['failed'], 'file')} could not be read (listed below)", style="bold"
        )
    console.print()
    slowest = result["slowest"]
    console.print(
        _plain(
            f"Slowest: {name_of(slowest)}, {amounts.time(slowest['makespan_seconds'])} ({slowest['path']})"
        )
    )
    console.print(
        f"{amounts.several(transfers['count'], 'transfer')} of {amounts.size(transfers['bytes'])} in "
        f"{amounts.time(transfers['seconds'])}, {amounts.time(transfers['exposed_seconds'])} exposed; "
        f"{transfers['share_of_gpu_time']:.1%} of GPU time (sums over all traces)"
    )


def _spread(console: Screen, result: dict[str, Any]) -> None:
    console.print()
    table = _table(
        "recorded ", "least", "median", "p95", "most", "mean", "outliers", title="Spread over the traces"
    )
    for row in result["spread"]:
        figure = row["figure"]
        if figure == "communication_seconds" and not row["most"]:
            continue
        values = [amount(figure, row[key]) for key in ("least", "median", "p95", "most", "mean")]
        table.add_row(WORDS[figure], *values, amounts.count(row["outliers"]["count"]))
    console.print(table)


def _outliers(console: Screen, result: dict[str, Any]) -> None:
    for row in result["spread"]:
        listed = row["outliers"]["listed"]
        if not listed:
            continue
        figure = row["figure"]
        console.print()
        title = f"Outliers by {WORDS[figure]} (above {amount(figure, row['outliers']['above'])})"
        table = _table("trace ", WORDS[figure], "of the median", title=title)
        for outlier in listed[:MOST_ROWS]:
            table.add_row(
                _plain(name_of(outlier)), amount(figure, outlier["value"]), f"{outlier['of_median']:.2f} ×"
            )
        console.print(table)


def _health(console: Screen, result: dict[str, Any]) -> None:
    health = result["link_health"]
    console.print()
    if not health["groups"]:
        console.print("Link health: no large pinned copy (16 MiB or more) to judge a link by.", style="dim")
        return
    title = "Link health: best rate of large pinned copies on each link"
    table = _table("GPU ", "way ", "links", "slowest", "median", "fastest", "data sheet", title=title)
    for group in health["groups"]:
        table.add_row(
            _plain(group["gpu"] or "not named"),
            group["direction"],
            amounts.count(group["links"]),
            *(
                amounts.rate(group[f"{key}_bytes_per_second"])
                for key in ("least", "median", "most", "data_sheet")
            ),
        )
    console.print(table)
    for link in health["slow"][:MOST_ROWS]:
        console.print(Indented(_plain(slow_link(link))))
    if len(health["slow"]) > MOST_ROWS:
        console.print(f"   and {len(health['slow']) - MOST_ROWS} more (--json)", style="dim")


def slow_link(link: dict[str, Any]) -> str:
    """'GPU 3 of rank 3 on b12, h2d: 12 GB/s, 50% of its 31 peers' median, 23% of the data sheet'."""
    to = "" if link["peer_device"] is None else f" to GPU {link['peer_device']}"
    said = f"GPU {link['device']}{to} of {name_of(link)}, {link['direction']}: {amounts.rate(link['bytes_per_second'])}"
    if link["share_of_peers"] is not None:
        said += f", {link['share_of_peers']:.0%} of the median of it and its {link['peers']:,} peers"
    if link["share_of_data_sheet"] is not None:
        said += f", {link['share_of_data_sheet']:.0%} of the data sheet"
    return said


def _links(console: Screen, result: dict[str, Any]) -> None:
    rows = sorted(result["links"], key=lambda row: -(row["forward"]["bytes"] + row["back"]["bytes"]))
    if not rows:
        return
    console.print()
    table = _table(
        "node ", "link ", "between ", "copies", "→", "←", title="Traffic over the links, all traces"
    )
    for row in rows[:MOST_ROWS]:
        table.add_row(
            _plain(row["node"]),
            _plain(row["link"]),
            _plain(" → ".join(row["between"])),
            amounts.count(row["copies"]),
            amounts.size(row["forward"]["bytes"]),
            amounts.size(row["back"]["bytes"]),
        )
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(
            f"and {amounts.several(len(rows) - MOST_ROWS, 'link')} with less (--json, --html)", style="dim"
        )


def gain_said(finding: dict[str, Any], result: dict[str, Any]) -> str:
    """'saves 1.2 s (1–1.4) of 4 s, by replay; in 17 traces': of the job as a whole, for ranks run side by side."""
    largest, run = finding["largest"], result["makespan_seconds"]["most"]
    key = "predicted_gain_seconds"
    gain = with_range(finding, key) if largest["by_replay"] else f"at most {amounts.time(finding[key])}"
    by = ", by replay" if largest["by_replay"] else ""
    return f"saves {gain} of {amounts.time(run)}{by}; in {amounts.several(finding['traces'], 'trace')}"


def _findings(console: Screen, result: dict[str, Any]) -> None:
    console.print()
    if not result["findings"]:
        console.print("Nothing worth doing about transfers was found.", style="bold")
        return
    console.print(headed("What to do", "gains are predicted, each of the trace that it saves most in"))
    for number, finding in enumerate(result["findings"], 1):
        console.print(f"{number}. {finding['title']}: {gain_said(finding, result)}")
        largest = finding["largest"]
        console.print(Indented(_plain(f"Most in {name_of(largest)}: {largest['evidence']}")), style="dim")
        console.print(Indented(_plain(largest["change"])))
        for text in (overlaps_said(finding, result), what_if_said(largest)):
            if text:
                console.print(Indented(_plain(text)), style="dim")


def _left_out(console: Screen, result: dict[str, Any]) -> None:
    if result["failures"]:
        console.print()
        console.print("Files that could not be read", style="bold")
        for failure in result["failures"][:MOST_ROWS]:
            console.print(Indented(_plain(f"{failure['path']}: {failure['why']}")))
        more = result["traces"]["failed"] - min(MOST_ROWS, len(result["failures"]))
        if more > 0:
            console.print(f"   and {more:,} more", style="dim")
    if result["omissions"]:
        console.print()
        console.print("What this report does not tell", style="bold")
        for omission in result["omissions"]:
            count = f"{amounts.count(omission['count'])} " if omission["count"] else ""
            traces = f" [{amounts.several(omission['traces'], 'trace')}]" if omission["traces"] else ""
            console.print(Indented(_plain(f"{omission['id']}: {count}{omission['what']}{traces}")))
