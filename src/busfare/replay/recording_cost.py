"""What recording cost the host, taken out of a run again, where it is known how long the run takes unrecorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.replay.edit import with_durations
from busfare.replay.played import play
from busfare.replay.prices import STAGED_ABOVE_BYTES, pageable
from busfare.replay.timeline import Timeline

__all__ = ["Unrecorded", "unrecorded"]

#: No recorder takes longer over a call than this; what is left to explain is then something else. Nanoseconds.
MOST_NS = 30_000
#: What a call takes in any case, where it took longer under the recorder. Nanoseconds.
LEAST_CALL_NS = 500
#: Parts of a copy's time are told apart to one in so many.
PARTS = 10_000
#: Of all that can be taken out: what gains less than this more says nothing of what a call costs.
SATURATED = 0.95
MOST_BY_STAGING = 0.3
LEAST_BESIDE_STAGING_NS = 1_000
MOST_BESIDE_STAGING_NS = 4_000


@dataclass(frozen=True)
class Unrecorded:
    """The run as it is without its recorder: `timeline`, nanoseconds taken out a call, and how long it then is."""

    timeline: Timeline
    call_ns: int
    makespan_ns: int


def unrecorded(timeline: Timeline, target_ns: int) -> Unrecorded:
    """`timeline` with the same time taken out of every call and the gap before it, so much that the run takes `target_ns`.

    A recorder does about the same for every call, before its start is noted and after. Where that cannot explain the
    difference, no more is taken out than still makes the run shorter. In a recording with fingerprints the rest comes
    out of the copies of pageable memory that were hashed. The result says how long the run then is.
    """
    before = play(timeline).makespan_ns
    staged = _staged(timeline)
    if timeline.calls.height == 0 or (before <= target_ns and not staged.any()):
        return Unrecorded(timeline, 0, before)
    most, least = (MOST_BESIDE_STAGING_NS, LEAST_BESIDE_STAGING_NS) if staged.any() else (MOST_NS, 0)
    fastest = play(_without(timeline, most)).makespan_ns
    reached = max(target_ns, round(before - SATURATED * (before - fastest)))
    call_ns = max(_least(lambda ns: _without(timeline, ns), reached, most), least)
    changed = _without(timeline, call_ns)
    makespan = play(changed).makespan_ns
    if staged.any() and makespan != target_ns:
        changed = _undisturbed_until(changed, staged, target_ns, longer=makespan < target_ns)
        makespan = play(changed).makespan_ns
    return Unrecorded(changed, call_ns, makespan)


def _undisturbed_until(timeline, staged, target_ns: int, *, longer: bool) -> Timeline:
    """`staged` copies longer or shorter, so much that the run takes `target_ns`, but no more than `MOST_BY_STAGING`."""
    low, high = (
        (0, round(PARTS * MOST_BY_STAGING))
        if longer
        else (-round(PARTS * (1 - 1 / (1 + MOST_BY_STAGING))), 0)
    )
    # The longest with which the run takes no more than the target.
    while low < high:
        middle = (low + high + 1) // 2
        if play(_scaled(timeline, staged, 1 + middle / PARTS)).makespan_ns <= target_ns:
            low = middle
        else:
            high = middle - 1
    return _scaled(timeline, staged, 1 + low / PARTS)


def _least(changed: Callable[[int], Timeline], target_ns: int, most: int) -> int:
    """The least number up to `most` with which the changed run takes no more than `target_ns`; `most` if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if play(changed(middle)).makespan_ns > target_ns:
            low = middle + 1
        else:
            high = middle
    return high


def _staged(timeline: Timeline) -> NDArray[np.bool_]:
    """Copies of pageable memory that the host moves through a staging buffer; shape (operations,)."""
    return pageable(timeline.operations) & (
        timeline.operations["bytes"].fill_null(0).to_numpy() > STAGED_ABOVE_BYTES
    )


def _scaled(timeline: Timeline, staged: NDArray[np.bool_], factor: float) -> Timeline:
    duration = timeline.columns["operation_duration"]
    return with_durations(timeline, np.where(staged, factor * duration, duration))


def _without(timeline: Timeline, call_ns: int) -> Timeline:
    """Half of `call_ns` out of each call, half out of the gap before it; what one lacks, the other gives.

    Of what goes out of a call, half lay before the GPU had its work, which then starts so much earlier, and half behind:
    where the call waits for work, between the end of that and its return.
    """
    columns = timeline.columns
    gap, own = columns["call_gap"], columns["call_own"]
    spare_gap, spare_own = np.maximum(gap, 0), np.maximum(own - LEAST_CALL_NS, 0)
    from_own = np.minimum(spare_own, call_ns // 2)
    from_gap = np.minimum(spare_gap, call_ns - from_own)
    from_own = np.minimum(spare_own, call_ns - from_gap)
    launch, wake = columns["operation_launch_lag"], columns["call_wait_lag"]
    half = from_own // 2
    called = columns["operation_launched"] != 0
    earlier = np.where(called, half[np.maximum(columns["operation_call"], 0)] if len(half) else 0, 0)
    return timeline.with_columns(
        call_gap=gap - from_gap,
        call_own=own - from_own,
        call_wait_lag=wake - np.clip(wake - LEAST_CALL_NS, 0, half),
        operation_launch_lag=launch - np.clip(launch - LEAST_CALL_NS, 0, earlier),
    )
