"""How long a kernel waits for a copy that mapped writes held until they ended: the parameter that makes `plan` say of a
hybrid in many short chunks, all of whose copies are held so, what was measured. Nothing shows it alone: an event between
a copy and its kernel would be waited for, too.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from busfare.measure.case import Case
from busfare.measure.plan import SHORT_HYBRID_BYTES, SHORT_HYBRID_COUNT
from busfare.measure.raw import Record
from busfare.node import Node
from busfare.plan import Machine, Problem, machine_of
from busfare.plan.cutting import cut_of
from busfare.plan.starving import LEAST_HELD, starved
from busfare.plan.work import lines_of, load_of, mapped_writes

__all__ = ["CASE", "with_waits"]

CASE = Case("h2d", "pinned", "hybrid", SHORT_HYBRID_BYTES, SHORT_HYBRID_COUNT, 0)
#: No shorter and no longer than so many seconds [12 to 16 µs on H100s and H200s]: beyond, something else held them.
_LEAST, _MOST = 6e-6, 2e-5
_STEPS = 40


def with_waits(node: Node, record: Record) -> Node:
    """`node` with `mapped_wait_s` of its first GPU, where `record` has the case and mapped writes hold copies back."""
    measured = record.of(CASE)
    pinned = next((m for m in node.measured if (m.direction, m.memory, m.gpu) == ("h2d", "pinned", 0)), None)
    if measured is None or pinned is None or pinned.mapped_lull_s is None:
        return node
    machine = machine_of(node)
    if machine.h2d.beside_mapped < LEAST_HELD:
        return node
    launch = next((c.device_s for c in node.costs if c.call == "launch"), None) or 0.0
    wait = _wait(machine, measured.quietest_s, launch)
    told = (msgspec.structs.replace(m, mapped_wait_s=wait) if m is pinned else m for m in node.measured)
    return replace(node, measured=tuple(told))


def _wait(machine: Machine, seconds: float, launch: float) -> float:
    """The wait (s) with which `plan` says `seconds` of the case, by halving."""
    low, high = _LEAST, _MOST
    for _ in range(_STEPS):
        wait = (low + high) / 2
        low, high = (wait, high) if _predicted(machine, launch, wait) < seconds else (low, wait)
    return low


def _predicted(machine: Machine, launch: float, wait: float) -> float:
    """Seconds that `plan` says of the case with such a wait."""
    bytes_ = float(CASE.bytes * CASE.count)
    problem = Problem("hybrid", bytes_, bytes_, launch)
    streams = np.array([[float(CASE.count)]])
    machine = replace(machine, h2d=replace(machine.h2d, kernel_wait=wait))
    lines = lines_of(machine, "hybrid")
    cut = cut_of(load_of([problem], machine, "hybrid", streams), machine, lines, streams)
    return float(starved(cut, mapped_writes([problem], machine))[0, 0])
