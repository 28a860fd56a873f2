"""A problem on a machine, as the terms of the closed forms and as tasks for the schedule."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from busfare.errors import InputError
from busfare.node.arrays import FloatArray
from busfare.plan.equations import Cut, MappedWork
from busfare.plan.machine import Line, Machine
from busfare.plan.problem import Problem, Step
from busfare.plan.schedule import Engines, Task

__all__ = ["Sides", "cut_of", "engines_of", "kernel_seconds", "mapped_work", "sides_of", "tasks_of"]


class Sides(NamedTuple):
    """What carries the data each way in one strategy, and how much each way is slowed by the other."""

    h2d: Line
    d2h: Line
    h2d_bytes: float
    d2h_bytes: float
    h2d_slowdown: float
    d2h_slowdown: float


def kernel_seconds(problem: Problem, machine: Machine) -> float:
    """t_E of the whole problem with its data in device memory, in seconds.

    As given, or by the roofline from flops and device bytes. Raises InputError where neither is possible.
    """
    if problem.kernel_seconds is not None:
        return problem.kernel_seconds
    gpu = machine.gpu
    parts = []
    if problem.flops is not None and gpu.flops_per_s is not None:
        parts.append(problem.flops / gpu.flops_per_s)
    if problem.device_bytes is not None and gpu.memory_bandwidth_bytes_per_s is not None:
        parts.append(problem.device_bytes / gpu.memory_bandwidth_bytes_per_s)
    if not parts:
        raise InputError(
            f"{problem.name}: its kernel time is not known; give --kernel, or --flops or --device-bytes "
            f"for a node that says its GPU's rates ({machine.node.name} may not)"
        )
    return max(parts)


def kernel_split(problem: Problem, machine: Machine, streams: FloatArray) -> FloatArray:
    """t_E(n): seconds of all chunks' kernels together, between the given points along a line in n."""
    whole = kernel_seconds(problem, machine)
    if not problem.kernel_at:
        return np.full_like(streams, whole)
    points = sorted({1: whole} | dict(problem.kernel_at))
    known = {1: whole} | dict(problem.kernel_at)
    return np.interp(streams, points, [known[n] for n in points])


def sides_of(problem: Problem, machine: Machine, strategy: str) -> Sides:
    """The lines and bytes of `strategy`; mapped sides count every access [W14 §VI]."""
    into, out = machine.h2d, machine.d2h
    h2d, d2h = problem.h2d_bytes, problem.d2h_bytes
    if strategy == "hybrid":
        cost = machine.access_cost("write", problem.access_bytes)
        return Sides(
            into.copy,
            _dearer(out.mapped, cost),
            h2d,
            d2h * problem.accesses_out,
            into.beside_mapped,
            out.beside_mapped,
        )
    if strategy == "mapped":
        read, write = (machine.access_cost(flow, problem.access_bytes) for flow in ("read", "write"))
        return Sides(
            _dearer(into.mapped, read),
            _dearer(out.mapped, write),
            h2d * problem.accesses_in,
            d2h * problem.accesses_out,
            1.0,
            1.0,
        )
    lines = {
        "pageable": (into.pageable, out.pageable),
        "managed": (into.faulted, out.faulted),
        "managed-prefetch": (into.prefetched, out.prefetched),
    }.get(strategy, (into.copy, out.copy))
    return Sides(*lines, h2d, d2h, into.beside_copy, out.beside_copy)


def _dearer(line: Line, factor: float) -> Line:
    return line if factor == 1.0 else line.scaled(1 / factor)


