"""The strategies without overlap between chunks: everything in one stream, or in the kernel itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from busfare.plan.curve import first_numbers
from busfare.plan.equations import eq6_shared, explicit
from busfare.plan.machine import Machine
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.schedule import makespan
from busfare.plan.work import cut_of, engines_of, kernel_seconds, mapped_work, sides_of, tasks_of

__all__ = ["in_one_stream", "mapped_seconds", "of_pageable", "strategy_seconds"]


def in_one_stream(problem: Problem, machine: Machine) -> list[Prediction]:
    """The strategies without streams."""
    in_place = machine.gpu.coherent or machine.gpu.unified_memory
    found = [
        Prediction("explicit", 1, strategy_seconds(problem, machine, "explicit"), "W14 §III"),
        Prediction("mapped", 1, mapped_seconds(problem, machine), "W14 eq 6"),
        Prediction(
            "managed",
            1,
            strategy_seconds(problem, machine, "managed"),
            "read in place" if in_place else "page faults, then the kernel",
        ),
    ]
    if machine.migrates_on_fault and not machine.gpu.unified_memory:
        found.append(
            Prediction(
                "managed-prefetch",
                1,
                strategy_seconds(problem, machine, "managed-prefetch"),
                "prefetch, kernel, prefetch",
            )
        )
    if problem.copies_in > 1 or problem.copies_out > 1:
        found.append(
            Prediction(
                "batched", 1, strategy_seconds(problem, machine, "batched"), "one L+o for all copies each way"
            )
        )
    return found


def mapped_seconds(problem: Problem, machine: Machine) -> float:
    """Seconds of a kernel that reads and writes host memory itself [W14 eq 6], each way slowed by the other."""
    slow = np.asarray(machine.h2d.beside_copy), np.asarray(machine.d2h.beside_copy)
    return problem.launch_seconds + float(eq6_shared(mapped_work(problem, machine), *slow))


def strategy_seconds(problem: Problem, machine: Machine, strategy: str) -> float:
    """Seconds of a strategy that does one thing after the other: copies in, kernels, copies out."""
    if strategy == "managed" and (machine.gpu.coherent or machine.gpu.unified_memory):
        return mapped_seconds(problem, machine)  # nothing migrates: the kernel reads in place
    if strategy == "managed" and not machine.migrates_on_fault:
        strategy = "pageable"  # before Pascal the driver moves whole allocations at the launch
    sides = sides_of(problem, machine, strategy)
    if strategy in ("explicit", "pageable") and problem.needs_schedule:
        whole = replace(problem, chunks=(), queues=None)
        engines = engines_of(whole, machine, strategy, sides)
        return makespan(tasks_of(whole, machine, sides, 1, blocking=strategy == "pageable"), engines)
    if strategy in ("explicit", "pageable"):
        return float(explicit(cut_of(problem, machine, sides, np.asarray(1.0))))
    steps = [(s.h2d_bytes, s.d2h_bytes) for s in problem.steps] or [(problem.h2d_bytes, problem.d2h_bytes)]
    moving = sum(sides.h2d.seconds(into) + sides.d2h.seconds(out) for into, out in steps)
    return problem.launch_seconds + kernel_seconds(problem, machine) + moving


def of_pageable(problem: Problem, machine: Machine) -> list[Prediction]:
    """The strategies that leave pageable data where it is."""
    if problem.memory != "pageable":
        return []
    sides = sides_of(problem, machine, "pageable")
    found = [
        Prediction(
            "explicit-pageable", 1, strategy_seconds(problem, machine, "pageable"), "W14 §III, staged copies"
        )
    ]
    chunk_sides = sides._replace(
        h2d=sides.h2d.no_faster_than(problem.h2d_bytes), d2h=sides.d2h.no_faster_than(problem.d2h_bytes)
    )
    engines = engines_of(problem, machine, "streams", sides)
    numbers = [problem.streams] if problem.streams else first_numbers(problem, min(problem.most_streams, 64))
    seconds = {
        n: makespan(tasks_of(problem, machine, chunk_sides, n, blocking=True), engines) for n in numbers
    }
    best = min(seconds, key=lambda n: seconds[n])
    found.append(
        Prediction("streams-pageable", best, seconds[best], "schedule, the host waits for each copy")
    )
    return found
