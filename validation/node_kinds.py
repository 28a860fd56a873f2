"""Prints one kind of GPU against another, over several machines of each (`machine_kinds.py`); part of `node_change.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from statistics import mean

from machine_kinds import Copies, Kinds, Run, off_percent
from pairs.judged import Machine
from pairs.table import Plan

__all__ = ["show_kinds"]

#: Copies of a path of one program that hold so much of what all are off, in percent of their time, are listed.
LISTED_PERCENT = 0.2


def show_kinds(kinds: Kinds, plan: Plan, goal_percent: float) -> bool:
    """Prints all pairs of machines, how far machines of one kind are apart, and the kinds; whether these meet the goal."""
    print(
        f"one kind of GPU against another: {len(kinds.programs)} programs; means of each path and size, whole runs"
    )
    for kind, machines in kinds.machines.items():
        print(f"  {kind}: {', '.join(named(machine) for machine in machines)}")
    print("  one machine against one machine          copies     runs (weighted by time)")
    for origin, target in kinds.pairs():
        copies, runs = kinds.of_pair(origin, target)
        if runs:
            print(f"    {named(origin):24} → {named(target):24} {row(copies, runs)}")
    print("  one machine against the other kind")
    for one, other in permutations(kinds.machines, 2):
        for machine in kinds.machines[one]:
            copies, runs = kinds.from_machine(machine, other)
            if runs:
                print(f"    {named(machine):24} → {other:24} {row(copies, runs)}")
    print("  measured on one machine, beside the mean of the others of its kind")
    for kind, machines in kinds.machines.items():
        for machine in machines:
            copies, runs = kinds.beside_others(machine)
            if runs:
                print(f"    {named(machine):24}   {kind:24} {row(copies, runs)}")
    print(
        "  measured on one half of a kind's machines, beside the other half: mean over all ways to halve them"
    )
    for kind in kinds.machines:
        if halves := kinds.halves(kind):
            copies, runs = zip(*halves, strict=True)
            print(
                f"    {kind:27} {len(halves):3} ways {mean(c.wmape_percent for c in copies):15.1f} %"
                f" {mean(map(off_percent, runs)):7.1f} %"
            )
    met = True
    for one, other in permutations(kinds.machines, 2):
        met &= show_kind(kinds, plan, one, other, goal_percent)
    return met


def show_kind(kinds: Kinds, plan: Plan, origin: str, target: str, goal_percent: float) -> bool:
    copies, runs = kinds.of_kinds(origin, target)
    percents = copies.wmape_percent, off_percent(runs)
    counts = len(kinds.machines[origin]), len(kinds.machines[target])
    print(f"  {origin} → {target}, means over {counts[0]} and {counts[1]} machines")
    for what, percent in zip(("copies", "whole runs"), percents, strict=True):
        said = "met" if percent <= goal_percent else "MISSED"
        print(f"    {what:10} {percent:5.1f} % (goal {goal_percent:g} %) {said}")
    show_without_one(kinds, origin, target)
    near = sum(abs(run.error_percent) <= goal_percent for run in runs)
    print(f"    whole runs within {goal_percent:g} %: {near} of {len(runs)}")
    for what, python in (("CUDA C++", False), ("Python", True)):
        if some := [run for run in runs if plan.programs[run.program].is_python == python]:
            print(f"    whole runs of {what} programs: {off_percent(some):.1f} %")
    for run in runs:
        print(
            f"      {run.program:20} {1e3 * run.measured:7.1f} ms {1e3 * run.predicted:7.1f} {run.error_percent:+6.1f} %"
        )
    for (direction, source, destination), seconds, percent in copies.by(
        ["direction", "source_memory", "destination_memory"]
    ):
        print(f"    {direction} {source + ' → ' + destination:20} {1e3 * seconds:8.2f} ms {percent:6.2f} %")
    everything = sum(seconds for _, seconds, _ in copies.by(["direction"]))
    print(f"    off by {LISTED_PERCENT:g} % of all copies' time or more:")
    for (program, direction, size), seconds, percent in copies.by(["program", "direction", "bytes"]):
        if percent * seconds / everything >= LISTED_PERCENT:
            print(
                f"      {program:20} {direction} {int(size):11,} B {1e3 * seconds:8.2f} ms {percent:6.2f} %"
            )
            for words, each in kinds.on_each(target, program, direction, int(size)).items():
                print(f"        ms, {words}: {' '.join(f'{1e3 * s:.2f}' for s in each)}")
    return max(percents) <= goal_percent


def show_without_one(kinds: Kinds, origin: str, target: str) -> None:
    """How much one machine more or less makes of the figures."""
    machines = [*kinds.machines[origin], *kinds.machines[target]]
    left = [kinds.of_kinds(origin, target, machine) for machine in machines]
    found = [(copies.wmape_percent, off_percent(runs)) for copies, runs in left if runs]
    if found:
        copies, runs = zip(*found, strict=True)
        print(
            f"    without any one machine: copies {min(copies):.1f} to {max(copies):.1f} %,"
            f" whole runs {min(runs):.1f} to {max(runs):.1f} %"
        )


def row(copies: Copies, runs: Sequence[Run]) -> str:
    programs = f"{len(runs)} programs" if len(runs) > 1 else runs[0].program
    return f"{copies.wmape_percent:6.1f} % {off_percent(runs):7.1f} % {programs}"


def named(machine: Machine) -> str:
    """A machine's folder, with the one around it where its own says its kind alone."""
    folder = Path(machine.folder).resolve()
    return machine.name if machine.name != machine.kind else f"{folder.parent.name}/{machine.name}"
