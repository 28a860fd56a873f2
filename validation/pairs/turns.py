"""Measures a program: regions of all its variants by turns, at quiet moments; then recordings of it as it was."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from process import Region, Run, RunError
from processors import Processors
from table import Program, recordings

__all__ = ["Bench", "counted", "summary"]

HERE = Path(__file__).resolve().parent
#: Regions that count of a variant at least, where fewer were quiet.
LEAST = 4
#: Regions measured in a row, before it is another variant's turn.
REGIONS_A_VISIT = 2


class Bench:
    def __init__(self, options: argparse.Namespace, out: Path, library: Path, processors: Processors) -> None:
        self.options = options
        self.out = out
        self.library = library
        self.processors = processors
        self._folder = tempfile.TemporaryDirectory(prefix="busfare-pairs-")
        self.scratch = Path(self._folder.name)

    def close(self) -> None:
        self._folder.cleanup()

    def _run_of(self, program: Program, variant: str, number: int, recording: str = "") -> Run:
        options = self.options
        start = (
            [sys.executable, str(HERE / program.source)]
            if program.is_python
            else [str(options.build / Path(program.source).stem)]
        )
        command = [*start, "--wait", "--variant", variant]
        if options.rounds:
            command += ["--rounds", str(options.rounds)]
        return Run(program, variant, command, recording, number)

    def _runs(self, program: Program) -> list[Run]:
        """The processes of all variants, and the recorded ones."""
        options = self.options
        wanted = dict.fromkeys(recordings(program), "before")
        if options.record_all:
            wanted |= {variant: variant for variant in program.variants}
        numbers = range(options.processes)
        bare = [self._run_of(program, variant, number) for number in numbers for variant in program.variants]
        recorded = [
            self._run_of(program, variant, number, name)
            for name, variant in wanted.items()
            for number in range(options.recordings)
        ]
        return bare + recorded

    def run(self, program: Program) -> dict[str, Any]:
        """Times and recordings of one program."""
        failures: list[str] = []
        began = time.monotonic()
        runs = self._runs(program)
        bare = [run for run in runs if not run.recording]
        recorded = [run for run in runs if run.recording]
        try:
            self._get_ready(runs, failures)
            self._measure(bare, program.variants, failures)
            for name in dict.fromkeys(run.recording for run in recorded):
                self._record([run for run in recorded if run.recording == name], failures)
            self._finish([run for run in runs if run.regions], failures)
        finally:
            for run in runs:
                run.stop()
        result: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": round(time.monotonic() - began, 1),
            "quiet_pace_s": float(f"{self.processors.quiet_s:.4g}"),
            "variants": {},
            "recordings": {},
            "failures": failures,
        }
        good = [run for run in runs if run.regions and not run.failed]
        for variant in program.variants:
            regions = [
                region
                for run in good
                if not run.recording and run.variant == variant
                for region in run.regions
            ]
            if regions:
                result["variants"][variant] = summary(regions, LEAST, self.processors.limit_s)
        for name in dict.fromkeys(run.recording for run in good if run.recording):
            self._keep([run for run in good if run.recording == name], name, result)
        rounds = {run.result["rounds"] for run in good}
        result["rounds"] = rounds.pop() if len(rounds) == 1 else None
        return result

    def _get_ready(self, runs: Sequence[Run], failures: list[str]) -> None:
        self.processors.all_again()
        for run in runs:
            self._tried(run, failures, lambda r: r.start(self.library, self.scratch))
        deadline = time.monotonic() + self.options.timeout
        for run in runs:
            self._tried(run, failures, lambda r: r.wait_until_ready(deadline))

    def _measure(self, runs: Sequence[Run], variants: Sequence[str], failures: list[str]) -> None:
        """Variants by turns, every other turn backwards, so that a drift of the machine meets all alike; and of each
        variant its processes by turns.
        """
        options = self.options
        end = time.monotonic() + options.seconds
        for turn in range(max(options.most_regions // REGIONS_A_VISIT, 1)):
            quiet = [
                sum(region.pace_s <= self.processors.limit_s for run in alive for region in run.regions)
                for variant in variants
                if (alive := [run for run in runs if run.variant == variant and not run.failed])
            ]
            if not quiet or (
                turn >= options.processes and (min(quiet) >= options.regions or time.monotonic() > end)
            ):
                return
            for variant in variants if turn % 2 == 0 else variants[::-1]:
                alive = [run for run in runs if run.variant == variant and not run.failed]
                if alive:
                    self._visit(alive[turn % len(alive)], REGIONS_A_VISIT, failures)

    def _record(self, runs: Sequence[Run], failures: list[str]) -> None:
        """One region of a process, and of the next one where that was not quiet."""
        for run in runs:
            self._visit(run, 1, failures)
            if run.regions and not run.failed and run.regions[-1].pace_s <= self.processors.limit_s:
                return

    def _visit(self, run: Run, count: int, failures: list[str]) -> None:
        options = self.options
        self._tried(
            run, failures, lambda r: r.visit(count, self.processors, options.patience, options.timeout)
        )

    def _finish(self, runs: Sequence[Run], failures: list[str]) -> None:
        self.processors.all_again()
        for run in runs:
            if not run.failed:
                run.ask_for_the_check()
        deadline = time.monotonic() + self.options.timeout
        for run in runs:
            self._tried(run, failures, lambda r: r.finish(deadline))

    def _tried(self, run: Run, failures: list[str], step: Callable[[Run], object]) -> None:
        """One that has failed is left alone."""
        if run.failed:
            return
        try:
            step(run)
        except (RunError, OSError, ValueError) as error:
            run.failed = True
            failures.append(f"{run.variant}{' recorded' if run.recording else ''}: {error}")

    def _keep(self, tries: Sequence[Run], name: str, result: dict[str, Any]) -> None:
        """Moves the quickest-paced recording to its place."""
        by_pace = sorted(tries, key=lambda run: run.regions[0].pace_s)
        for run in by_pace:
            self._tried(run, result["failures"], self._move)
            if run.failed:
                continue
            bare = result["variants"].get(run.variant, {}).get("median_seconds")
            region = run.regions[0]
            result["recordings"][name] = {
                "file": run.result["file"],
                "bytes": run.result["bytes"],
                "measured_seconds": region.seconds,
                "pace_before_s": region.pace_before_s,
                "pace_after_s": region.pace_after_s,
                "all_measured_seconds": [one.regions[0].seconds for one in tries],
                "regions": [one.regions[0].as_json() for one in tries],
                "recorded_over_unrecorded": region.seconds / bare if bare else None,
            }
            return

    def _move(self, run: Run) -> None:
        """Raises RunError if there is no recording."""
        assert run.folder is not None
        files = sorted(run.folder.glob("*.bf"), key=lambda file: file.stat().st_size)
        if not files:
            raise RunError("the recorder wrote no file")
        target = self.out / f"{run.program.name}-{run.recording}.bf"
        shutil.move(files[-1], target)
        run.result |= {"file": target.name, "bytes": target.stat().st_size}


def counted(regions: Sequence[Region], least: int, limit_s: float) -> list[Region]:
    """Those between two quiet moments; where they are fewer than `least`, the quickest-paced so many."""
    by_pace = sorted(regions, key=lambda region: max(region.pace_s, limit_s))
    quiet = sum(region.pace_s <= limit_s for region in regions)
    kept = by_pace[: max(quiet, least)]
    return [region for region in regions if any(region is one for one in kept)]


def summary(regions: Sequence[Region], least: int, limit_s: float) -> dict[str, Any]:
    """`seconds` are the regions that count, by process; `regions` all of them, with their paces."""
    kept = counted(regions, least, limit_s)
    every = [region.seconds for region in kept]
    median = statistics.median(every)
    processes = sorted({region.process for region in kept})
    return {
        "median_seconds": median,
        "spread": (max(every) - min(every)) / median,
        "quiet": sum(region.pace_s <= limit_s for region in kept),
        "seconds": [[region.seconds for region in kept if region.process == number] for number in processes],
        "regions": [region.as_json() for region in regions],
    }
