"""Times programs that stay alive, a stretch of each in turn: bare, recorded in several ways, under PyTorch's profiler.

    python by_turns.py --build DIR --out results.json --seconds 90 [--variants bare,default,…] [--only loops,torch]
    python by_turns.py --build DIR --older FILE --variants bare,older,default --out results.json
    python by_turns.py --show results.json

DIR holds libbusfare_recorder.so and `programs` (built from programs.cu). What is compared is timed within a second of
each other, so a drift of the machine meets all alike. Writes one JSON object: samples in microseconds an operation
(loops) or a step (PyTorch). Files of 2026-11-22 hold each stretch's pace of the processor, too, and a limit under which it
was quiet: of those, the quiet stretches count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from busfare.measure.record import environment

HERE = Path(__file__).parent
#: Options of `environment`; None: not recorded.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "bare": None,
    "profiler": None,
    "operations": {"kinds": ["kernels", "copies", "sets"]},
    "default": {},
    "both": {"calls": "both"},
    "older": {},  # the default, by another library
}
LOOPS = {
    "kernels": 20_000,
    "copies": 20_000,
    "waited-kernels": 6_000,
    "waited-copies": 6_000,
    "queries": 50_000,
}
STEPS = {"train": 30, "infer": 80, "lookups": 20}
#: By what was timed and variant, microseconds: a list a process.
Samples = dict[str, dict[str, list[list[float]]]]


class Server:
    """A program that answers a line with a line."""

    def __init__(self, variant: str, command: list[str], variables: dict[str, str]) -> None:
        self.variant, self.steps = variant, command[0] == sys.executable
        self.samples: dict[str, list[float]] = {}
        self.process = subprocess.Popen(
            command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def run_stretch(self) -> None:
        """A stretch of everything that it does."""
        if not self.steps:
            for what, count in LOOPS.items():
                nanoseconds = [float(word) for word in self.ask(f"{what} {count} 1").split()]
                self.samples.setdefault(what, []).append(statistics.median(nanoseconds) / 1000)
            return
        for what, steps in STEPS.items():
            for profiler in ("gpu", "all") if self.variant == "profiler" else ("none",):
                seconds = json.loads(self.ask(f"{what} {steps} {profiler}"))["seconds_a_step"]
                name = what if profiler == "none" else f"{what}:{profiler}"
                self.samples.setdefault(name, []).append(seconds * 1e6)


def started(arguments: argparse.Namespace, scratch: Path) -> list[Server]:
    libraries = {"older": arguments.older}
    servers = []
    for number, variant in enumerate(arguments.variants.split(",")):
        options = VARIANTS[variant]
        variables = {}
        if options is not None:
            library = libraries.get(variant, arguments.build / "libbusfare_recorder.so").absolute()
            variables = environment(f"{scratch / str(number)}/", library=library, **options)
        if "torch" in arguments.only:
            servers.append(Server(variant, [sys.executable, str(HERE / "torch_steps.py")], variables))
        if "loops" in arguments.only and variant != "profiler":
            command = [str((arguments.build / "programs").absolute()), "serve"]
            servers.append(Server(variant, command, variables))
    for server in servers:
        if server.steps and server.process.stdout:
            server.process.stdout.readline()  # that it is ready
    return servers


def quiet_of(results: dict[str, Any]) -> Samples:
    """The samples between quiet moments; of a process without any, and of a file without paces, all."""
    samples: Samples = results["samples_us"]
    if "paces_s" not in results:
        return samples
    limit, paces = float(results["quiet_limit_s"]), results["paces_s"]
    return {
        what: {
            name: [
                [value for value, seconds in zip(values, at, strict=True) if seconds <= limit] or values
                for values, at in zip(processes, paces[what][name], strict=True)
            ]
            for name, processes in by_variant.items()
        }
        for what, by_variant in samples.items()
    }


def show(results: dict[str, Any]) -> None:
    """Medians, and what they add to those of `bare`; in brackets those of each process, and of how many stretches."""
    print(results["gpu"], results["date"], f"{results['turns']} turns")
    for what, by_variant in quiet_of(results).items():
        bare = [value for values in by_variant.get("bare", []) for value in values]
        base = statistics.median(bare) if bare else None
        print(what)
        for name, processes in sorted(by_variant.items()):
            values = [value for stretches in processes for value in stretches]
            if values:
                median = statistics.median(values)
                of_processes = (statistics.median(stretches) for stretches in processes if stretches)
                medians = " ".join(f"{microseconds:.3f}" for microseconds in of_processes)
                more = f"{median - base:+9.3f}  {100 * (median / base - 1):+6.1f} %" if base else ""
                print(f"  {name:16} {median:9.3f} us  {more}  [{medians}] of {len(values)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--show", type=Path, help="print the figures of a results file, and nothing else")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--older", type=Path, help="a library to compare with, for the variant `older`")
    usual = [name for name in VARIANTS if name != "older"]
    parser.add_argument("--variants", default=",".join(usual), help="a process each; names may come again")
    parser.add_argument("--only", default="loops,torch")
    arguments = parser.parse_args()
    if arguments.show:
        return show(json.loads(arguments.show.read_text()))
    if not arguments.build or not arguments.out:
        parser.error("--build and --out are needed")
    if "older" in arguments.variants.split(",") and not arguments.older:
        parser.error("the variant `older` needs --older")
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    results: dict[str, Any] = {
        "gpu": subprocess.run(smi, capture_output=True, text=True).stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "turns": 0,
    }
    with tempfile.TemporaryDirectory(prefix="busfare-turns-") as scratch:
        servers = started(arguments, Path(scratch))
        for server in servers:  # not counted: each process's first stretch
            server.run_stretch()
            server.samples.clear()
        shuffle, end = random.Random(1), time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            for server in shuffle.sample(servers, len(servers)):
                server.run_stretch()
            results["turns"] += 1
        for server in servers:
            server.process.communicate()
    samples: Samples = {}
    for server in servers:
        for what, values in server.samples.items():
            samples.setdefault(what, {}).setdefault(server.variant, []).append(values)
    arguments.out.write_text(json.dumps(results | {"samples_us": samples}, indent=1))
    show(results | {"samples_us": samples})


if __name__ == "__main__":
    main()
