"""The strategies without overlap between chunks: everything in one stream, or in the kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from busfare.plan.curve import first_numbers
from busfare.plan.cutting import cut_of, mapped_work
from busfare.plan.equations import eq6_shared, explicit
from busfare.plan.machine import Machine
from busfare.plan.prediction import Prediction
from busfare.plan.problem import Problem
from busfare.plan.schedule import makespan
from busfare.plan.work import engines_of, lines_of, load_of, rounds_of, tasks_of

__all__ = ["in_one_stream", "of_pageable"]

ONE = np.ones(1)
#: Of a kernel beside its page faults [bench methods, 50 accesses: 0 to 74 % on two H200s and an H100, middle 45].
_HIDDEN_BY_FAULTS = 0.5


def in_one_stream(problems: Sequence[Problem], machine: Machine) -> list[list[Prediction]]:
    """What each problem takes by every strategy without streams. Raises InputError where a kernel's time is not
    known.
    """
    in_place = machine.gpu.coherent or machine.gpu.unified_memory
    # Before Pascal the driver moves whole managed allocations at the launch.
    managed = "managed" if machine.migrates_on_fault else "pageable"
    rows = [
        ("explicit", _sequential(problems, machine, "explicit"), "W14 §III"),
        ("mapped", _mapped(problems, machine), "W14 eq 6"),
        (
            "managed",
            _mapped(problems, machine) if in_place else _managed(problems, machine, managed),
            "read in place" if in_place else "page faults beside the kernel, page faults back",
        ),
    ]
    if machine.migrates_on_fault and not machine.gpu.unified_memory:
        prefetched = _sequential(problems, machine, "managed-prefetch")
        rows.append(("managed-prefetch", prefetched, "prefetch, kernel, prefetch"))
    rows = [
        (name, [s + _just_written(p, machine, name) for s, p in zip(seconds, problems, strict=True)], by)
        for name, seconds, by in rows
    ]
    found = [
        [Prediction(name, 1, seconds[n], by) for name, seconds, by in rows] for n in range(len(problems))
    ]
    for n, problem in enumerate(problems):
        if problem.copies_in > 1 or problem.copies_out > 1:
            seconds = _sequential([problem], machine, "batched")[0]
            found[n].append(Prediction("batched", 1, seconds, "one L+o for all copies each way"))
    return found


def _just_written(problem: Problem, machine: Machine, strategy: str) -> float:
    """What a strategy takes longer (s) where the processor has just written the data."""
    if not problem.written or machine.gpu.unified_memory:
        return 0.0
    into, out = problem.h2d_bytes, problem.d2h_bytes
    if strategy == "explicit-pageable":
        # The driver reads one buffer and writes the other past what the processor's caches still hold of them.
        staged = machine.h2d.just_written("pageable", into)
        return staged + machine.d2h.just_written("pageable", out)
    memory = {"explicit": "pinned", "mapped": "pinned", "managed": "managed"}.get(strategy)
    return machine.h2d.just_written(memory, into) if memory else 0.0


def _mapped(problems: Sequence[Problem], machine: Machine) -> list[float]:
    """Seconds of kernels that read and write host memory themselves [W14 eq 6], each way slowed by the other."""
    lines = lines_of(machine, "mapped")
    work = mapped_work(load_of(problems, machine, "mapped", ONE), lines)
    slowdowns = np.asarray(lines.h2d_slowdown), np.asarray(lines.d2h_slowdown)
    # Of nodes whose mapped memory nobody measured, W14's own.
    rounds = rounds_of(problems, machine, "mapped") if machine.h2d.starving_measured else np.inf
    seconds = eq6_shared(work, *slowdowns, rounds, machine.h2d.first_share)
    launches = np.array([p.launch_seconds for p in problems])
    return [float(t) for t in seconds[:, 0] + launches]


def _managed(problems: Sequence[Problem], machine: Machine, strategy: str) -> list[float]:
    """Seconds of managed memory without prefetch. Where pages move on a fault, threads whose pages are there compute
    while others wait, which hides half of the shorter: the threads whose pages come late compute when all else is done.
    """
    whole = _sequential(problems, machine, strategy)
    if strategy != "managed" or any(p.needs_schedule for p in problems):
        return whole
    cut = cut_of(load_of(problems, machine, strategy, ONE), machine, lines_of(machine, strategy), ONE)
    hidden = _HIDDEN_BY_FAULTS * np.minimum(cut.h2d_latency + cut.h2d, cut.kernel)
    return [seconds - float(less) for seconds, less in zip(whole, hidden[:, 0], strict=True)]


def _sequential(problems: Sequence[Problem], machine: Machine, strategy: str) -> list[float]:
    """Seconds of copies in, kernels, copies out, one after the other."""
    cut = cut_of(load_of(problems, machine, strategy, ONE), machine, lines_of(machine, strategy), ONE)
    seconds = [float(t) for t in explicit(cut)[:, 0]]
    for n, problem in enumerate(problems):
        if problem.needs_schedule:
            whole = replace(problem, chunks=(), queues=None)
            engines = engines_of(whole, machine, strategy)
            seconds[n] = makespan(tasks_of(whole, machine, strategy, 1), engines)
    return seconds


def of_pageable(problem: Problem, machine: Machine) -> list[Prediction]:
    """The strategies that leave pageable data where it is."""
    if problem.memory != "pageable":
        return []
    staged = _sequential([problem], machine, "pageable")[0]
    lines = lines_of(machine, "pageable")
    # A chunk of a buffer that outgrows the cache is not in it either.
    lines = lines._replace(
        h2d=lines.h2d.no_faster_than(problem.h2d_bytes), d2h=lines.d2h.no_faster_than(problem.d2h_bytes)
    )
    engines = engines_of(problem, machine, "pageable")
    numbers = [problem.streams] if problem.streams else first_numbers(problem, min(problem.most_streams, 64))
    seconds = {n: makespan(tasks_of(problem, machine, "pageable", n, lines), engines) for n in numbers}
    best = min(seconds, key=lambda n: seconds[n])
    return [
        Prediction(
            "explicit-pageable",
            1,
            staged + _just_written(problem, machine, "explicit-pageable"),
            "W14 §III, staged copies",
        ),
        Prediction("streams-pageable", best, seconds[best], "schedule, the host waits for each copy"),
    ]
