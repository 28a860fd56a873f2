"""Records real programs on a GPU, compares with what they know they did, and times the recorder.

    python measure.py --build DIR --out results.json [--only programs,loops,torch,faults,ten_million]

DIR holds libbusfare_recorder.so and `programs` (built from programs.cu). Writes one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from busfare.measure.record import environment
from busfare.trace.readers.recorded.file import Recording, read_recording

HERE = Path(__file__).parent
DIRECTIONS = {1: "h2d", 2: "d2h", 8: "d2d"}
NVIDIA_SMI = "name,driver_version,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current"


class Bench:
    def __init__(self, build: Path) -> None:
        self.build = build
        self.programs = str(build / "programs")
        self.library = build / "libbusfare_recorder.so"
        self.scratch = Path(tempfile.mkdtemp(prefix="busfare-"))

    def run(
        self,
        command: list[str],
        recorded: bool = True,
        extra: dict[str, str] | None = None,
        **options: object,
    ) -> tuple[str, str, int, list[Recording], float, int]:
        """Standard output and error, status, recordings, seconds, bytes of the recordings."""
        output = Path(tempfile.mkdtemp(dir=self.scratch))
        variables = dict(os.environ)
        if recorded:
            variables |= environment(f"{output}/", command, library=self.library, **options)  # type: ignore[arg-type]
        variables |= extra or {}
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        start = time.perf_counter()
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        seconds = time.perf_counter() - start
        files = sorted(output.glob("*.bf"))
        sizes = sum(file.stat().st_size for file in files)
        recordings = [read_recording(file) for file in files]
        shutil.rmtree(output)
        return done.stdout, done.stderr, done.returncode, recordings, seconds, sizes


def tally(recordings: list[Recording]) -> dict[str, object]:
    """Counts and bytes by direction, and of sets, kernels, calls; losses; what is complete."""
    result: dict[str, object] = {}
    for code, name in DIRECTIONS.items():
        count = size = rows = 0
        for recording in recordings:
            copies = recording.table("copies")
            chosen = copies["copy_kind"] == code
            count += int(copies["copy_count"][chosen].sum())
            rows += int(chosen.sum())
            size += int(copies["bytes"][chosen].sum())
        result[name] = [count, size]
        result[f"{name}_rows"] = rows
    sets = [recording.table("sets")["bytes"] for recording in recordings]
    result["sets"] = [sum(map(len, sets)), int(sum(int(column.sum()) for column in sets))]
    for table in ("kernels", "calls", "waits", "events", "markers", "managed", "streams", "copy_addresses"):
        result["kernels" if table == "kernels" else f"{table}_rows"] = sum(
            len(recording.table(table)) for recording in recordings
        )
    result["losses"] = sum(int(recording.table("losses")["count"].sum()) for recording in recordings)
    result["complete"] = [recording.complete for recording in recordings]
    result["cupti"] = [recording.facts.get("cupti", "") for recording in recordings]
    return result


def managed_bytes(recordings: list[Recording]) -> dict[str, int]:
    found: dict[str, int] = {}
    for recording in recordings:
        managed = recording.table("managed")
        for code in np.unique(managed["counter"]).tolist():
            chosen = managed["counter"] == code
            found[str(code)] = int(managed["value"][chosen].sum())
            found[f"{code}_rows"] = int(chosen.sum())
    return found


def names_of_calls(recordings: list[Recording]) -> dict[str, int]:
    found: dict[str, int] = {}
    for recording in recordings:
        names, counts = np.unique(recording.table("calls")["name"], return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            text = recording.strings.get(name, "?")
            found[text] = found.get(text, 0) + count
    return found


def nested_calls(recordings: list[Recording]) -> int:
    """Driver calls that bear the number of a runtime call: nested in it."""
    nested = 0
    for recording in recordings:
        calls = recording.table("calls")
        driver = calls["correlation"][calls["domain"] == 1]
        runtime = calls["correlation"][calls["domain"] == 2]
        nested += int(np.isin(driver, runtime).sum())
    return nested


def addresses_found(recordings: list[Recording]) -> int:
    """Copies (graph nodes apart) whose addresses were noted."""
    return sum(
        int(
            np.isin(
                recording.table("copies")["correlation"], recording.table("copy_addresses")["correlation"]
            ).sum()
        )
        for recording in recordings
    )


def last_json(text: str) -> dict[str, object]:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    return {}


def record_programs(bench: Bench) -> dict[str, object]:
    results: dict[str, object] = {}
    python = [sys.executable, str(HERE / "python_programs.py")]
    commands: dict[str, list[str]] = {
        name: [bench.programs, name]
        for name in ("runtime-calls", "driver-calls", "graphs", "streams", "threads", "managed", "batched")
    }
    commands |= {name: [*python, name] for name in ("cupy", "jax", "nvtx")}
    launcher = shutil.which("mpiexec") or shutil.which("mpirun")
    if launcher:
        commands["mpi"] = [launcher, "-n", "2", *python, "mpi"]
    for name, command in commands.items():
        out, err, status, recordings, seconds, size = bench.run(command)
        known = last_json(out)
        seen = tally(recordings)
        exact = {
            key: known[key] == seen[key] for key in ("h2d", "d2h", "d2d", "sets", "kernels") if key in known
        }
        for key, value in known.items():
            if key.startswith("at_least_"):
                have = seen[key.removeprefix("at_least_")]
                exact[key] = all(a >= b for a, b in zip(have, value, strict=True))  # type: ignore[call-overload]
        lines = [last_json(line) for line in out.splitlines() if line.startswith("{")]
        if name == "mpi":
            exact["h2d of all ranks"] = seen["h2d"] == [
                sum(line["at_least_h2d"][index] for line in lines)
                for index in (0, 1)  # type: ignore[index]
            ]
        if name == "nvtx":
            exact["all"] = seen["h2d"] == known.get("all") and seen["markers_rows"] == 6
        results[name] = {
            "known": known, "seen": seen, "equal": exact, "all_equal": bool(exact) and all(exact.values()),
            "status": status, "seconds": seconds, "file_bytes": size, "files": len(recordings),
            "stderr": err[-600:], "nested_driver_calls": nested_calls(recordings),
            "copies_with_addresses": addresses_found(recordings), "managed": managed_bytes(recordings),
            "calls": names_of_calls(recordings),
            "standard_output_lines": [line for line in out.splitlines() if line.startswith("{")],
        }  # fmt: skip
    out, err, status, recordings, *_ = bench.run([*python, "nvtx"], nvtx="epoch")
    known = last_json(out)
    results["nvtx-range-only"] = {
        "known": known, "seen": tally(recordings), "status": status, "stderr": err[-600:],
        "all_equal": bool(known) and tally(recordings)["h2d"] == known["of_epoch"],
    }  # fmt: skip
    out, err, status, recordings, *_ = bench.run([bench.programs, "runtime-calls"], fingerprint=True)
    prints = np.concatenate([recording.table("copy_addresses")["fingerprint"] for recording in recordings])
    results["fingerprints"] = {"taken": int((prints != 0).sum()), "copies": len(prints), "stderr": err[-600:]}
    return results


def time_loops(bench: Bench) -> dict[str, object]:
    variants: dict[str, dict[str, object]] = {
        "bare": {"recorded": False},
        "default": {},
        "kernels": {"kinds": ["kernels"]},
        "operations": {"kinds": ["kernels", "copies", "sets"]},
        "everything": {"kinds": ["default", "all-calls"]},
    }
    for name, extra in EXPERIMENTS.items():
        variants[name] = {"extra": extra}
    results: dict[str, object] = {}
    raw: dict[str, dict[str, list[float]]] = {}
    if ONLY:
        variants = {name: options for name, options in variants.items() if name in ONLY}
    for _ in range(TURNS):  # by turns, so that a drift of the machine meets all alike
        for name, options in variants.items():
            for what in ("kernels", "copies", "kernels-8-threads"):
                loop, _, threads = what.partition("-")
                if threads and name not in ("bare", "default", "kernels"):
                    continue
                # Threads that launch at once wait for each other inside CUPTI: fewer operations will do.
                command = [bench.programs, "loop", loop, "10000" if threads else "100000", threads[:1] or "1"]
                out, err, _, recordings, _, size = bench.run(command, **options)  # type: ignore[arg-type]
                samples = [float(word) for word in out.split()]
                raw.setdefault(name, {}).setdefault(what, []).extend(samples)
                if recordings and not threads:
                    seen = tally(recordings)
                    operations = int(seen["kernels"]) + seen["h2d"][0]  # type: ignore[index,call-overload]
                    results[f"{name}:{what}:file"] = {
                        "bytes_an_operation": size / max(operations, 1),
                        "operations": operations,
                        "losses": seen["losses"],
                        "stderr": err[-300:],
                    }
    for name, loops in raw.items():
        for what, samples in loops.items():
            bare = statistics.median(raw["bare"][what])
            median = statistics.median(samples)
            results[f"{name}:{what}"] = {"ns": median, "cost_ns": median - bare, "samples_ns": samples}
    return results


def peak_resident_bytes(process: int) -> int:
    """The most memory that a running process has held; 0 once it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def record_ten_million(bench: Bench) -> dict[str, object]:
    """Ten million copies: peak memory of the program with and without the recorder, and the file's size."""
    result: dict[str, object] = {}
    blocks = 16 + 20 * (10_000_000 // 20 // 256)
    result["known_h2d"] = [blocks * 256, blocks * 256 * 4]
    for name, recorded in (("bare", False), ("recorded", True)):
        output = Path(tempfile.mkdtemp(dir=bench.scratch))
        variables = dict(os.environ)
        if recorded:
            variables |= environment(f"{output}/", library=bench.library)
        # The program without work tells what CUDA itself takes; the work without recorder adds nothing to that.
        count = "10000000" if recorded else "100000"
        start = time.perf_counter()
        process = subprocess.Popen(
            [bench.programs, "loop", "copies", count], env=variables, stdout=subprocess.DEVNULL
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_resident_bytes(process.pid))
            time.sleep(0.05)
        result[name] = {"seconds": time.perf_counter() - start, "peak_resident_bytes": peak}
        files = list(output.glob("*.bf"))
        if files:
            begin = time.perf_counter()
            recordings = [read_recording(file) for file in files]
            result["read_seconds"] = time.perf_counter() - begin
            result["seen"] = tally(recordings)
            result["file_bytes"] = sum(file.stat().st_size for file in files)
        shutil.rmtree(output)
    return result


def time_torch(bench: Bench) -> dict[str, object]:
    """Microseconds a step: bare, recorded in several ways, and under PyTorch's own profiler, by turns."""
    variants: dict[str, dict[str, object]] = {
        "bare": {"recorded": False},
        "default": {},
        "kernels": {"kinds": ["kernels"]},
    }
    for name, extra in EXPERIMENTS.items():
        variants[name] = {"extra": extra}
    results: dict[str, object] = {}
    if ONLY:
        variants = {name: options for name, options in variants.items() if name in ONLY}
    for program in ("torch-train", "torch-infer"):
        runs: dict[str, list[dict[str, object]]] = {}
        script = [sys.executable, str(HERE / "python_programs.py"), program]
        for _ in range(TURNS):
            out, *_ = bench.run([*script, "--profiler"], recorded=False)
            runs.setdefault("profiler", []).append(last_json(out))
            for name, options in variants.items():
                out, err, status, recordings, _, size = bench.run(script, **options)  # type: ignore[arg-type]
                known = last_json(out)
                batch = known.get("exact_batch_copies", [0, 0])
                seen = 0
                for recording in recordings:
                    copies = recording.table("copies")
                    seen += int(((copies["copy_kind"] == 1) & (copies["bytes"] == batch[1])).sum())  # type: ignore[index]
                runs.setdefault(name, []).append(
                    known
                    | {"seen": tally(recordings), "status": status, "stderr": err[-600:], "file_bytes": size}
                    | {"batch_copies_seen": seen}
                )
        results[program] = runs
    return results


def break_things(bench: Bench) -> dict[str, object]:
    results: dict[str, object] = {}
    for name in ("late", "reset", "fork", "quick-exit", "abort"):
        out, err, status, recordings, *_ = bench.run([bench.programs, name, "5000"], flush_every=0.25)
        known, seen = last_json(out), tally(recordings)
        results[name] = {
            "known": known, "seen": seen, "status": status, "stderr": err[-300:],
            "all_equal": bool(known) and known["h2d"] == seen["h2d"] and known["kernels"] == seen["kernels"],
        }  # fmt: skip
    kills = []
    for _ in range(8):
        output = Path(tempfile.mkdtemp(dir=bench.scratch))
        variables = os.environ | environment(f"{output}/", library=bench.library, flush_every=0.1)
        process = subprocess.Popen([bench.programs, "forever"], env=variables, stderr=subprocess.PIPE)
        wait = 0.8 + random.random()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        recordings = [read_recording(file) for file in output.glob("*.bf")]
        seen = tally(recordings)
        kills.append({
            "seconds": wait, "kernels": seen["kernels"], "h2d": seen["h2d"], "complete": seen["complete"],
            "damaged": sum(r.damaged_chunks for r in recordings), "torn_bytes": sum(r.torn_bytes for r in recordings),
        })  # fmt: skip
    results["sigkill"] = kills
    results["unwritable"] = {}
    out, err, status, recordings, *_ = bench.run(
        [bench.programs, "rounds", "100"], extra={"BUSFARE_RECORD_OUTPUT": "/proc/nowhere/"}
    )
    results["unwritable"] = {"status": status, "stderr": err, "known": last_json(out)}
    return results


#: Settings that were tried and are not offered; empty in the released recorder.
EXPERIMENTS: dict[str, dict[str, str]] = {}
TURNS = 3
#: Names of the variants to time; all when empty.
ONLY: set[str] = set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="programs,loops,torch,faults")
    parser.add_argument("--experiments", default="{}", help="JSON: name to environment variables")
    parser.add_argument("--turns", type=int, default=3, help="repetitions of what is timed")
    parser.add_argument("--variants", default="", help="names of the variants to time")
    options = parser.parse_args()
    global TURNS
    TURNS = options.turns
    ONLY.update(name for name in options.variants.split(",") if name)
    EXPERIMENTS.update(json.loads(options.experiments))
    bench = Bench(options.build.absolute())
    machine = subprocess.run(
        ["nvidia-smi", f"--query-gpu={NVIDIA_SMI}", "--format=csv,noheader"], capture_output=True, text=True
    )
    results: dict[str, object] = {
        "gpu": machine.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cores": os.cpu_count(),
    }
    parts = {
        "loops": time_loops,
        "programs": record_programs,
        "torch": time_torch,
        "faults": break_things,
        "ten_million": record_ten_million,
    }
    for name in options.only.split(","):
        part = parts[name]
        start = time.perf_counter()
        try:
            results[name] = part(bench)
        except Exception as error:  # the other parts are still worth having
            results[name] = {"failed": repr(error)}
        results[f"{name}_wall_seconds"] = time.perf_counter() - start
        options.out.write_text(json.dumps(results, indent=1))
        print(name, "done", flush=True)
    shutil.rmtree(bench.scratch)


if __name__ == "__main__":
    main()
