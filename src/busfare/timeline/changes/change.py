"""What a change to a program is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from busfare.node import Node
from busfare.timeline.edit import bytes_of, without_operations
from busfare.timeline.model import Timeline

__all__ = ["Applied", "Change", "Setting", "Step", "applied", "matched", "taken_out"]


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
    """One change to a program: what it is called, the options of `what-if` that ask for it, and what it makes of a run.

    `apply` raises InputError where the trace lacks what it needs. `node`: where everything runs then, if elsewhere.
    """

    title: str
    options: tuple[str, ...]
    apply: Callable[[Timeline, Setting], Applied]
    node: Node | None = None


def matched(option: str, pattern: str) -> tuple[str, ...]:
    """The option with its REGEX, or alone where it has none."""
    return (option, pattern) if pattern else (option,)


def applied(before: Timeline, after: Timeline, touched: NDArray[np.bool_], *rests_on: str) -> Applied:
    """`after`, made of `before` by touching some of its operations; shape (operations,)."""
    return Applied(after, int(touched.sum()), bytes_of(before, touched), list(rests_on))


def taken_out(timeline: Timeline, removed: NDArray[np.bool_], *rests_on: str) -> Applied:
    """The timeline without these operations, on conditions where there are some; shape (operations,)."""
    if not removed.any():
        return Applied(timeline, 0)
    return applied(timeline, without_operations(timeline, removed), removed, *rests_on)
