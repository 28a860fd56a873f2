"""What a change to a program is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from busfare.node import Node
from busfare.timeline.edit import without_operations
from busfare.timeline.model import Mask, Timeline

__all__ = ["Applied", "Change", "Setting", "Step", "applied", "taken_out"]


@dataclass(frozen=True)
class Setting:
    """What a change may need to know: the node of the recording (None: unknown) and the cost model for others."""

    recorded_on: Node | None = None
    model: str = "calibrated"


@dataclass(frozen=True)
class Step:
    """A part of a change, what in the trace calls for it, and what the run gains by it on top of the steps before it, in
    seconds; None: nothing that a change gains, but what stands in its way.
    """

    title: str
    evidence: str
    gain_seconds: float | None = None


@dataclass(frozen=True)
class Applied:
    """A timeline after a change, how many operations or calls it touched, their bytes, what it rests on, and its steps."""

    timeline: Timeline
    count: int
    bytes: int = 0
    rests_on: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """One change to a program: the option of `what-if` that asks for it, what it is called, and what it makes of a run.

    `apply` raises InputError where the trace lacks what it needs. `node`: where everything runs then, if elsewhere.
    """

    option: str
    title: str
    apply: Callable[[Timeline, Setting], Applied]
    node: Node | None = None


def applied(before: Timeline, after: Timeline, touched: Mask, *rests_on: str) -> Applied:
    """`after`, made of `before` by touching some of its operations; shape (operations,)."""
    return Applied(after, int(touched.sum()), int(before.sizes[touched].sum()), list(rests_on))


def taken_out(timeline: Timeline, removed: Mask, *rests_on: str) -> Applied:
    """The timeline without these operations, on conditions where there are some; shape (operations,)."""
    return applied(
        timeline, without_operations(timeline, removed), removed, *(rests_on if removed.any() else ())
    )
