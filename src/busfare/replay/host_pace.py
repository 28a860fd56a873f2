"""Host time on another machine: by the pace or the calls that were measured on both, or by a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.node import Node
from busfare.quantities import parse_factor
from busfare.replay.changes import Applied, Setting
from busfare.replay.timeline import Timeline

__all__ = ["Host", "host_changes", "measured_ratio"]

#: A fixed piece of the processor's work at quiet moments: on a machine probed twice 1 to 8 % apart (seven pairs of
#: results/probe, without the busiest), where launches and synchronisations together are 0 to 16 %.
PACE = ("pace",)
#: What programs call most, where a node was probed before the pace was noted.
CALLS = ("launch", "synchronise")


@dataclass(frozen=True)
class Host:
    """What the host does in calls and between them takes `factor` times its time; its waits are what they wait for."""

    factor: float
    why: str = ""

    @property
    def title(self) -> str:
        return f"host times × {self.factor:.4g}" + (f" ({self.why})" if self.why else "")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        changed = {name: self._scaled(columns[name]) for name in ("call_own", "call_gap")}
        return Applied(
            timeline.with_columns(**changed),
            timeline.calls.height,
            0,
            ["all that the host does becomes faster or slower alike"],
        )

    def _scaled(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        # A gap below zero is a call that began before the one it waits for had ended.
        return np.where(times > 0, np.round(times * self.factor), times).astype(np.int64)


def measured_ratio(old: Node, new: Node) -> float | None:
    """Host seconds on `new` over those on `old`: by `PACE`, else by `CALLS`; None where one lacks figures."""
    by_pace = _ratio(old, new, PACE)
    return by_pace if by_pace is not None else _ratio(old, new, CALLS)


def _ratio(old: Node, new: Node, calls: tuple[str, ...]) -> float | None:
    """The geometric mean over `calls`; None where one lacks a figure."""
    ratios = []
    for call in calls:
        here, there = (next((c.call_s for c in node.costs if c.call == call), None) for node in (old, new))
        if not here or not there:
            return None
        ratios.append(there / here)
    return float(np.exp(np.mean(np.log(ratios))))


def host_changes(rule: str, recorded_on: Node | None, to: Node | None) -> list[Host]:
    """Host times by rule: `measured` (kept where not both nodes were), `keep`, or a factor. Raises InputError."""
    if rule == "keep":
        return []
    if rule != "measured":
        return [Host(parse_factor(rule, "--host"))]
    ratio = measured_ratio(recorded_on, to) if recorded_on is not None and to is not None else None
    return [] if ratio is None or ratio == 1 else [Host(ratio, "measured on both")]
