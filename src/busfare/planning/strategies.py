"""What each strategy does with a problem: the curves that carry its data, and its program of copies and kernels."""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from busfare.errors import InputError
from busfare.nodes import Contention, Curve, FloatArray, Shares
from busfare.planning.machine import Machine
from busfare.planning.problem import Problem, Step
from busfare.timeline.program import GpuRules, Mapped, Program

__all__ = ["STRATEGIES", "Layout", "carried", "kernel_seconds", "kernel_split", "layout_of", "program_of"]


class Layout(NamedTuple):
    """Which of a machine's curves carries the data each way, and over which streams the work is laid out: all in `one`,
    a stream a `chunk`, or a stream an `engine`.
    """

    into: str
    out: str
    over: Literal["one", "chunk", "engine"]


#: Every strategy; of those that take as long, the one with less to write comes first.
STRATEGIES = {
    "managed": Layout("faulted", "faulted", "one"),
    "mapped": Layout("mapped", "mapped", "one"),
    "explicit": Layout("copy", "copy", "one"),
    "batched": Layout("copy", "copy", "one"),
    "explicit-pageable": Layout("pageable", "pageable", "one"),
    "managed-prefetch": Layout("prefetched", "prefetched", "one"),
    "three-streams": Layout("copy", "copy", "engine"),
    "streams": Layout("copy", "copy", "chunk"),
    "streams-pageable": Layout("pageable", "pageable", "chunk"),
    "graph": Layout("copy", "copy", "chunk"),
    "hybrid": Layout("copy", "mapped", "chunk"),
}
#: Strategies that hand all arrays of a direction over at once.
AT_ONCE = ("batched", "managed", "managed-prefetch", "mapped")


def layout_of(machine: Machine, strategy: str) -> Layout:
    """The strategy's layout; managed memory of a GPU that shares the host's is mapped."""
    return STRATEGIES["mapped" if strategy == "managed" and machine.gpu.unified_memory else strategy]


def shares_of(machine: Machine, layout: Layout) -> tuple[float, float]:
    """The share of its rate that each direction of a layout keeps while the other moves data."""
    c = _contention(machine, layout)
    pairs: dict[tuple[bool, bool], tuple[Shares, Shares]] = {
        (False, False): (c.both, c.both),
        (True, True): (c.mapped_both, c.mapped_both),
        (False, True): (c.copy_beside_mapped, c.mapped_beside_copy),
    }
    into, out = pairs[layout.into == "mapped", layout.out == "mapped"]
    return into.h2d, out.d2h


def _contention(machine: Machine, layout: Layout) -> Contention:
    """The machine's; where streams hold a chunk each, what they keep of it."""
    c = machine.contention
    return c.both_across_streams() if layout.over == "chunk" else c


def kernel_seconds(problem: Problem, machine: Machine) -> float:
    """t_E of the whole problem with its data in device memory, in seconds.

    As given, or by the roofline from flops and device bytes. Raises InputError where neither is possible.
    """
    if problem.kernel_seconds is not None:
        return problem.kernel_seconds
    gpu = machine.gpu
    rates = ((problem.flops, gpu.flops_per_s), (problem.device_bytes, gpu.memory_bandwidth_bytes_per_s))
    parts = [work / rate for work, rate in rates if work is not None and rate is not None]
    if not parts:
        raise InputError(
            f"{problem.name}: its kernel time is not known; give --kernel, or --flops or --device-bytes "
            f"for a node that says its GPU's rates ({machine.node.name} may not)"
        )
    return max(parts)


def kernel_split(problem: Problem, whole: float, streams: FloatArray, layout: Layout) -> FloatArray:
    """t_E(n): seconds of all chunks' kernels together, between the given points along a line in n; `whole` for one.

    The points are of kernels that take turns. In streams of their own, small ones fill the GPU together.
    """
    known = {1: whole} | dict(problem.kernel_at)
    points = sorted(known)
    split = np.interp(streams, points, [known[n] for n in points])
    return np.asarray(np.minimum(split, whole) if layout.over == "chunk" else split)


