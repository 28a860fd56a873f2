"""A problem on a machine: what it puts on the lines of a strategy, and its tasks for the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from busfare.errors import InputError
from busfare.node.arrays import FloatArray
from busfare.plan.line import Line
from busfare.plan.machine import Machine
from busfare.plan.problem import Problem, Step
from busfare.plan.schedule import Engines, Task
from busfare.plan.starving import Writes

__all__ = [
    "Lines",
    "Load",
    "engines_of",
    "kernel_seconds",
    "lines_of",
    "load_of",
    "mapped_writes",
    "rounds_of",
    "tasks_of",
]

#: Threads that a processor holds [CUDA programming guide, compute capability 8.0, 9.0 and 10.0; 7.5 to 8.9 hold fewer].
_THREADS_A_PROCESSOR = 2048
#: What a thread is taken to write to each array: one double.
_WRITE_BYTES = 8


class Lines(NamedTuple):
    """What carries the data each way in one strategy, and how much each way is slowed by the other: its bytes by a
    factor; and g of a copy (s) then, 0 where it stays. `…_streams`: that factor by the number of streams that both ways'
    chunks are in, where it was measured. `after_copy`: what a chunk's copies and kernel take longer (s) behind each
    other than by themselves.
    """

    h2d: Line
    d2h: Line
    h2d_slowdown: float = 1.0
    d2h_slowdown: float = 1.0
    h2d_gap_shared: float = 0.0
    d2h_gap_shared: float = 0.0
    h2d_streams: tuple[tuple[int, float], ...] = ()
    d2h_streams: tuple[tuple[int, float], ...] = ()
    after_copy: float = 0.0


class Load(NamedTuple):
    """What one or many problems put on the lines, a row a problem; `kernel` is t_E(n), seconds by number of streams.

    Bytes count every access of a mapped side, and what its packets cost.
    """

    h2d_bytes: FloatArray
    d2h_bytes: FloatArray
    kernel: FloatArray
    copies_in: FloatArray
    copies_out: FloatArray
    kernels_together: FloatArray | None = None


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


def kernel_split(problem: Problem, whole: float, streams: FloatArray) -> FloatArray:
    """t_E(n): seconds of all chunks' kernels together, between the given points along a line in n; `whole` for one."""
    if not problem.kernel_at:
        return np.full_like(streams, whole)
    known = {1: whole} | dict(problem.kernel_at)
    points = sorted(known)
    return np.interp(streams, points, [known[n] for n in points])


def lines_of(machine: Machine, strategy: str) -> Lines:
    """The lines that `strategy` uses."""
    into, out = machine.h2d, machine.d2h
    if strategy == "hybrid":
        return Lines(into.copy, out.mapped, into.beside_mapped, out.mapped_beside_copy)
    if strategy == "mapped":
        return Lines(into.mapped, out.mapped, into.mapped_both, out.mapped_both)
    lines = {
        "pageable": (into.pageable, out.pageable),
        "managed": (into.faulted, out.faulted),
        "managed-prefetch": (into.prefetched, out.prefetched),
    }.get(strategy, (into.copy, out.copy))
    shared = (0.0, 0.0) if strategy.startswith("managed") else (into.gap_beside_copy, out.gap_beside_copy)
    slowed = (into.beside_copy, out.beside_copy, *shared)
    if lines != (into.copy, out.copy):
        return Lines(*lines, *slowed)
    return Lines(*lines, *slowed, into.beside_streams, out.beside_streams, into.after_copy)


def carried(problem: Problem, machine: Machine, strategy: str) -> tuple[float, float]:
    """Bytes each way; a mapped side counts every access and what its packets cost [W14 §VI]."""
    into, out = problem.h2d_bytes, problem.d2h_bytes
    if strategy == "mapped":
        into *= problem.accesses_in * machine.access_cost("read", problem.access_bytes)
    if strategy in ("mapped", "hybrid"):
        out *= problem.accesses_out * machine.access_cost("write", problem.access_bytes)
    return into, out


def load_of(problems: Sequence[Problem], machine: Machine, strategy: str, streams: FloatArray) -> Load:
    """The load of `problems`, one a row, for the numbers `streams` of the columns. Raises InputError where a kernel's
    time is not known.
    """
    bytes_ = np.array([carried(p, machine, strategy) for p in problems])
    whole = [kernel_seconds(p, machine) for p in problems]
    together = None
    if any(p.kernel_at for p in problems):
        kernel = np.array([kernel_split(p, t, streams) for p, t in zip(problems, whole, strict=True)])
        # t_E(n) is of kernels that take turns. In streams of their own, small ones fill the GPU together.
        if strategy in ("streams", "hybrid", "graph") and not machine.kernels_in_order:
            together = np.minimum(kernel, np.array(whole)[:, None])
    else:
        kernel = np.array(whole)[:, None]
    batched = strategy in ("batched", "managed", "managed-prefetch")
    copies = np.array(
        [(1.0, 1.0) if batched else (p.copies_in, p.copies_out) for p in problems], dtype=np.float64
    )
    if strategy == "hybrid":
        copies[:, 1] = 1.0  # what the kernel writes is no copy
    return Load(bytes_[:, :1], bytes_[:, 1:], kernel, copies[:, :1], copies[:, 1:], together)


