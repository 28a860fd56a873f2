"""How findings and their gains are said, in the terminal and on the page alike."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts

__all__ = ["gain_said", "nothing_found", "what_if_said"]


def gain_said(finding: dict[str, Any], makespan_seconds: float) -> str:
    """'saves 27 ms of 166 ms (16%), by replay', or 'saves at most …' where only a bound is known."""
    gain = finding["predicted_gain_seconds"]
    if gain is None:
        return "gain not known"
    said = f"saves {'' if finding['by_replay'] else 'at most '}{amounts.time(gain)}"
    if makespan_seconds:
        said += f" of {amounts.time(makespan_seconds)} ({gain / makespan_seconds:.0%})"
    return said + (", by replay" if finding["by_replay"] else "")


def nothing_found(result: dict[str, Any]) -> str:
    """What stands in place of findings: a trace in which the GPU does nothing tells nothing about its transfers."""
    if result["kernels"]["count"] or result["transfers"]["count"] or result["graph_work"]["count"]:
        return "Nothing worth doing about transfers was found."
    return "The trace holds no kernels and no transfers: it does not tell what there is to do."


def what_if_said(finding: dict[str, Any]) -> str:
    """The conditions under which the gain holds, and the command that shows it."""
    conditions = "; ".join(finding["rests_on"])
    command = "See `busfare what-if TRACE " + " ".join(finding["what_if"]) + "`."
    return f"Holds if {conditions}. {command}" if conditions else command
