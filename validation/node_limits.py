"""What limits `busfare project` on another GPU: by how much it would still be off if more were known beforehand.

Run `python validation/node_limits.py [--results FOLDER] [--only NAME,…]`. The recordings and runs of `node_change.py`. Of
copies: with one ratio for each path that fits these very copies best, in place of what the two node files tell; with
one for each path of each program; with the mean of each path and size. Of whole runs: with copies, kernels or the
host's pace as they were on the other machine, in place of what was predicted, and with all three; nothing of this can be
had before the program has run there. And with the pace of the host just before and after each recording in place of the
node file's, which a recorder could note. Then what that rests on: paces, what copies took there over what they took here,
and how long behind its launch a kernel begins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import fmean, median

import numpy as np
import polars as pl
from node_change import MODEL, NoAnswerError, copies_of, overall
from pairs.table import Plan, read_plan
from replay_pairs import FOLDER, Machine, machines_in

from busfare.measure.quiet import SLOW
from busfare.node import Node, load_node
from busfare.project.projection import PATH, transfers_priced
from busfare.timeline import Timeline, play, timeline
from busfare.timeline.changes.change import Setting, ToNode
from busfare.timeline.changes.host import Host, host_changes
from busfare.timeline.edit import with_durations
from busfare.trace import Trace, read

#: What may be known of the other machine.
NOTED = "pace at the recording"
KINDS = {"copies": ("copy", "migration"), "kernels": ("kernel", "graph", "set")}


@dataclass(frozen=True)
class Run:
    """A program recorded on two machines. Seconds of its unrecorded runs there; paces of the host during these."""

    program: str
    here: Trace
    there: Trace
    nodes: tuple[Node, Node]
    files: tuple[Path, Path, str, str]
    seconds: tuple[float, float]
    paces: tuple[float, float] | None
    recorded_at: float | None

    def predicted(self, *known: str) -> float:
        """Seconds on the other machine, with what is `known` taken from there; as `node_change` does it."""
        before = play(timeline(self.here, self.nodes[0])).makespan_seconds
        return self.seconds[0] * self.played(*known) / before

    def played(self, *known: str) -> float:
        """Seconds of the recorded run, the recorder's cost included, on the other machine."""
        old, new = self.nodes
        changed = timeline(self.here, old)
        for change in (ToNode(new), *self._host(known)):
            changed = change.apply(changed, Setting(old, MODEL)).timeline
        for what in known:
            if what in KINDS:
                changed = self._as_there(changed, KINDS[what])
        return play(changed).makespan_seconds

    def _host(self, known: Sequence[str]) -> list[Host]:
        if "paces" in known and self.paces:
            return [Host(self.paces[1] / self.paces[0])]
        if NOTED in known and self.recorded_at and (there := pace_told(self.nodes[1])):
            return [Host(there / self.recorded_at)]
        return host_changes("measured", *self.nodes)

    def _as_there(self, changed: Timeline, kinds: tuple[str, ...]) -> Timeline:
        """Operations of `kinds` as long as their like (name or path, and size) took there on average."""
        like = ["kind", *(PATH if "copy" in kinds else ["name"]), "bytes"]
        took = pl.col("end_ns") - pl.col("start_ns")
        there = (
            self.there.operations.filter(pl.col("kind").is_in(kinds))
            .group_by(like)
            .agg(took.mean().alias("there"))
        )
        found = changed.operations.join(there, on=like, how="left", nulls_equal=True, maintain_order="left")
        own = changed.columns["operation_duration"].astype(np.float64)
        known = found["there"].fill_null(np.nan).to_numpy()
        return with_durations(changed, np.where(np.isfinite(known), known, own))


def run_of(program: str, origin: Machine, target: Machine, plan: Plan) -> Run | None:
    """None where one of the two machines lacks the program."""
    try:
        here, there = (one.recording(program, "before") for one in (origin, target))
        seconds = origin.seconds(program, "before"), target.seconds(program, "before")
    except NoAnswerError:
        return None
    names = origin.node(plan, program), target.node(plan, program)
    paces = pace_of(origin, program), pace_of(target, program)
    return Run(
        program,
        read(here),
        read(there),
        (load_node(names[0]), load_node(names[1])),
        (here, there, *names),
        seconds,
        (paces[0], paces[1]) if paces[0] and paces[1] else None,
        recorded_at(origin, program),
    )


