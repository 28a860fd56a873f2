"""Runs NAS FT or MG, or shows what an earlier run wrote: `python3 hybrid/run/nas_bench ft|mg`, see `--help`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from nas_bench import show
from nas_bench.errors import RunError, UsageError
from nas_bench.limit import Rates, points, rates_of_limits
from nas_bench.machine import (
    Case,
    Machine,
    cases_elsewhere,
    cases_of,
    driver,
    modes_of,
    ranks_of,
    this_machine,
)
from nas_bench.programs import Programs, measure_limits, programs_of, run_case
from nas_bench.result import result_of, row_of, rows_of

Row = dict[str, Any]

#: What every result has, and what a file of raw runs has.
KEYS = {"date", "command", "gpu", "driver", "facts", "rates", "runs", "gains", "left_out", "all_verified"}
RAW = {"runs", "gpu", "driver", "date"}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nas_bench",
        description="NAS FT and MG: MPI ranks with their GPU shared in several ways, or on processors; where the time goes.",
    )
    add = parser.add_argument
    add("benchmark", choices=("ft", "mg"))
    add("--class", dest="size", metavar="CLASS", help="S, W, A, B, C, D or E; C with a GPU, else A")
    add("--ranks", metavar="N,…", help="numbers of ranks; else what the machine has")
    add("--modes", metavar="MODE,…", help="cpu, single, multiple, multiple-mps, funneled; else all")
    add(
        "--launch",
        metavar="WORDS",
        help="what starts the ranks, such as 'srun' or 'mpirun --hostfile FILE'; -n is added; else mpirun",
    )
    add(
        "--build",
        metavar="DIR",
        type=Path,
        help="where the programs are; else build/hybrid, hybrid/build, the PATH",
    )
    add(
        "--rates",
        metavar="LINK,MEMORY",
        help="bytes per second each way and in GPU memory; else this GPU is measured",
    )
    add("--rates-source", metavar="TEXT", default="--rates", help="where those are from")
    add("--timeout", metavar="S", type=float, default=600.0, help="a run may take so many seconds")
    add(
        "--from",
        dest="source",
        metavar="FILE",
        type=Path,
        help="show what an earlier --json wrote, or raw runs",
    )
    add("--json", action="store_true", help="the result as JSON on standard output")
    add("--html", metavar="FILE", type=Path, help="the result as a page")
    return parser


def measure(request: argparse.Namespace) -> Row:
    """`busfare.bench-ft/1` or `busfare.bench-mg/1`."""
    began, benchmark = time.monotonic(), request.benchmark
    modes, ranks = modes_of(request.modes), ranks_of(request.ranks)
    if request.size is not None:
        points(benchmark, request.size)
    if not request.timeout > 0:
        raise UsageError(f"--timeout {request.timeout:g}: give seconds above 0")
    rates = _given(request.rates, request.rates_source)
    programs, machine = programs_of(benchmark, request.build, request.launch), this_machine()
    if programs.elsewhere:
        cases, left_out = cases_elsewhere(benchmark, modes, ranks), []
    else:
        cases, left_out = cases_of(benchmark, machine, programs.limits is not None, modes, ranks)
    on_gpu = any(case.mode != "cpu" for case in cases)
    if not on_gpu and not modes:
        # Whoever asked for a GPU's modes by default is not to miss it.
        print(f"only mode cpu runs here: {left_out[0]['why']}", file=sys.stderr)
    size = request.size or ("C" if on_gpu else "A")
    limits = None
    if on_gpu and rates is None and programs.limits:
        limits = measure_limits(programs)
        rates = rates_of_limits(limits, "device_limits, just before")
    rows = []
    for number, case in enumerate(cases):
        if sys.stderr.isatty():
            print(
                f"{number + 1} of {len(cases)}: {benchmark.upper()} class {size}, {case.name}",
                file=sys.stderr,
            )
        try:
            rows.append(_measured(benchmark, programs, case, size, request.timeout, rates))
        except (RunError, UsageError) as error:
            left_out.append({"case": case.name, "why": str(error)})
    if not rows:
        reasons = "; ".join(sorted({row["why"] for row in left_out})[:3])
        raise UsageError(f"nothing could be measured: {reasons}")
    about = _about(machine) | {"seconds": time.monotonic() - began}
    if programs.elsewhere:
        about |= {"gpu": next((row["device"] for row in rows if row["mode"] != "cpu"), None), "driver": None}
    return result_of(benchmark, rows, left_out, rates, about, limits)


def _given(text: str | None, source: str) -> Rates | None:
    if text is None:
        return None
    try:
        link, memory = (float(word) for word in text.split(","))
    except ValueError:
        link = memory = 0.0
    if not (link > 0 and memory > 0):
        raise UsageError(f"--rates {text[:40]!r}: give two rates above 0, such as 50e9,4e12")
    return Rates(link, memory, source)


def _measured(
    benchmark: str, programs: Programs, case: Case, size: str, timeout_s: float, rates: Rates | None
) -> Row:
    """A run, and on a GPU one more whose parts are timed: that takes time of its own. FT's limit is the link, which on a
    shared host changes within minutes: it is measured just before and after.
    """
    if case.mode == "cpu":
        return row_of(benchmark, run_case(programs, case, size, False, timeout_s), None, rates)
    watched = benchmark == "ft" and programs.limits is not None
    link = [measure_limits(programs, link_only=True)] if watched else []
    plain = run_case(programs, case, size, False, timeout_s)
    link += [measure_limits(programs, link_only=True)] if watched else []
    timed = run_case(programs, case, size, True, timeout_s)
    return row_of(benchmark, plain, timed, rates, None, link)


def _about(machine: Machine) -> Row:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["nas_bench", *sys.argv[1:]]),
        "gpu": machine.gpus[0] if machine.gpus else None,
        "driver": driver() if machine.gpus else None,
        "facts": machine.facts(),
    }


def again(path: Path, benchmark: str) -> Row:
    """What an earlier `--json` wrote, or the object made of a file of raw runs.

    Raises UsageError where the file holds nothing of that kind.
    """
    schema = f"busfare.bench-{benchmark}/1"
    remedy = "give a file that --json wrote"
    try:
        held = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from None
    except (ValueError, RecursionError):
        held = None
    if isinstance(held, dict) and held.keys() >= RAW and "schema" not in held:
        return _of_raw(path, held, benchmark)
    if not isinstance(held, dict) or held.get("schema") != schema:
        raise UsageError(f"{path}: not of schema {schema}; {remedy}")
    if missing := KEYS - held.keys():
        raise UsageError(f"{path}: no {sorted(missing)[0]!r}; the file is not whole, run the benchmark again")
    return held


def _of_raw(path: Path, held: Row, benchmark: str) -> Row:
    limits, runs = held.get("limits"), held["runs"]
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise UsageError(f"{path}: 'runs' is no list of runs; give a file of raw runs")
    try:
        rates = (
            rates_of_limits(limits, "device_limits, on the same machine")
            if isinstance(limits, dict)
            else None
        )
        rows, left_out = rows_of(benchmark, runs, rates)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not rows:
        raise UsageError(f"{path}: no run of nas_{benchmark} in it")
    facts = {key: held[key] for key in ("machine", "cuda", "mpi", "commit", "note") if key in held}
    about = {
        "date": str(held["date"]),
        "command": str(held.get("command", "raw runs, each with its own command")),
        "gpu": held["gpu"],
        "driver": held["driver"],
        "facts": facts | {"gpus": [{"name": held["gpu"]}]},
    }
    return result_of(benchmark, rows, left_out, rates, about, limits if isinstance(limits, dict) else None)


def answer(request: argparse.Namespace) -> int:
    """Measures or reads, and shows. The exit status: 1 where a run missed the official values."""
    result = again(request.source, request.benchmark) if request.source else measure(request)
    try:
        page, text, verified = show.page(result), show.text(result), result["all_verified"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if request.source is None:
            raise
        what = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{request.source}: a figure is missing or wrong ({what}); run the benchmark again"
        ) from None
    if request.html:
        try:
            if request.source and request.html.exists() and request.html.samefile(request.source):
                raise UsageError(f"{request.html}: is the input; name another place with --html")
            request.html.parent.mkdir(parents=True, exist_ok=True)
            request.html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{request.html}: {error.strerror}; choose another place with --html") from None
    print(json.dumps(result) if request.json else show.plain(text))
    if not verified:
        print("a run missed NAS's official values; the result says which", file=sys.stderr)
    return 0 if verified else 1


def _say(error: Exception) -> None:
    """One line, which begins with the name of the command that the user typed."""
    called = os.environ.get("NAS_BENCH_CALLED", "nas_bench")
    print(f"{called}: {show.plain(' '.join(str(error).split()))}", file=sys.stderr)


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    request = options().parse_args()
    try:
        return answer(request)
    except UsageError as error:
        _say(error)
        return error.status
    except RunError as error:
        _say(error)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
