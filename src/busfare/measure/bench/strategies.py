"""`bench strategies`: every overlap strategy of W14 run for real on several kernels, beside what `plan` says of it; and its
JSON object, measured beside predicted, cell by cell.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from busfare.measure.bench.cell import Cell, Version
from busfare.measure.bench.device import StrategyDevice
from busfare.measure.bench.kernel import KERNELS, Kernel
from busfare.measure.bench.measuring import Measuring, Progress
from busfare.measure.bench.predicting import STREAMED
from busfare.measure.bench.program import Work
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.measure.summary import interval, median, overlapping
from busfare.node import Node
from busfare.plan import Machine, Prediction
from busfare.plan.prediction import range_beside

__all__ = ["BUDGET_S", "CELLS", "Cell", "Run", "Version", "cells_of", "run_cells", "strategies_result"]

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


def strategies_result(run: Run, device: StrategyDevice, told: dict[str, Any]) -> dict[str, Any]:
    """`busfare.bench-strategies/1`; `told` are the date, the command and the node that was predicted for."""
    return {
        "schema": "busfare.bench-strategies/1",
        "virtual": device.virtual,
        **told,
        "cells": [_cell(cell) for cell in run.cells],
        "left_out": run.left_out,
        "seconds": run.seconds,
        "facts": device.facts(),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    work = cell.work
    measured, planned = cell.fastest(), cell.predicted.best
    taken = cell.of(planned.strategy, planned.streams)
    return {
        "name": work.name,
        "kernel": work.kernel.name,
        "title": work.kernel.title,
        "levels": work.levels,
        "level_elements": work.level,
        "h2d_bytes": work.h2d_bytes,
        "d2h_bytes": work.d2h_bytes,
        "measured_kernel_seconds": cell.kernel_s[1],
        "measured_kernel_seconds_by_chunks": [
            {"chunks": n, "seconds": seconds, "seconds_by_moment": list(cell.kernel_samples_s[n])}
            for n, seconds in sorted(cell.kernel_s.items())
        ],
        "measured_link_seconds": cell.link_s,
        "measured_link_samples_seconds": list(cell.link.device_s),
        "measured_link_ends_seconds": [list(ends) for ends in cell.link.ends_s],
        "measured_one_way_seconds": list(cell.one_way_s),
        "checked_against": cell.against or None,
        "versions": [_version(version, cell.predicted.machine.node) for version in cell.versions],
        "best": {
            "measured": {
                "strategy": measured.strategy,
                "streams": measured.streams,
                "seconds": measured.seconds,
            },
            "predicted": {
                "strategy": planned.strategy,
                "streams": planned.streams,
                "seconds": planned.seconds,
                **range_beside(planned.strategy, planned.seconds, cell.predicted.machine.node),
            },
            "picked": _picked(planned, measured, taken),
            # What following the prediction costs against the fastest, measured.
            "cost_percent": None if taken is None else 100 * (taken.seconds / measured.seconds - 1),
        },
        "streams": _streams(cell),
        "limit": {
            "seconds": cell.limit_s,
            "by": "link" if cell.link_s >= cell.kernel_s[1] else "kernel",
            "streams_share_percent": 100 * cell.limit_s / cell.fastest(STREAMED).seconds,
        },
    }


def _picked(planned: Prediction, measured: Version, taken: Version | None) -> bool:
    """Whether the strategy predicted to be the fastest was, be it submitted one way or the other; or measured alike."""
    if planned.strategy == measured.strategy or {planned.strategy, measured.strategy} == {*STREAMED}:
        return True
    return taken is not None and overlapping(taken.timing.device_s, measured.timing.device_s)


def _version(version: Version, node: Node) -> dict[str, Any]:
    timing, predicted = version.timing, version.predicted
    low, high = interval(timing.device_s)
    seconds = version.seconds
    return {
        "strategy": version.strategy,
        "streams": version.streams,
        "gpus": version.gpus,
        "measured_seconds": seconds,
        "measured_interval_seconds": [low, high],
        "measured_host_seconds": median(timing.host_s) if timing.host_s else None,
        "samples_seconds": list(timing.device_s),
        "samples_by_moment": list(version.visits),
        "held": timing.held,
        "predicted_seconds": predicted.seconds if predicted else None,
        # No held-out machine had several GPUs.
        **range_beside(
            version.strategy, predicted.seconds if predicted and version.gpus == 1 else None, node
        ),
        "predicted_by": predicted.by if predicted else None,
        "error_percent": 100 * (predicted.seconds / seconds - 1) if predicted else None,
        "checked": version.error_share is not None,
        "error_share": version.error_share,
    }


def _streams(cell: Cell) -> dict[str, Any]:
    """The number of streams: the predicted one, the fastest measured one, and what the difference costs."""
    best = cell.fastest(("streams",))
    number = cell.predicted.best_number("streams")
    at = cell.of("streams", number)
    return {
        "measured_best": best.streams,
        "predicted_best": number,
        "factor": max(best.streams / number, number / best.streams),
        "measured_seconds_at_predicted": at.seconds if at else None,
        "cost_percent": 100 * (at.seconds / best.seconds - 1) if at else None,
    }
