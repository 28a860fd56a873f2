"""Host time on another machine: by the pace or the calls that were measured on both, or by a rule.

The host's own time is in its calls, between them, and in what the GPU waits for: work begins a constant after its
launch has returned (2 µs in recordings of H100s and H200s, whatever the launch took: validation/node_limits.py), a
copy of pageable memory when its first piece is staged, or ends for the host when its last one is copied out. Pages
that no call fetches come to the host when it touches them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.node import Node
from busfare.quantities import parse_factor
from busfare.timeline.changes.change import Applied, Setting
from busfare.timeline.model import Timeline
from busfare.trace.words import Words

__all__ = ["Host", "host_changes", "measured_ratio"]

#: A fixed piece of the processor's work at quiet moments: on a machine probed twice 1 to 8 % apart (seven pairs of
#: results/probe, without the busiest), where launches and synchronisations together are 0 to 16 %.
PACE = ("pace",)
#: What programs call most, where a node was probed before the pace was noted.
CALLS = ("launch", "synchronise")

Times = NDArray[np.int64]


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
        changed["operation_launch_lag"] = self._launches(timeline)
        changed["operation_extra"] = self._touched(timeline)
        changed["call_wait_lag"] = self._copied_out(timeline)
        return Applied(
            timeline.with_columns(**changed),
            timeline.calls.height,
            0,
            ["all that the host does becomes faster or slower alike"],
        )

    def _launches(self, timeline: Timeline) -> Times:
        """From a call to the start of its work: as long as the call itself was at work, or staged, it is the host's."""
        columns = timeline.columns
        lag, call = columns["operation_launch_lag"], columns["operation_call"]
        launched = (columns["operation_launched"] != 0) & (call >= 0)
        own = (
            np.where(launched, columns["call_own"][np.where(launched, call, 0)], 0)
            if len(columns["call_own"])
            else lag
        )
        by_host = np.where(_staged(timeline, "h2d"), lag, np.minimum(lag, own))
        return lag + self._more(np.where(launched, by_host, 0))

    def _copied_out(self, timeline: Timeline) -> Times:
        """From the end of what a call waits for to its own: of copies to pageable memory, the host's."""
        columns = timeline.columns
        lag, call = columns["call_wait_lag"], columns["operation_call"]
        copied = _staged(timeline, "d2h") & (columns["operation_launched"] != 0) & (call >= 0)
        changed = lag.copy()
        rows = call[copied]
        changed[rows] = lag[rows] + self._more(lag[rows])
        return changed

    def _touched(self, timeline: Timeline) -> Times:
        """What nothing explains of a wait: before pages go to the host without a call, the host's work up to there."""
        columns, words = timeline.columns, Words(timeline.operations)
        touched = words.among("kind", "migration") & words.among("direction", "d2h")
        touched = touched & (columns["operation_launched"] == 0)
        extra = columns["operation_extra"]
        return extra + self._more(np.where(touched, extra, 0))

    def _more(self, times: Times) -> Times:
        """What is added to the host's part of a time; a time below zero is kept."""
        return self._scaled(times) - times

    def _scaled(self, times: Times) -> Times:
        # A gap below zero is a call that began before the one it waits for had ended.
        return np.where(times > 0, np.round(times * self.factor), times).astype(np.int64)


def _staged(timeline: Timeline, direction: str) -> NDArray[np.bool_]:
    """Copies that the processor carries through pinned buffers: to the GPU, or from it. Shape (operations,)."""
    memory = "source_memory" if direction == "h2d" else "destination_memory"
    words = Words(timeline.operations)
    of_kind = words.among("kind", "copy") & words.among("direction", direction)
    staged: NDArray[np.bool_] = of_kind & words.among(memory, "pageable")
    return staged


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
