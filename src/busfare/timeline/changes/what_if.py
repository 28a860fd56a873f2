"""Several changes to one run: each alone, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busfare.timeline.changes.change import Applied, Change, Setting
from busfare.timeline.model import Timeline
from busfare.timeline.play import Played, play

__all__ = ["Outcome", "WhatIf", "what_if"]


@dataclass(frozen=True)
class Outcome:
    """What a change (or all of them) makes of the run. `count` and `bytes`: what it touched."""

    title: str
    count: int
    bytes: int
    rests_on: list[str]
    played: Played

    def gain_seconds(self, baseline: Played) -> float:
        """Run time saved against the unchanged replay; negative where the change costs time."""
        return baseline.makespan_seconds - self.played.makespan_seconds


@dataclass(frozen=True)
class WhatIf:
    """The unchanged replay, every change alone in the order given, and all together."""

    baseline: Played
    alone: list[Outcome]
    together: Outcome


def what_if(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> WhatIf:
    """Plays `timeline` unchanged, with each of `changes`, and with all, applied in the order given.

    Raises InputError where a change needs what the trace does not hold.
    """
    baseline = play(timeline)
    alone = [_outcome(change.title, change.apply(timeline, setting)) for change in changes]
    if len(changes) == 1:
        return WhatIf(baseline, alone, alone[0])
    changed, touched, size = timeline, 0, 0
    rests_on: list[str] = []
    for change in changes:
        applied = change.apply(changed, setting)
        changed = applied.timeline
        touched, size = touched + applied.count, size + applied.bytes
        rests_on += [text for text in applied.rests_on if text not in rests_on]
    together = Outcome("all together", touched, size, rests_on, play(changed))
    return WhatIf(baseline, alone, together)


def _outcome(title: str, applied: Applied) -> Outcome:
    return Outcome(title, applied.count, applied.bytes, applied.rests_on, play(applied.timeline))
