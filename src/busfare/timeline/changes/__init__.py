"""Changes to a program, as changes to its timeline: one file a change, found by being here.

A file of a change holds OPTIONS, by which `what-if` asks for it; PLACE, its place in the order in which a program would be
changed; and `asked`, which makes the changes of the options' values. To add a change is to add such a file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from busfare.errors import InputError
from busfare.node import Node
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting, Value
from busfare.timeline.model import Timeline
from busfare.timeline.play import Played, play

__all__ = [
    "OPTIONS",
    "Applied",
    "Change",
    "Outcome",
    "Setting",
    "Value",
    "WhatIf",
    "apply_all",
    "changes_of",
    "what_if",
]

_FOUND = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_CHANGES = sorted((module for module in _FOUND if hasattr(module, "PLACE")), key=lambda module: module.PLACE)
#: Of `what-if`, in the order in which the changes apply.
OPTIONS: tuple[Option, ...] = tuple(option for module in _CHANGES for option in module.OPTIONS)


def changes_of(
    values: Mapping[str, Value], recorded_on: Node | None, *, check_only: bool = False
) -> list[Change]:
    """The changes asked for, by the options' keys. Raises InputError for what cannot be read, or where nothing was asked.

    With `check_only` rules that compare two nodes are passed over: nothing needs to be read to check the rest.
    """
    asked = Asked(values, recorded_on, check_only)
    changes = [change for module in _CHANGES for change in module.asked(asked)]
    if not changes and not asked.several("kernels"):
        raise InputError("what-if: say what to change, as in --pin, --streams 3 or --to h200-sxm; see --help")
    return changes


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


def apply_all(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> Applied:
    """`timeline` after `changes`, in the order given; counts, bytes and conditions of all of them. Raises InputError."""
    done = Applied(timeline, 0)
    for change in changes:
        applied = change.apply(done.timeline, setting)
        conditions = list(dict.fromkeys([*done.rests_on, *applied.rests_on]))
        done = Applied(applied.timeline, done.count + applied.count, done.bytes + applied.bytes, conditions)
    return done


def what_if(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> WhatIf:
    """Plays `timeline` unchanged, with each of `changes`, and with all, applied in the order given.

    Raises InputError where a change needs what the trace does not hold.
    """

    def outcome(title: str, chosen: Sequence[Change]) -> Outcome:
        applied = apply_all(timeline, chosen, setting)
        return Outcome(title, applied.count, applied.bytes, applied.rests_on, play(applied.timeline))

    baseline = play(timeline)
    alone = [outcome(change.title, [change]) for change in changes]
    return WhatIf(baseline, alone, alone[0] if len(alone) == 1 else outcome("all together", changes))
