"""Whether `busfare diff` sees a change, and only a change: `python validation/diff_pairs.py`.

Pairs of windows are cut from one recording each, the first part of a run against the rest. In twenty pairs nothing was
changed, and no change may be shown. In twenty, the time in which kernels run, copies run or the GPU waits for the host takes
5–30 % longer or shorter in the second window, and that must be said of the unit of work or of its part, with the right sign.

The recordings are those with the most units of work: of few units no test can tell a change of 5 %. The method was chosen on
two machines, on one of which it has a goal; those of the others were not used for that. A change beyond the limit that
`diff` prints for the unit (`visible from`) must be caught; a smaller one may show in a part of the unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple

import numpy as np
import polars as pl
from claims import goal, judge, table
from stored import RESULTS, unpacked

import busfare
from busfare.trace.lanes import Union
from busfare.trace.totals import union_of
from busfare.trace.units import units_of
from busfare.trace.window import part_of

PAIRS = 20
MACHINES = ("whole/h100-2026-11-28-2045", "whole/h200-2026-11-28-2056")
NOT_USED = ("pairs/h100", "pairs/h200", "unseen/h100", "unseen/h200")  # of the latter, plain recordings
#: Where runs are cut in two, and by how much their second part is changed.
CUTS, CHANGES = (0.3, 0.5, 0.7), (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
PARTS = {"kernels": ("kernel", "graph"), "transfers": ("copy", "set"), "GPU idle": ()}


def recordings(machine: str) -> list[tuple[str, busfare.trace.Trace]]:
    """The programs with the most units of work in all archives of a machine, and their recordings."""
    runs, kind = [], "*-before.bf" if machine.startswith("unseen") else "*.bf"
    archives = [str(file.relative_to(RESULTS)) for file in sorted(RESULTS.glob(f"{machine}*.tar.xz"))]
    folders = [unpacked(archive.removesuffix(".tar.xz")) for archive in archives]
    for path in (path for folder in folders for path in sorted(folder.glob(kind))):
        run = busfare.read(path).trace
        if units := units_of(run):
            runs.append((min(len(unit.starts) for unit in units), path.name.partition("-before")[0], run))
    runs.sort(key=lambda row: (-row[0], row[1]))
    return [(program, run) for _, program, run in runs[:PAIRS]]


def stretched(run: busfare.trace.Trace, part: str, factor: float) -> busfare.trace.Trace:
    """`run` with all its times moved so that the time of `part` takes `factor` times as long."""
    kinds = PARTS[part]
    some = run.operations.filter(pl.col("kind").is_in(kinds)) if kinds else run.operations
    busy: Union = union_of(some)

    def moved(times: pl.Series) -> pl.Series:
        at = times.fill_null(0).to_numpy()
        inside = busy.covered_before(at) if kinds else at - busy.covered_before(at)
        later = pl.Series(times.name, at + np.round((factor - 1) * inside).astype(np.int64))
        return pl.select(pl.when(times.is_not_null()).then(later)).to_series().alias(times.name)

    tables = {name: getattr(run, name) for name in ("operations", "calls", "events", "markers")}
    changed = {name: t.with_columns(moved(t["start_ns"]), moved(t["end_ns"])) for name, t in tables.items()}
    return replace(run, **changed)


class Shown(NamedTuple):
    """The sign of each change that `diff` shows: of the unit, and of its parts; by which part of itself the unit differs,
    and from which change on that shows, as `diff` prints it.
    """

    signs: dict[str, int]
    change: float
    visible: float


def shown(before: busfare.trace.Trace, after: busfare.trace.Trace) -> Shown:
    unit = busfare.diff(before, after).unit
    changes = {part.what: part.change_seconds for part in unit.parts}
    changes |= {"unit": unit.change_percent or 0.0} if unit.real else {}
    signs = {what: 1 if change > 0 else -1 for what, change in changes.items()}
    row = unit.statistics.get(unit.figure) if unit.figure else None
    visible = (row.high - row.change) / 100 if row else np.inf
    return Shown(signs, (unit.change_percent or 0.0) / 100, visible)


def judged(archive: str) -> Iterator[tuple[str, float, str, float, Shown, Shown]]:
    """Of each program the cut, the part changed and by what, and what is shown of the pair unchanged, and changed."""
    parts, changes, signs = cycle(PARTS), cycle(CHANGES), cycle((1, -1))
    for (program, run), cut in zip(recordings(archive), cycle(CUTS), strict=False):
        edge = cut * run.makespan_seconds
        before, after = part_of(run, (0.0, edge)), part_of(run, (edge, 1e9))
        part, change, sign = next(parts), next(changes), next(signs)
        factor = 1 + change if sign > 0 else 1 / (1 + change)
        yield program, cut, part, factor, shown(before, after), shown(before, stretched(after, part, factor))


def main() -> None:
    for archive in (*MACHINES, *NOT_USED):
        print(archive)
        rows, alarms, caught, beyond, missed = list[tuple[object, ...]](), 0, 0, 0, 0
        for program, cut, part, factor, unchanged, changed in judged(archive):
            sign = 1 if factor > 1 else -1
            right = sign in (changed.signs.get("unit"), changed.signs.get(part))
            alarms, caught = alarms + bool(unchanged.signs), caught + right
            by = (1 + changed.change) / (1 + unchanged.change) - 1
            beyond += abs(by) > changed.visible
            missed += abs(by) > changed.visible and not right
            rows.append(
                (
                    program,
                    cut,
                    ", ".join(unchanged.signs) or "nothing",
                    f"{part} {factor:.2f}x",
                    f"{by:+.1%}",
                    f"{changed.visible:.1%}" if changed.visible < np.inf else "no unit",
                    "caught" if right else "MISSED",
                )
            )
        table("program|cut at:.1f|shown unchanged|changed|unit|visible from|", rows)
        goals = ({"most": 0}, {"least": 18}, {"most": 0}) if archive == MACHINES[0] else ({}, {}, {})
        goal(f"of {len(rows)} unchanged pairs, alarms", alarms, **goals[0], form="d")
        goal(f"of {len(rows)} changed pairs, caught with the right sign", caught, **goals[1], form="d")
        goal(
            f"of {beyond} changed by more than the limit that diff prints, missed",
            missed,
            **goals[2],
            form="d",
        )


if __name__ == "__main__":
    judge(main)
