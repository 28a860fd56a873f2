"""What copies that go both ways in many streams take longer than trains of one stream each way, and what two GPUs that do
so leave each other: the parameters that make `plan` say of such cases what was measured. A GPU hands out the copies of
many streams in an order of its own, and moves several of one way side by side; what two GPUs wait for each other depends
on when which of them moves data which way. No other case shows what that costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np

from busfare.measure.case import Case
from busfare.measure.plan import THROUGH_BYTES, THROUGH_COUNTS
from busfare.measure.raw import Record
from busfare.node import Measured, Node, Piece, Row
from busfare.plan import Machine, Problem, machine_of
from busfare.plan.cutting import cut_of
from busfare.plan.equations import eq5_shared
from busfare.plan.machine import beside_another_gpu
from busfare.plan.work import lines_of, load_of

__all__ = ["with_streams"]

#: No more than so many times as long as in one stream each way: beyond, something else slowed it.
_MOST = 2.0
#: Two GPUs do not always both move data both ways: from this share on of what a byte takes while they do.
_LEAST_BESIDE = 0.5
_STEPS = 40


def with_streams(node: Node, record: Record) -> Node:
    """`node` with `both_directions_rows` of its first GPU, and with what another GPU leaves it as a program of many streams
    finds it, where `record` has such cases.
    """
    pinned = {m.direction: m for m in node.measured if m.memory == "pinned" and m.gpu == 0 and m.pieces}
    if not {"h2d", "d2h"} <= pinned.keys():
        return node
    if not all(m.both_directions_gap_per_byte_s for m in pinned.values()):
        return node
    if machine_of(node).category == "one-copy-engine":
        return node
    launch = next((c.device_s for c in node.costs if c.call == "launch"), None) or 0.0
    return _with_neighbour(_with_rows(node, record, launch), record, launch)


def _with_rows(node: Node, record: Record, launch: float) -> Node:
    found = {n: m for n in THROUGH_COUNTS if (m := record.of(_case(n))) is not None}
    if not found:
        return node
    machine = machine_of(node)

    def slowed(count: int, times: float) -> Machine:
        h2d, d2h = (
            replace(own, beside_streams=((count, own.beside_copy * times),))
            for own in (machine.h2d, machine.d2h)
        )
        return replace(machine, h2d=h2d, d2h=d2h)

    def factor(count: int, seconds: float) -> float:
        return _factor(lambda times: _seconds(slowed(count, times), count, launch), seconds, 1.0)

    more = {n: factor(n, m.quietest_s) for n, m in found.items()}

    def told(m: Measured) -> Measured:
        gap = m.both_directions_gap_per_byte_s or 0.0
        rows = tuple(Row(copies=n, pieces=(Piece(gap_per_byte_s=gap * t),)) for n, t in more.items())
        return msgspec.structs.replace(m, both_directions_rows=rows)

    return _of_first_gpu(node, told)


def _with_neighbour(node: Node, record: Record, launch: float) -> Node:
    beside = [m for m in record.measurements if m.case.mode == "through-beside-gpu" and m.case.gpu == 0]
    machine = machine_of(node)
    into, out = machine.h2d.beside_gpu, machine.d2h.beside_gpu
    if not beside or into is None or out is None:
        return node
    slowest = max(beside, key=lambda m: m.quietest_s)

    def seconds(times: float) -> float:
        h2d, d2h = replace(machine.h2d, beside_gpu=into * times), replace(machine.d2h, beside_gpu=out * times)
        return _seconds(beside_another_gpu(replace(machine, h2d=h2d, d2h=d2h)), slowest.case.count, launch)

    times = _factor(seconds, slowest.quietest_s, _LEAST_BESIDE)

    def told(m: Measured) -> Measured:
        gap = (m.both_directions_beside_gpu_gap_per_byte_s or 0.0) * times
        # It never takes less than with the host to itself.
        gap = max(gap, m.both_directions_gap_per_byte_s or 0.0)
        return msgspec.structs.replace(m, both_directions_beside_gpu_gap_per_byte_s=gap)

    return _of_first_gpu(node, told)


def _of_first_gpu(node: Node, told: Callable[[Measured], Measured]) -> Node:
    """`node` with the pinned copies of its first GPU as `told` gives them."""
    measured = (
        told(m) if m.memory == "pinned" and m.gpu == 0 and m.direction in ("h2d", "d2h") and m.pieces else m
        for m in node.measured
    )
    return replace(node, measured=tuple(measured))


def _case(count: int) -> Case:
    return Case("h2d", "pinned", "through", THROUGH_BYTES // count, count, 0)


def _factor(seconds_at: Callable[[float], float], seconds: float, low: float) -> float:
    """Where from `low` on a rising function reaches what was measured, by halving."""
    high = _MOST
    for _ in range(_STEPS):
        times = (low + high) / 2
        low, high = (times, high) if seconds_at(times) < seconds else (low, times)
    return low


def _seconds(machine: Machine, count: int, launch: float) -> float:
    """What `plan` says of the case."""
    bytes_ = float(THROUGH_BYTES)
    problem = Problem("through", bytes_, bytes_, launch * count)
    streams = np.array([[float(count)]])
    lines = lines_of(machine, "streams")
    load = load_of([problem], machine, "streams", streams)
    return float(eq5_shared(cut_of(load, machine, lines, streams))[0, 0])
