"""Four GPUs from what two showed and what data sheets say: `python validation/four_gpus.py`.

Predictions that were written down before anything ran on four GPUs, and those of today's models, beside what four H200 then
took: data-parallel jobs from recordings of two ranks on other machines (`what-if --ranks 4`), collectives by NCCL's model of
the node (NVLS off), and copies of all GPUs at once by its links. The same jobs on two and on four GPUs of one host by turns
(`jobs/two_beside_all.py`). And copies in many patterns on a machine that `probe` had measured, which saw all GPUs at once
alone. Goals: jobs and copies within 10 %, collectives from 1 MiB on 8 % in the
median. Exit status 1 where one is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import numpy as np
from claims import Truth, goal, judge, table
from job_pairs import bare_seconds, seconds_of
from stored import busfare, read_table, unpacked

from busfare.cost.collectives import Fabric, price_collectives
from busfare.nodes import load_node
from busfare.timeline import PathPart, set_by
from busfare.timeline.build.links import copy_seconds_at_once

RANKS, NODE = 4, "h200-sxm"
#: Recordings of two ranks and of four, each on a machine of its own.
TWO, FOUR, MODE = "jobs-h200-x2", "jobs-h200-x4", "recorder"
#: Recordings of two ranks that ran by turns with four.
TWO_AND_FOUR = "jobs-beside-h200-x4"
#: Jobs whose ranks do what those of two did.
DATA_PARALLEL = (
    "small-buckets", "behind-backward", "straggler", "one-rank-pageable", "all-ranks-pageable", "little-copied",
    "compressed", "checkpoint", "uneven", "waiting-anyway", "long-buckets", "half-gradients", "accumulated",
    "long-sentences",
)  # fmt: skip
WAYS, COPIED = (("h2d",), ("d2h",), ("h2d", "d2h")), 1 << 28
#: From here on collectives are judged.
LEAST_BYTES = 1 << 20
WITHIN_PERCENT, COLLECTIVES_PERCENT = 10.0, 8.0


def on_four(archive: str, name: str, two_s: float) -> dict[str, Any]:
    """A data-parallel job on four GPUs from its recording on two, which took `two_s` unrecorded."""
    words = ("--ranks", str(RANKS), "--from", NODE, "--unrecorded", f"{two_s}s")
    return busfare("what-if", str(unpacked(archive) / f"{name}.bf"), *words)


@cache
def jobs() -> dict[str, dict[str, Any]]:
    """Each data-parallel job on four GPUs from its recording on two of another host."""
    return {name: on_four(TWO, name, bare_seconds(TWO, name, "before", MODE)) for name in DATA_PARALLEL}


@dataclass(frozen=True)
class TwoAndFour:
    """A job on two and on four GPUs of one host by turns, seconds, and what the recording of two predicts of four."""

    name: str
    two: float
    four: float
    answer: dict[str, Any]

    @property
    def off_percent(self) -> float:
        return 100 * (float(self.answer["predicted_seconds"]) / self.four - 1)

    @property
    def range_holds(self) -> bool:
        low, high = self.answer["low_seconds"], self.answer["high_seconds"]
        return low is not None and bool(low <= self.four <= high)


@cache
def two_and_four() -> list[TwoAndFour]:
    times = json.loads((unpacked(TWO_AND_FOUR) / TWO_AND_FOUR / "times.json").read_text("utf-8"))["processes"]
    compared = []
    for name in DATA_PARALLEL:
        two, four = (
            seconds_of(
                [
                    process["times"][name]["before"]
                    for process in times
                    if name in process["times"] and process["ranks"] == ranks
                ]
            )
            for ranks in (2, RANKS)
        )
        compared.append(TwoAndFour(name, two, four, on_four(TWO_AND_FOUR, name, two)))
    return compared


def truths() -> Iterator[Truth]:
    """For the ranges: what four GPUs took beside two by turns, on the same host at another time, and on another host."""
    for job in two_and_four():
        yield _truth(job.name, job.answer, job.answer["predicted_seconds"], job.four)
    for name, answer in jobs().items():
        two, four = at_another_time(name)
        today = answer["predicted_seconds"]
        yield _truth(name, answer, two * today / bare_seconds(TWO, name, "before", MODE), four)
        yield _truth(name, answer, today, bare_seconds(FOUR, name, "before", MODE))


def at_another_time(name: str) -> tuple[float, float]:
    """Seconds of a job on two of four GPUs, and later on all."""
    held = read_table("four-gpus")
    two, four = (
        seconds_of([process["times"][name]["before"] for process in held[key]["processes"]])
        for key in ("two", "four")
    )
    return two, four


def _truth(name: str, answer: dict[str, Any], predicted: float, actual: float) -> Truth:
    set_by_part = set_by([PathPart(**part) for part in answer["critical_path"]])
    return Truth("datasheet", set_by_part, "more-ranks", 0, name, predicted, actual)


def copies() -> dict[str, float]:
    """Bytes per second of each copy of COPIED bytes, by directions and the number of GPUs."""
    node = load_node(NODE)
    flows = {
        f"{'+'.join(ways)} {gpus}": [(direction, gpu) for gpu in range(gpus) for direction in ways]
        for ways in WAYS
        for gpus in (1, 2, RANKS)
    }
    return {c: COPIED / float(copy_seconds_at_once(node, flow, COPIED).max()) for c, flow in flows.items()}


def patterns(probed: dict[str, Any]) -> list[tuple[str, float]]:
    """Of each pattern of copies on a probed node the largest error of any GPU and direction, percent."""
    file = Path(mkdtemp()) / "node.toml"
    file.write_text(probed["node"], "utf-8")
    node, errors = load_node(str(file)), []
    for flows in probed["bytes_per_s"]:
        seconds = copy_seconds_at_once(node, [(direction, gpu) for direction, gpu, _ in flows], COPIED)
        off = (abs(100 * (COPIED / second / r - 1)) for second, (_, _, r) in zip(seconds, flows, strict=True))
        into, out = ([gpu for direction, gpu, _ in flows if direction == wanted] for wanted in ("h2d", "d2h"))
        name = " ".join(
            f"{flow} {','.join(map(str, some))}" for flow, some in (("h2d", into), ("d2h", out)) if some
        )
        errors.append((name, float(max(off))))
    return errors


def collectives(measured: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Of each collective the median and the largest error from LEAST_BYTES on, percent."""
    fabric = Fabric.of(load_node(NODE), RANKS, nvls=False)
    errors = {}
    for kind, points in measured.items():
        sizes, seconds = np.array([point for point in points if point[0] >= LEAST_BYTES]).T
        off = np.abs(100 * (price_collectives(fabric, [kind] * len(sizes), sizes).seconds / seconds - 1))
        errors[kind] = (float(np.median(off)), float(off.max()))
    return errors


