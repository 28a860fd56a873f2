"""Whether a machine does what its data sheet promises, and what disturbed a run of it, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from busfare.measure.node_file import link_of
from busfare.measure.raw import Measurement, Record
from busfare.measure.results import LinkState
from busfare.nodes import Curve, Node, PcieLink
from busfare.nodes.link import Flow

#: Nine in ten published measurements lie within 8 % of the data-sheet model (validation/datasheet.py).
SOUND = 0.8
#: Half the lanes, or a generation lower, give half.
HALF = (0.4, 0.62)
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
#: Above this share it was held down by too little to count: products of a probe's own reach the power cap by 1 %.
HELD_CLOCK = 0.95
#: The median visit of a case of an undisturbed run is no further above its fastest quarter than this.
DISTURBED = 0.05
#: Fewer visits have no quarters.
LEAST_VISITS = 4


def health(node: Node, record: Record) -> list[LinkState]:
    """Every measured pinned direction of a GPU's host link beside the data-sheet model of the link at its best."""
    found = []
    for curve in node.curves:
        if curve.memory == "pinned":
            gpu, rate = curve.gpu or 0, 1 / curve.long_gap_per_byte_s
            flow: Flow = "read" if curve.direction == "h2d" else "write"
            predicted = _at_its_best(node, record, gpu).host_path(gpu).bandwidth(flow)
            verdict = _verdict(rate / predicted, curve, record)
            state = LinkState(
                gpu=gpu,
                direction=curve.direction,
                measured_bytes_per_second=rate,
                predicted_bytes_per_second=predicted,
                sound=not verdict,
                verdict=verdict,
            )
            found.append(state)
    return found


def _at_its_best(node: Node, record: Record, gpu: int) -> Node:
    """`node` with the PCIe link of a GPU at the generation and width that both ends can have."""
    best = None if record.virtual else link_of(record, gpu, most=True)
    if best is None:
        return node
    links = tuple(
        best if isinstance(link, PcieLink) and link.between == best.between else link for link in node.links
    )
    return dataclasses.replace(node, links=links)


def _verdict(share: float, curve: Curve, record: Record) -> str:
    """What is wrong, in one sentence; empty where nothing is."""
    gpu = curve.gpu or 0
    width, most_width, generation, most_generation = (
        max((s[key] or 0 for s in record.states if s["gpu"] == gpu), default=0)
        for key in ("link_width", "link_width_most", "link_generation", "link_generation_most")
    )
    if width and most_width and width < most_width:
        part = "half" if 2 * width == most_width else f"{width} of {most_width} lanes"
        return f"GPU {gpu}'s link runs at {part} width (x{width} of x{most_width}): reseat the card, or use another slot"
    if generation and most_generation and generation < most_generation:
        return f"GPU {gpu}'s link runs at generation {generation} of {most_generation}: see the slot's BIOS setting"
    if HALF[0] <= share <= HALF[1]:
        return f"GPU {gpu}'s link carries half of what it should, though it reports full width: look for what shares it"
    if share < SOUND:
        return f"GPU {gpu}'s link carries {share:.0%} of what it should"
    return ""


def disturbances(states: Sequence[dict[str, Any]], measurements: Iterable[Measurement] = ()) -> list[str]:
    """One sentence each, from the log of the machine's state, and from how far visits of a case lie apart; empty for a
    quiet run.
    """
    found = []
    for gpu in sorted({state["gpu"] for state in states}):
        found += _of_gpu(gpu, [state for state in states if state["gpu"] == gpu])
    return found + _uneven(measurements)


def _uneven(measurements: Iterable[Measurement]) -> list[str]:
    """Paths of which most single copies took longer at times than at others."""
    excess: dict[tuple[int, str, str], list[float]] = {}
    for m in measurements:
        if m.mode == "copies" and m.count == 1 and len(m.visits) >= LEAST_VISITS:
            quarter, half = np.quantile(m.of_visits, (0.25, 0.5))
            excess.setdefault((m.gpu, m.direction, m.memory), []).append(float(half / quarter - 1))
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
        clock, most = state["sm_clock_hz"], state["sm_clock_most_hz"]
        if not clock or not most or clock < HELD_CLOCK * most:
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
