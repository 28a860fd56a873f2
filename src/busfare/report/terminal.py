"""Results as tables in a terminal, no wider than 100 columns."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from busfare.advise import amounts
from busfare.report.gains import gain_said, nothing_found, what_if_said
from busfare.report.tables import console as _console
from busfare.report.tables import plain as _plain
from busfare.report.tables import table as _table

__all__ = ["show_comparison", "show_nodes", "show_prices", "show_projection", "show_report"]


def _path(row: dict[str, Any]) -> str:
    """'h2d pageable → device'."""
    ends = " → ".join(row[side] or "unknown" for side in ("source_memory", "destination_memory"))
    return f"{row['direction'] or '?'}  {ends}"


def _bar(share: float, width: int = 24) -> str:
    return "█" * round(share * width) if share > 0 else ""


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
    for what, key in (("graph launches' work", "graph_work"), ("memory sets", "sets")):
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
            "exposed: no kernel runs beside them."
        )
    if len(result["gpus"]) > 1:
        console.print()
        console.print(_gpus(result["gpus"]))

    if result["by_path"]:
        console.print()
        paths = _table("path ", "count", "bytes", "time", "rate", title="Transfers by path")
        for row in result["by_path"]:
            paths.add_row(
                _path(row),
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
            name = _plain(row["name"])
            name.truncate(74, overflow="ellipsis")
            tops.add_row(name, amounts.count(row["count"]), amounts.time(row["seconds"]))
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
                _plain(call),
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
    _show_omissions(console, result["omissions"])


def _gpus(gpus: list[dict[str, Any]]) -> Table:
    table = _table("GPU", "kernels", "transfers", "exposed", "idle", title="By GPU")
    for gpu in gpus:
        table.add_row(
            str(gpu["device"]),
            amounts.time(gpu["kernels"]["seconds"]),
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
            _bar(row["count"] / counts if counts else 0),
            amounts.time(row["seconds"]),
            _bar(row["seconds"] / seconds if seconds else 0),
        )
    return table


def _show_findings(console: Console, result: dict[str, Any]) -> None:
    console.print()
    if not result["findings"]:
        console.print(nothing_found(result), style="bold")
        return
    node = result["node"]
    basis = (
        f"by the data sheet of {node['name']}"
        + (", a guess from the GPU's name; set --node" if node["guessed_from_gpu_name"] else "")
        if node
        else ("the machine is not known: name it with --node")
    )
    console.print("What to do", style="bold", end="")
    console.print(f"  (gains are predicted, {basis})", style="dim")
    for number, finding in enumerate(result["findings"], 1):
        said = gain_said(finding, result["makespan_seconds"])
        console.print(f"{number}. {finding['title']}: {said}")
        console.print(Padding(_plain(finding["evidence"]), (0, 0, 0, 3)), style="dim")
        console.print(Padding(_plain(finding["change"]), (0, 0, 0, 3)))
        if finding["what_if"]:
            console.print(Padding(_plain(what_if_said(finding)), (0, 0, 0, 3)), style="dim")


def _show_omissions(console: Console, omissions: list[dict[str, Any]]) -> None:
    if not omissions:
        return
    console.print()
    console.print("What this trace does not tell", style="bold")
    for omission in omissions:
        count = f"{amounts.count(omission['count'])} " if omission["count"] else ""
        console.print(Padding(_plain(f"{omission['id']}: {count}{omission['what']}"), (0, 0, 0, 3)))


def show_projection(result: dict[str, Any]) -> None:
    """What a run would take on other nodes."""
    console = _console()
    first = result["projections"][0]
    guess = " (a guess from the GPU's name; set --from)" if result["from_guessed_from_gpu_name"] else ""
    console.print(
        f"Recorded on {first['from']}{guess}; predicted by cost model {first['model']}", style="bold"
    )
    console.print()
    table = _table("node ", "transfers", "change", "whole run", "change")
    table.add_row(
        f"{first['from']} (recorded)",
        amounts.time(first["transfers"]["recorded_seconds"]),
        "",
        amounts.time(first["makespan"]["recorded_seconds"]),
        "",
    )
    for p in result["projections"]:
        moved, run = p["transfers"], p["makespan"]
        table.add_row(
            f"{p['to']} (predicted)",
            amounts.time(moved["predicted_seconds"]),
            _change(moved["recorded_seconds"], moved["predicted_seconds"]),
            amounts.time(run["predicted_seconds"]),
            _change(run["recorded_seconds"], run["predicted_seconds"]),
        )
    console.print(table)
    console.print(f"Whole run: {first['makespan']['method']}.", style="dim")
    for p in result["projections"]:
        console.print()
        paths = _table("path ", "count", "recorded", "predicted", "change", title=f"{p['to']}, by path")
        for row in p["by_path"]:
            paths.add_row(
                _path(row),
                amounts.count(row["count"]),
                amounts.time(row["recorded_seconds"]),
                amounts.time(row["predicted_seconds"]),
                _change(row["recorded_seconds"], row["predicted_seconds"]),
            )
        console.print(paths)
        if p["transfers"]["unpriced"]:
            console.print(
                f"{amounts.count(p['transfers']['unpriced'])} copies have no price by this model: their recorded "
                "time is kept.",
                style="dim",
            )


def _change(old: float, new: float) -> str:
    return f"{new / old - 1:+.1%}" if old else "–"


def show_comparison(result: dict[str, Any]) -> None:
    """Predictions against a trace recorded on the machine that they are for."""
    console = _console()
    console.print(
        _plain(
            f"Predicted from {result['predicted']} for {result['to']}, against {result['actual']} (recorded)"
        ),
        style="bold",
    )
    console.print()
    table = _table(
        "model ",
        "copies compared",
        "WMAPE",
        title="Error by cost model: 100 · Σ|recorded − predicted| / Σ recorded",
    )
    for m in result["models"]:
        table.add_row(m["model"], amounts.count(m["count"]), f"{m['wmape_percent']:.2f} %")
    console.print(table)
    best = result["models"][0]
    console.print()
    paths = _table(
        "path ", "count", "recorded", "predicted", "WMAPE", title=f"Best model, {best['model']}, by path"
    )
    for row in best["by_path"]:
        error = row["wmape_percent"]
        paths.add_row(
            _path(row),
            amounts.count(row["count"]),
            amounts.time(row["recorded_seconds"]),
            amounts.time(row["predicted_seconds"]),
            "–" if error is None else f"{error:.2f} %",
        )
    console.print(paths)
    if best["unmatched"]:
        console.print(
            f"{amounts.count(best['unmatched'])} copies are in one of the two traces only: not compared.",
            style="dim",
        )


def show_prices(result: dict[str, Any]) -> None:
    """One copy by every model."""
    console = _console()
    what = f"{result['direction']}, {result['memory']}, {amounts.size(result['bytes'])} on {result['node']} (predicted)"
    table = _table("model ", "time", "rate", title=what)
    for price in result["prices"]:
        table.add_row(price["model"], amounts.time(price["seconds"]), amounts.rate(price["bytes_per_second"]))
    console.print(table)


def show_nodes(result: dict[str, Any]) -> None:
    """The catalogue."""
    console = _console()
    table = _table(
        "node ",
        "GPUs",
        "host link ",
        "h2d",
        "d2h",
        "what ",
        title="Nodes (rates of large copies, predicted from data sheets)",
    )
    for node in result["nodes"]:
        title = Text(node["title"])
        title.truncate(36, overflow="ellipsis")
        table.add_row(
            node["name"],
            str(node["gpus"]),
            node["host_link"],
            amounts.rate(node["h2d_bytes_per_second"]),
            amounts.rate(node["d2h_bytes_per_second"]),
            title,
        )
    console.print(table)
