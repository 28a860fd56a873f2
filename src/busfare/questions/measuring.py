"""Questions on this machine, or on a node that is played in place of it (`virtual`)."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from busfare import quantities as q
from busfare.errors import InputError
from busfare.quantities import Question
from busfare.questions.traces import Where

#: What a probe may measure by itself.
Part = Literal["copies", "kernels", "collectives"]
#: When to record: to the end, or from cudaProfilerStart to cudaProfilerStop.
Capture = Literal["whole", "profiler-calls"]
#: Whose calls: the driver's, also where the runtime makes them; or `both`, as the program itself makes them.
Calls = Literal["driver", "both", "none"]
#: What is recorded; `default` stands for all but `all-calls` and `graphs`.
Recorded = Literal[
    "default", "kernels", "copies", "sets", "calls", "all-calls", "waits", "events", "memory", "managed", "markers",
    "overheads", "graphs", "addresses", "messages",
]  # fmt: skip
#: The changes that the library of `try` makes.
LIBRARY_CHANGES = ("pin", "pin,async", "prefetch", "spin", "block")
#: Commands that bind a program to CPUs and memory.
LAUNCHERS = ("numactl ", "taskset ")
#: Rounds of `try`: fewer than three give no useful interval.
LEAST_RUNS, MOST_RUNS = 3, 1000
#: Ints of a vector.
LEAST_INTS, MOST_INTS = 1 << 20, 1 << 28
#: What is recorded is written no more often. Seconds.
LEAST_FLUSH_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Probe(Question):
    """`quick`: fewer samples; one part `only`; with `collectives` among all GPUs, too."""

    quick: q.Flag = False
    only: Annotated[Part | None, q.word(*get_args(Part))] = None
    collectives: q.Flag = False
    virtual: Where | None = None


@dataclass(frozen=True, kw_only=True)
class Record(Question):
    """`duration` (0: to the end), `delay` and `flush_every` are seconds; `nvtx` names a range outside of which nothing is
    recorded; `fingerprint` hashes each copied buffer, `stacks` takes the call stack of each call that is noted.
    """

    duration: Annotated[float, q.bare_seconds] = 0.0
    delay: Annotated[float, q.bare_seconds] = 0.0
    capture: Annotated[Capture, q.word(*get_args(Capture))] = "whole"
    nvtx: q.Text = ""
    flush_every: Annotated[float, q.bare_seconds] = 1.0
    kinds: Annotated[tuple[Recorded, ...], q.listed(q.word(*get_args(Recorded)))] = ()
    calls: Annotated[Calls, q.word(*get_args(Calls))] = "driver"
    fingerprint: q.Flag = False
    stacks: q.Flag = False

    def __post_init__(self) -> None:
        if self.flush_every < LEAST_FLUSH_S:
            raise InputError(f"`flush_every` {self.flush_every}: give {LEAST_FLUSH_S:g} seconds or more")
        if self.delay and (self.nvtx or self.capture != "whole"):
            raise InputError(
                "`delay`: the program itself starts the recording (`nvtx`, `capture`); leave one out"
            )


def tried_change(value: Any) -> str:
    """'pin', 'pin,async', 'prefetch', 'spin', 'block', an environment variable 'NAME=VALUE', or a command of LAUNCHERS that
    runs the program, such as 'numactl -N 0'.
    """
    if value in LIBRARY_CHANGES or re.match(r"[A-Za-z_][A-Za-z0-9_]*=", str(value)):
        return str(value)
    if str(value).startswith(LAUNCHERS):
        if not shutil.which(launcher := str(value).split()[0]):
            raise InputError(f"{q.shown(value)}: {launcher} is not installed; install it")
        return str(value)
    changes = "; ".join([*LIBRARY_CHANGES, "an environment variable NAME=VALUE"])
    raise InputError(f"{q.shown(value)} is unknown; give {changes}; or numactl or taskset with options")


@dataclass(frozen=True, kw_only=True)
class Try(Question):
    """`change`: the changes to try (default: those that may help); `runs`: maximum number of rounds; `compare`: files that
    the program writes; `timeout`: time limit of a run, s; `recorded_on`: the node of this machine, for predictions.
    """

    change: Annotated[tuple[str, ...], q.repeated(tried_change)] = ()
    runs: Annotated[int, q.whole(LEAST_RUNS, MOST_RUNS)] = 10
    compare: Annotated[tuple[Path, ...], q.repeated(q.file_path)] = ()
    timeout: Annotated[float | None, q.bare_seconds] = None
    recorded_on: Where | None = None


@dataclass(frozen=True, kw_only=True)
class Bench(Question):
    """Predicted for `node`, else for what a quick probe of this machine finds."""

    node: Where | None = None
    quick: q.Flag = False
    virtual: Where | None = None


@dataclass(frozen=True, kw_only=True)
class BenchMethods(Bench):
    """Vectors of up to `largest` ints."""

    largest: Annotated[int, q.whole(LEAST_INTS, MOST_INTS)] = MOST_INTS


@dataclass(frozen=True, kw_only=True)
class BenchStrategies(Bench):
    """On W14's kernels and grids, and on others."""