def main() -> None:
    held = read_table("four-gpus")
    before, measured = held["predicted_before"], held["measured"]

    rows = []
    for name, answer in jobs().items():
        first, today = before["jobs"][name], float(answer["predicted_seconds"])
        two, four = at_another_time(name)
        elsewhere = [bare_seconds(archive, name, "before", MODE) for archive in (TWO, FOUR)]
        # The same ratio of what two of these GPUs took.
        carried = two * today / elsewhere[0]
        off = (
            100 * (seconds / truth - 1)
            for seconds, truth in ((first["seconds"], four), (carried, four), (today, elsewhere[1]))
        )
        rows.append((name, two * 1e3, four * 1e3, *(1e3 * seconds for seconds in elsewhere), *off))
    table(
        "data-parallel job|two of four GPUs, ms:.1f|all four:.1f|two GPUs, another host:.1f|four, a third:.1f"
        "|predicted before, % off:+.1f|today, from two of the four:+.1f|from another host:+.1f",
        rows,
    )
    for what, place in (
        ("predicted before", 5),
        ("today, from two of the four", 6),
        ("today, from another host", 7),
    ):
        within = sum(abs(float(row[place])) <= WITHIN_PERCENT for row in rows)
        goal(f"jobs {what}: of {len(rows)} within {WITHIN_PERCENT:g} %", within, least=len(rows), form=".0f")

    seen = two_and_four()
    table(
        "data-parallel job, by turns|two of four GPUs, ms:.1f|all four:.1f|predicted from two, % off:+.1f|range holds",
        [
            (job.name, job.two * 1e3, job.four * 1e3, job.off_percent, "yes" if job.range_holds else "no")
            for job in seen
        ],
    )
    off = [abs(job.off_percent) for job in seen]
    within = sum(percent <= WITHIN_PERCENT for percent in off)
    goal(f"jobs by turns: of {len(seen)} within {WITHIN_PERCENT:g} %", within, least=len(seen), form=".0f")
    print(f"median {median(off):.1f} % off, at most {max(off):.1f}")

    by_kind = collectives(measured["collectives"])
    table(
        f"collective of {RANKS}, from 1 MiB|median % off:.1f|at most:.1f",
        [(kind, *off_percents) for kind, off_percents in by_kind.items()],
    )
    worst = median(percent for percent, _ in by_kind.values())
    goal("collectives, median % off of the median one", worst, most=COLLECTIVES_PERCENT, form=".1f")

    rates, now = measured["copies"], copies()
    lines = []
    for case, ways in rates.items():
        least = min(min(of) for of in ways.values())
        lines.append(
            (case, least * 1e-9, *(100 * (predicted[case] / least - 1) for predicted in (before["copies"], now)))
        )  # fmt: skip
    table("copies at once|slowest GPU GB/s:.1f|predicted before, % off:+.1f|today:+.1f", lines)
    most = max(abs(float(line[-1])) for line in lines)
    goal(
        "copies of all GPUs at once, from the data sheet, % off at most",
        most,
        most=WITHIN_PERCENT,
        form=".0f",
    )

    for probed in held["probed"]:
        seen = patterns(probed)
        table(f"{probed['gpu']}, probed: pattern of copies|% off at most:.1f", seen)
        whole = ",".join(
            map(str, range(max(gpu for flows in probed["bytes_per_s"] for _, gpu, _ in flows) + 1))
        )
        of_all = {f"h2d {whole}", f"d2h {whole}", f"h2d {whole} d2h {whole}"}
        most = max(off for name, off in seen if name in of_all)
        goal("copies of all GPUs at once, probed, % off at most", most, most=WITHIN_PERCENT, form=".1f")
        rest = [off for name, off in seen if name not in of_all]
        within = sum(off <= WITHIN_PERCENT for off in rest)
        print(
            f"other patterns, % off: median {median(rest):.1f}, {within} of {len(rest)} within {WITHIN_PERCENT:g}"
        )


if __name__ == "__main__":
    judge(main)
