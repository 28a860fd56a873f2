"""`bench strategies`: every overlap strategy of W14 run for real on several kernels, beside what `plan` says of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from busfare.measure.bench.cell import Cell, Version
from busfare.measure.bench.device import StrategyDevice
from busfare.measure.bench.kernel import KERNELS, Kernel
from busfare.measure.bench.measuring import Measuring, Progress
from busfare.measure.bench.program import Work
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.plan import Machine

__all__ = ["BUDGET_S", "CELLS", "Cell", "Run", "Version", "cells_of", "run_cells"]

KIB, MIB = 1 << 10, 1 << 20
#: A cell that would start after so many seconds is left out, and named; of what is left each one takes its share for
#: moments beyond those that it has anyhow.
BUDGET_S, QUICK_S = 150.0, 15.0

#: The two kernels of W14 on its grid, then others: with re-reads, more arithmetic, one way only; small and large. In
#: this order a short budget leaves out what says least.
CELLS = (
    Work(KERNELS["state"], 42, 1024 * 1024),
    Work(KERNELS["buoydiff"], 42, 1024 * 1024),
    Work(KERNELS["scale"], 42, 512 * KIB),
    Work(KERNELS["reread"], 42, 512 * KIB),
    Work(KERNELS["compute-heavy"], 42, 512 * KIB),
    Work(KERNELS["state"], 42, 256 * 256),
    Work(KERNELS["buoydiff"], 42, 512 * 512),
    Work(KERNELS["scale"], 16, 8 * KIB),
    Work(KERNELS["gather"], 42, 512 * KIB),
    Work(KERNELS["spread"], 42, 512 * KIB),
    Work(KERNELS["compute-balanced"], 42, 512 * KIB),
    Work(KERNELS["scale"], 42, 2 * MIB),
)
QUICK_CELLS = tuple(CELLS[n] for n in (2, 3, 5, 6))


@dataclass
class Run:
    """What one call measured."""

    cells: list[Cell] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def cells_of(own: Kernel | None, quick: bool, levels: int, level: int) -> tuple[Work, ...]:
    """What is run: the user's own kernel on a grid, or ours."""
    if own is not None:
        return (Work(own, levels, level),)
    return QUICK_CELLS if quick else CELLS


def run_cells(
    device: StrategyDevice,
    works: Sequence[Work],
    machine: Machine,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Measures `works` on `device`, with predictions for `machine`; `say` is told what is about to be run."""
    # A virtual machine has a time of its own, in which nobody waits.
    clock: Callable[[], float] = getattr(device, "clock", time.monotonic)
    found, began = Run(), clock()
    order = random.Random(seed)
    budget = QUICK_S if quick else BUDGET_S
    for n, work in enumerate(works):
        spent = clock() - began
        if spent > budget:
            found.left_out.append({"case": work.name, "why": f"{budget:g} s had passed; run it by itself"})
            continue
        say(f"{work.name}: {work.h2d_bytes / 1e6:,.1f} MB in, {work.d2h_bytes / 1e6:,.1f} MB out")

        def shown(share: float, what: str, n: int = n, work: Work = work) -> None:
            if progress:
                progress((n + share) / len(works), f"{work.name} {what}")

        until = clock() + (budget - spent) / (len(works) - n)
        try:
            cell = Measuring(device, work, machine, quick, order, found.left_out, clock, until)
            found.cells.append(cell.measured(shown))
        except (UnavailableError, WrongDataError) as error:
            found.left_out.append({"case": work.name, "why": str(error)})
    found.seconds = clock() - began
    return found