def pace_told(node: Node) -> float | None:
    return next((cost.call_s for cost in node.costs if cost.call == "pace"), None)


def recorded_at(machine: Machine, program: str) -> float | None:
    """Seconds of the fixed piece of work just before and after the recording that was kept, on average."""
    said = machine.times["programs"][program]["recordings"]["before"]
    return fmean((said["pace_before_s"], said["pace_after_s"])) if "pace_before_s" in said else None


def pace_of(machine: Machine, program: str) -> float:
    """Seconds of the fixed piece of work around the regions that count, on average; 0 where they were not noted."""
    said = machine.times["programs"][program]
    regions = said["variants"]["before"].get("regions", [])
    both = [(region["pace_before_s"], region["pace_after_s"]) for region in regions]
    quiet = [pair for pair in both if max(pair) <= SLOW * said["quiet_pace_s"]]
    counted = max(quiet, sorted(both, key=max)[:4], key=len)
    return fmean(pace for pair in counted for pace in pair) if counted else 0.0


def copies_together(runs: Sequence[Run]) -> pl.DataFrame:
    """All copies there with what copies of their program, path and size took here on average. program, PATH, bytes,
    `recorded` and `like`, seconds.
    """
    tables = []
    for run in runs:
        here, there = (
            transfers_priced(trace, node, node, "envelope").with_columns(program=pl.lit(run.program))
            for trace, node in zip((run.here, run.there), run.nodes, strict=True)
        )
        mean = here.group_by(*PATH, "bytes").agg(like=pl.col("recorded_seconds").mean())
        tables.append(
            there.join(mean, on=[*PATH, "bytes"], nulls_equal=True).select(
                "program", *PATH, "bytes", "like", recorded="recorded_seconds"
            )
        )
    return pl.concat(tables)


def best_ratio_percent(copies: pl.DataFrame, by: Sequence[str]) -> float:
    """WMAPE where all copies alike in `by` take one and the same multiple of `like`: of all, the one that errs least."""
    off = 0.0
    for group in copies.partition_by(by):
        like, recorded = group["like"].to_numpy(), group["recorded"].to_numpy()
        # Of Σ|y − r·x|, the least lies at the median of y/x weighted by x.
        order = np.argsort(recorded / like)
        weights = np.cumsum(like[order])
        middle = order[np.searchsorted(weights, weights[-1] / 2)]
        off += float(np.abs(recorded - recorded[middle] / like[middle] * like).sum())
    return 100 * off / float(copies["recorded"].sum())


def percent_off(pairs: Sequence[tuple[float, float]]) -> float:
    """100 · Σ|predicted − measured| / Σ measured."""
    return 100 * sum(abs(one - other) for one, other in pairs) / sum(other for _, other in pairs)


def words_for(known: Sequence[str]) -> str:
    return f"{', '.join(known)} known" if known else "as predicted"


def show(origin: Machine, target: Machine, runs: Sequence[Run]) -> None:
    print(f"recorded on {origin.name}, run on {target.name}: {len(runs)} programs")
    found = [copies for run in runs if (copies := copies_of(*run.files[:2], run.files[2:])) is not None]
    together = copies_together(runs)
    rows = (
        ("as predicted", overall([copies.wmape_percent for copies in found], found)),
        ("the best ratio of each path known", best_ratio_percent(together, PATH)),
        ("that of each path in each program", best_ratio_percent(together, ["program", *PATH])),
        ("the mean of each path and size", overall([copies.scatter_percent for copies in found], found)),
    )
    print("  WMAPE of copies")
    for what, percent in rows:
        print(f"    {what:36} {percent:5.1f} %")
    print("  whole runs, all together, weighted by time")
    each = [*KINDS, *(["paces"] if all(run.paces for run in runs) else [])]
    noted = [[NOTED]] if all(run.recorded_at for run in runs) else []
    for known in ([], *([one] for one in each), each, *noted):
        pairs = [(run.predicted(*known), run.seconds[1]) for run in runs]
        print(f"    {words_for(known):36} {percent_off(pairs):5.1f} %")
    print("  recorded runs, beside the recordings there")
    measured = [play(timeline(run.there, run.nodes[1])).makespan_seconds for run in runs]
    for known in ([], *noted):
        pairs = [(run.played(*known), seconds) for run, seconds in zip(runs, measured, strict=True)]
        print(f"    {words_for(known):36} {percent_off(pairs):5.1f} %")
    show_grounds(runs, together)
    print()


