"""What recording cost the host, taken out of a run again, where it is known how long the run takes unrecorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busfare.replay.played import play
from busfare.replay.timeline import Timeline

__all__ = ["Unrecorded", "unrecorded"]

#: No recorder takes longer over a call than this; what is left to explain is then something else. Nanoseconds.
MOST_NS = 30_000
#: What a call takes in any case, where it took longer under the recorder. Nanoseconds.
LEAST_CALL_NS = 500
STEPS = 16
#: Of all that can be taken out: what gains less than this more says nothing of what a call costs.
SATURATED = 0.95


@dataclass(frozen=True)
class Unrecorded:
    """The run as it is without its recorder: `timeline`, nanoseconds taken out a call, and how long it then is."""

    timeline: Timeline
    call_ns: int
    makespan_ns: int


def unrecorded(timeline: Timeline, target_ns: int) -> Unrecorded:
    """`timeline` with the same time taken out of every call and the gap before it, so much that the run takes `target_ns`.

    A recorder does about the same for every call, before its start is noted and after. Where that cannot explain the
    difference, no more is taken out than still makes the run shorter; the result says how long it then is.
    """
    before = play(timeline).makespan_ns
    if before <= target_ns or timeline.calls.height == 0:
        return Unrecorded(timeline, 0, before)
    least = play(_without(timeline, MOST_NS)).makespan_ns
    target_ns = max(target_ns, round(before - SATURATED * (before - least)))
    low, high = 0, MOST_NS
    for _ in range(STEPS):
        middle = (low + high + 1) // 2
        if play(_without(timeline, middle)).makespan_ns > target_ns:
            low = middle
        else:
            high = middle
    changed = _without(timeline, high)
    return Unrecorded(changed, high, play(changed).makespan_ns)


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
