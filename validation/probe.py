"""Copies on probed machines: parameters fitted anew to raw samples, beside sizes that they were not fitted to.

Run `python validation/probe.py [NAME …]`. For each of the machines in `results/probe.tar.xz`: percent off on held-out sizes
of 1 to 256 streams of the same process, and on all sizes of the process after it; and 1/G beside nvbandwidth's method.
Hosts are shared with others, so machines differ: the goals are for the median machine. Exit status 1 where one is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from stored import probe_names, probe_raw

from busfare.measure.cases import Case
from busfare.measure.profile import Residual, profile, residuals
from busfare.measure.raw import Record, read

#: Percent: the median and the largest error of a machine.
GOALS = {"pinned": (0.5, 3.5), "pageable": (3.0, 15.0)}
#: nvbandwidth: 16 copies of 512 MiB behind a blocking kernel [its README]; percent that 1/G may be off.
COPIES, COPY_BYTES = 16, 512 << 20
BANDWIDTH_GOAL = 1.0
SAME, NEXT = "held-out sizes", "the next process"


def main() -> int:
    names = sys.argv[1:] or probe_names()
    seconds = set(probe_names(run=2))
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    rates = []
    print(f"{'machine':22} percent off: pinned median, largest | pageable median, largest | 1/G")
    for name in names:
        first = read(probe_raw(f"{name}-run1"))
        curves = profile(first).curves
        judged = {SAME: residuals(curves, first)}
        if name in seconds:
            again = read(probe_raw(f"{name}-run2"))
            judged[NEXT] = residuals(curves, again, held_out_only=False)
        off = _bandwidth(
            first, {m.direction: m for m in curves if m.memory == "pinned" and m.gpu in (None, 0)}
        )
        rates += off
        for what, rows in judged.items():
            cells = []
            for memory in GOALS:
                if errors := _errors(rows, memory):
                    found[what, memory].append(errors)
                    cells.append(f"{errors[0]:5.2f} {errors[1]:6.2f}")
            bandwidth = ", ".join(f"{value:+.2f}" for value in off) if what == SAME else ""
            print(f"  {name:20} {what:16} {' | '.join(cells)} | {bandwidth}")
    met = True
    for (what, memory), errors in found.items():
        medians, largest = np.median(np.array(errors), axis=0)
        goals = GOALS[memory]
        good = bool(medians <= goals[0] and largest <= goals[1])
        met &= good or what == NEXT
        each = sum(one[0] <= goals[0] and one[1] <= goals[1] for one in errors)
        said = "" if what == NEXT else f" (goals {goals[0]:g}, {goals[1]:g}) {'met' if good else 'MISSED'}"
        print(
            f"{memory}, {what}: median {medians:.2f} %, largest {largest:.2f} % on the median machine{said}; "
            f"{each} of {len(errors)} machines within"
        )
    median = float(np.median(np.abs(rates)))
    met &= median <= BANDWIDTH_GOAL
    print(
        f"bandwidth beside nvbandwidth's method: {median:.2f} % off in the median (goal {BANDWIDTH_GOAL:g})"
    )
    return 0 if met else 1


def _errors(rows: Iterable[Residual], memory: str) -> tuple[float, float] | None:
    """Median and largest, of both directions."""
    off = [abs(r.percent) for r in rows if r.case.memory == memory and r.case.direction in ("h2d", "d2h")]
    return (float(np.median(off)), max(off)) if off else None


def _bandwidth(record: Record, pinned: dict) -> list[float]:
    """Percent by which 1/G of the longest copies differs from nvbandwidth's figure, into the GPU and out."""
    off = []
    for direction in ("h2d", "d2h"):
        taken = record.of(Case(direction, "pinned", "again", COPY_BYTES, COPIES))
        if taken is not None and direction in pinned:
            theirs = COPIES * COPY_BYTES / float(np.median(taken.device_s))
            off.append(100 * (1 / pinned[direction].long_gap_per_byte_s / theirs - 1))
    return off


if __name__ == "__main__":
    sys.exit(main())
