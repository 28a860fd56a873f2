"""The result of `plan` as words and tables in a terminal."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.ranges import said_of_ranges, with_range
from busfare.report.tables import Screen, console, plain, table

__all__ = ["NOTE", "amount_of", "show_plan"]

MOST_ROWS = 40
#: Before what a strategy is predicted by, where it rests on what nobody said.
NOTE = "if touched once: "


def show_plan(result: dict[str, Any]) -> None:
    """The answer in a terminal: words, then tables."""
    out = console()
    many = (
        f" (the first of {amounts.several(len(result['kernels']), 'kernel')})" if "kernels" in result else ""
    )
    title = f"{result['name']}{many} on {result['node']}"
    out.print(plain(title), style="bold")
    out.print(plain(f"{result['device']['gpu'] or 'GPU'} · {result['device']['category']}"), style="dim")
    out.print()
    for sentence in result["words"]:
        out.print(plain(sentence))
    out.print()
    _show_ranking(out, result)
    if recorded := result.get("recorded"):
        out.print(
            f"Recorded in the trace: {amounts.several(recorded['launches'], 'launch')} in "
            f"{amounts.several(recorded['streams'], 'stream')}, {amounts.time(recorded['span_seconds'])} from first to last."
        )
    if result["roofline"]:
        out.print()
        _show_roofline(out, result["roofline"])
    if "kernels" in result:
        out.print()
        _show_kernels(out, result["kernels"])
    if "nodes" in result:
        out.print()
        _show_nodes(out, result["nodes"])
    if "sweep" in result:
        out.print()
        _show_sweep(out, result["sweep"])
    out.print()
    _show_basis(out, result["basis"])


def _show_ranking(out: Screen, result: dict[str, Any]) -> None:
    rows = table("strategy ", "streams", "predicted", "over best", "by ")
    best = result["ranking"][0]["predicted_seconds"]
    for row in result["ranking"]:
        rows.add_row(
            row["strategy"],
            str(row["streams"]),
            with_range(row),
            f"{round(row['predicted_seconds'] / best - 1, 3) + 0.0:+.1%}",
            (NOTE if row["assumes"] else "") + row["by"],
        )
    out.print(rows)
    out.print(said_of_ranges(result["ranking"][0]), style="dim")
    bounds = result["bounds"]
    out.print(
        f"Bounds (predicted): full overlap {amounts.time(bounds['full_overlap_seconds'])}, "
        f"none {amounts.time(bounds['no_overlap_seconds'])}, mapped {amounts.time(bounds['mapped_seconds'])}.",
        style="dim",
    )


def _show_roofline(out: Screen, roof: dict[str, float]) -> None:
    rows = table("roofline with transfers (predicted) ", "GFLOP/s", title=None)
    for name, key in (
        ("kernel alone", "roof"),
        ("full overlap, at most", "full_overlap"),
        ("no overlap, at most", "no_overlap"),
        ("mapped, at most", "mapped"),
    ):
        rows.add_row(name, f"{roof[key] / 1e9:,.4g}")
    out.print(rows)
    out.print(
        f"{roof['operational_intensity']:.3g} flops per byte of device memory, {roof['data_intensity']:.3g} per byte "
        "over the link.",
        style="dim",
    )


def _show_kernels(out: Screen, kernels: list[dict[str, Any]]) -> None:
    rows = table("kernel ", "dominant ", "best ", "streams", "predicted", "explicit", title="Every kernel")
    for kernel in kernels[:MOST_ROWS]:
        best = kernel["ranking"][0]
        rows.add_row(
            kernel["name"],
            kernel["dominant"],
            best["strategy"],
            str(best["streams"]),
            with_range(best),
            amounts.time(kernel["bounds"]["no_overlap_seconds"]),
        )
    out.print(rows)
    if len(kernels) > MOST_ROWS:
        out.print(f"{len(kernels) - MOST_ROWS:,} more; all of them with --json.", style="dim")


def _show_nodes(out: Screen, nodes: list[dict[str, Any]]) -> None:
    rows = table("node ", "best ", "streams", "predicted", "explicit", "dominant ", title="On other nodes")
    for node in nodes:
        best = node["ranking"][0]
        rows.add_row(
            plain(node["node"]),
            best["strategy"],
            str(best["streams"]),
            with_range(best),
            amounts.time(node["bounds"]["no_overlap_seconds"]),
            node["dominant"],
        )
    out.print(rows)
    out.print(
        "A kernel time that was given stays as it is; from flops and device bytes it is each GPU's own.",
        style="dim",
    )


def amount_of(value: float, parameter: str) -> str:
    """A swept value as people read it."""
    if parameter == "bytes":
        return amounts.size(value)
    if parameter == "kernel":
        return amounts.time(value)
    return f"× {value:.3g}" if parameter == "link" else f"{value:.0f}"


def _show_sweep(out: Screen, found: dict[str, Any]) -> None:
    parameter = found["parameter"]
    names = list(found["points"][0]["predicted_seconds"])[:5]
    rows = table(
        f"{parameter} ", *names, "best ", title=f"Predicted time against {parameter} ({found['unit']})"
    )
    for point in found["points"]:
        seconds = point["predicted_seconds"]
        rows.add_row(
            amount_of(point["value"], parameter),
            *(amounts.time(seconds[name]) for name in names),
            point["best"],
        )
    out.print(rows)
    for change in found["changes"]:
        out.print(
            f"From {amount_of(change['value'], parameter)} on: {change['to']} instead of {change['from']}."
        )
    if not found["changes"]:
        out.print("The best strategy stays the same over this range.")


def _show_basis(out: Screen, basis: list[dict[str, Any]]) -> None:
    rows = table("parameter ", "value", "kind ", "source ", title="What it rests on")
    for row in basis:
        value = row["value"] if isinstance(row["value"], str) else _value(row["value"], row["unit"])
        rows.add_row(row["parameter"], value, row["kind"], row["source"])
    out.print(rows)


def _value(value: float, unit: str) -> str:
    if unit == "s/B":
        return amounts.rate(1 / value) if value else "free"
    return amounts.time(value) if unit == "s" else f"× {value:.3g}"
