"""`bench ft` and `bench mg` from their options to their JSON objects."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from busfare.errors import BusfareError, InputError
from busfare.measure.nas.case import Case, cases_of, numbers, words
from busfare.measure.nas.limit import Rates, rates_of_limits, rates_of_node
from busfare.measure.nas.machine import Machine, this_machine
from busfare.measure.nas.problem import Benchmark, points
from busfare.measure.nas.programs import Programs, find_programs
from busfare.measure.nas.result import nas_result, row_of, rows_of
from busfare.measure.nas.run import measure_limits, run_case
from busfare.measure.run import Progress
from busfare.node import load_node

__all__ = ["again", "bench"]

Say = Callable[[str], None]
#: What every result has.
_KEYS = {"date", "command", "gpu", "driver", "facts", "rates", "runs", "gains", "left_out", "all_verified"}
#: What a file of raw runs has, as results/hybrid/ keeps them.
_RAW = {"runs", "gpu", "driver", "date"}
_SIZE_ON_CPU, _SIZE_ON_GPU = "A", "C"
_LIMITS_S = 120.0


def bench(
    benchmark: Benchmark,
    size: str | None,
    ranks: str | None,
    modes: str | None,
    build: Path | None,
    node: str | None,
    timeout_s: float,
    progress: Progress | None,
    say: Say,
) -> dict[str, Any]:
    """`busfare.bench-ft/1` or `busfare.bench-mg/1`.

    Raises InputError where the programs are missing, NoGpuError where a mode that needs a GPU was asked for by name and
    there is none.
    """
    began = time.monotonic()
    asked = words(modes), numbers(ranks)
    if size is not None:
        points(benchmark, size)
    if timeout_s <= 0:
        raise InputError(f"--timeout {timeout_s:g}: give seconds above 0")
    named = rates_of_node(load_node(node)) if node else None
    programs, machine = find_programs(benchmark, build), this_machine()
    cases, left_out = cases_of(benchmark, machine, programs, *asked)
    on_gpu = any(case.mode != "cpu" for case in cases)
    if not on_gpu and not asked[0]:
        # No progress: whoever asked for a GPU's modes by default is not to miss it.
        print(f"only mode cpu runs here: {left_out[0]['why']}", file=sys.stderr)
    size = size or (_SIZE_ON_GPU if on_gpu else _SIZE_ON_CPU)
    limits = None
    if on_gpu and named is None:
        say("the limits of the GPU and its link are measured first (20 s; --node NODE takes those of a node)")
        limits = measure_limits(programs, _LIMITS_S)
        named = rates_of_limits(limits, "device_limits, just before")
    rows = []
    for n, case in enumerate(cases):
        if progress:
            progress(n / len(cases), f"{benchmark.upper()} class {size}, {case.name}")
        try:
            rows.append(_measured(benchmark, programs, case, size, timeout_s, named))
        except BusfareError as error:
            left_out.append({"case": case.name, "why": str(error)})
    if not rows:
        reasons = "; ".join(sorted({row["why"] for row in left_out})[:3])
        raise BusfareError(f"nothing could be measured: {reasons}")
    told = _told(benchmark, machine, limits) | {"seconds": time.monotonic() - began}
    return nas_result(benchmark, rows, left_out, named, told, limits)


def _measured(
    benchmark: Benchmark, programs: Programs, case: Case, size: str, timeout_s: float, rates: Rates | None
) -> dict[str, Any]:
    """A run, and on a GPU one more whose parts are timed: that takes time of its own. FT's limit is the link, which on a
    shared host changes within minutes: it is measured just before and after.
    """
    if case.mode == "cpu":
        return row_of(
            benchmark, run_case(programs, case, size, False, timeout_s)["result"], None, rates, None
        )
    watched = benchmark == "ft" and programs.limits is not None
    link = [measure_limits(programs, _LIMITS_S, link_only=True)] if watched else []
    plain = run_case(programs, case, size, False, timeout_s)["result"]
    link += [measure_limits(programs, _LIMITS_S, link_only=True)] if watched else []
    timed = run_case(programs, case, size, True, timeout_s)["result"]
    return row_of(benchmark, plain, timed, rates, None, link)


def _told(benchmark: Benchmark, machine: Machine, limits: dict[str, Any] | None) -> dict[str, Any]:
    known = sys.argv[1:2] == ["bench"]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["busfare", *sys.argv[1:]]) if known else f"busfare bench {benchmark}",
        "gpu": machine.gpus[0] if machine.gpus else None,
        "driver": _driver() if machine.gpus else None,
        "facts": machine.facts(),
    }


def _driver() -> str | None:
    """The driver's version, where NVML is installed."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return version.decode(errors="replace") if isinstance(version, bytes) else str(version)


def again(path: Path, benchmark: Benchmark) -> dict[str, Any]:
    """What an earlier `bench ft|mg --json` wrote, or the object made of a file of raw runs (`results/hybrid/`).

    Raises InputError where the file holds nothing of that kind.
    """
    schema = f"busfare.bench-{benchmark}/1"
    mend = f"give a file that `bench {benchmark} --json` wrote"
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {mend}") from None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and found.keys() >= _RAW and "schema" not in found:
        return _from_raw(path, found, benchmark)
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise InputError(f"{path}: not of schema {schema}; {mend}")
    missing = _KEYS - found.keys()
    if missing:
        raise InputError(
            f"{path}: no {sorted(missing)[0]!r}; the file is not whole, run `bench {benchmark}` again"
        )
    return found


def _from_raw(path: Path, found: dict[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    limits, runs = found.get("limits"), found["runs"]
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise InputError(f"{path}: 'runs' is no list of runs; give a file of raw runs")
    rates = (
        rates_of_limits(limits, "device_limits, on the same machine") if isinstance(limits, dict) else None
    )
    try:
        rows, left_out = rows_of(benchmark, runs, rates)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not rows:
        raise InputError(f"{path}: no run of nas_{benchmark} in it")
    facts = {key: found[key] for key in ("machine", "cuda", "mpi", "commit", "note") if key in found}
    told = {
        "date": str(found["date"]), "command": str(found.get("command", "raw runs, each with its own command")),
        "gpu": found["gpu"], "driver": found["driver"], "facts": facts | {"gpus": [{"name": found["gpu"]}]},
    }  # fmt: skip
    return nas_result(benchmark, rows, left_out, rates, told, limits if isinstance(limits, dict) else None)
