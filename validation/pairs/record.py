"""Runs the programs of this folder on a GPU, timed and then recorded: what `validation/replay_pairs.py` reads.

    PYTHONPATH=src python validation/pairs/record.py --build build/pairs [--only NAME,…] [--budget 240]

Builds what is missing (the C++ programs with nvcc, the recorder with CMake), then, a program at a time: every variant
`--processes` times in turn, unrecorded, and up to `--most-processes` times where they differ by more than 5 %; then
`before` `--recordings` times under the recorder, of which the one is kept whose time is nearest to the unrecorded
median: the least disturbed. Every process is kept to the same few cores while it is measured. Writes
`results/pairs/GPU/times.json` after each program, and `PROGRAM-before.bf` beside it.
Programs that are in times.json are not run again unless named by `--only`; when the budget is spent the rest is left
for another call. What fails is written down and said, and the others run. Exit status 1 where something failed, 3
where there is no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from table import Plan, Program, read_plan, recordings  # noqa: E402

from build import build  # noqa: E402
from busfare.errors import BusfareError  # noqa: E402
from busfare.measure.record import LIBRARY, environment  # noqa: E402

#: Where a program's own thread runs while it is measured: from core to core of a shared host, times differ by half.
CORES = set(sorted(os.sched_getaffinity(0))[2:6]) or os.sched_getaffinity(0)
#: Processes whose medians differ by more, relative to the least, are joined by others.
SETTLED = 0.05


class RunError(Exception):
    """A process that did not give a result; the message says why."""


@dataclass
class Run:
    """One process of a program: prepared, then started on its own."""

    program: Program
    variant: str
    command: list[str]
    recording: str = ""
    process: subprocess.Popen[str] | None = None
    folder: Path | None = None
    result: dict[str, Any] = field(default_factory=dict)

    def start(self, library: Path, scratch: Path) -> None:
        variables = dict(os.environ)
        if self.recording:
            self.folder = Path(tempfile.mkdtemp(dir=scratch))
            variables |= environment(
                str(self.folder / "%p.bf"),
                # What the recording says of itself: no path of this machine.
                [self.program.source, *self.command[self.command.index("--variant") :]],
                capture="profiler-calls",
                fingerprint=self.recording.endswith("fingerprint"),
                library=library,
            )
        self.process = subprocess.Popen(
            self.command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self, deadline: float) -> None:
        """Raises RunError if the program ends, or does not say `ready` in time."""
        assert self.process is not None and self.process.stdout is not None
        said = b""
        while b"ready\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.stop()
                raise RunError("was not ready in time")
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise RunError(self._last_words())
            said += more

    def go(self, seconds: float) -> None:
        """Lets it run, to its end. Raises RunError if it takes longer than `seconds`, or its check fails."""
        assert self.process is not None
        with contextlib.suppress(OSError):  # it has ended already: what it said tells why
            for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), CORES)
        try:
            out, err = self.process.communicate("\n" if self.program.is_python else None, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise RunError(f"took longer than {seconds:g} s") from None
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            raise RunError(f"status {self.process.returncode}: {_end(err)}")
        self.result = json.loads(lines[-1])
        if not self.result.get("right") or self.process.returncode != 0:
            raise RunError(f"status {self.process.returncode}, error {self.result.get('error')}: {_end(err)}")

    def _last_words(self) -> str:
        assert self.process is not None
        try:
            _, err = self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.stop()
            return "said nothing, and did not end"
        return f"status {self.process.returncode}: {_end(err)}"

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=10)


def _end(text: str) -> str:
    return text.strip()[-600:] or "nothing on standard error"


class Bench:
    def __init__(self, options: argparse.Namespace, out: Path, library: Path) -> None:
        self.options = options
        self.out = out
        self.library = library
        self._folder = tempfile.TemporaryDirectory(prefix="busfare-pairs-")
        self.scratch = Path(self._folder.name)

    def close(self) -> None:
        self._folder.cleanup()

    def _run_of(self, program: Program, variant: str, recording: str = "") -> Run:
        options = self.options
        start = (
            [sys.executable, str(HERE / program.source), "--wait"]
            if program.is_python
            else [str(options.build / Path(program.source).stem)]
        )
        repeats = 1 if recording else options.repeats
        command = [*start, "--variant", variant, "--repeats", str(repeats)]
        if options.rounds:
            command += ["--rounds", str(options.rounds)]
        return Run(program, variant, command, recording)

    def _in_order(self, program: Program, variants: Sequence[str], processes: int) -> list[Run]:
        """Variants by turns, every other turn backwards, so that a drift of the machine meets all alike."""
        runs = []
        for turn in range(processes):
            order = variants if turn % 2 == 0 else variants[::-1]
            runs += [self._run_of(program, variant) for variant in order]
        return runs

    def _recorded(self, program: Program) -> list[Run]:
        wanted = dict.fromkeys(recordings(program), "before")
        if self.options.record_all:
            wanted |= {variant: variant for variant in program.variants}
        return [
            self._run_of(program, variant, name)
            for _ in range(self.options.recordings)
            for name, variant in wanted.items()
        ]

    def _carried_out(self, runs: list[Run], failures: list[str]) -> list[Run]:
        """Those of `runs` that gave a result; a Python program's get ready at once, before any is timed."""
        done = []
        try:
            if any(run.program.is_python for run in runs):
                for run in runs:
                    run.start(self.library, self.scratch)
                deadline = time.monotonic() + self.options.timeout
                runs = [
                    run for run in runs if self._tried(run, failures, lambda r: r.wait_until_ready(deadline))
                ]
            for run in runs:
                if not run.program.is_python and not self._tried(
                    run, failures, lambda r: r.start(self.library, self.scratch)
                ):
                    continue
                if self._tried(run, failures, lambda r: r.go(self.options.timeout)):
                    done.append(run)
        finally:
            for run in runs:
                run.stop()
        return done

    def run(self, program: Program) -> dict[str, Any]:
        """Times and recordings of one program."""
        options = self.options
        failures: list[str] = []
        samples: dict[str, list[list[float]]] = {variant: [] for variant in program.variants}
        recorded: dict[str, list[Run]] = {}
        began = time.monotonic()
        first = self._in_order(program, program.variants, options.processes) + self._recorded(program)
        runs = self._carried_out(first, failures)
        unsettled = [
            name for name in program.variants if not _settled([r for r in runs if r.variant == name])
        ]
        more = options.most_processes - options.processes
        if unsettled and more > 0:
            runs += self._carried_out(self._in_order(program, unsettled, more), failures)
        for run in runs:
            if run.recording:
                recorded.setdefault(run.recording, []).append(run)
            else:
                samples[run.variant].append(run.result["seconds"])
        result: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": round(time.monotonic() - began, 1),
            "variants": {variant: _summary(processes) for variant, processes in samples.items() if processes},
            "recordings": {},
            "failures": failures,
        }
        for name, tries in recorded.items():
            bare = result["variants"].get(tries[0].variant, {}).get("median_seconds")
            seconds = [run.result["median_seconds"] for run in tries]
            least = min(tries, key=lambda run: abs(run.result["median_seconds"] - (bare or 0.0)))
            if not self._tried(least, failures, self._keep):
                continue
            result["recordings"][name] = {
                "file": least.result["file"],
                "bytes": least.result["bytes"],
                "measured_seconds": least.result["median_seconds"],
                "all_measured_seconds": seconds,
                "recorded_over_unrecorded": least.result["median_seconds"] / bare if bare else None,
            }
        rounds = {run.result["rounds"] for run in runs if run.result}
        result["rounds"] = rounds.pop() if len(rounds) == 1 else None
        return result

    def _tried(self, run: Run, failures: list[str], step: Any) -> bool:
        try:
            step(run)
            return True
        except (RunError, OSError, ValueError) as error:
            failures.append(f"{run.variant}{' recorded' if run.recording else ''}: {error}")
            return False

    def _keep(self, run: Run) -> None:
        """Moves the recording to its place. Raises RunError if there is none."""
        assert run.folder is not None
        files = sorted(run.folder.glob("*.bf"), key=lambda file: file.stat().st_size)
        if not files:
            raise RunError("the recorder wrote no file")
        target = self.out / f"{run.program.name}-{run.recording}.bf"
        shutil.move(files[-1], target)
        run.result |= {"file": target.name, "bytes": target.stat().st_size}


