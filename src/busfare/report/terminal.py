"""The report of a trace as tables in a terminal, as wide as it is."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.gains import (
    basis_said,
    gain_said,
    nothing_found,
    overlaps_said,
    said_of_cost,
    unexplained_said,
    what_if_said,
)
from busfare.report.tables import Bar, Indented, Screen, Table, headed
from busfare.report.tables import console as _console
from busfare.report.tables import plain as _plain
from busfare.report.tables import table as _table

__all__ = ["path_of", "show_omissions", "show_report"]


def path_of(row: dict[str, Any]) -> str:
    """'h2d pageable → device'."""
    ends = " → ".join(row[side] or "unknown" for side in ("source_memory", "destination_memory"))
    return f"{row['direction'] or '?'}  {ends}"


def show_report(result: dict[str, Any]) -> None:
    """The report of one trace."""
    console = _console()
    trace, transfers, kernels = result["trace"], result["transfers"], result["kernels"]
    makespan = result["makespan_seconds"]
    console.print(_plain(trace["path"]), style="bold")
    gpus = ", ".join(sorted({d["name"] for d in trace["devices"] if d["name"]})) or "GPU not named"
    console.print(
        _plain(
            f"{trace['producer']} · {gpus}" + (f" · {trace['host']['cpu']}" if "cpu" in trace["host"] else "")
        ),
        style="dim",
    )
    if trace["incomplete"]:
        console.print(_plain(f"Incomplete: {trace['incomplete']}"), style="bold")
    if unexplained := unexplained_said(result):
        console.print(unexplained, style="yellow")
    console.print()

    summary = _table("recorded ", "count", "bytes", "time", "of the run", "exposed")
    one_gpu = len(result["gpus"]) == 1 and makespan > 0

    def part(seconds: float) -> str:
        # Sums over several GPUs are no part of one run's time.
        return f"{seconds / makespan:.1%}" if one_gpu else "–"

    summary.add_row(
        "transfers",
        amounts.count(transfers["count"]),
        amounts.size(transfers["bytes"]),
        amounts.time(transfers["seconds"]),
        part(transfers["seconds"]),
        amounts.time(transfers["exposed_seconds"]),
    )
    summary.add_row(
        "kernels",
        amounts.count(kernels["count"]),
        "",
        amounts.time(kernels["seconds"]),
        part(kernels["seconds"]),
        "",
    )
    others = (
        ("communication", "communication"),
        ("graph launches' work", "graph_work"),
        ("memory sets", "sets"),
    )
    for what, key in others:
        if result[key]["count"]:
            summary.add_row(
                what,
                amounts.count(result[key]["count"]),
                "",
                amounts.time(result[key]["seconds"]),
                part(result[key]["seconds"]),
                "",
            )
    summary.add_row("whole run", "", "", amounts.time(makespan), "", "")
    console.print(summary)
    if transfers["count"]:
        console.print(
            f"Transfers are {transfers['share_of_gpu_time']:.1%} of GPU time (transfers and kernels); "
            f"exposed: no kernel {'computes' if result['communication']['count'] else 'runs'} beside them."
        )
    if len(result["gpus"]) > 1:
        console.print()
        console.print(_gpus(result["gpus"]))

    if result["by_path"]:
        console.print()
        paths = _table("path ", "count", "bytes", "time", "rate", title="Transfers by path")
        for row in result["by_path"]:
            paths.add_row(
                path_of(row),
                amounts.count(row["count"]),
                amounts.size(row["bytes"]),
                amounts.time(row["seconds"]),
                amounts.rate(row["bytes_per_second"]),
            )
        console.print(paths)
        console.print()
        console.print(_histogram(result["size_histogram"], transfers))
    if result["top_kernels"]:
        console.print()
        tops = _table("kernel ", "count", "time", title="Longest kernels")
        for row in result["top_kernels"][:5]:
            tops.add_row(row["name"], amounts.count(row["count"]), amounts.time(row["seconds"]))
        console.print(tops)
    gaps = [g for g in result["idle_gaps"] if makespan and g["seconds"] > 0.005 * makespan]
    if gaps:
        console.print()
        idle = _table("GPU", "at", "idle for", "longest API call meanwhile ", title="Longest gaps on a GPU")
        for gap in gaps:
            call = (
                f"{gap['longest_call']} ({amounts.time(gap['longest_call_seconds'])})"
                if gap["longest_call"]
                else "no API call"
            )
            idle.add_row(
                str(gap["device"]),
                amounts.time(gap["start_seconds"]),
                amounts.time(gap["seconds"]),
                call,
            )
        console.print(idle)
    if result["critical_path"]:
        console.print()
        path = _table("critical path ", "time", "of the run")
        for row in result["critical_path"]:
            if row["share"] >= 0.001:
                path.add_row(row["part"], amounts.time(row["seconds"]), f"{row['share']:.1%}")
        console.print(path)
    _show_findings(console, result)
    show_omissions(console, result["omissions"])


def _gpus(gpus: list[dict[str, Any]]) -> Table:
    carried = ["communication"] if any(gpu["communication"]["count"] for gpu in gpus) else []
    table = _table("GPU", "kernels", *carried, "transfers", "exposed", "idle", title="By GPU")
    for gpu in gpus:
        table.add_row(
            str(gpu["device"]),
            *(amounts.time(gpu[key]["seconds"]) for key in ("kernels", *carried)),
            amounts.time(gpu["transfers"]["seconds"]),
            amounts.time(gpu["transfers"]["exposed_seconds"]),
            amounts.time(gpu["idle_seconds"]),
        )
    return table


def _histogram(rows: list[dict[str, Any]], transfers: dict[str, Any]) -> Table:
    table = _table("size ", "count", "by count ", "time", "by time ", title="Transfers by size")
    counts, seconds = sum(r["count"] for r in rows), sum(r["seconds"] for r in rows)
    for row in rows:
        table.add_row(
            f"{amounts.size(row['lower_bytes'])} – {amounts.size(row['upper_bytes'])}",
            amounts.count(row["count"]),
            Bar(row["count"] / counts if counts else 0),
            amounts.time(row["seconds"]),
            Bar(row["seconds"] / seconds if seconds else 0),
        )
    return table


def _show_findings(console: Screen, result: dict[str, Any]) -> None:
    console.print()
    if not result["findings"]:
        console.print(nothing_found(result), style="bold")
        return
    console.print(headed("What to do", f"gains are predicted, {basis_said(result)}"))
    if result["recording_cost"]:
        console.print(Indented(_plain(said_of_cost(result["recording_cost"])), 2), style="dim")
    for number, finding in enumerate(result["findings"], 1):
        said = gain_said(finding, result)
        console.print(f"{number}. {finding['title']}: {said}")
        console.print(Indented(_plain(finding["evidence"])), style="dim")
        console.print(Indented(_plain(finding["change"])))
        for text in (overlaps_said(finding, result), what_if_said(finding)):
            if text:
                console.print(Indented(_plain(text)), style="dim")


def show_omissions(console: Screen, omissions: list[dict[str, Any]]) -> None:
    """What was skipped, repaired or unknown in a trace."""
    if not omissions:
        return
    console.print()
    console.print("What this trace does not tell", style="bold")
    for omission in omissions:
        count = f"{amounts.count(omission['count'])} " if omission["count"] else ""
        console.print(Indented(_plain(f"{omission['id']}: {count}{omission['what']}")))
