"""Copies on probed machines: parameters fitted anew to raw samples, beside sizes that they were not fitted to.

Run `python validation/probe.py [NAME …]`. For each of the machines in `results/probe.tar.xz`: percent off on held-out sizes
of 1 to 256 streams of the same process, and on all sizes of the process after it; and 1/G beside nvbandwidth's method.
Hosts are shared with others, so machines differ: the goals are for the median machine.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from claims import Truth, goal, judge, table
from stored import probe_names, probe_raw

from busfare.measure.cases import Case, Record, read_record
from busfare.measure.profile import Residual, profile, residuals
from busfare.nodes import Curve

#: Percent: the median and the largest error of a machine.
GOALS = {"pinned": (0.5, 3.5), "pageable": (3.0, 15.0)}
#: nvbandwidth: 16 copies of 512 MiB behind a blocking kernel [its README]; percent that 1/G may be off.
COPIES, COPY_BYTES = 16, 512 << 20
BANDWIDTH_GOAL = 1.0
SAME, NEXT = "held-out sizes", "the next process"


def main() -> None:
    errors_by_kind: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    rates, shown = [], []
    for name in sys.argv[1:] or probe_names():
        first = read_record(probe_raw(f"{name}-run1"))
        curves = profile(first).curves
        judged = {SAME: residuals(curves, first)}
        if name in probe_names(run=2):
            again = read_record(probe_raw(f"{name}-run2"))
            judged[NEXT] = residuals(curves, again, held_out_only=False)
        off = _bandwidth(first, curves)
        rates += off
        for what, rows in judged.items():
            errors = {memory: _errors(rows, memory) for memory in GOALS}
            for memory, pair in errors.items():
                errors_by_kind[what, memory] += [pair] if pair else []
            cells = [figure for pair in errors.values() for figure in pair or (None, None)]
            bandwidth = ", ".join(f"{value:+.2f}" for value in off) if what == SAME else ""
            shown.append((name, what, *cells, bandwidth))
    columns = "|".join(f"{memory} % off, median:.2f|largest:.2f" for memory in GOALS)
    table(f"machine|judged on|{columns}|1/G", shown)
    for (what, memory), errors in errors_by_kind.items():
        goals = GOALS[memory]
        met = sum(pair[0] <= goals[0] and pair[1] <= goals[1] for pair in errors)
        print(f"{memory}, {what}: {met} of {len(errors)} machines within {goals[0]:g} and {goals[1]:g} %")
        for part, value, most in zip(
            ("median", "largest"), np.median(np.array(errors), axis=0), goals, strict=True
        ):
            goal(f"  {part} on the median machine, %", value, most=most if what == SAME else np.inf)
    off = float(np.median(np.abs(rates)))
    goal("bandwidth beside nvbandwidth's method, median % off", off, most=BANDWIDTH_GOAL)


def _errors(rows: Iterable[Residual], memory: str) -> tuple[float, float] | None:
    """Median and largest, of both directions."""
    off = [abs(r.percent) for r in rows if r.case.memory == memory and r.case.direction in ("h2d", "d2h")]
    return (float(np.median(off)), max(off)) if off else None


def _bandwidth(record: Record, curves: Sequence[Curve]) -> list[float]:
    """Percent by which 1/G of the longest copies differs from nvbandwidth's figure, into the GPU and out."""
    pinned = {m.direction: m for m in curves if m.memory == "pinned" and m.gpu in (None, 0)}
    off = []
    for direction in ("h2d", "d2h"):
        taken = record.of(Case(direction, "pinned", "again", COPY_BYTES, COPIES))
        if taken is not None and direction in pinned:
            theirs = COPIES * COPY_BYTES / float(np.median(taken.device_s))
            off.append(100 * (1 / pinned[direction].long_gap_per_byte_s / theirs - 1))
    return off


def truths() -> Iterator[Truth]:
    """Single copies of the process after a probe on the same machine; and of another machine of the kind."""
    kinds = [
        [name for name in probe_names() if name.startswith(start) and ("-x2" in name) == two]
        for start, two in (("h100", False), ("h200", False), ("h200", True))
    ]
    for names in kinds:
        for name, elsewhere in zip(names, [*names[1:], names[0]], strict=True):
            curves = profile(read_record(probe_raw(f"{name}-run1"))).curves
            records = {"elsewhere": f"{elsewhere}-run1"}
            if name in probe_names(run=2):
                records["probed"] = f"{name}-run2"
            for figures, record in records.items():
                for r in residuals(curves, read_record(probe_raw(record)), held_out_only=False):
                    between = r.case.direction == "p2p"
                    single = r.case.mode == "copies" and r.case.count == 1 and r.case.bytes
                    if single and between == ("-x2" in name):
                        what = "p2p" if between else r.case.memory
                        yield Truth(figures, "loggp", what, r.case.bytes, name, r.predicted_s, r.measured_s)


if __name__ == "__main__":
    judge(main)
