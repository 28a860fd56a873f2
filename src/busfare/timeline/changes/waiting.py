"""Waits of the host that go: those of copies, and those that a program asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.edit import (
    ASYNC_COPY,
    among,
    bytes_of,
    calls_named,
    calls_of,
    matching,
    next_on_thread,
    usual_call_ns,
    without_calls,
    without_waits,
)
from busfare.timeline.model import WAIT, Timeline
from busfare.timeline.prices import pageable

__all__ = ["OPTIONS", "PLACE", "Async", "DropSynchronisations", "asked"]

SYNCHRONISE = r"Synchronize$"
PLACE = 70
OPTIONS = (
    Option(
        "--async",
        "Copies to the GPU, or all that match, no longer hold the host up.",
        "[REGEX]",
        bare=True,
    ),
    Option(
        "--drop-synchronisations",
        "Only waits behind copies to the host, and last ones, stay.",
        "[REGEX]",
        bare=True,
    ),
)


def asked(options: Asked) -> list[Change]:
    """Copies, and synchronisations, that hold the host up no longer."""
    copies, waits = options.text("async"), options.text("drop_synchronisations")
    changes: list[Change] = [] if copies is None else [Async(copies)]
    return changes + ([] if waits is None else [DropSynchronisations(waits)])


@dataclass(frozen=True)
class Async:
    """Copies no longer hold the host up: those to the GPU or, with a pattern, whichever match in either direction."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return f"copy without waiting: {self.pattern}" if self.pattern else "copy to the GPU without waiting"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--async", self.pattern) if self.pattern else ("--async",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        directions = ("h2d", "d2h") if self.pattern else ("h2d",)
        chosen = among(timeline, "kind", "copy") & among(timeline, "direction", *directions)
        chosen &= ~pageable(timeline.operations) & matching(timeline, self.pattern)
        back = bool((chosen & among(timeline, "direction", "d2h")).any())
        calls = calls_of(timeline, chosen)
        following = next_on_thread(timeline)
        waiting = np.isin(columns["call_wait"], [WAIT["stream"], WAIT["given"]])
        # PyTorch's blocking copy is an asynchronous one with a wait for its stream behind it.
        behind = following[calls]
        behind = behind[behind >= 0]
        synchronising = np.zeros(len(calls), bool)
        synchronising[behind] = waiting[behind]
        blocking = calls & (columns["call_wait"] != WAIT["none"])
        usual = usual_call_ns(timeline, ASYNC_COPY)
        own = np.where(synchronising, 0, np.minimum(columns["call_own"], usual))
        # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
        freed = chosen & (columns["operation_launched"] != 0)
        freed[freed] = (blocking & (columns["call_wait"] == WAIT["operation"]))[
            columns["operation_call"][freed]
        ]
        changed = without_waits(timeline, blocking | synchronising, own).with_columns(
            operation_extra=np.where(freed, 0, columns["operation_extra"])
        )
        touched = int(blocking.sum() + synchronising.sum())
        return Applied(
            changed,
            touched,
            bytes_of(timeline, chosen) if touched else 0,
            [
                "nothing overwrites a buffer before its copy is done",
                *(["the host reads what comes back only behind a wait that stays"] if back else []),
            ],
        )


@dataclass(frozen=True)
class DropSynchronisations:
    """Explicit waits go, but for those behind a copy to the host and the last of each thread."""

    pattern: str = ""

    @property
    def title(self) -> str:
        return "synchronise only where the host needs a result" + (
            f": {self.pattern}" if self.pattern else ""
        )

    @property
    def options(self) -> tuple[str, ...]:
        return ("--drop-synchronisations", *((self.pattern,) if self.pattern else ()))

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        waiting = calls_named(timeline, SYNCHRONISE) & (columns["call_wait"] != WAIT["none"])
        if self.pattern:
            waiting &= calls_named(timeline, self.pattern)
        out = calls_of(timeline, among(timeline, "direction", "d2h"))
        needed = np.zeros(len(waiting), bool)
        following = next_on_thread(timeline)
        needed[following[out][following[out] >= 0]] = True
        last = np.zeros(len(waiting), bool)
        for thread in np.unique(columns["call_thread"][waiting]):
            last[np.flatnonzero(waiting & (columns["call_thread"] == thread))[-1]] = True
        dropped = waiting & ~needed & ~last
        return Applied(
            without_calls(timeline, dropped),
            int(dropped.sum()),
            0,
            ["the host reads no result between these waits, and reuses no buffer that is still on its way"],
        )