def rounds_of(problems: Sequence[Problem], machine: Machine, strategy: str) -> FloatArray:
    """How often the threads that the GPU holds at once are replaced in one kernel, a row a problem; infinite where the
    GPU's processors are not known. A thread is taken to write one double to each array.
    """
    held = (machine.gpu.multiprocessors or 0) * _THREADS_A_PROCESSOR * _WRITE_BYTES
    threads = [carried(p, machine, strategy)[1] / p.copies_out for p in problems]
    return np.array([[written / held if held else np.inf] for written in threads])


def mapped_writes(problems: Sequence[Problem], machine: Machine) -> Writes:
    """What the kernels of hybrids put on the way out."""
    reads, again = [], []
    for p in problems:
        written = carried(p, machine, "hybrid")[1]
        once = p.h2d_bytes / written if written > 0 else 0.0
        reads.append([once * min(p.accesses_in, 1.0)])
        again.append([once * max(p.accesses_in - 1.0, 0.0)])
    copies = np.array([[float(p.copies_in)] for p in problems])
    rounds = rounds_of(problems, machine, "hybrid")
    # Two events around nothing stand for the way from a copy to the kernel.
    told = {c.call: c.device_s or 0.0 for c in machine.node.costs if c.gpu in (None, 0)}
    start = max(told.get("launch", 0.0) - told.get("empty", 0.0), 0.0)
    return Writes(
        np.array(reads),
        rounds,
        copies,
        machine.h2d.lull,
        np.array(again),
        start,
        machine.h2d.gap,
        machine.h2d.kernel_wait,
        machine.copies_in_order,
    )


def engines_of(problem: Problem, machine: Machine, strategy: str) -> Engines:
    """The engines that `strategy` runs on: mapped writes of a hybrid need no copy engine and no dependency check."""
    lines = lines_of(machine, strategy)
    hybrid = strategy == "hybrid"
    return Engines(
        one_copy_engine=machine.category != "two-copy-engines" and not hybrid,
        implicit_synchronization=machine.category == "implicit-synchronization" and not hybrid,
        kernels=1 if machine.kernels_in_order else problem.concurrent_kernels,
        h2d_slowdown=lines.h2d_slowdown,
        d2h_slowdown=lines.d2h_slowdown,
        launch=0.0 if strategy == "graph" else problem.launch_seconds,
    )


def tasks_of(
    problem: Problem, machine: Machine, strategy: str, streams: int, lines: Lines | None = None
) -> list[Task]:
    """The tasks of `streams` chunks, in the order in which breadth-first code issues them: copies in, kernels, copies
    out of all chunks, step by step; chunk by chunk where an engine has a stream. `lines` in place of the strategy's own.

    With pageable memory the host waits for each copy.
    """
    lines = lines or lines_of(machine, strategy)
    blocking = strategy == "pageable"
    shares = problem.chunks or (1 / streams,) * streams
    whole = kernel_seconds(problem, machine)
    total = float(kernel_split(problem, whole, np.array([float(len(shares))]))[0])
    steps = problem.steps or (Step(total, problem.h2d_bytes, problem.d2h_bytes),)
    counted_in, counted_out = (
        given / plain if plain else 1.0
        for given, plain in zip(
            carried(problem, machine, strategy), (problem.h2d_bytes, problem.d2h_bytes), strict=True
        )
    )
    in_order = machine.kernels_in_order
    number = np.asarray(float(len(shares)))
    tasks: list[Task] = []
    last: list[tuple[int, ...]] = [()] * len(shares)

    def queue(n: int, kind: str) -> int | None:
        stream = ("h2d", "kernel", "d2h").index(kind) if in_order else n
        return None if problem.queues is None else stream % problem.queues

    def add(n: int, task: Task) -> None:
        last[n] = (len(tasks),)
        tasks.append(task)

    def add_copies(way: Literal["h2d", "d2h"], bytes_: float, copies: int, line: Line, gap: float) -> None:
        for n in chunks if bytes_ > 0 else ():
            share = shares[n]
            size = np.asarray(bytes_ * share / copies)
            latency, slope = (float(x) for x in line.at(size))
            busy = bytes_ * share * slope + (copies - 1) * gap
            if way == "d2h":
                waits = float(machine.waits(number, lines.after_copy if step.h2d_bytes else 0.0))
                latency = max(0.0, latency + line.after_kernel + waits)
            further = float(line.gap_of(number, size, gap))
            add(n, Task(way, busy, further, latency, last[n], queue(n, way), blocking))

    # `add_copies` reads the chunks and the step of the round it is called in.
    rounds = [(n,) for n in range(len(shares))] if in_order else [tuple(range(len(shares)))]
    for chunks, step in product(rounds, steps):
        add_copies("h2d", step.h2d_bytes * counted_in, problem.copies_in, lines.h2d, machine.h2d.gap)
        for n in chunks:
            add(n, Task("kernel", step.kernel_seconds * shares[n], after=last[n], queue=queue(n, "kernel")))
        add_copies("d2h", step.d2h_bytes * counted_out, problem.copies_out, lines.d2h, machine.d2h.gap)
    return tasks
