"""Waits of the host that go: those of copies, and those that a program asks for."""

from __future__ import annotations

import numpy as np

from busfare.timeline.changes.change import Applied, Change, Setting
from busfare.timeline.edit import (
    ASYNC_COPY,
    last_of_each,
    matching,
    right_behind,
    usual_call_ns,
    waiting_behind,
    without_waits,
)
from busfare.timeline.model import Mask, Timeline
from busfare.timeline.prices import pageable

__all__ = ["REUSED", "not_holding", "without_synchronisations", "without_waiting"]

REUSED = "nothing overwrites a buffer before its copy is done"
READ = "the host reads what comes back only behind a wait that stays"
UNREAD = "the host reads no result between these waits, and reuses no buffer that is still on its way"


def without_waiting(pattern: str = "") -> Change:
    """Copies no longer hold the host up: those to the GPU or, with a pattern, whichever match in either direction."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        chosen = timeline.copies("h2d", *["d2h"] * bool(pattern)) & ~pageable(timeline.operations)
        chosen &= matching(timeline, pattern)
        changed, touched = not_holding(timeline, chosen)
        rests_on = [REUSED, *[READ] * bool((chosen & timeline.among("direction", "d2h")).any())]
        return Applied(changed, touched, int(timeline.sizes[chosen].sum()) if touched else 0, rests_on)

    title = f"copy without waiting: {pattern}" if pattern else "copy to the GPU without waiting"
    return Change("--async", title, apply)


def not_holding(timeline: Timeline, chosen: Mask) -> tuple[Timeline, int]:
    """The run in which the host does not wait for the `chosen` copies, shape (operations,); and how many waits that were."""
    calls = timeline.calls_of(chosen)
    # PyTorch's blocking copy is an asynchronous one with a wait for its stream behind it.
    synchronising = waiting_behind(timeline, calls)
    blocking = calls & timeline.waiting()
    own = np.minimum(timeline.columns["call_own"], usual_call_ns(timeline, ASYNC_COPY))
    # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
    freed = chosen & timeline.of_calls(blocking & timeline.waiting("operation"))
    changed = without_waits(timeline, blocking | synchronising, np.where(synchronising, 0, own))
    changed = changed.with_columns(operation_extra=np.where(freed, 0, timeline.columns["operation_extra"]))
    return changed, int(blocking.sum() + synchronising.sum())


def without_synchronisations(pattern: str = "") -> Change:
    """Explicit waits go, but for those behind a copy to the host and the last of each thread."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        waiting = timeline.calls_named("Synchronize$") & timeline.waiting()
        if pattern:
            waiting &= timeline.calls_named(pattern)
        needed = right_behind(timeline, timeline.calls_of(timeline.among("direction", "d2h")))
        dropped = waiting & ~needed & ~last_of_each(timeline.columns["call_thread"], waiting)
        return Applied(without_waits(timeline, dropped, 0), int(dropped.sum()), 0, [UNREAD])

    title = "synchronise only where the host needs a result" + (f": {pattern}" if pattern else "")
    return Change("--drop-synchronisations", title, apply)
