"""Jobs of two and four GPUs before and after a change: what `what-if` makes of the recording, beside what the same
processes took, right before and after it was made, with nothing recorded.

Run `python validation/job_pairs.py`; `--pack FOLDER … FILE` packs what `validation/jobs/record.py` wrote on one machine,
without what no replay needs. Goals: of jobs written after the models 80 % of the predictions within 10 %; a replay without a
change within 1 %. Exit status 1 where one is missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from claims import Truth, goal, judge, table
from jobs.pairs_of_jobs import PAIRS, Pair
from stored import busfare, pack, unpacked

WITHIN_PERCENT, OF_PREDICTIONS_PERCENT, UNCHANGED_PERCENT = 10.0, 80.0, 1.0
#: Times of recordings are kept to so many ns, as those of traces are, and these tables, which no replay needs, are not.
GRAIN_NS, UNUSED = 256, ("allocations", "overheads", "copy_addresses")
ARCHIVES = ("jobs-h200-x2", "jobs-h200-x4")
#: The recorders: what they are called here, the mode of their processes, and what their recordings' names end with.
RECORDERS = (("record", "recorder", ".bf"), ("profiler", "profiler", ""))


@dataclass(frozen=True)
class Prediction:
    """A pair as one recorder saw it: speedups, `unrecorded` that of a prediction which was told how long the job takes
    without a recorder; and how far the unchanged replay is off, in percent.
    """

    machine: str
    pair: Pair
    recorder: str
    measured: float
    predicted: float
    unrecorded: float
    unchanged_percent: float

    @property
    def off_percent(self) -> float:
        return 100 * (self.predicted / self.measured - 1)

    @property
    def corrected_percent(self) -> float:
        """The same of a prediction that was told how long the job takes unrecorded."""
        return 100 * (self.unrecorded / self.measured - 1)


@cache
def predictions() -> list[Prediction]:
    """All pairs of all machines, by each recorder that was there."""
    return [prediction for archive in ARCHIVES for prediction in _of_machine(archive)]


def _of_machine(archive: str) -> Iterator[Prediction]:
    folder = unpacked(archive)
    for name, pair in PAIRS.items():
        for recorder, mode, ending in RECORDERS:
            place = folder / f"{name}{ending}"
            if not place.exists():
                continue
            before, after = (bare_seconds(archive, name, variant, mode) for variant in ("before", "after"))
            answer = busfare("what-if", str(place), *pair.change)
            bare_too = busfare("what-if", str(place), *pair.change, "--unrecorded", f"{before}s")
            replayed, recorded = (answer["baseline"][f"{key}_seconds"] for key in ("replayed", "recorded"))
            yield Prediction(
                archive, pair, recorder, measured=before / after,
                predicted=replayed / answer["predicted_seconds"],
                unrecorded=bare_too["baseline"]["replayed_seconds"] / bare_too["predicted_seconds"],
                unchanged_percent=100 * abs(replayed / recorded - 1),
            )  # fmt: skip


def bare_seconds(archive: str, name: str, variant: str, mode: str) -> float:
    """The median region of a variant that nothing recorded, of the processes of this mode."""
    bare = (process["times"] for process in _processes(archive) if process["mode"] == mode)
    return seconds_of([times[name][variant] for times in bare if name in times])


def seconds_of(ranks: list[list[list[float]]]) -> float:
    """The median region, from the first rank's begin to the last one's end."""
    return median(max(end for _, end in s) - min(begin for begin, _ in s) for s in zip(*ranks, strict=True))


@cache
def _processes(archive: str) -> list[dict[str, Any]]:
    processes: list[dict[str, Any]] = json.loads(
        (unpacked(archive) / archive / "times.json").read_text("utf-8")
    )["processes"]
    return processes


def pack_jobs(folders: Sequence[Path], file: Path) -> None:
    """What `jobs/record.py` wrote on one machine, into `folders`, as an archive."""
    times = [json.loads(gzip.decompress((folder / "times.json.gz").read_bytes())) for folder in folders]
    merged = times[0] | {"processes": [process for record in times for process in record["processes"]]}
    files: dict[str, Path | bytes] = {
        f"{path.parent.name}/{path.name}": path for folder in folders for path in folder.glob("*/*")
    }
    files[f"{file.name.partition('.')[0]}/times.json"] = json.dumps(merged).encode()
    pack(files, file, GRAIN_NS, UNUSED)


def truths() -> Iterator[Truth]:
    """For the ranges, by pair: the run after a change over the run before it."""
    for p in predictions():
        change = " ".join(word for word in p.pair.change if word.startswith("--") and word != "--rank")
        yield Truth("datasheet", change, "job-change", 0, p.pair.name, 1 / p.predicted, 1 / p.measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--pack", nargs="+", type=Path, metavar="FOLDER … FILE", help="instead: pack these folders"
    )
    options = parser.parse_args()
    if options.pack:
        pack_jobs(options.pack[:-1], options.pack[-1])
        raise SystemExit
    judged = predictions()
    rows = [
        (p.pair.name, p.recorder, "unseen" if p.pair.unseen else "", p.measured, p.predicted, p.off_percent,
         p.corrected_percent)
        for p in judged
    ]  # fmt: skip
    table("pair|recorder||measured ×:.2f|predicted ×:.2f|% off:+.1f|told its time, % off:+.1f", rows)
    unseen = [p for p in judged if p.pair.unseen]
    for title, some, least in (
        ("jobs written after the models", unseen, OF_PREDICTIONS_PERCENT),
        ("all", judged, -math.inf),
        ("all on four GPUs", [p for p in judged if p.machine.endswith("x4")], -math.inf),
        *((f"all by {name}", [p for p in judged if p.recorder == name], -math.inf) for name, *_ in RECORDERS),
    ):
        within = 100 * sum(abs(p.off_percent) <= WITHIN_PERCENT for p in some) / len(some)
        corrected = 100 * sum(abs(p.corrected_percent) <= WITHIN_PERCENT for p in some) / len(some)
        goal(f"{title}: % of {len(some)} within {WITHIN_PERCENT:g} %", within, least=least, form=".0f")
        goal("  told how long the job takes unrecorded", corrected, least=least, form=".0f")
    goal(
        "replayed unchanged, % off at most",
        max(p.unchanged_percent for p in judged),
        most=UNCHANGED_PERCENT,
        form=".3f",
    )


if __name__ == "__main__":
    judge(main)
