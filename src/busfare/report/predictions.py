"""Predictions, their comparison with a recorded trace, prices and the catalogue as tables in a terminal."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.ranges import said_of_ranges, with_range
from busfare.report.tables import Table
from busfare.report.tables import console as _console
from busfare.report.tables import plain as _plain
from busfare.report.tables import table as _table
from busfare.report.terminal import path_of

__all__ = ["show_comparison", "show_nodes", "show_prices", "show_projection"]


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
            with_range(moved),
            _change(moved["recorded_seconds"], moved["predicted_seconds"]),
            with_range(run),
            _change(run["recorded_seconds"], run["predicted_seconds"]),
        )
    console.print(table)
    console.print(f"Whole run: {first['makespan']['method']}.", style="dim")
    console.print(said_of_ranges(first["makespan"]), style="dim")
    for p in result["projections"]:
        console.print()
        paths = _table("path ", "count", "recorded", "predicted", "change", title=f"{p['to']}, by path")
        for row in p["by_path"]:
            paths.add_row(
                path_of(row),
                amounts.count(row["count"]),
                amounts.time(row["recorded_seconds"]),
                with_range(row),
                _change(row["recorded_seconds"], row["predicted_seconds"]),
            )
        console.print(paths)
        if p["pageable_copies"]:
            console.print(_plain(f"Pageable copies: {p['pageable_copies']}."), style="dim")
        if p["transfers"]["unpriced"]:
            console.print(
                f"Without a price by this model: {amounts.several(p['transfers']['unpriced'], 'copy')}; the recorded "
                "time is kept.",
                style="dim",
            )


def _change(old: float, new: float) -> str:
    return f"{round(new / old - 1, 3) + 0.0:+.1%}" if old else "–"  # no minus before nothing


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
        "in range",
        title="Error by cost model: 100 · Σ|recorded − predicted| / Σ recorded",
    )
    for m in result["models"]:
        inside = m["inside_percent"]
        within = "–" if inside is None else f"{inside:.0f} %"
        table.add_row(m["model"], amounts.count(m["count"]), f"{m['wmape_percent']:.2f} %", within)
    console.print(table)
    best = result["models"][0]
    console.print()
    paths = _table(
        "path ", "count", "recorded", "predicted", "WMAPE", title=f"Best model, {best['model']}, by path"
    )
    for row in best["by_path"]:
        error = row["wmape_percent"]
        paths.add_row(
            path_of(row),
            amounts.count(row["count"]),
            amounts.time(row["recorded_seconds"]),
            with_range(row),
            "–" if error is None else f"{error:.2f} %",
        )
    console.print(paths)
    if best["unmatched"]:
        console.print(
            f"Not compared, for in one of the two traces only: {amounts.several(best['unmatched'], 'copy')}.",
            style="dim",
        )


def show_prices(result: dict[str, Any]) -> None:
    """One copy by every model."""
    console = _console()
    what = f"{result['direction']}, {result['memory']}, {amounts.size(result['bytes'])} on {result['node']} (predicted)"
    table = _table("model ", "time (80 % range)", "rate", "rung ", title=what)
    for price in result["prices"]:
        rung = price["rung"] or f"– ({price['reason']})"
        table.add_row(
            price["model"], with_range(price, "seconds"), amounts.rate(price["bytes_per_second"]), rung
        )
    console.print(table)
    if result["trust"]:
        console.print(_plain(f"Trust {result['trust']['model']}: {result['trust']['why']}."), style="dim")


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
        table.add_row(
            node["name"],
            str(node["gpus"]),
            node["host_link"],
            amounts.rate(node["h2d_bytes_per_second"]),
            amounts.rate(node["d2h_bytes_per_second"]),
            node["title"],
        )
    if result["nodes"]:
        console.print(table)
    if "gpus_by_name" in result:
        console.print(
            f"{result['gpus_by_name']} GPUs more by name: busfare nodes 3060 shows those with 3060 in it."
        )
    elif result["gpus"]:
        console.print(_gpu_table(result["gpus"]))


def _gpu_table(gpus: list[dict[str, Any]]) -> Table:
    table = _table(
        "GPU ", "link ", "memory", "rate", "SMs or CUs", "copy engines", "node ", title="GPUs by name"
    )
    for gpu in gpus:
        size, rate, units = (
            gpu[key] for key in ("memory_bytes", "memory_bandwidth_bytes_per_s", "multiprocessors")
        )
        table.add_row(
            gpu["name"],
            gpu["link"] or "one memory",
            "" if size is None else f"{size / 2**30:.0f} GiB",
            "" if rate is None else amounts.rate(rate),
            str(units or ""),
            str(gpu["copy_engines"] or ""),
            gpu["node"] or "",
        )
    return table
