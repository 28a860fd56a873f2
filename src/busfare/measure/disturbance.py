"""What disturbed a run, in words: read from the log of the machine's state, and from how far visits of a case lie apart."""

from __future__ import annotations

from typing import Any

import numpy as np

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
#: The median visit of a case of an undisturbed run is no further above its fastest quarter than this.
DISTURBED = 0.05
#: Fewer visits have no quarters.
LEAST_VISITS = 4


def disturbances(record: Record) -> list[str]:
    """One sentence each, with what was seen; empty for a quiet run."""
    found = list(record.disturbances)
    for gpu in sorted({state["gpu"] for state in record.states}):
        found += _of_gpu(gpu, [state for state in record.states if state["gpu"] == gpu])
    found += _uneven(record)
    return list(dict.fromkeys(found))


def _uneven(record: Record) -> list[str]:
    """Paths of which most single copies took longer at times than at others."""
    excess: dict[tuple[int, str, str], list[float]] = {}
    for m in record.measurements:
        if m.case.mode == "copies" and m.case.count == 1 and len(m.visits) >= LEAST_VISITS:
            quarter, half = np.quantile(m.of_visits, (0.25, 0.5))
            path = (m.case.gpu, m.case.direction, m.case.memory)
            excess.setdefault(path, []).append(float(half / quarter - 1))
    return [
        f"GPU {gpu} {direction} {memory}: copies took {np.median(of_path):.0%} longer for half of the run than in its "
        "fastest quarter: other programs use the host; probe again, and compare"
        for (gpu, direction, memory), of_path in excess.items()
        if np.median(of_path) > DISTURBED
    ]


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
    if clocks and not held and np.median(clocks) < LEAST_CLOCK:
        found.append(f"GPU {gpu} ran at {np.median(clocks):.0%} of its highest clock")
    replays = [s["link_replays"] for s in states if s["link_replays"] is not None]
    if replays and replays[-1] > replays[0]:
        found.append(
            f"GPU {gpu}'s link sent {replays[-1] - replays[0]} packets again: a bad cable, riser or slot"
        )
    others = max((s["other_processes"] or 0 for s in states), default=0)
    if others:
        found.append(f"GPU {gpu} was busy: {others} other program{'s' * (others > 1)} had it open")
    return found