def _settled(runs: Sequence[Run]) -> bool:
    """Whether the unrecorded ones of a variant's processes agree; more of one that fails would tell nothing."""
    medians = [run.result["median_seconds"] for run in runs if not run.recording]
    return not medians or max(medians) <= (1 + SETTLED) * min(medians)


def _summary(processes: Sequence[Sequence[float]]) -> dict[str, Any]:
    every = [second for process in processes for second in process]
    median = statistics.median(every)
    return {
        "median_seconds": median,
        "spread": (max(every) - min(every)) / median,
        "seconds": [list(process) for process in processes],
    }


def gpu_facts() -> dict[str, str]:
    """Name, driver and clock limits of the first GPU. Raises SystemExit(3) where there is none."""
    query = "name,driver_version,clocks.max.sm,clocks.max.memory,pcie.link.gen.max,pcie.link.width.max"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        print(f"record.py: no NVIDIA GPU here ({error})", file=sys.stderr)
        raise SystemExit(3) from None
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(query.split(","), values, strict=True))


def short_name(gpu: str, plan: Plan) -> str:
    """`h200` for 'NVIDIA H200'; the name in small letters for GPUs that the plan does not know."""
    words = gpu.lower().replace("-", " ").split()
    return next((name for name in plan.recorded_on if name in words), "-".join(words))


