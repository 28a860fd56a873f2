"""How findings, their gains and what these rest on are said, in the terminal and on the page alike."""

from __future__ import annotations

from typing import Any

from busfare.advise import amounts
from busfare.report.ranges import with_range

__all__ = [
    "basis_said",
    "gain_said",
    "nothing_found",
    "overlaps_said",
    "said_of_cost",
    "unexplained_said",
    "what_if_said",
]

#: A smaller part of the run that nothing explains changes no advice.
WORTH_SAYING = 0.01


def basis_said(result: dict[str, Any]) -> str:
    """By which figures of which machine the gains are predicted."""
    node = result["node"]
    if not node:
        return "the machine is not known: name it with --from"
    by_replay = any(finding["by_replay"] for finding in result["findings"])
    figures = "what was measured on" if node["measured"] and by_replay else "the data sheet of"
    guess = ", a guess from the GPU's name; set --from" if node["guessed_from_gpu_name"] else ""
    ranges = "; in brackets, 80 % ranges" if by_replay else ""
    return f"by {figures} {node['name']}{guess}{ranges}"


def gain_said(finding: dict[str, Any], result: dict[str, Any]) -> str:
    """'saves 27 ms of 166 ms (16%), by replay', or 'saves at most …' where only a bound is known.

    Of the run without its recorder, where that is known.
    """
    gain, cost = finding["predicted_gain_seconds"], result["recording_cost"]
    run_seconds = cost["replayed_seconds"] if cost else result["makespan_seconds"]
    key = "predicted_gain_seconds"
    said = f"saves {with_range(finding, key) if finding['by_replay'] else f'at most {amounts.time(gain)}'}"
    if run_seconds:
        said += f" of {amounts.time(run_seconds)} ({gain / run_seconds:.0%})"
    said += ", by replay" if finding["by_replay"] else ""
    with_loop = finding["gain_with_loop_seconds"]
    return (
        said
        if with_loop is None
        else f"{said}; {amounts.time(with_loop)} if the loop that makes them goes, too"
    )


def overlaps_said(finding: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Which other findings touch some of the same operations; None where none does."""
    places = [
        number
        for number, other in enumerate(result["findings"], 1)
        if other["id"] in finding["overlaps_with"]
    ]
    if not places:
        return None
    verb = "touches" if len(places) == 1 else "touch"
    return f"Touches operations that {_listed(places)} {verb}, too: the gains do not add up."


def _listed(places: list[int]) -> str:
    *first, last = map(str, places)
    return f"{', '.join(first)} and {last}" if first else last


def nothing_found(result: dict[str, Any]) -> str:
    """What stands in place of findings: a trace in which the GPU does nothing tells nothing about its transfers."""
    if any(omission["id"] == "copies-not-recorded" for omission in result["omissions"]):
        return "The trace holds none of the copies that its calls made: it does not tell what there is to do about them."
    if any(result[key]["count"] for key in ("kernels", "communication", "transfers", "graph_work")):
        return "Nothing worth doing about transfers was found."
    return "The trace holds no kernels and no transfers: it does not tell what there is to do."


def unexplained_said(result: dict[str, Any]) -> str | None:
    """How much of the run the trace does not explain, where that is worth saying: nothing can be advised there."""
    unexplained, run_seconds = result["unexplained_seconds"], result["makespan_seconds"]
    if not unexplained or unexplained < WORTH_SAYING * run_seconds:
        return None
    return (
        f"{unexplained / run_seconds:.0%} of the run ({amounts.time(unexplained)}) is spent waiting for something that this "
        "trace does not tell: advice and gains leave it as it is."
    )


def said_of_cost(cost: dict[str, Any]) -> str:
    """What was taken out for the recorder, in a sentence."""
    taken = f"{amounts.time(cost['call_seconds'])} a call taken out for the recorder"
    if cost["gap_seconds"]:
        taken += f", {amounts.time(cost['gap_seconds'])} out of each gap on the GPU"
    if cost["host_pace"] != 1:
        taken += f", and the host's own time {cost['host_pace']:.2f} times that of the recorded process"
    if cost["replayed_seconds"] > 1.01 * cost["unrecorded_seconds"]:
        bare = amounts.time(cost["unrecorded_seconds"])
        return (
            f"{taken}; unrecorded, the run takes {bare}: the rest of the difference is not in calls or gaps."
        )
    return f"{taken}: unrecorded, the run takes {amounts.time(cost['unrecorded_seconds'])}."


def what_if_said(finding: dict[str, Any]) -> str:
    """The conditions under which the gain holds, and the command that shows it; empty where it was not replayed."""
    if not finding["what_if"]:
        return ""
    conditions = "; ".join(finding["rests_on"])
    command = "See `busfare what-if TRACE " + " ".join(finding["what_if"]) + "`."
    return f"Holds if {conditions}. {command}" if conditions else command
