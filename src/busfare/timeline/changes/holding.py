"""What holds the host up, and goes: buffers that it stages become pinned, copies and the program ask for no waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from busfare.statements import statement
from busfare.timeline.build.work import ENGINE_BYTES
from busfare.timeline.edit import (
    ASYNC_COPY,
    COPY_CALL_NS,
    LAUNCH_CALL_NS,
    Applied,
    Change,
    Setting,
    applied,
    gaps_without,
    last_of_each,
    nanoseconds_from,
    right_behind,
    titled,
    usual_call_ns,
    waiting_behind,
    without_waits,
)
from busfare.timeline.model import (
    STAGED_ABOVE_BYTES,
    WAIT,
    Mask,
    Timeline,
    chosen_by,
    matching,
    pageable,
    under_way,
)

__all__ = ["pin", "without_synchronisations", "without_waiting"]

#: From the end of a copy of pinned memory to the return of the call that waited for it: 3.2 to 3.6 µs recorded on H100
#: and H200 (matrix_tiles; synchronisations there 2.9 to 3.6).
WAKE_UP_NS = 3_300
#: From the return of a call that submits a copy of pinned memory to its start, where nothing is in its way: 1.6 to 2.6
#: µs recorded on H100 and H200 (denoise_volume).
CALL_TO_GPU_NS = 2_000


def pin(pattern: str = "") -> Change:
    """Pageable host buffers become pinned ones; all, or those of copies that match."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        chosen = timeline.copies("h2d", "d2h") & pageable(timeline.operations)
        chosen = matching(timeline, pattern, chosen, "`pin`")
        if not chosen.any():
            return Applied(timeline, 0)
        return applied(
            timeline, _with_pinned(timeline, chosen, setting), chosen, statement("assumes.pinned-once")
        )

    return Change("pin", titled("pin", pattern), apply)


def _with_pinned(timeline: Timeline, chosen: Mask, setting: Setting) -> Timeline:
    """The run with the host buffers of the `chosen` copies pinned; shape (operations,)."""
    columns = timeline.columns
    into, sizes = chosen & timeline.among("direction", "h2d"), timeline.sizes
    pinned = columns["operation_duration"].astype(np.float64)
    copies = timeline.operations.filter(pl.Series(chosen))
    pinned[chosen] = nanoseconds_from("pinned", copies, setting.recorded_on)
    duration = np.fmin(pinned, columns["operation_duration"])
    # What traveled with the commands is a copy now: its price is from the end of one to the end of the next, without
    # a recorder.
    order = columns["operation_order_lag"].astype(np.float64)
    with_commands = into & (sizes <= ENGINE_BYTES)
    cycle = pinned - duration + timeline.closer_ns
    order[with_commands] = np.fmax(order, cycle)[with_commands]
    calls = timeline.calls_of(chosen)
    asynchronous = calls & timeline.calls_named(ASYNC_COPY)
    usual = np.where(asynchronous, _pinned_call_ns(timeline), usual_call_ns(timeline, ASYNC_COPY))
    launch = columns["operation_launch_lag"].copy()
    called = chosen & timeline.launched
    reached = usual + np.where(asynchronous, CALL_TO_GPU_NS, 0)
    launch[called] = np.minimum(launch[called], reached[columns["operation_call"][called]])
    # A blocking call no longer waits for its bytes to be staged, but always for the end of the copy.
    wait, lag = columns["call_wait"], columns["call_wait_lag"]
    blocking = calls & ~asynchronous & timeline.waiting("operation", "none")
    early = blocking & ~timeline.waiting()  # returned once its bytes were staged
    lag = np.where(early | blocking & ((lag < 0) | (lag > WAKE_UP_NS)), WAKE_UP_NS, lag)
    # A synchronisation behind a copy that is no longer over by then wakes up like others.
    lag = np.where(waiting_behind(timeline, asynchronous), np.maximum(lag, WAKE_UP_NS), lag)
    # What a large copy to the GPU waited for without a reason was the host staging its first bytes.
    staging = into & called & ((sizes > STAGED_ABOVE_BYTES) | timeline.of_calls(early))
    own = np.minimum(columns["call_own"], usual)
    changed = timeline.with_columns(
        operation_duration=np.rint(duration).astype(np.int64),
        operation_launch_lag=launch,
        operation_order_lag=order.astype(np.int64),
        operation_extra=np.where(staging, 0, columns["operation_extra"]),
        call_own=np.where(blocking, own, columns["call_own"]),
        call_wait=np.where(blocking, WAIT["operation"], wait).astype(np.uint8),
        call_wait_lag=lag,
        call_gap=gaps_without(timeline, chosen),
    )
    kind = pl.lit("pinned", dtype=timeline.operations["source_memory"].dtype)
    operations = timeline.operations.with_columns(
        pl.when(pl.Series(chosen) & (pl.col(side) == "pageable")).then(kind).otherwise(side).alias(side)
        for side in ("source_memory", "destination_memory")
    )
    return without_waits(replace(changed, operations=operations), asynchronous, own)


