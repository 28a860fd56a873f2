"""`bench strategies`: every overlap strategy of W14 run for real on several kernels, cell by cell."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from busfare.measure.bench.device import StrategyDevice
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.measuring import Measuring
from busfare.measure.bench.program import Work
from busfare.measure.bench.run import Run
from busfare.measure.results import LeftOut, StrategyCell

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


def run_cells(
    run: Run[StrategyDevice], works: Sequence[Work], say: Callable[[str], None] = lambda line: None
) -> list[StrategyCell]:
    """Measures `works`, beside what is predicted of them; `say` is told what is about to be run."""
    cells: list[StrategyCell] = []
    order = random.Random(0)
    budget = QUICK_S if run.quick else BUDGET_S
    for n, work in enumerate(works):
        spent = run.seconds
        if spent > budget:
            run.left_out.append(LeftOut(work.name, f"{budget:g} s had passed; run it by itself"))
            continue
        say(f"{work.name}: {work.h2d_bytes / 1e6:,.1f} MB in, {work.d2h_bytes / 1e6:,.1f} MB out")

        def shown(share: float, what: str, n: int = n, work: Work = work) -> None:
            run.show((n + share) / len(works), f"{work.name} {what}")

        until = run.clock() + (budget - spent) / (len(works) - n)
        with run.attempt(work.name):
            cells.append(Measuring(run, work, order, until, shown).measured())
    return cells
