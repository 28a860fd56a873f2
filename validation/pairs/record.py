"""Runs the programs of this folder on a GPU, timed and then recorded: what `validation/replay_pairs.py` reads.

    PYTHONPATH=src python validation/pairs/record.py --build build/pairs [--only NAME,…] [--budget 240]

Builds what is missing (the C++ programs with nvcc, the recorder with CMake), then, a program at a time: `--processes`
processes of every variant, and `--recordings` of `before` under the recorder, get ready together; then measured regions
are released one at a time, variants by turns, forwards and backwards, each on the processor that is quickest just
then. Its pace, a fixed piece of work, is taken before and after each region; what counts are regions between two quiet
moments, of which `--regions` of each variant are sought, or the four quickest-paced where they are fewer. The recording
kept is chosen by the pace, too. Writes `results/pairs/GPU/times.json` after each program, with all regions and their
paces, and `PROGRAM-before.bf` beside it.
Programs that are in times.json are not run again unless named by `--only`; when the budget is spent the rest is left
for another call. What fails is written down and said, and the others run. Exit status 1 where something failed, 3
where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from processors import Processors  # noqa: E402
from table import FILE, Plan, read_plan  # noqa: E402
from turns import Bench  # noqa: E402

from build import build  # noqa: E402
from busfare.errors import BusfareError  # noqa: E402
from busfare.measure.record import LIBRARY  # noqa: E402


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


def arguments() -> tuple[argparse.Namespace, Plan]:
    """Options, and the plan that they name."""
    parser = argparse.ArgumentParser(
        description="Run the programs of this folder on a GPU: timed, and recorded."
    )
    parser.add_argument("--plan", default=FILE.name, metavar="FILE", help="of this folder: which programs")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "pairs", help="where programs are built"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "pairs", help="gets a folder of the GPU's name"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs, in this order")
    parser.add_argument("--processes", type=int, default=2, help="unrecorded processes of each variant")
    parser.add_argument("--recordings", type=int, default=2, help="recorded processes at most")
    parser.add_argument("--regions", type=int, default=6, help="quiet measured regions of each variant")
    parser.add_argument("--most-regions", type=int, default=24, help="measured regions of each at most")
    parser.add_argument(
        "--seconds", type=float, default=8, help="no further regions of a program after these"
    )
    parser.add_argument("--patience", type=float, default=0.5, help="seconds to wait for a quiet processor")
    parser.add_argument(
        "--rounds", type=int, default=0, help="work in a region, in place of each program's own"
    )
    parser.add_argument("--record-all", action="store_true", help="record all variants, not `before` alone")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one process")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which no program is begun")
    options = parser.parse_args()
    plan = read_plan(HERE / options.plan)
    options.build = options.build.resolve()
    options.names = [name for name in options.only.split(",") if name]
    unknown = [name for name in options.names if name not in plan.programs]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: no such program; choose from {', '.join(plan.programs)}")
    return options, plan


def main() -> int:
    began = time.monotonic()
    options, plan = arguments()
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
        bench = Bench(options, out, recorder_library(options.build), Processors())
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
        f"{variant} {1e3 * said['median_seconds']:.1f} ms ±{50 * said['spread']:.0f} % "
        f"({said['quiet']} of {len(said['regions'])} quiet)"
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
