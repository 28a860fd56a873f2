"""Runs replayed unchanged against their recordings, and what-ifs against programs that were changed or moved.

Run `python validation/replay.py [TRACE …]`; more traces are replayed unchanged beside our own. Exit status 1 where one of
our own misses its goal unchanged. Recordings of one program before and after a change, each on an H100 and an H200,
ship with busfare; their whole runs hold the host's time, too, which no model of copies foretells on another node.
"""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl

from busfare.node import load_node
from busfare.timeline import Timeline, play, timeline
from busfare.timeline.changes.change import Change, Setting, ToNode
from busfare.timeline.changes.pin import Pin
from busfare.timeline.changes.streams import Streams
from busfare.timeline.changes.waiting import Async
from busfare.timeline.changes.what_if import what_if
from busfare.trace import read

#: Percent: the makespan, and the busy time of each stream.
GOAL_MAKESPAN, GOAL_BUSY = 1.0, 2.0
PROGRAMS = (
    "train-images",
    "train-images-pinned",
    "generate-text",
    "smooth-out-of-core",
    "smooth-out-of-core-streams",
)
CHANGED: tuple[tuple[str, str, tuple[Change, ...]], ...] = (
    ("smooth-out-of-core", "smooth-out-of-core-streams", (Pin(), Streams(3))),
    ("train-images", "train-images-pinned", (Pin(), Async())),
)


def main() -> int:
    shipped = Path(str(resources.files("busfare.examples")))
    own = sorted(shipped.glob("*.json.gz"))
    met = unchanged("Our own recordings", own)
    shared = os.environ.get("BUSFARE_SHARED")
    others = [Path(name) for name in sys.argv[1:]]
    if shared:
        others += sorted(
            p for p in Path(shared, "data/traces").rglob("*") if p.is_file() and p.suffix != ".md"
        )
    if others:
        unchanged("Others' traces", others)
    print("\nA program changed: speed-up predicted from the recording before, and recorded after")
    print(f"{'program':28}{'GPU':6}{'predicted':>11}{'recorded':>11}{'error':>9}")
    for gpu in ("h100", "h200"):
        node = load_node(f"{gpu}-probed")
        for before, after, changes in CHANGED:
            run = timeline(read(shipped / f"{before}-{gpu}.json.gz"), node)
            found = what_if(run, changes, Setting(node))
            predicted = found.baseline.makespan_ns / found.together.played.makespan_ns
            recorded = run.recorded_ns / recorded_ns(shipped / f"{after}-{gpu}.json.gz")
            print(
                f"{before:28}{gpu:6}{predicted:10.3f}×{recorded:10.3f}×{100 * (predicted / recorded - 1):+8.1f}%"
            )
    print(
        "\nA program moved: whole run predicted for the other node, kernels as recorded, beside its recording there"
    )
    print(f"{'program':28}{'to':6}{'predicted':>11}{'recorded':>11}{'error':>9}")
    for here, there in (("h100", "h200"), ("h200", "h100")):
        home, away = load_node(f"{here}-probed"), load_node(f"{there}-probed")
        for program in PROGRAMS:
            run = timeline(read(shipped / f"{program}-{here}.json.gz"), home)
            found = what_if(run, [ToNode(away)], Setting(home))
            predicted, recorded = (
                found.together.played.makespan_ns,
                recorded_ns(shipped / f"{program}-{there}.json.gz"),
            )
            error = 100 * (predicted / recorded - 1)
            print(f"{program:28}{there:6}{predicted / 1e6:8.2f} ms{recorded / 1e6:8.2f} ms{error:+8.1f}%")
    return 0 if met else 1


def recorded_ns(path: Path) -> int:
    return timeline(read(path)).recorded_ns


def unchanged(title: str, paths: list[Path]) -> bool:
    """Prints the errors of unchanged replays; whether all meet their goals."""
    print(f"\n{title}, replayed unchanged")
    print(f"{'trace':46}{'makespan':>10}{'busy':>8}{'unexplained':>13}  left to observed order")
    met = True
    for path in paths:
        run = timeline(read(path))
        makespan, busy = errors(run)
        met = met and abs(makespan) <= GOAL_MAKESPAN and busy <= GOAL_BUSY
        said = ", ".join(f"{o.id.removeprefix('replay-')} {o.count}" for o in run.omissions)
        missed = "" if abs(makespan) <= GOAL_MAKESPAN and busy <= GOAL_BUSY else "  MISSED"
        print(
            f"{path.name[:45]:46}{makespan:+9.4f}%{busy:7.3f}%{run.unexplained_ns / 1e6:10.2f} ms  {said}{missed}"
        )
    return met


def errors(run: Timeline) -> tuple[float, float]:
    """Per cent: of the makespan, and the largest of any stream's busy time."""
    played = play(run)
    table = pl.DataFrame(
        {
            "stream": run.columns["operation_stream"],
            "recorded": run.operations["end_ns"] - run.operations["start_ns"],
            "replayed": played.operation_end - played.operation_start,
        }
    )
    busy = table.group_by("stream").sum().filter(pl.col("recorded") > 0)
    off = np.abs(busy["replayed"].to_numpy() / busy["recorded"].to_numpy() - 1)
    makespan = played.makespan_ns / run.recorded_ns - 1 if run.recorded_ns else 0.0
    return 100 * makespan, 100 * float(off.max(initial=0.0))


if __name__ == "__main__":
    sys.exit(main())
