"""W14's cells: for state and buoydiff on its three GPUs, the best strategy predicted beside the published one.

Run `python validation/plan_papers.py`. The paper gives the grid, the copies' parameters of its GTX Titan, both-way
parameters of its Titan and K20, and which strategy won. It does not give kernel times, the size of an element, how
many variables buoydiff moves, nor how often it reads them. So each cell is asked for a whole range of what is not
given, and the script says for which part of it the published winner is the predicted one. Nothing is fitted. Exit
status 1 where the published winner is predicted for no value that can be meant.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from busfare.node import load_node
from busfare.plan import Machine, Problem, machine_of, plans

LEVELS = 42
ELEMENTS = 1024 * 1024 * LEVELS
STRATEGIES = ("explicit", "mapped", "streams", "hybrid")
#: t_E, seconds: from nothing to far beyond every figure's axis.
KERNELS = np.geomspace(1e-5, 10.0, 400)
#: Where figures 9 and 10 end, seconds: no version took longer. (The axis of figure 8 is not in the text.)
AXIS = {"gtx-titan": 0.200, "k20": 0.350}
#: state: 2 in and 'three output variables'. buoydiff: temperature and salinity in, at levels 1, k-1 and k, which is
#: three reads of an element; how many it writes is not said: one to three.
DOUBLE = 8
#: What the script cannot ask, because the paper does not say it.
GAPS = """
Not in the paper, so not reproduced: t_E, element size, outputs and reads of buoydiff; one-way L+o, G and g of
the K20 and all of the GTX 680 (their data sheets and the Titan's g stand in); the measured times, which are
drawings, and so the published errors (9.73, 3.85, 6.46, 10.75 %)."""


@dataclass(frozen=True)
class Cell:
    """One kernel on one GPU, and what the paper found best there."""

    kernel: str
    node: str
    published: str
    accesses_in: float
    outputs: tuple[int, ...]


CELLS = (
    Cell("state", "gtx-680", "mapped", 1, (3,)),
    Cell("state", "gtx-titan", "mapped", 1, (3,)),
    Cell("state", "k20", "mapped", 1, (3,)),
    Cell("buoydiff", "gtx-680", "hybrid", 3, (1, 2, 3)),
    Cell("buoydiff", "gtx-titan", "hybrid", 3, (1, 2, 3)),
    Cell("buoydiff", "k20", "streams", 3, (1, 2, 3)),
)


def main() -> int:
    print("W14 figures 8 to 10: best of explicit, mapped (its Implicit), streams and hybrid, 42 streams")
    print(f"{'kernel':9} {'GPU':10} {'elements':9} {'out':3} {'published':9} predicted, by kernel time t_E")
    sound = True
    for cell in CELLS:
        machine = machine_of(load_node(cell.node))
        asked = [(element, outputs) for element in (4, DOUBLE) for outputs in cell.outputs]
        found = [_cell(cell, machine, element, outputs) for element, outputs in asked]
        if not any(found):
            print(f"  MISSED: {cell.published} for none of what can be meant")
        sound &= any(found)
    print("\nWhat stands behind the cells that t_E decides (8-byte elements, 2 variables out):")
    for cell in CELLS[3:]:
        _show_times(cell, machine_of(load_node(cell.node)))
    print(GAPS)
    return 0 if sound else 1


def _cell(cell: Cell, machine: Machine, element: int, outputs: int) -> bool:
    """Prints the winners over t_E. False where the published one is not predicted for any t_E that can be meant, or
    another is for all of them.
    """
    into, out = 2 * ELEMENTS * element, outputs * ELEMENTS * element
    winners = _winners(cell, machine, into, out)
    said = ", ".join(f"{name} {_span(low, high)}" for name, low, high in _ranges(winners))
    most, within = float("inf"), ""
    if cell.node in AXIS:
        # Explicit takes both copies and the kernel, and its bar ends within the figure.
        most = (
            AXIS[cell.node]
            - into * machine.h2d.copy.long_gap_per_byte_s
            - out * machine.d2h.copy.long_gap_per_byte_s
        )
        within = f" of {most * 1e3:.0f} ms at most, as the figure's axis allows"
    possible = {w for w, t in zip(winners, KERNELS, strict=True) if t <= most}
    if len(set(winners)) == 1:
        verdict = "determined, whatever t_E"
    elif len(possible) == 1:
        verdict = f"determined by t_E{within}"
    else:
        verdict = "not determined: t_E is not given"
    right = cell.published in possible
    name = f"{cell.kernel:9} {cell.node:10} {element} bytes   {outputs:<3} {cell.published:9}"
    print(f"{name} {said}; {'' if right else 'another one wins: '}{verdict}")
    return right


def _winners(cell: Cell, machine: Machine, into: float, out: float) -> list[str]:
    problems = [_problem(cell, into, out, float(kernel)) for kernel in KERNELS]
    return [
        next(p.strategy for p in answer.ranking if p.strategy in STRATEGIES)
        for answer in plans(problems, machine)
    ]


def _problem(cell: Cell, into: float, out: float, kernel: float) -> Problem:
    return Problem(
        cell.kernel, into, out, kernel, accesses_in=cell.accesses_in, streams=LEVELS, levels=LEVELS
    )


def _ranges(winners: list[str]) -> list[tuple[str, float, float]]:
    """Winner, from which t_E, to which."""
    ranges: list[tuple[str, float, float]] = []
    for winner, kernel in zip(winners, KERNELS, strict=True):
        if ranges and ranges[-1][0] == winner:
            ranges[-1] = (winner, ranges[-1][1], float(kernel))
        else:
            ranges.append((winner, float(kernel), float(kernel)))
    return ranges


def _span(low: float, high: float) -> str:
    first, last = low == KERNELS[0], high == KERNELS[-1]
    if first and last:
        return "always"
    return (
        f"to {high * 1e3:.0f} ms"
        if first
        else f"from {low * 1e3:.0f} ms"
        if last
        else f"{low * 1e3:.0f} to {high * 1e3:.0f} ms"
    )


def _show_times(cell: Cell, machine: Machine) -> None:
    size = 2 * ELEMENTS * DOUBLE
    for kernel in (0.01, 0.05, 0.2):
        answer = plans([_problem(cell, size, size, kernel)], machine)[0]
        times = {p.strategy: p.seconds * 1e3 for p in answer.ranking}
        row = "  ".join(f"{name} {times[name]:6.1f}" for name in STRATEGIES)
        print(f"  {cell.node:10} t_E {kernel * 1e3:5.0f} ms: {row}  ms (predicted)")


if __name__ == "__main__":
    sys.exit(main())
