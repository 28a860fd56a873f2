"""W14 as published: its equations with a single L+o, G and g for each direction, as its benchmark measures them. The plan's
own times come from the engine, which knows more of the link; these stand beside them.
"""

import math

import numpy as np

from busfare.nodes import Shares
from busfare.planning import strategies as forms
from busfare.planning.machine import Machine
from busfare.planning.problem import Problem
from busfare.planning.strategies import Cut

#: Rates relative to copies of one direction alone.
ALONE = Shares(h2d=1.0, d2h=1.0)


def cut_as_published(
    problem: Problem, machine: Machine, streams: float = 1.0, shares: Shares = ALONE, accesses: bool = False
) -> Cut:
    """The terms of W14's equations: L+o of a copy of one byte, G of long copies, g of copies back to back.

    `shares`: of the rate of one direction, while the other moves data, too [W14 table II]. With `accesses`, bytes count once
    an access of the kernel.
    """
    columns = []
    for direction, share in {"h2d": shares.h2d, "d2h": shares.d2h}.items():
        curve, into = machine.curves(direction).copy, direction == "h2d"
        size = problem.h2d_bytes if into else problem.d2h_bytes
        if accesses:
            size *= problem.accesses_in if into else problem.accesses_out
        terms = size * curve.long_gap_per_byte_s / share, curve.latency_overhead_s[0], curve.issue_interval(1)
        columns.append([np.array(float(term) * (size > 0)) for term in terms])
    (into_s, latency_in, gap_in), (out_s, latency_out, gap_out) = columns
    kernel = np.array(forms.kernel_seconds(problem, machine))
    return Cut(np.array(streams), into_s, kernel, out_s, latency_in, latency_out, gap_in, gap_out)


def equation_of(machine: Machine, cut: Cut) -> int:
    """The number of the equation for streams: by the device's category, and by whether kernel or transfers take longer."""
    if machine.category == "two-copy-engines":
        return 5
    dominant_transfers = bool((cut.h2d + cut.d2h > cut.kernel).item())
    return (1 if machine.category == "implicit-synchronization" else 3) + dominant_transfers


def streams_as_published(problem: Problem, machine: Machine) -> tuple[int, float | None]:
    """The equation for streams, and the number of streams that [W14 §VI] derives from it; None where none follows."""
    cut = cut_as_published(problem, machine)
    equation = equation_of(machine, cut)
    streams = float(forms.best_streams(equation, cut).item())
    return equation, streams if math.isfinite(streams) else None


def as_published(problem: Problem, machine: Machine, strategy: str, streams: int) -> float | None:
    """Seconds of a strategy in `streams` streams by W14's equations; None for strategies and problems that it does not have.

    Streams on two engines: eq 5 with the G of both directions at once; hybrid: eq 5 with the G of copies beside mapped
    writes, on every device [W14 table II].
    """
    if not problem.has_closed_form:
        return None
    shares, contention = ALONE, machine.contention
    if strategy == "hybrid":
        shares = Shares(h2d=contention.copy_beside_mapped.h2d, d2h=contention.mapped_beside_copy.d2h)
    elif strategy == "streams" and machine.category == "two-copy-engines":
        shares = contention.both
    cut = cut_as_published(problem, machine, float(streams), shares, strategy == "mapped")
    of_streams = {1: forms.eq1, 2: forms.eq2, 3: forms.eq3, 4: forms.eq4, 5: forms.eq5_shared}
    equations = {
        "explicit": forms.explicit,
        "mapped": forms.eq6,
        "streams": of_streams[equation_of(machine, cut)],
        "hybrid": forms.eq5_shared,
    }
    return float(equations[strategy](cut).item()) if strategy in equations else None
