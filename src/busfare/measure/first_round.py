"""How much of the first round of threads of a kernel on mapped memory moves one way after the other: threads that begin have
nothing to write yet, and the last ones nothing to read. A megabyte both ways, one round of them, shows it.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from busfare.measure.case import Case
from busfare.measure.plan import ROUND_BYTES
from busfare.measure.raw import Record
from busfare.node import Node
from busfare.plan import Machine, Problem, machine_of
from busfare.plan.one_stream import in_one_stream

__all__ = ["with_first_round"]


def with_first_round(node: Node, record: Record) -> Node:
    """`node` with `mapped_first_share` of its first GPU, where `record` has the case."""
    measured = record.of(Case("h2d", "mapped", "kernel-both", ROUND_BYTES, 1, 0))
    mapped = next((m for m in node.measured if (m.direction, m.memory, m.gpu) == ("h2d", "mapped", 0)), None)
    machine = machine_of(node)
    if measured is None or mapped is None or not machine.h2d.starving_measured:
        return node
    launch = next((c.device_s for c in node.costs if c.call == "launch"), None) or 0.0
    none, all_ = (_predicted(machine, launch, share) for share in (0.0, 1.0))
    if all_ <= none:
        return node
    share = min(max((measured.undisturbed_s - none) / (all_ - none), 0.0), 1.0)
    told = (msgspec.structs.replace(m, mapped_first_share=share) if m is mapped else m for m in node.measured)
    return replace(node, measured=tuple(told))


def _predicted(machine: Machine, launch: float, share: float) -> float:
    """Seconds that `plan` says of the case with such a share."""
    problem = Problem("kernel-both", float(ROUND_BYTES), float(ROUND_BYTES), launch)
    machine = replace(machine, h2d=replace(machine.h2d, first_share=share))
    return next(p.seconds for p in in_one_stream([problem], machine)[0] if p.strategy == "mapped")
