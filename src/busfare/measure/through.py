"""What copies that go both ways in many streams take longer than trains of one stream each way: the parameter that makes
`plan` say of such a case what was measured. A GPU hands out the copies of many streams in an order of its own, and moves
several of one way side by side; no other case shows what that costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from busfare.measure.case import Case
from busfare.measure.plan import THROUGH_BYTES, THROUGH_COUNTS
from busfare.measure.raw import Record
from busfare.node import Measured, Node, Piece, Row
from busfare.plan import Machine, Problem, machine_of
from busfare.plan.cutting import cut_of
from busfare.plan.equations import eq5_shared
from busfare.plan.work import lines_of, load_of

__all__ = ["with_streams"]

#: No more than so many times as long as in one stream each way: beyond, something else slowed it.
_MOST = 2.0
_STEPS = 40


def with_streams(node: Node, record: Record) -> Node:
    """`node` with `both_directions_rows` of its first GPU, where `record` has such cases."""
    found = {n: m for n in THROUGH_COUNTS if (m := record.of(_case(n))) is not None}
    pinned = {m.direction: m for m in node.measured if m.memory == "pinned" and m.gpu == 0 and m.pieces}
    if not found or not {"h2d", "d2h"} <= pinned.keys():
        return node
    if not all(m.both_directions_gap_per_byte_s for m in pinned.values()):
        return node
    machine = machine_of(node)
    if machine.category == "one-copy-engine":
        return node
    launch = next((c.device_s for c in node.costs if c.call == "launch"), None) or 0.0
    more = {n: _times(machine, n, m.quietest_s, launch) for n, m in found.items()}

    def told(m: Measured) -> Measured:
        if m not in pinned.values():
            return m
        gap = m.both_directions_gap_per_byte_s or 0.0
        rows = tuple(Row(copies=n, pieces=(Piece(gap_per_byte_s=gap * t),)) for n, t in more.items())
        return msgspec.structs.replace(m, both_directions_rows=rows)

    return replace(node, measured=tuple(told(m) for m in node.measured))


def _case(count: int) -> Case:
    return Case("h2d", "pinned", "through", THROUGH_BYTES // count, count, 0)


def _times(machine: Machine, count: int, seconds: float, launch: float) -> float:
    """How many times as long a byte takes in `count` streams both ways as in one stream each way, by halving."""
    low, high = 1.0, _MOST
    for _ in range(_STEPS):
        times = (low + high) / 2
        low, high = (times, high) if _predicted(machine, count, launch, times) < seconds else (low, times)
    return low


def _predicted(machine: Machine, count: int, launch: float, times: float) -> float:
    """Seconds that `plan` says of the case, where a byte takes so many times as long both ways."""
    bytes_ = float(THROUGH_BYTES)
    problem = Problem("through", bytes_, bytes_, launch * count)
    streams = np.array([[float(count)]])
    told: dict[str, Any] = {
        way: replace(own, beside_streams=((count, own.beside_copy * times),))
        for way, own in (("h2d", machine.h2d), ("d2h", machine.d2h))
    }
    machine = replace(machine, **told)
    lines = lines_of(machine, "streams")
    load = load_of([problem], machine, "streams", streams)
    return float(eq5_shared(cut_of(load, machine, lines, streams))[0, 0])