def show_grounds(runs: Sequence[Run], copies: pl.DataFrame) -> None:
    """What is behind the figures above."""
    told = [pace_told(node) for node in runs[0].nodes]
    if all(told) and all(run.paces for run in runs):
        around = [[1e6 * run.paces[side] for run in runs if run.paces] for side in (0, 1)]
        said = ", then ".join(
            f"{1e6 * (one or 0):.2f} in the node file, {median(paces):.2f} around runs ({min(paces):.2f}–{max(paces):.2f})"
            for one, paces in zip(told, around, strict=True)
        )
        print(f"  the host's piece of work, µs: {said}")
    print("  copies there over copies here, of each path of a program that has 2 % of all copies' time")
    rows = copies.group_by("program", *PATH, "bytes").agg(pl.col("like", "recorded").sum(), count=pl.len())
    for row in rows.sort("direction", "bytes", descending=True).iter_rows(named=True):
        if row["recorded"] >= 0.02 * float(copies["recorded"].sum()):
            path = f"{row['direction']} {row['source_memory']} → {row['destination_memory']}"
            each = 1e6 * row["recorded"] / row["count"]
            print(
                f"    {path:24} {row['bytes']:11,} B  {row['program']:16} {each:8.1f} µs there"
                f"  {row['recorded'] / row['like']:.2f}"
            )
    kernels = {run.program: kernel_ns(run.there) / kernel_ns(run.here) for run in runs}
    said = ", ".join(f"{program} {ratio:.2f}" for program, ratio in kernels.items() if abs(ratio - 1) >= 0.03)
    print(f"  kernels there over kernels here, where 3 % from 1: {said or 'nowhere'}")
    behind = [us for run in runs if (us := behind_launch_us(run.here)) is not None]
    if behind:
        print(
            f"  kernels that find the GPU idle begin {median(behind):.1f} µs behind the return of their launch"
            f" ({min(behind):.1f} to {max(behind):.1f} by program)"
        )


def kernel_ns(trace: Trace) -> float:
    work = trace.operations.filter(pl.col("kind").is_in(KINDS["kernels"]))
    return float((work["end_ns"] - work["start_ns"]).sum())


def behind_launch_us(trace: Trace) -> float | None:
    """From the return of a launch to its kernel, where nothing else was at work: the median; None of fewer than 100."""
    played = timeline(trace)
    operations, call = played.operations, played.columns["operation_call"]
    starts, ends = (operations[name].to_numpy() for name in ("start_ns", "end_ns"))
    kernels = (played.columns["operation_launched"] != 0) & (operations["kind"] == "kernel").to_numpy()
    rows = np.flatnonzero(kernels[1:]) + 1
    worked = np.maximum.accumulate(ends)[rows - 1]
    rows = rows[worked < played.calls["start_ns"].to_numpy()[call[rows]]]
    returned = played.calls["end_ns"].to_numpy()[call[rows]]
    return 1e-3 * float(np.median(starts[rows] - returned)) if len(rows) >= 100 else None


def main() -> int:
    parser = argparse.ArgumentParser(description="What would be left of the errors if more were known.")
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs")
    options = parser.parse_args()
    plan = read_plan()
    machines = machines_in(options.results)
    names = [name for name in options.only.split(",") if name] or list(plan.programs)
    for origin, target in permutations(machines.values(), 2):
        runs = [run for name in names if (run := run_of(name, origin, target, plan)) is not None]
        if runs:
            show(origin, target, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
