"""`bench` on a terminal: measured beside predicted, a table a cell."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.ranges import with_range
from busfare.report.tables import Table, console, plain, table

__all__ = ["fastest", "seen", "show_methods", "show_strategies"]


def seen(result: dict[str, Any]) -> str:
    """What to call seconds that stand beside predicted ones: those of a virtual node were not measured."""
    return "played" if result["virtual"] else "measured"


def show_strategies(result: dict[str, Any]) -> None:
    """A line a strategy of each cell, at its fastest number of streams; then what was picked."""
    out = console()
    _head(result, out)
    for cell in result["cells"]:
        out.print()
        out.print(_cell(cell, seen(result)))
        best, limit, streams = cell["best"], cell["limit"], cell["streams"]
        verdict = "picked" if best["picked"] else "NOT picked"
        out.print(
            plain(
                f"  fastest: {_name(best['measured'])}, {verdict}: predicted {_name(best['predicted'])}; "
                f"streams reach {limit['streams_share_percent']:.1f} % of the limit (the {limit['by']}); "
                f"{amounts.several(streams['predicted_best'], 'stream')} predicted, "
                f"{streams['measured_best']} {seen(result)}"
            )
        )
    _foot(result, out)


def _name(one: dict[str, Any]) -> str:
    return f"{one['strategy']} ({one['streams']})" if one["streams"] > 1 else one["strategy"]


def _cell(cell: dict[str, Any], word: str) -> Table:
    title = (
        f"{cell['name']}: {cell['title']}; {amounts.size(cell['h2d_bytes'])} in, {amounts.size(cell['d2h_bytes'])} out, "
        f"kernel alone {amounts.time(cell['measured_kernel_seconds'])}"
    )
    shown = table("strategy ", "streams", word, "predicted", "error", "host's clock", title=title)
    for version in fastest(cell):
        predicted, error = version["predicted_seconds"], version["error_percent"]
        host = version["measured_host_seconds"]
        shown.add_row(
            version["strategy"],
            str(version["streams"]),
            amounts.time(version["measured_seconds"]),
            "–" if predicted is None else with_range(version),
            "–" if error is None else f"{error:+.1f} %",
            "–" if host is None else amounts.time(host),
        )
    return shown


def fastest(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """The fastest version of each strategy, in the order of the versions."""
    best: dict[str, dict[str, Any]] = {}
    for version in cell["versions"]:
        known = best.get(version["strategy"])
        if known is None or version["measured_seconds"] < known["measured_seconds"]:
            best[version["strategy"]] = version
    return list(best.values())


def show_methods(result: dict[str, Any]) -> None:
    """A line a method of each case; then S16's own figures beside ours, and the crossover."""
    out = console()
    _head(result, out)
    for cell in result["cells"]:
        out.print()
        out.print(_case(cell))
        verdict = "picked" if cell["best"]["picked"] else f"NOT picked: predicted {cell['best']['predicted']}"
        out.print(plain(f"  fastest: {cell['best']['measured']}, {verdict}"))
    out.print()
    out.print(_beside_published(result))
    crossing = result["crossover"]
    if crossing is not None:
        here, due = (_accesses(crossing[f"{side}_accesses"]) for side in ("measured", "predicted"))
        out.print(
            plain(
                f"Pinned copies beat zero-copy from {here} accesses an element on ({seen(result)}), "
                f"{due} (predicted), at {crossing['elements']:,} ints"
            )
        )
    _foot(result, out)


def _accesses(number: float | None) -> str:
    return "no number of" if number is None else f"{number:.2f}"


def _case(cell: dict[str, Any]) -> Table:
    title = (
        f"{amounts.several(cell['elements'], 'int')} ({amounts.size(cell['bytes'])}), "
        f"{amounts.several(cell['accesses'], 'access')} an element"
    )
    shown = table(
        "method ",
        "whole",
        "±",
        "initialise",
        "h2d",
        "kernel",
        "d2h",
        "sum",
        "predicted",
        "error",
        title=title,
    )
    for m in cell["methods"]:
        ranges, error = m["measured_ranges_seconds"], m["error_percent"]
        shown.add_row(
            m["method"],
            amounts.time(m["measured_seconds"]),
            f"{50 * m['spread']:.1f}%",
            *(amounts.time(ranges[name]) if ranges[name] else "–" for name in ranges),
            "–" if m["predicted_seconds"] is None else with_range(m),
            "–" if error is None else f"{error:+.1f}%",
        )
    return shown


def _beside_published(result: dict[str, Any]) -> Table:
    published = result["published"]["situation_1"]
    shown = table(
        "over zero-copy ", "here, 1 access", "here, 50", "S16's GT 740, 1", title="Mean of S16's five sizes"
    )
    one, many = result["normalised"]["situation_1"], result["normalised"]["situation_2"]
    for method in dict.fromkeys((*one, *many)):
        cells = (one.get(method), many.get(method), published.get(method))
        shown.add_row(method, *("–" if share is None else f"{share:.2f} ×" for share in cells))
    return shown


def _head(result: dict[str, Any], out: Any) -> None:
    if result["virtual"]:
        out.print("VIRTUAL: a node is played here; nothing was measured, nothing was checked", style="bold")
    node = result["node"]
    out.print(plain(f"{result['gpu']}, predicted by the parameters of {node['name']} ({node['source']})"))


def _foot(result: dict[str, Any], out: Any) -> None:
    for sentence in result["disturbances"]:
        out.print(plain(f"DISTURBED: {sentence}"), style="bold")
    for row in result["left_out"]:
        out.print(plain(f"left out: {row['case']}: {row['why']}"))