def recorder_library(folder: Path) -> Path:
    """libbusfare_recorder.so: the one that BUSFARE_RECORDER_LIBRARY names, else built in `folder`."""
    chosen = os.environ.get("BUSFARE_RECORDER_LIBRARY")
    if chosen:
        return Path(chosen).resolve()
    target = folder / "recorder" / LIBRARY
    if not target.is_file():
        source = ROOT / "native" / "recorder"
        for command in (
            ["cmake", "-S", str(source), "-B", str(target.parent), "-DCMAKE_BUILD_TYPE=Release",
             f"-DPython_EXECUTABLE={sys.executable}", *(["-GNinja"] if shutil.which("ninja") else [])],
            ["cmake", "--build", str(target.parent), "--parallel"],
        ):  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return target.resolve()


def arguments(plan: Plan) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run the programs of this folder on a GPU: timed, and recorded."
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "pairs", help="where programs are built"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "pairs", help="gets a folder of the GPU's name"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs, in this order")
    parser.add_argument("--processes", type=int, default=2, help="unrecorded processes of each variant")
    parser.add_argument(
        "--most-processes", type=int, default=5, help="of a variant whose processes differ by more than 5 %%"
    )
    parser.add_argument(
        "--recordings", type=int, default=3, help="recorded processes, of which the least disturbed is kept"
    )
    parser.add_argument("--repeats", type=int, default=3, help="measured regions in each")
    parser.add_argument(
        "--rounds", type=int, default=0, help="work in a region, in place of each program's own"
    )
    parser.add_argument("--record-all", action="store_true", help="record all variants, not `before` alone")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one process")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which no program is begun")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.names = [name for name in options.only.split(",") if name]
    unknown = [name for name in options.names if name not in plan.programs]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: no such program; choose from {', '.join(plan.programs)}")
    return options


def main() -> int:
    began = time.monotonic()
    plan = read_plan()
    options = arguments(plan)
    gpu = gpu_facts()
    out = options.out / short_name(gpu["name"], plan)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "times.json"
    times: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"programs": {}}
    cores = os.cpu_count() or 1
    trouble = build(options.build, "native", cores) and build(options.build, "sm_90", cores)
    for words in trouble:  # its program will fail by itself; the others run
        print(words, file=sys.stderr)
    try:
        bench = Bench(options, out, recorder_library(options.build))
    except BusfareError as error:
        raise SystemExit(f"record.py: {error}") from None
    done = {name for name, said in times["programs"].items() if not said["failures"]}
    names = options.names or [name for name in plan.programs if name not in done]
    failed = False
    for number, name in enumerate(names):
        if time.monotonic() - began > options.budget:
            print(f"the budget is spent; left: {','.join(names[number:])}", flush=True)
            break
        try:
            result = bench.run(plan.programs[name])
        except BusfareError as error:
            result = {"variants": {}, "recordings": {}, "failures": [str(error)]}
        failed |= bool(result["failures"])
        times["programs"][name] = result
        times |= {
            "gpu": gpu["name"],
            "driver": gpu["driver_version"],
            "facts": gpu,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": "record.py " + " ".join(sys.argv[1:]),
            "cores": os.cpu_count(),
        }
        file.write_text(json.dumps(times, indent=1) + "\n")
        _say(name, result, time.monotonic() - began)
    bench.close()
    size = sum(found.stat().st_size for found in out.glob("*.bf"))
    print(f"{out}: recordings of {size / 1e6:.1f} MB")
    return 1 if failed or trouble else 0


def _say(name: str, result: dict[str, Any], seconds: float) -> None:
    medians = ", ".join(
        f"{variant} {1e3 * said['median_seconds']:.1f} ms ±{50 * said['spread']:.0f} %"
        for variant, said in result["variants"].items()
    )
    recordings_said = ", ".join(
        f"{kind} {said['bytes'] / 1e3:.0f} kB ×{said['recorded_over_unrecorded'] or 0:.2f}"
        for kind, said in result["recordings"].items()
    )
    print(f"[{seconds:5.0f} s] {name}: {medians} | {recordings_said}", flush=True)
    for failure in result["failures"]:
        print(f"    FAILED {failure}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
