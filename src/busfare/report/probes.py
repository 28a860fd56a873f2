"""`probe` on a terminal: the node's parameters as tables, and what is wrong with the machine."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.tables import Table, table
from busfare.report.tables import console as _console

__all__ = ["show_probe"]


def show_probe(result: dict[str, Any]) -> None:
    """The node's parameters, their residuals, and what is wrong with the machine."""
    console = _console()
    node = result["node"]
    if result["virtual"]:
        console.print(
            f"VIRTUAL: {result['facts']['plays']} is played here; nothing was measured", style="bold"
        )
    console.print(node["title"], style="bold")
    console.print()
    console.print(_paths(node["measured"]))
    console.print()
    console.print(_costs(node["costs"]))
    console.print()
    for h in result["health"]:
        said = h["verdict"] or "sound"
        share = h["measured_bytes_per_second"] / h["predicted_bytes_per_second"]
        rates = f"{amounts.rate(h['measured_bytes_per_second'])} of {amounts.rate(h['predicted_bytes_per_second'])}"
        console.print(f"GPU {h['gpu']} {h['direction']}: {rates} by the data sheet ({share:.0%}): {said}")
    for name, summary in (("pinned", result["residuals"]), ("pageable", result["residuals"]["pageable"])):
        if summary["count"]:
            console.print(
                f"Residuals on {amounts.several(summary['count'], f'{name} case')}, not fitted: "
                f"median {summary['median_percent']:.2f} %, largest {summary['max_percent']:.2f} %"
            )
    for sentence in result["disturbances"]:
        console.print(f"DISTURBED: {sentence}", style="bold")
    if result["left_out"]:
        reasons: dict[str, int] = {}
        for row in result["left_out"]:
            reasons[row["why"]] = reasons.get(row["why"], 0) + 1
        for why, count in reasons.items():
            console.print(f"left out, {amounts.several(count, 'case')}: {why}")


def _paths(measured: list[dict[str, Any]]) -> Table:
    shown = table("GPU ", "path ", "L+o", "g", "large copies", "both ways", "beside mapped", "pieces")
    for m in measured:
        path = f"{m['direction']} {m['memory']}" + (f" → GPU {m['peer']}" if m["peer"] is not None else "")
        shown.add_row(
            str(m["gpu"]),
            path,
            amounts.time(m["pieces"][0]["latency_overhead_s"]),
            "–" if m["gap_s"] is None else amounts.time(m["gap_s"]),
            amounts.rate(1 / m["pieces"][-1]["gap_per_byte_s"]),
            *(_rate(m[f"{key}_gap_per_byte_s"]) for key in ("both_directions", "mapped")),
            str(len(m["pieces"])),
        )
    return shown


def _rate(gap_per_byte_s: float | None) -> str:
    return "–" if gap_per_byte_s is None else amounts.rate(1 / gap_per_byte_s)


def _costs(costs: list[dict[str, Any]]) -> Table:
    shown = table("GPU ", "call ", "on the host", "a MiB", "on the GPU")
    for cost in costs:
        rate = cost["call_per_byte_s"]
        shown.add_row(
            "–" if cost["gpu"] is None else str(cost["gpu"]),
            cost["call"],
            amounts.time(cost["call_s"]),
            "–" if rate is None else amounts.time(rate * 2**20),
            "–" if cost["device_s"] is None else amounts.time(cost["device_s"]),
        )
    return shown
