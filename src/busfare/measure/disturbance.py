"""What disturbed a run, read from the log of the machine's state: a disturbed run says so."""

from __future__ import annotations

from typing import Any

from busfare.measure.middle import middle
from busfare.measure.quiet import quiet_share
from busfare.measure.raw import Record

__all__ = ["disturbances"]

#: NVML's bits of reasons why clocks are held down, without the harmless ones (idle, applications' setting).
_THROTTLES = {
    0x04: "its power cap",
    0x08: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}
#: A GPU at work runs above this share of its highest clock.
LEAST_CLOCK = 0.7
#: A path drifted when this many sizes differ by more than this from one half of the run to the other; a single
#: one may have been unlucky.
LEAST_MOVED = 4
DRIFT, DRIFT_BY_HOST = 0.05, 0.25
#: Of fewer quiet moments than these a run speaks.
LEAST_QUIET_SHARE = 0.5
#: Fewer visits have no two halves to compare.
LEAST_VISITS = 4


def disturbances(record: Record) -> list[str]:
    """One sentence each, with what was seen; empty for a quiet run."""
    found = list(record.disturbances)
    for gpu in sorted({state["gpu"] for state in record.states}):
        states = [state for state in record.states if state["gpu"] == gpu]
        found += _of_gpu(gpu, states)
    found += _drifts(record)
    share = quiet_share(record)
    if share is not None and share < LEAST_QUIET_SHARE:
        found.append(
            f"the processors were slow at {1 - share:.0%} of the moments (other programs on their cores), and no quicker "
            "one was free: pageable copies may be faster at others"
        )
    return list(dict.fromkeys(found))


def _drifts(record: Record) -> list[str]:
    """Paths whose copies took longer, or shorter, in the second half of the run than in the first."""
    changes: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for m in record.measurements:
        if m.case.mode == "copies" and m.case.count == 1 and len(m.visits) >= LEAST_VISITS:
            half = sum(m.visits[: len(m.visits) // 2])
            change = middle(m.seconds[half:]) / middle(m.seconds[:half]) - 1
            path = (m.case.gpu, m.case.direction, m.case.memory)
            changes.setdefault(path, []).append((m.case.bytes, change))
    found = []
    for (gpu, direction, memory), of_path in changes.items():
        limit = DRIFT_BY_HOST if memory == "pageable" else DRIFT
        moved = [(size, change) for size, change in of_path if abs(change) > limit]
        if len(moved) >= LEAST_MOVED:
            sizes, shares = zip(*sorted(moved), strict=True)
            most = max(shares, key=abs)
            found.append(
                f"GPU {gpu} {direction} {memory}: {len(moved)} of {len(of_path)} sizes, {sizes[0]} to {sizes[-1]} bytes, "
                f"changed by up to {most:+.0%} during the run: probe again, and compare"
            )
    return found


def _of_gpu(gpu: int, states: list[dict[str, Any]]) -> list[str]:
    found = []
    reasons = 0
    for state in states:
        reasons |= state["throttle_reasons"] or 0
    held = [name for bit, name in _THROTTLES.items() if reasons & bit]
    if held:
        found.append(
            f"GPU {gpu} was throttled by {' and '.join(held)}: wait until it is cool or idle, and probe again"
        )
    # The first state is from before the warm-up.
    clocks = [
        s["sm_clock_hz"] / s["sm_clock_most_hz"]
        for s in states[1:]
        if s["sm_clock_hz"] and s["sm_clock_most_hz"]
    ]
    if clocks and not held and sorted(clocks)[len(clocks) // 2] < LEAST_CLOCK:
        found.append(f"GPU {gpu} ran at {sorted(clocks)[len(clocks) // 2]:.0%} of its highest clock")
    replays = [s["link_replays"] for s in states if s["link_replays"] is not None]
    if replays and replays[-1] > replays[0]:
        found.append(
            f"GPU {gpu}'s link sent {replays[-1] - replays[0]} packets again: a bad cable, riser or slot"
        )
    others = max((s["other_processes"] or 0 for s in states), default=0)
    if others:
        found.append(f"GPU {gpu} was busy: {others} other program{'s' * (others > 1)} had it open")
    return found
