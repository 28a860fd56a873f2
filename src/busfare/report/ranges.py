"""How predicted times and their ranges are shown, in the terminal and on pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from busfare.advise import Finding, amounts
from busfare.cost.ranges import NOTHING_KNOWN, figures_of, finding_between, gain_beside, seconds_between
from busfare.node import Node

if TYPE_CHECKING:
    from busfare.timeline import Played
    from busfare.timeline.changes import Change, Outcome, Setting

__all__ = ["finding_range", "outcome_range", "said_of_ranges", "whiskers", "with_range"]

RUNGS = {
    "datasheet": "data sheets",
    "typical": "what is typical of the generation",
    "probed": "what was measured on the machine",
    "calibrated": "the recorded times of this trace",
}


def with_range(row: dict[str, Any], key: str = "predicted_seconds") -> str:
    """The predicted time of a row of a result, with its range."""
    return amounts.between(row[key], row.get("low_seconds"), row.get("high_seconds"))


def said_of_ranges(row: dict[str, Any]) -> str:
    """What the ranges of a result are and stand on."""
    if row["low_seconds"] is None:
        return f"Predicted without a range: {row['reason']}."
    stands = RUNGS.get(row["rung"], row["rung"])
    return f"In brackets: 80 % ranges, from how far predictions by {stands} lay from held-out measurements."


def whiskers(rows: list[dict[str, Any] | None], unit: float = 1.0) -> dict[str, Any]:
    """Error bars, in plotly's words, of the predicted times of `rows`, in 1/`unit` s; a recorded one (None) has none."""
    ends = [(0.0, 0.0)] * len(rows)
    for place, row in enumerate(rows):
        if row is not None and row.get("low_seconds") is not None:
            seconds = row["predicted_seconds"]
            ends[place] = unit * (seconds - row["low_seconds"]), unit * (row["high_seconds"] - seconds)
    down, up = zip(*ends, strict=True)
    return {"type": "data", "symmetric": False, "arrayminus": list(down), "array": list(up), "thickness": 1.2}


def finding_range(finding: Finding, run_seconds: float, node: Node | None) -> dict[str, Any]:
    """The range of what a finding gains of a run of `run_seconds`, recorded on `node`."""
    ends = finding_between(finding.gain_seconds, finding.by_replay, finding.what_if, run_seconds, node)
    low, high = ends or (None, None)
    return seconds_between(low, high, "calibrated", "nothing in the trace bounds it")


def outcome_range(
    outcome: Outcome, baseline: Played, changes: list[Change], setting: Setting
) -> dict[str, Any]:
    """The range of the run after `changes`, in seconds."""
    from busfare.project.projection import run_between
    from busfare.timeline.changes.elsewhere import Host, ToNode

    seconds, run, ends = outcome.played.makespan_seconds, baseline.makespan_seconds, []
    others = [change for change in changes if not isinstance(change, (ToNode, Host))]
    if others:
        names = " ".join(change.options[0] for change in others)
        low, high = gain_beside(run - seconds, run, names, figures_of(setting.recorded_on))
        ends += [run - high, run - low]
    for change in changes:
        if isinstance(change, ToNode) and setting.recorded_on is not None:
            ends += run_between(outcome.played, setting.model, setting.recorded_on, change.node)
    if not outcome.count:
        ends = [seconds]  # nothing is changed, so nothing is predicted
    if not ends:
        return seconds_between(None, None, "calibrated", NOTHING_KNOWN)
    return seconds_between(min(*ends, seconds), max(*ends, seconds), "calibrated")