def cut_of(problem: Problem, machine: Machine, sides: Sides, streams: FloatArray) -> Cut:
    """The terms of the closed forms for equal chunks in `streams` streams.

    A way without data has neither L+o nor g. Where there are several arrays each way, each chunk has as many
    copies, and every copy but the first adds g.
    """
    h2d_latency, h2d_gap_byte = sides.h2d.at(sides.h2d_bytes / streams / problem.copies_in)
    d2h_latency, d2h_gap_byte = sides.d2h.at(sides.d2h_bytes / streams / problem.copies_out)
    into, out = float(sides.h2d_bytes > 0), float(sides.d2h_bytes > 0)
    h2d_gap, d2h_gap = machine.h2d.gap * into, machine.d2h.gap * out
    return Cut(
        streams,
        sides.h2d_bytes * h2d_gap_byte + (problem.copies_in - 1) * h2d_gap * streams,
        kernel_split(problem, machine, streams),
        sides.d2h_bytes * d2h_gap_byte + (problem.copies_out - 1) * d2h_gap * streams,
        h2d_latency * into,
        d2h_latency * out,
        np.asarray(h2d_gap),
        np.asarray(d2h_gap),
    )


def mapped_work(problem: Problem, machine: Machine) -> MappedWork:
    """The terms of [W14 eq 6]."""
    sides = sides_of(problem, machine, "mapped")
    h2d_latency, h2d_gap = sides.h2d.at(np.asarray(sides.h2d_bytes))
    d2h_latency, d2h_gap = sides.d2h.at(np.asarray(sides.d2h_bytes))
    return MappedWork(
        sides.h2d_bytes * h2d_gap,
        np.asarray(kernel_seconds(problem, machine)),
        sides.d2h_bytes * d2h_gap,
        h2d_latency * float(sides.h2d_bytes > 0),
        d2h_latency * float(sides.d2h_bytes > 0),
    )


def engines_of(problem: Problem, machine: Machine, strategy: str, sides: Sides) -> Engines:
    """The engines that `strategy` runs on: mapped writes of a hybrid need no copy engine and no dependency check."""
    hybrid = strategy == "hybrid"
    graph = strategy == "graph"
    return Engines(
        one_copy_engine=machine.category != "two-copy-engines" and not hybrid,
        implicit_synchronization=machine.category == "implicit-synchronization" and not hybrid,
        kernels=problem.concurrent_kernels,
        h2d_slowdown=sides.h2d_slowdown,
        d2h_slowdown=sides.d2h_slowdown,
        launch=0.0 if graph else problem.launch_seconds,
    )


def tasks_of(
    problem: Problem, machine: Machine, sides: Sides, streams: int, blocking: bool = False
) -> list[Task]:
    """The tasks of `streams` chunks, in the order in which breadth-first code issues them: copies in, kernels, copies
    out of all chunks, step by step.

    `blocking`: the host waits for each copy, as it does with pageable memory.
    """
    shares = problem.chunks or (1 / streams,) * streams
    total = float(kernel_split(problem, machine, np.array([float(len(shares))]))[0])
    steps = problem.steps or (Step(total, problem.h2d_bytes, problem.d2h_bytes),)
    counted_in, counted_out = (
        given / plain if plain else 1.0
        for given, plain in ((sides.h2d_bytes, problem.h2d_bytes), (sides.d2h_bytes, problem.d2h_bytes))
    )
    queues = [None if problem.queues is None else n % problem.queues for n in range(len(shares))]
    tasks: list[Task] = []
    last: list[tuple[int, ...]] = [()] * len(shares)

    def add(n: int, task: Task) -> None:
        last[n] = (len(tasks),)
        tasks.append(task)

    def add_copies(way: Literal["h2d", "d2h"], bytes_: float, copies: int, line: Line, gap: float) -> None:
        for n, share in enumerate(shares if bytes_ > 0 else ()):
            latency, slope = (float(x) for x in line.at(np.asarray(bytes_ * share / copies)))
            busy = bytes_ * share * slope + (copies - 1) * gap
            add(n, Task(way, busy, gap, latency, last[n], queues[n], blocking))

    for step in steps:
        add_copies("h2d", step.h2d_bytes * counted_in, problem.copies_in, sides.h2d, machine.h2d.gap)
        for n, share in enumerate(shares):
            add(n, Task("kernel", step.kernel_seconds * share, after=last[n], queue=queues[n]))
        add_copies("d2h", step.d2h_bytes * counted_out, problem.copies_out, sides.d2h, machine.d2h.gap)
    return tasks
