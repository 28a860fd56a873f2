"""Times programs that stay alive, a stretch of each in turn: bare, recorded in several ways, under PyTorch's profiler.

    python by_turns.py --build DIR --out results.json --seconds 90 [--variants bare,default,…] [--extra JSON]
    python by_turns.py --show results.json

DIR holds libbusfare_recorder.so and `programs` (built from programs.cu). What is compared is timed within a second of
each other, so a drift of the machine meets all alike. Before a stretch its program moves to the processors that are
quickest just then, and its pace is taken there before and after: each figure is the median of the stretches between two
quiet moments, chosen by that alone, and of all where none was. Writes one JSON object: samples in microseconds an
operation (loops) or a step (PyTorch), with their paces, and what the recordings hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from busfare.measure.processors import Processors
from busfare.measure.record import environment
from busfare.trace.readers.recorded.file import read_recording

HERE = Path(__file__).parent
#: By what was timed and variant, microseconds: a list a process.
Samples = dict[str, dict[str, list[list[float]]]]
DEFAULT = (
    "kernels",
    "copies",
    "sets",
    "calls",
    "waits",
    "events",
    "memory",
    "managed",
    "markers",
    "overheads",
    "addresses",
)
#: Options of `environment`; None: not recorded.
VARIANTS: dict[str, dict[str, object] | None] = {
    "bare": None,
    "profiler": None,
    "operations": {"kinds": ["kernels", "copies", "sets"]},
    "no-calls": {"calls": "none"},
    "default": {},
    "no-overheads": {"kinds": [kind for kind in DEFAULT if kind != "overheads"]},
    "both": {"calls": "both"},
}
LOOPS = {
    "kernels": 20_000,
    "copies": 20_000,
    "waited-kernels": 6_000,
    "waited-copies": 6_000,
    "queries": 50_000,
}
STEPS = {"train": 30, "infer": 80, "lookups": 20}
#: Threads that work in a stretch: the program's own, and the recorder's writer.
THREADS = 2
#: Seconds to wait for quiet processors before a stretch.
PATIENCE_S = 0.2


@dataclass
class Server:
    """A program that answers a line with a line."""

    name: str
    process: subprocess.Popen[str]
    output: Path | None
    processors: Processors
    samples: dict[str, list[float]] = field(default_factory=dict)
    paces: dict[str, list[float]] = field(default_factory=dict)

    def stretch(self, what: str, measured: Callable[[], float]) -> None:
        """A sample in microseconds, at the quickest processors; its pace is the slower one of before and after."""
        place = self.processors.place(THREADS, PATIENCE_S)
        place.taken_by(self.process.pid)
        before = self.processors.pace_at(place, THREADS)
        microseconds = measured()
        self.samples.setdefault(what, []).append(microseconds)
        self.paces.setdefault(what, []).append(max(before, self.processors.pace_at(place, THREADS)))

    def ask(self, line: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


def start(
    name: str,
    command: list[str],
    library: Path,
    scratch: Path,
    options: dict[str, object] | None,
    extra: dict[str, str],
    processors: Processors,
) -> Server:
    variables, output = dict(os.environ) | extra, None
    if options is not None:
        output = Path(tempfile.mkdtemp(dir=scratch))
        variables |= environment(f"{output}/", command, library=library, **options)  # type: ignore[arg-type]
        variables |= extra
    error = (scratch / f"{name}-{len(list(scratch.iterdir()))}.err").open("w")
    process = subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error, text=True
    )
    return Server(name, process, output, processors)


def time_loops(server: Server) -> None:
    for what, count in LOOPS.items():
        line = f"{what} {count} 1"
        server.stretch(
            what, lambda line=line: statistics.median(float(word) / 1000 for word in server.ask(line).split())
        )


def time_steps(server: Server) -> None:
    for program, steps in STEPS.items():
        for profiler in ("gpu", "all") if server.name == "profiler" else ("none",):
            line = f"{program} {steps} {profiler}"
            what = program if profiler == "none" else f"{program}:{profiler}"
            server.stretch(what, lambda line=line: json.loads(server.ask(line))["seconds_a_step"] * 1e6)


def answers(server: Server, take: Callable[[Server], None]) -> bool:
    """Lets it work; False where it has ended, and then says so: the others are still worth having."""
    try:
        take(server)
    except (ValueError, OSError, statistics.StatisticsError) as error:
        print(f"{server.name}: {error!r}, status {server.process.poll()}", file=sys.stderr)
        return False
    return True


def held(output: Path) -> Iterator[dict[str, object]]:
    """Rows, losses and bytes of each recording of a server."""
    for file in sorted(output.glob("*.bf")):
        recording = read_recording(file)
        names = ("kernels", "copies", "sets", "calls", "waits", "events", "allocations", "copy_addresses")
        tables = {name: recording.table(name) for name in (*names, "losses")}
        operations = np.concatenate([tables[name]["correlation"] for name in ("kernels", "copies", "sets")])
        calls = tables["calls"]
        texts, counts = np.unique(calls["name"], return_counts=True)
        lost = tables["losses"]
        yield {
            "rows": {name: len(tables[name]) for name in names},
            "operations_with_call": int(np.isin(operations, calls["correlation"]).sum()),
            "copies_with_addresses": int(
                np.isin(tables["copies"]["correlation"], tables["copy_addresses"]["correlation"]).sum()
            ),
            "calls": {
                recording.strings.get(text, "?"): count
                for text, count in zip(texts.tolist(), counts.tolist(), strict=True)
            },
            "losses": {
                str(kind): int(lost["count"][lost["loss"] == kind].sum())
                for kind in np.unique(lost["loss"]).tolist()
            },
            "complete": recording.complete,
            "cupti": recording.facts.get("cupti", ""),
            "bytes": file.stat().st_size,
        }


def begin(
    arguments: argparse.Namespace, scratch: Path, processors: Processors
) -> list[tuple[Server, Callable[[Server], None]]]:
    """The programs, once those of PyTorch have said that they are ready."""
    library = (arguments.build / "libbusfare_recorder.so").absolute()
    extras: dict[str, dict[str, str]] = json.loads(arguments.extra)
    wanted = [(name, VARIANTS[name], {}) for name in arguments.variants.split(",") if name]
    wanted += [(name, {}, extra) for name, extra in extras.items()]
    parts = arguments.only.split(",")
    loops, steps = [], []
    for name, options, extra in wanted:
        if "torch" in parts:
            command = [sys.executable, str(HERE / "torch_steps.py")]
            steps.append(start(name, command, library, scratch, options, extra, processors))
        if "loops" in parts and name != "profiler":
            command = [str((arguments.build / "programs").absolute()), "serve"]
            loops.append(start(name, command, library, scratch, options, extra, processors))
    for server in steps:
        assert server.process.stdout
        server.process.stdout.readline()
    return [(server, time_loops) for server in loops] + [(server, time_steps) for server in steps]


def by_process(servers: list[Server], of: str) -> Samples:
    """`samples` or `paces` of the servers."""
    found: Samples = {}
    for server in servers:
        for what, values in getattr(server, of).items():
            found.setdefault(what, {}).setdefault(server.name, []).append(values)
    return found


def quiet_of(results: dict[str, Any]) -> Samples:
    """The samples between quiet moments; of a process without any, and of a file without paces, all."""
    samples: Samples = results["samples_us"]
    paces: Samples | None = results.get("paces_s")
    if paces is None:
        return samples
    limit = float(results["quiet_limit_s"])
    return {
        what: {
            name: [
                [value for value, pace in zip(values, at, strict=True) if pace <= limit] or values
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
            if not any(processes):
                continue
            median = statistics.median([value for values in processes for value in values])
            each = " ".join(f"{statistics.median(values):.3f}" for values in processes if values)
            more = f"{median - base:+9.3f}  {100 * (median / base - 1):+6.1f} %" if base else ""
            count = sum(len(values) for values in processes)
            print(f"  {name:16} {median:9.3f} us  {more}  [{each}] of {count}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--show", type=Path, help="print the figures of a results file, and nothing else")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=90, help="from the start to the last turn's end")
    parser.add_argument(
        "--variants", default=",".join(VARIANTS), help="a process each; a name may come more than once"
    )
    parser.add_argument("--only", default="loops,torch")
    parser.add_argument(
        "--extra", default="{}", help="JSON: name to environment variables, recorded by default"
    )
    arguments = parser.parse_args()
    if arguments.show:
        return show(json.loads(arguments.show.read_text()))
    if not arguments.build or not arguments.out:
        parser.error("--build and --out are needed")
    began = time.monotonic()
    machine = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    scratch = Path(tempfile.mkdtemp(prefix="busfare-turns-"))
    results: dict[str, object] = {
        "gpu": machine.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cores": os.cpu_count(),
        "turns": 0,
        "samples_us": {},
    }
    processors = Processors()
    every = begin(arguments, scratch, processors)
    servers = [each for each in every if answers(*each)]  # not counted: each process's first stretch
    for server, _ in servers:
        server.samples.clear()
        server.paces.clear()
    results["seconds_to_start"] = time.monotonic() - began
    shuffle = random.Random(1)
    turns, slowest = 0, 0.0
    while time.monotonic() - began + slowest < arguments.seconds:
        turn = time.monotonic()
        shuffle.shuffle(servers)
        servers = [each for each in servers if answers(*each)]
        slowest = max(slowest, time.monotonic() - turn)
        turns += 1
        # A run that is cut short is still worth having.
        all_servers = [server for server, _ in every]
        results |= {"turns": turns, "quiet_limit_s": processors.limit_s}
        results |= {
            "samples_us": by_process(all_servers, "samples"),
            "paces_s": by_process(all_servers, "paces"),
        }
        arguments.out.write_text(json.dumps(results, indent=1))
    show(results)
    for server, _ in every:
        assert server.process.stdin
        server.process.stdin.close()
    recorded: dict[str, list[dict[str, object]]] = {}
    for server, _ in every:
        server.process.wait(timeout=30)
        if server.output:
            recorded.setdefault(server.name, []).extend(held(server.output))
    errors = {file.name: file.read_text()[-400:] for file in scratch.glob("*.err") if file.stat().st_size}
    arguments.out.write_text(json.dumps(results | {"recorded": recorded, "standard_error": errors}, indent=1))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
