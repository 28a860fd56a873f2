"""Runs the programs of this folder on a GPU, timed and then recorded: what `validation/replay_pairs.py` reads.

    python validation/pairs/record.py --out results/pairs/h100 [--plan unseen.toml] [--only NAME,…] [--unchanged]

Compiles the C++ programs, probes the machine, then, a program at a time: two processes of every variant and one of `before`
under the recorder get ready together, and their measured regions are released one at a time, variants by turns, forwards
and backwards, so that a drift of a shared host meets all alike. Writes OUT/times.json after each program, with the
recordings and node.toml beside it, and packs them as OUT.tar.xz. What fails is said, and the others run. Exit status 1
where something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from table import Program, read_plan

from build import build
from busfare.measure.record import environment
from busfare.questions import Record

sys.path.append(str(Path(__file__).resolve().parents[1]))
from stored import pack

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "pairs"
#: Libraries' own pools of threads would be more threads than there are processors for.
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PROCESSES = 2
#: Times of recordings are kept to so many ns: a few parts in a million of a run.
GRAIN_NS = 64


class RunError(Exception):
    """A process that did not give a result; the message says why."""


class Run:
    """One process: started, ready, then released a region at a time. `recording`: what is recorded, if anything is."""

    def __init__(
        self, program: Program, variant: str, folder: Path, timeout_s: float, recording: str = ""
    ) -> None:
        self.variant, self.recording, self.timeout_s = variant, recording, timeout_s
        self.seconds: list[float] = []
        source = program.source
        assert source is not None
        start = [sys.executable, str(source)] if source.suffix == ".py" else [str(BUILD / source.stem)]
        variables = SINGLE_THREAD | dict(os.environ)
        self.file = folder / f"{source.stem}-{recording}.bf"
        if recording:
            variables |= environment(
                str(self.file),
                Record(capture="profiler-calls", fingerprint=recording.endswith("fingerprint")),
                # What the recording says of itself: no path of this machine.
                [source.name, "--variant", variant],
            )
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        self._process = subprocess.Popen(
            [*start, "--wait", "--variant", variant],
            env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0,
        )  # fmt: skip
        self._text = b""

    def ready(self) -> None:
        while self._line() != b"ready":
            pass

    def measure(self) -> None:
        """Raises RunError where the program ends, or takes longer than it may."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"warm\nmeasure\n")
        except OSError:
            raise RunError(self._last_words()) from None
        for word in ("warm", "measured"):
            line = self._line()
            if word == "measured":
                self.seconds.append(json.loads(line)["region"])

    def finish(self) -> None:
        """Lets the program check its result. Raises RunError where that is wrong."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        result = json.loads(self._line())
        if self._process.wait(self.timeout_s) or not result["right"]:
            raise RunError(f"error {result['error']}: {self._last_words()}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._text:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise RunError(f"took longer than {self.timeout_s:g} s")
                more = os.read(self._process.stdout.fileno(), 4096)
                if not more:
                    raise RunError(self._last_words())
                self._text += more
        line, self._text = self._text.split(b"\n", 1)
        return line

    def _last_words(self) -> str:
        self._process.kill()
        status = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f"status {status}: {text[-600:] or 'nothing on standard error'}"


@contextmanager
def together(runs: list[Run]) -> Iterator[list[Run]]:
    try:
        yield runs
    finally:
        for run in runs:
            run.stop()


def measured(
    program: Program, folder: Path, regions: int, timeout_s: float, unchanged: bool
) -> dict[str, Any]:
    """Times of every variant, or `unchanged` of `before` alone, and what failed; recordings go to `folder`."""
    names, recordings = (("before",),) * 2 if unchanged else (program.variants, program.recordings)
    runs = [Run(program, v, folder, timeout_s) for _ in range(PROCESSES) for v in names]
    runs += [Run(program, "before", folder, timeout_s, recording) for recording in recordings]
    failures: dict[str, str] = {}
    with together(runs):
        steps = [lambda run: run.ready()]
        steps += [lambda run: None if run.recording else run.measure()] * regions
        steps += [lambda run: run.measure() if run.recording else None, lambda run: run.finish()]
        for step_number, step in enumerate(steps):
            for run in runs if step_number % 2 else runs[::-1]:
                name = run.recording or run.variant
                if name in failures:
                    continue
                try:
                    step(run)
                except (RunError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                    failures[name] = str(error)
    variants = {}
    for variant in names:
        seconds = [run.seconds for run in runs if run.variant == variant and not run.recording]
        if variant not in failures:
            every = [value for process in seconds for value in process]
            spread = (max(every) - min(every)) / median(every)
            variants[variant] = {"median_seconds": median(every), "spread": spread, "seconds": seconds}
    return {
        "variants": variants,
        # Of each recording: how long its region took.
        "recorded": {run.recording: run.seconds for run in runs if run.recording},
        "failures": [f"{name}: {why}" for name, why in failures.items()],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plan", default="pairs.toml", metavar="FILE", help="of this folder: which programs")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write, without .tar.xz")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs")
    parser.add_argument("--unchanged", action="store_true", help="`before` alone: what node_change.py reads")
    parser.add_argument("--regions", type=int, default=6, help="measured regions of each process")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a process may stay silent")
    options = parser.parse_args()
    gpu = shutil.which("nvidia-smi") and subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout  # fmt: skip
    if not gpu:
        print("record.py: no NVIDIA GPU here", file=sys.stderr)
        return 3
    name, driver = gpu.splitlines()[0].split(", ")
    plan, out = read_plan(options.plan), options.out
    kept = [name for name, program in plan.programs.items() if program.source]
    names = options.only.split(",") if options.only else kept
    if lost := set(names) - set(kept):
        print(
            f"record.py: no source of {', '.join(sorted(lost))} here; there is {', '.join(kept)}",
            file=sys.stderr,
        )
        return 2
    out.mkdir(parents=True, exist_ok=True)
    for words in build(BUILD, "native", os.cpu_count() or 1):  # its program will fail by itself
        print(words, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "busfare", "probe", "-o", str(out / "node.toml")], check=True)
    times: dict[str, Any] = {"gpu": name, "driver": driver, "probe": None, "programs": {}}
    times["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    for program in names:
        result = measured(plan.programs[program], out, options.regions, options.timeout, options.unchanged)
        times["programs"][program] = result
        (out / "times.json").write_text(json.dumps(times))
        medians = ", ".join(f"{v} {1e3 * r['median_seconds']:.1f} ms" for v, r in result["variants"].items())
        print(f"{program}: {medians}", *result["failures"], sep="\n    ", flush=True)
    pack({path.name: path for path in out.iterdir()}, Path(f"{out}.tar.xz"), GRAIN_NS)
    return 1 if any(result["failures"] for result in times["programs"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
