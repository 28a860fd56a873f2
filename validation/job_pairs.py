"""Jobs of two and four GPUs before and after a change: what `what-if` makes of the recording, beside what then was measured.

Run `python validation/job_pairs.py`; `--pack FOLDER FILE` packs what `validation/jobs/record.py` wrote, without what no
replay needs. Speed-ups are those of the job without a recorder. Goals: 80 % of the predictions within 10 %, a replay without
a change within 1 %. Exit status 1 where one is missed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from claims import Truth, goal, judge, table
from jobs import packed_traces
from jobs.pairs_of_jobs import PAIRS, Pair
from stored import PACKED, busfare, unpacked

WITHIN_PERCENT, OF_PREDICTIONS_PERCENT, UNCHANGED_PERCENT = 10.0, 80.0, 1.0
ARCHIVES = ("jobs-h100-x2", "jobs-h200-x2", "jobs-h200-x4")


@dataclass(frozen=True)
class Prediction:
    """A pair as one recorder saw it: speed-ups, `unrecorded` that of a prediction which was told how long the job takes
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
    def told_off_percent(self) -> float:
        """The same of a prediction that was told how long the job takes unrecorded."""
        return 100 * (self.unrecorded / self.measured - 1)


@cache
def predictions() -> list[Prediction]:
    """All pairs of all machines, by each recorder that was there."""
    return [found for archive in ARCHIVES for found in _of_machine(archive)]


def _of_machine(archive: str) -> Iterator[Prediction]:
    folder = unpacked(archive)
    for name, pair in PAIRS.items():
        if not any(place.exists() for place in (folder / name, folder / f"{name}.bf")):
            continue
        before, after = (bare_seconds(archive, name, variant) for variant in ("before", "after"))
        for recorder, place in (("profiler", folder / name), ("record", folder / f"{name}.bf")):
            if not place.exists():
                continue
            told = busfare("what-if", str(place), *pair.change)
            bare_too = busfare("what-if", str(place), *pair.change, "--unrecorded", f"{before}s")
            replayed, recorded = (told["baseline"][f"{key}_seconds"] for key in ("replayed", "recorded"))
            yield Prediction(
                archive,
                pair,
                recorder,
                measured=before / after,
                predicted=replayed / told["predicted_seconds"],
                unrecorded=bare_too["baseline"]["replayed_seconds"] / bare_too["predicted_seconds"],
                unchanged_percent=100 * abs(replayed / recorded - 1),
            )


def bare_seconds(archive: str, name: str, variant: str) -> float:
    """The median region of a variant that nothing recorded."""
    bare = (one["times"] for one in _processes(archive) if one["mode"] != "recorder")
    return seconds_of([times[name][variant] for times in bare if name in times])


def seconds_of(ranks: list[list[list[float]]]) -> float:
    """The median region, from the first rank's begin to the last one's end."""
    return median(
        max(end for _, end in spans) - min(begin for begin, _ in spans) for spans in zip(*ranks, strict=True)
    )


@cache
def _processes(archive: str) -> list[dict[str, Any]]:
    processes: list[dict[str, Any]] = json.loads(
        (unpacked(archive) / archive / "times.json").read_text("utf-8")
    )["processes"]
    return processes


def pack(folder: Path, file: Path) -> None:
    """`folder` of `jobs/record.py` as an archive."""
    with tarfile.open(file, "w:xz", preset=9 | lzma.PRESET_EXTREME) as packed:
        for path in sorted(folder.rglob("*")):
            name, content = path.name.removesuffix(".gz"), path.read_bytes() if path.is_file() else b""
            if path.is_dir():
                continue
            if path.suffix == ".gz":
                content = gzip.decompress(content)
                if path.parent != folder:
                    name, content = f"{name}{PACKED}", packed_traces.pack(json.loads(content))
            parent = path.parent.name if path.parent != folder else file.name.partition(".")[0]
            member = tarfile.TarInfo(f"{parent}/{name}")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def truths() -> Iterator[Truth]:
    """For the ranges, by pair: the run after a change over the run before it."""
    for one in predictions():
        change = " ".join(word for word in one.pair.change if word.startswith("--") and word != "--rank")
        yield Truth("datasheet", change, "job-change", 0, one.pair.name, 1 / one.predicted, 1 / one.measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--pack", nargs=2, type=Path, metavar=("FOLDER", "FILE"), help="instead: pack a folder"
    )
    options = parser.parse_args()
    if options.pack:
        pack(*options.pack)
        raise SystemExit
    found = predictions()
    rows = [
        (one.pair.name, one.recorder, "unseen" if one.pair.unseen else "", one.measured, one.predicted, one.off_percent,
         one.told_off_percent)
        for one in found
    ]  # fmt: skip
    table("pair|recorder||measured ×:.2f|predicted ×:.2f|% off:+.1f|told its time, % off:+.1f", rows)
    for title, some in (
        ("all", found),
        ("unseen", [one for one in found if one.pair.unseen]),
        ("by busfare record", [one for one in found if one.recorder == "record"]),
    ):
        within = 100 * sum(abs(one.off_percent) <= WITHIN_PERCENT for one in some) / len(some)
        told = 100 * sum(abs(one.told_off_percent) <= WITHIN_PERCENT for one in some) / len(some)
        what = f"{title}: % of {len(some)} within {WITHIN_PERCENT:g} %"
        goal(what, within, least=OF_PREDICTIONS_PERCENT, form=".0f")
        goal("  told how long the job takes unrecorded", told, form=".0f")
    goal(
        "replayed unchanged, % off at most",
        max(one.unchanged_percent for one in found),
        most=UNCHANGED_PERCENT,
        form=".3f",
    )


if __name__ == "__main__":
    judge(main)