def carried(problem: Problem, machine: Machine, layout: Layout) -> tuple[float, float]:
    """How often each byte crosses the link, in and out: mapped ones once an access, in packets of its size [W14 §VI]."""
    return (
        problem.accesses_in * machine.access_cost("read", problem.access_bytes)
        if layout.into == "mapped"
        else 1.0,
        problem.accesses_out * machine.access_cost("write", problem.access_bytes)
        if layout.out == "mapped"
        else 1.0,
    )


def program_of(problem: Problem, machine: Machine, strategy: str, streams: int = 1) -> Program:
    """The strategy's program of `streams` chunks, issued as breadth-first code does: copies in, kernels, copies out of all
    chunks, step by step; chunk by chunk where an engine has a stream. Raises InputError for a kernel without a time.
    """
    layout = layout_of(machine, strategy)
    shares = (1.0,) if layout.over == "one" else problem.chunks or (1 / streams,) * streams
    count = len(shares)
    whole = kernel_seconds(problem, machine)
    total = float(kernel_split(problem, whole, np.array(float(count)), layout))
    share = 1 / problem.concurrent_kernels if layout.over == "chunk" else 1.0
    steps = problem.steps or (Step(total, problem.h2d_bytes, problem.d2h_bytes),)
    more_in, more_out = carried(problem, machine, layout)
    curves = {
        direction: _curve(machine, direction, memory, size)
        for direction, memory, size in (
            ("h2d", layout.into, problem.h2d_bytes),
            ("d2h", layout.out, problem.d2h_bytes),
        )
    }
    arrays = (1, 1) if strategy in AT_ONCE else (problem.copies_in, problem.copies_out)
    blocks = layout.into == "pageable"
    program = Program(
        GpuRules(
            _contention(machine, layout),
            copy_engines=1 if machine.category != "two-copy-engines" else 2,
            implicit_synchronization=machine.category == "implicit-synchronization",
            queues=problem.queues,
            call_s=0.0 if strategy == "graph" else problem.launch_seconds,
        )
    )
    last: list[tuple[int, ...]] = [()] * count

    def copies(direction: Literal["h2d", "d2h"], n: int, size: float, number: int, stream: int) -> None:
        behind = last[n]
        for _ in range(number if size > 0 else 0):
            last[n] = (program.copy(direction, size / number, curves[direction], stream, behind, blocks),)

    by_engine = layout.over == "engine"
    rounds = [(n,) for n in range(count)] if by_engine else [tuple(range(count))]
    for chunks, step in product(rounds, steps):
        into, out = step.h2d_bytes * more_in, step.d2h_bytes * more_out
        for n in chunks if layout.into != "mapped" else ():
            copies(
                "h2d", n, into * shares[n], arrays[0], 0 if by_engine or problem.copies_in_order else n + 2
            )
        for n in chunks:
            reads, writes = (
                Mapped(size * shares[n], curves[direction]) if memory == "mapped" and size > 0 else None
                for direction, memory, size in (("h2d", layout.into, into), ("d2h", layout.out, out))
            )
            stream = 1 if by_engine else n + 2
            seconds = step.kernel_seconds * shares[n]
            last[n] = (program.kernel(seconds, stream, last[n], reads, writes, share),)
        for n in chunks if layout.out != "mapped" else ():
            copies("d2h", n, out * shares[n], arrays[1], 2 if by_engine else n + 2)
    return program


def _curve(machine: Machine, direction: str, memory: str, size: float) -> Curve:
    """The curve that carries a buffer of `size` bytes, chunk by chunk. A part of a pageable one that outgrows the
    processor's cache is not in it either: no byte is cheaper than in one copy of all.
    """
    curve: Curve = getattr(machine.curves(direction), memory)
    if memory != "pageable":
        return curve
    least = float(curve.gap_per_byte(size))
    return msgspec.structs.replace(curve, gap_per_byte_s=tuple(max(g, least) for g in curve.gap_per_byte_s))