def _pinned_call_ns(timeline: Timeline) -> int:
    """What submitting a copy of pinned memory takes the host: as such copies of the trace do, else by its launches."""
    pinned = timeline.among("source_memory", "pinned") | timeline.among("destination_memory", "pinned")
    free = timeline.calls_of(pinned) & timeline.calls_named(ASYNC_COPY) & ~timeline.waiting()
    if free.any():
        return int(np.median(timeline.columns["call_own"][free]))
    of_launch = COPY_CALL_NS / LAUNCH_CALL_NS
    return min(usual_call_ns(timeline, ASYNC_COPY), int(of_launch * usual_call_ns(timeline, "Launch")))


def without_waiting(pattern: str = "") -> Change:
    """Copies no longer hold the host up: those to the GPU or, with a pattern, whichever match in either direction."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        chosen = timeline.copies("h2d", *["d2h"] * bool(pattern)) & ~pageable(timeline.operations)
        chosen = matching(timeline, pattern, chosen, "`async_`")
        changed, freed = _not_holding(timeline, chosen)
        rests_on = [statement("assumes.not-overwritten")]
        if (chosen & timeline.among("direction", "d2h")).any():
            rests_on.append(statement("assumes.read-behind-waits"))
        if not freed.any():
            return Applied(changed, 0, 0, rests_on)
        sizes, held = timeline.sizes[chosen], chosen & timeline.of_calls(freed)
        touched = under_way(timeline, held, freed)
        return Applied(changed, int(freed.sum()), int(sizes.sum()), rests_on, touched=touched)

    return Change("async_", titled("async", pattern), apply)


def _not_holding(timeline: Timeline, chosen: Mask) -> tuple[Timeline, Mask]:
    """The run in which the host does not wait for the `chosen` copies, shape (operations,); and the calls that waited."""
    calls = timeline.calls_of(chosen)
    # PyTorch's blocking copy is an asynchronous one with a wait for its stream behind it.
    synchronising = waiting_behind(timeline, calls)
    blocking = calls & timeline.waiting()
    own = np.minimum(timeline.columns["call_own"], usual_call_ns(timeline, ASYNC_COPY))
    # What a copy waited for without a reason, in a call that held the host until it ended, was that call's doing.
    freed = chosen & timeline.of_calls(blocking & timeline.waiting("operation"))
    changed = without_waits(timeline, blocking | synchronising, np.where(synchronising, 0, own))
    changed = changed.with_columns(operation_extra=np.where(freed, 0, timeline.columns["operation_extra"]))
    return changed, blocking | synchronising


def without_synchronisations(pattern: str = "") -> Change:
    """Explicit waits go, but for those behind a copy to the host and the last of each thread."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        waiting = timeline.calls_named("Synchronize$") & timeline.waiting()
        if pattern:
            names = timeline.calls["name"].cast(pl.String).fill_null("")
            waiting = chosen_by(pattern, waiting, names, "`drop_synchronisations`")
        needed = right_behind(timeline, timeline.calls_of(timeline.among("direction", "d2h")))
        dropped = waiting & ~needed & ~last_of_each(timeline.columns["call_thread"], waiting)
        after, touched = without_waits(timeline, dropped, 0), under_way(timeline, calls=dropped)
        return Applied(
            after, int(dropped.sum()), 0, [statement("assumes.unread-between-waits")], touched=touched
        )

    return Change("drop_synchronisations", titled("drop-synchronisations", pattern), apply)
