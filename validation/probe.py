"""`probe` on an H100 and an H200: what its parameters predict, beside raw samples that they were not fitted to.

Run `python validation/probe.py [FILE.json.gz …]`. Recomputes every figure from `results/probe/*-run1.json.gz`
(fitted) and `*-run2.json.gz` (a second run in a fresh process, nothing fitted). Exit status 1 where a median
misses its goal; a largest error that misses is printed as MISSED, with the case. Each case beyond its goal follows,
with what limits it: how far two measurements of that same case differ, in one run and between the two. No parameters
can be nearer to both runs than half of that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from busfare.measure.case import Case
from busfare.measure.disturbance import disturbances
from busfare.measure.middle import interval, median, middle
from busfare.measure.profile import profile
from busfare.measure.quiet import quiet, quiet_share
from busfare.measure.raw import Record, read
from busfare.measure.residual import Residual, residuals
from busfare.node import Measured

FOLDER = Path(__file__).parents[1] / "results" / "probe"
#: Percent: median and largest.
GOALS = {"pinned": (1.0, 3.0), "pageable": (5.0, 15.0)}
#: What nvbandwidth does: 16 copies of 512 MiB behind a blocking kernel, the median of 3 [its README]. Some older
#: runs have 3 samples in a row, newer ones 5 at moments of their own: a host may be slow for one.
COPIES, COPY_BYTES = 16, 512 << 20
BANDWIDTH_GOAL = 1.0


def main() -> int:
    first = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*-run1.json.gz"))
    if not first:
        print(f"no *-run1.json.gz in {FOLDER}: run `busfare probe --raw FILE` on a GPU", file=sys.stderr)
        return 2
    met = True
    for path in first:
        fitted = read(path)
        measured = profile(fitted).measured
        gpu = fitted.facts["gpus"][0]["name"]
        label = "VIRTUAL " if fitted.virtual else ""
        print(f"{label}{gpu}, driver {fitted.facts['driver']}, {fitted.date}, {path.name}")
        _disturbed("first run", fitted)
        print("  predicted over measured, percent          cases | median (goal) | largest (goal)")
        met &= _judge("same run, sizes not fitted", residuals(measured, fitted))
        again = path.with_name(path.name.replace("-run1", "-run2"))
        if again != path and again.exists():
            second = read(again)
            _disturbed("second run", second)
            met &= _judge("second run, sizes not fitted", residuals(measured, second))
            met &= _judge("second run, all sizes", residuals(measured, second, held_out_only=False))
            _floor(quiet(fitted), quiet(second))
        else:
            second = None
        _limits(measured, fitted, second)
        met &= _bandwidth(fitted, measured)
        _both_ways(measured)
        _latency(fitted)
        print()
    return 0 if met else 1


def _both_ways(measured: Sequence[Measured]) -> None:
    for m in measured:
        gap = m.both_directions_gap_per_byte_s
        if m.memory == "pinned" and gap:
            print(f"  {m.direction} pinned, copies the other way beside: {gap * 1e12:.1f} ps a byte")


def _disturbed(name: str, record: Record) -> None:
    share = quiet_share(record)
    if share is not None:
        print(
            f"  {name}: {share:.0%} of the visits began at quiet moments of the processor; pageable copies count there"
        )
    for sentence in disturbances(record):
        print(f"  {name} was disturbed: {sentence}")


def _judge(name: str, found: list[Residual]) -> bool:
    met = True
    for memory, (median_goal, largest_goal) in GOALS.items():
        for way in ("h2d", "d2h"):
            own = [r for r in found if (r.case.memory, r.case.direction) == (memory, way)]
            if not own:
                print(f"  {name:30} {way} {memory:9} not measured")
                continue
            errors = np.array([abs(r.percent) for r in own])
            worst = own[int(errors.argmax())]
            met &= bool(np.median(errors) <= median_goal)
            print(
                f"  {name:30} {way} {memory:9} {len(own):4} | {np.median(errors):5.2f} ({median_goal:g}) "
                f"{_verdict(np.median(errors) <= median_goal)} | {errors.max():5.2f} ({largest_goal:g}) "
                f"{_verdict(errors.max() <= largest_goal)}  {(errors > largest_goal).sum()} beyond; worst: {worst.case}"
            )
    return met


def _between(case: Case, first: Record, second: Record) -> float:
    """Percent by which the second run's measurement of a case differs from the first run's; NaN where one has none."""
    one, other = first.of(case), second.of(case)
    return 100 * (other.undisturbed_s / one.undisturbed_s - 1) if one and other else float("nan")


def _within(case: Case, record: Record) -> float:
    """Percent between the middles of the odd and of the even visits of one run: what the same case differs from
    itself by. NaN for fewer than four visits.
    """
    taken = record.of(case)
    seen = taken.of_visits if taken else []
    return 100 * (middle(seen[1::2]) / middle(seen[::2]) - 1) if len(seen) >= 4 else float("nan")


def _floor(first: Record, second: Record) -> None:
    """How far the two runs' own measurements of every case lie apart: the floor under the second run's errors."""
    for memory, (median_goal, largest_goal) in GOALS.items():
        for way in ("h2d", "d2h"):
            cases = [m.case for m in first.measurements if (m.case.memory, m.case.direction) == (memory, way)]
            apart = np.array([_between(c, first, second) for c in cases if c.mode in ("copies", "streams")])
            apart = np.abs(apart[np.isfinite(apart)])
            if len(apart):
                print(
                    f"  {'two runs of the same case':30} {way} {memory:9} {len(apart):4} | {np.median(apart):5.2f} "
                    f"({median_goal:g})        | {apart.max():5.2f} ({largest_goal:g})         "
                    f"{(apart > largest_goal).sum()} beyond: measured against measured"
                )


def _limits(measured: tuple[Measured, ...], first: Record, second: Record | None) -> None:
    """Every case beyond its goal, with the floor under it."""
    missed: dict[Case, list[str]] = {}
    for name, record in (("same run", first), ("second run", second)):
        for r in residuals(measured, record) if record else ():
            if abs(r.percent) > GOALS[r.case.memory][1]:
                missed.setdefault(r.case, []).append(f"{name} {r.percent:+.2f}")
    first, second = quiet(first), quiet(second) if second else None
    for case, errors in sorted(missed.items()):
        floor = [f"odd and even visits of the first differ by {_said(_within(case, first))}"]
        if second:
            floor += [
                f"of the second by {_said(_within(case, second))}",
                f"the runs themselves by {_said(_between(case, first, second))}",
            ]
        print(f"  beyond: {case}: {', '.join(errors)} | {', '.join(floor)}")


def _said(percent: float) -> str:
    return f"{percent:+.2f}" if np.isfinite(percent) else "an unknown share (too few visits)"


def _verdict(met: bool) -> str:
    return "met   " if met else "MISSED"


def _bandwidth(record: Record, measured: tuple[Measured, ...]) -> bool:
    """1 / G of the fit against nvbandwidth's method on the same machine, in the same run."""
    met = True
    for way in ("h2d", "d2h"):
        taken = record.of(Case(way, "pinned", "again", COPY_BYTES, COPIES))
        if taken is None:
            print(f"  bandwidth {way}: nvbandwidth's method was not run")
            continue
        rates = [COPIES * COPY_BYTES / seconds for seconds in taken.samples.device_s]
        theirs = median(rates)
        pieces = next(m.pieces for m in measured if (m.direction, m.memory) == (way, "pinned"))
        ours = 1 / pieces[-1].gap_per_byte_s
        error = 100 * (ours / theirs - 1)
        met &= abs(error) <= BANDWIDTH_GOAL
        print(
            f"  bandwidth {way}: probe {ours / 1e9:.2f} GB/s | nvbandwidth's method {theirs / 1e9:.2f} GB/s | "
            f"{error:+.2f} % (goal {BANDWIDTH_GOAL:g}) {_verdict(abs(error) <= BANDWIDTH_GOAL)}; "
            f"{len(rates)} samples in {len(taken.visits)} visits, {min(rates) / 1e9:.2f} to {max(rates) / 1e9:.2f}"
        )
    return met


def _latency(record: Record) -> None:
    """The shortest copy after a copy, after a kernel, and issued without the blocking kernel, in microseconds."""
    for way in ("h2d", "d2h"):
        for size in (1, 16 << 10):
            parts = []
            for mode, said in (
                ("copies", "after a copy"),
                ("after-kernel", "after a kernel"),
                ("unblocked", "with submission gaps"),
            ):
                taken = record.of(Case(way, "pinned", mode, size))  # type: ignore[arg-type]
                if taken is not None:
                    low, high = (1e6 * end for end in interval(taken.samples.device_s))
                    parts.append(f"{said} {1e6 * middle(taken.samples.device_s):.2f} [{low:.2f}, {high:.2f}]")
            print(f"  {size:5} B {way}, µs: " + " | ".join(parts))


if __name__ == "__main__":
    sys.exit(main())
