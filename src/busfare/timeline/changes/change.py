"""Changes to a program, as changes to its timeline: each says what it did and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from busfare.errors import InputError
from busfare.node import Node
from busfare.timeline.edit import with_durations, without_operations
from busfare.timeline.faults import kernels_held
from busfare.timeline.model import Timeline
from busfare.timeline.prices import nanoseconds_on
from busfare.timeline.selection import among, bytes_of, matching

__all__ = ["Applied", "Change", "CopySpeed", "Kernels", "Remove", "Setting", "ToNode"]


@dataclass(frozen=True)
class Setting:
    """What a change may need to know: the node of the recording (None: unknown) and the cost model for others."""

    recorded_on: Node | None = None
    model: str = "calibrated"


@dataclass(frozen=True)
class Applied:
    """A timeline after a change, how many operations or calls it touched, their bytes, and what it rests on."""

    timeline: Timeline
    count: int
    bytes: int = 0
    rests_on: list[str] = field(default_factory=list)


class Change(Protocol):
    """One change to a program. Raises InputError where the trace lacks what it needs."""

    @property
    def title(self) -> str: ...

    def apply(self, timeline: Timeline, setting: Setting) -> Applied: ...


@dataclass(frozen=True)
class Remove:
    """Operations of one direction or kind are gone, with the calls that made them."""

    what: str

    @property
    def title(self) -> str:
        return f"no {self.what}"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        removed = among(timeline, "direction", self.what) | among(timeline, "kind", self.what)
        duration = np.where(removed, 0, timeline.columns["operation_duration"])
        changed = with_durations(timeline, kernels_held(timeline, duration))
        return Applied(without_operations(changed, removed), int(removed.sum()), bytes_of(timeline, removed))


@dataclass(frozen=True)
class CopySpeed:
    """Every copy and migration takes `factor` times less."""

    factor: float

    @property
    def title(self) -> str:
        return f"copies {self.factor:g} times as fast"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        moved = among(timeline, "kind", "copy", "migration")
        duration = timeline.columns["operation_duration"] / np.where(moved, self.factor, 1.0)
        changed = with_durations(timeline, kernels_held(timeline, duration))
        return Applied(changed, int(moved.sum()), bytes_of(timeline, moved))


@dataclass(frozen=True)
class ToNode:
    """The copies run on another node, or over another link."""

    node: Node

    @property
    def title(self) -> str:
        return f"on {self.node.name}"

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            raise InputError(
                f"{timeline.trace.path}: the trace names no GPU that busfare knows; "
                "say where it was recorded with --from NODE"
            )
        moved = among(timeline, "kind", "copy", "migration")
        duration = nanoseconds_on(timeline, setting.recorded_on, self.node, setting.model)
        duration = kernels_held(timeline, duration)
        return Applied(
            replace(with_durations(timeline, duration), node=self.node),
            int(moved.sum()),
            bytes_of(timeline, moved),
            ["kernels keep their times, and the host where not both were measured, unless a rule is given"],
        )


@dataclass(frozen=True)
class Kernels:
    """Kernel times by a rule: every kernel whose name matches takes `factor` times its time."""

    factor: float
    pattern: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        which = f" of {self.pattern}" if self.pattern else ""
        return f"kernel times{which} × {self.factor:.4g}" + (f" ({self.why})" if self.why else "")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = among(timeline, "kind", "kernel", "graph", "set")
        chosen &= matching(timeline, self.pattern)
        duration = timeline.columns["operation_duration"] * np.where(chosen, self.factor, 1.0)
        return Applied(with_durations(timeline, duration), int(chosen.sum()))
