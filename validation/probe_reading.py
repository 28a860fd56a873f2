"""How raw samples of `probe` are read, and what other ways of reading them would give: `python validation/probe_reading.py`.

From the pairs of runs in `results/probe/` that say how fast the processor was: errors of sizes that were not fitted, in the
same run and in the second process, by all visits or those of quiet moments, and by the middle of the samples or the quicker
half of the visits (here every case counts alike in the fit), in the end over all pairs; what copies both
ways take by either; what a kernel takes longer that waits for a copy, by its size; how near to each point pieces are to
pass; then, drawn at random from the visits that were made, how often few visits lie beyond the goal. A comparison without
goals: the exit status is 0, or 2 without results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from busfare.measure import profile as fitting
from busfare.measure.case import Case, Samples
from busfare.measure.middle import median, middle
from busfare.measure.profile import profile
from busfare.measure.quiet import quiet, quiet_share
from busfare.measure.raw import Measurement, Record, read
from busfare.measure.residual import residuals
from busfare.node import Measured
from busfare.node.arrays import FloatArray

FOLDER = Path(__file__).parents[1] / "results" / "probe"
#: Percent: the largest error that is aimed at.
MOST = {"pinned": 3.0, "pageable": 15.0}
DRAWS, DRAWN = 200, (2, 3, 6)
#: Draws are of cases of so many bytes, with so many visits in both runs, or in each.
LONG_BYTES, LEAST_OF_BOTH, LEAST_OF_EACH = 1 << 20, 6, 3
#: How near to every point pieces might pass.
NEAR = (0.01, 0.005)
#: Sizes of copies that kernels wait for, by what is said of them.
WAITED = {
    "64 KiB and 1 MiB": (1 << 16, 1 << 20),
    "1 KiB": (1 << 10,),
    "4 and 16 KiB": (1 << 12, 1 << 14),
    "16 MiB": (1 << 24,),
    "all of 4 KiB and more, in": (1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 24),
}
READ: dict[str, Callable[[Measurement], float]] = {
    "the middle of all samples": lambda m: middle(m.seconds),
    "the quicker half of the visits": lambda m: m.undisturbed_s,
}


def main() -> int:
    pairs = [
        (
            read(path),
            read(path.with_name(path.name.replace("-run1", "-run2"))),
            path.name[: -len("-run1.json.gz")],
        )
        for path in sorted(FOLDER.glob("*-run1.json.gz"))
        if path.with_name(path.name.replace("-run1", "-run2")).exists()
    ]
    pairs = [pair for pair in pairs if quiet_share(pair[0]) is not None]
    if not pairs:
        print(f"no pairs of runs in {FOLDER}", file=sys.stderr)
        return 2
    _over_all(pairs)
    _both_ways(pairs)
    _waits()
    _near()
    for first, second, name in pairs:
        print(name)
        for visits, chosen in (("all visits", lambda r: r), ("those of quiet moments", quiet)):
            for said, of in READ.items():
                one, other = (_as_read(chosen(record), of) for record in (first, second))
                told = profile(one).measured
                found = "".join(_errors(told, r, run) for run, r in (("same", one), ("second", other)))
                print(f"  {visits:22} {said:31}{found}")
        _drawn(first, second)
    return 0


def _as_read(record: Record, of: Callable[[Measurement], float]) -> Record:
    """The record with one value a case, and API times as they are."""
    made = []
    for m in record.measurements:
        twice = (of(m),) * 2
        by_host = m.case.memory == "pageable" or not m.samples.device_s
        samples = Samples(m.samples.device_s, twice) if by_host else Samples(twice, m.samples.api_s[:2])
        made.append(replace(m, samples=samples, visits=(1, 1), moments=()))
    return replace(record, measurements=made)


def _errors(measured: Iterable[Measured], record: Record, run: str) -> str:
    found = residuals(measured, record)
    text = ""
    for memory in MOST:
        errors = np.array(
            [abs(r.percent) for r in found if r.case.memory == memory and r.case.direction == "h2d"]
        )
        text += f" | {run} {memory} h2d {np.median(errors):5.2f}, {errors.max():5.1f}"
    return text


def _over_all(pairs: list[tuple[Record, Record, str]]) -> None:
    """How many of the cases that were not fitted lie beyond the largest error aimed at, by every reading."""
    for said, of in READ.items():
        beyond = dict.fromkeys(MOST, 0)
        for first, second, _ in pairs:
            one, other = (_as_read(quiet(record), of) for record in (first, second))
            told = profile(one).measured
            for r in (*residuals(told, one), *residuals(told, other)):
                beyond[r.case.memory] += abs(r.percent) > MOST[r.case.memory]
        print(
            f"{said}: {beyond['pinned']} pinned cases beyond 3 %, {beyond['pageable']} pageable ones beyond 15 %"
        )


def _both_ways(pairs: list[tuple[Record, Record, str]]) -> None:
    """By how much two processes differ in what 4 copies of 16 MiB into the GPU take while copies run out of it."""
    case = Case("h2d", "pinned", "both", 16 << 20, 4)
    readings: dict[str, Callable[[Measurement], float]] = {
        "the quicker half": lambda m: m.undisturbed_s,
        "the quickest quarter": lambda m: m.quietest_s,
    }
    for said, of in readings.items():
        found = [(first.of(case), second.of(case)) for first, second, _ in pairs]
        apart = np.array([100 * abs(of(b) / of(a) - 1) for a, b in found if a and b])
        print(f"both ways, {said}: two processes {np.median(apart):.2f} % apart, at most {apart.max():.2f}")


def _waits() -> None:
    """What a kernel takes longer that waits for a copy of another stream, by the size of the copy."""
    launch = Case("none", "none", "launch", 0)
    runs = [{m.case: m for m in quiet(read(path)).measurements} for path in sorted(FOLDER.glob("*.gz"))]
    runs = [run for run in runs if any(case.mode == "event-kernel" for case in run)]
    for said, sizes in WAITED.items():
        # Short copies into the GPU travel with the commands.
        ways = ("h2d",) if "in" in said.split() or sizes[0] < 1 << 16 else ("h2d", "d2h")
        found = []
        for run in runs:
            cases = [Case(way, "pinned", "event-kernel", size) for way in ways for size in sizes]
            added = [
                middle(run[case].seconds)
                - middle(run[replace(case, mode="copies")].seconds)
                - middle(run[launch].samples.device_s)
                for case in cases
                if case in run
            ]
            found += [1e6 * median(added)] if added else []
        if found:
            print(
                f"a kernel waits for a copy of {said}: {min(found):.1f} to {max(found):.1f} µs in {len(found)} runs"
            )


def _near() -> None:
    """How far off pinned sizes are that were not fitted, of all runs, by how near to every point pieces pass."""
    records = [read(path) for path in sorted(FOLDER.glob("*.gz"))]
    kept = fitting.NEAR
    for near in NEAR:
        fitting.NEAR = near
        largest = [
            max(abs(r.percent) for r in residuals(profile(record).measured, record) if _pinned(r.case, way))
            for record in records
            for way in ("h2d", "d2h")
        ]
        beyond = sum(share > MOST["pinned"] for share in largest)
        print(
            f"pieces within {100 * near:g} %: largest pinned error {np.mean(largest):.2f} % in the mean, "
            f"beyond {MOST['pinned']:g} % in {beyond} of {len(largest)} runs and ways"
        )
    fitting.NEAR = kept


def _pinned(case: Case, way: str) -> bool:
    return (case.memory, case.direction, case.gpu) == ("pinned", way, 0)


def _drawn(first: Record, second: Record) -> None:
    drawn = np.random.default_rng(1)
    for memory, most in MOST.items():
        for visits, chosen in (("all", lambda r: r), ("quiet", quiet)):
            pairs = list(_of_both(chosen(first), chosen(second), memory))
            shares = []
            for count in DRAWN:
                beyond = [
                    np.abs(np.median(drawn.choice(both, (DRAWS, count)), axis=1) / np.median(both) - 1)
                    > most / 100
                    for a, b, size in pairs
                    if size >= LONG_BYTES and len(both := np.array([*a, *b])) >= LEAST_OF_BOTH
                ]
                shares.append(f"{count} visits {100 * np.mean(beyond):.1f} %")
            what = f"({memory}, {visits})"
            print(
                f"  the median of k drawn visits is beyond {most:g} % of that of all {what}: {', '.join(shares)}"
            )
            apart: dict[str, list[bool]] = {"median": [], "quicker half": []}
            for a, b, _ in pairs:
                if min(len(a), len(b)) >= LEAST_OF_EACH:
                    one, other = (np.sort(drawn.choice(v, (DRAWS, 5)), axis=1) for v in (a, b))
                    apart["median"] += list(np.abs(one[:, 2] / other[:, 2] - 1) > most / 100)
                    apart["quicker half"] += list(
                        np.abs(one[:, :3].mean(1) / other[:, :3].mean(1) - 1) > most / 100
                    )
            said = ", ".join(f"{how} {100 * np.mean(found):.1f} %" for how, found in apart.items())
            print(f"  five drawn visits of each process lie more than {most:g} % apart {what}: {said}")


def _of_both(first: Record, second: Record, memory: str) -> Iterator[tuple[FloatArray, FloatArray, int]]:
    """The middles of the visits of each case in both runs, and its bytes."""
    others = {m.case: m for m in second.measurements}
    for m in first.measurements:
        case = m.case
        if case.memory == memory and case.mode in ("copies", "streams") and case in others:
            yield np.array(m.of_visits), np.array(others[case].of_visits), case.total_bytes


if __name__ == "__main__":
    sys.exit(main())
