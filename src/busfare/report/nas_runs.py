"""`bench ft` and `bench mg` on a terminal: a line a run, measured beside its predicted limit."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.tables import Table, console, plain, table

__all__ = ["beside", "gain_sentence", "heading", "named", "show_nas", "variant", "verdict"]

#: What the limit is, in one sentence.
LIMIT = "limit, predicted: what the link moves both ways or the kernels in GPU memory must at least, whichever takes longer"


def heading(result: dict[str, Any]) -> str:
    """'NAS FT on NVIDIA H200, driver 580.159.04'."""
    name = result["schema"].removeprefix("busfare.bench-").partition("/")[0].upper()
    driver = f", driver {result['driver']}" if result["driver"] else ""
    where = f"{result['gpu']}{driver}" if result["gpu"] else "processors, no GPU"
    return f"NAS {name} on {where}"


def named(run: dict[str, Any]) -> str:
    """'funneled, 4 ranks, slabs'; with the number of GPUs where it is not one, and with what it was asked beyond that."""
    ranks = amounts.several(run["ranks"], "rank")
    gpus = f"{run['gpus']} GPUs" if run["gpus"] > 1 else ""
    return ", ".join(part for part in (run["mode"], ranks, gpus, run["algorithm"]) if part)


def variant(run: dict[str, Any]) -> str:
    """What the program was asked or chose beyond that: 'exchange device, 16.8 MB tasks'."""
    said = []
    for key, value in run["variant"].items():
        if key == "chunk_bytes":
            said.append(f"{amounts.size(value)} tasks")
        else:
            said.append(
                f"{key.replace('_', ' ')} {value if not isinstance(value, bool) else 'on' if value else 'off'}"
            )
    return ", ".join(said)


def verdict(run: dict[str, Any]) -> str:
    """Whether the official values came out."""
    return {True: "yes", False: "NO", None: "not compared"}[run["verified"]]


def gain_sentence(gain: dict[str, Any]) -> str:
    """'class C, 4 ranks: funneled is 1.35 times as fast as multiple'."""
    gpus = f", {gain['gpus']} GPUs" if gain["gpus"] > 1 else ""
    ranks = amounts.several(gain["ranks"], "rank")
    return (
        f"class {gain['class']}, {ranks}{gpus}: {gain['way']} {gain['measured_times_as_fast']:.2f} times as fast as "
        f"{gain['over']} (measured)"
    )


def beside(result: dict[str, Any]) -> str:
    """What FT's limits rest on where the link was measured beside each run; else nothing."""
    rates = [rate for run in result["runs"] for rate in run.get("measured_link_bytes_per_second") or ()]
    if not rates:
        return ""
    return (
        f" Beside the runs the link gave {amounts.rate(min(rates))} to {amounts.rate(max(rates))} each way; "
        "each run's limit rests on what was measured just before and after it."
    )


def show_nas(result: dict[str, Any]) -> None:
    """A line a run; then what the ways gain over each other, and what was left out."""
    out = console()
    out.print(plain(heading(result)), style="bold")
    rates = result["rates"]
    if rates:
        out.print(
            plain(
                f"{LIMIT}; {amounts.rate(rates['each_way_bytes_per_second'])} each way, "
                f"{amounts.rate(rates['memory_bytes_per_second'])} of memory ({rates['source']}).{beside(result)}"
            )
        )
    for size in dict.fromkeys(run["class"] for run in result["runs"]):
        out.print()
        out.print(_runs(f"class {size}", [run for run in result["runs"] if run["class"] == size]))
    out.print()
    for gain in result["gains"]:
        out.print(plain(gain_sentence(gain)))
    if not result["all_verified"]:
        out.print("NOT VERIFIED: a run missed the official values", style="bold")
    for row in result["left_out"]:
        out.print(plain(f"left out: {row['case']}: {row['why']}"))


def _runs(title: str, runs: list[dict[str, Any]]) -> Table:
    shown = table("run ", "variant ", "iteration", "limit", "by ", "of it", "verified ", title=title)
    for run in runs:
        limit = run["limit"]
        shown.add_row(
            plain(named(run)),
            plain(variant(run)),
            amounts.time(run["measured_iteration_seconds"]),
            amounts.time(limit["predicted_seconds"]) if limit else "–",
            plain(limit["by"]) if limit else "–",
            f"{run['limit_share_percent']:.0f} %" if limit else "–",
            verdict(run),
        )
    return shown
