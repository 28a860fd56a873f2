"""What the Python programs of this folder share: options, the measured region, the check, the line of JSON.

Heavy libraries are imported by the programs after the options are read, so that `--help` and `--reference` run anywhere.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """`rounds` is how often the measured region repeats its work; the first of `variants` is `before`."""

    name: str
    what: str
    variants: tuple[str, ...]
    rounds: int


def options_of(program: Program) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=program.name, description=program.what)
    parser.add_argument("--variant", choices=program.variants, default="before")
    parser.add_argument(
        "--rounds", type=_positive, default=program.rounds, help="work in the measured region"
    )
    parser.add_argument("--repeats", type=_positive, default=3, help="measured regions, without --wait")
    parser.add_argument("--warm-ups", type=_positive, default=2, help="regions before them")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="warm up and say `ready`; then a line `measure` on standard input is one measured region, `warm` an "
        "unmeasured one, and the end of the input asks for the check",
    )
    parser.add_argument(
        "--reference",
        action="store_true",
        help="check the host's reference against a known answer, without a GPU",
    )
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 up is needed")
    return int(text)


def measure_torch(options: argparse.Namespace, region: Callable[[], object]) -> list[float]:
    """Seconds of each measured region; the time ends when the GPU is idle."""
    import torch

    return _measure(
        options,
        region,
        wait=torch.cuda.synchronize,
        start=torch.cuda.profiler.start,
        stop=torch.cuda.profiler.stop,
        push=lambda: torch.cuda.nvtx.range_push("measured"),
        pop=torch.cuda.nvtx.range_pop,
    )


def measure_cupy(options: argparse.Namespace, region: Callable[[], object]) -> list[float]:
    """Seconds of each measured region; the time ends when the GPU is idle."""
    import cupy

    runtime, nvtx = cupy.cuda.runtime, cupy.cuda.nvtx
    return _measure(
        options,
        region,
        wait=runtime.deviceSynchronize,
        start=runtime.profilerStart,
        stop=runtime.profilerStop,
        push=lambda: nvtx.RangePush("measured"),
        pop=nvtx.RangePop,
    )


def measure_jax(options: argparse.Namespace, region: Callable[[], object]) -> list[float]:
    """Seconds of each measured region; the time ends when the GPU is idle. JAX has made its context by then."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        if status := getattr(driver, name)(*arguments):
            raise SystemExit(f"{name}: status {status}")

    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    return _measure(
        options,
        region,
        wait=lambda: call("cuCtxSynchronize"),
        start=lambda: call("cuProfilerStart"),
        stop=lambda: call("cuProfilerStop"),
        push=lambda: None,
        pop=lambda: None,
    )


def _measure(
    options: argparse.Namespace,
    region: Callable[[], object],
    *,
    wait: Callable[[], object],
    start: Callable[[], object],
    stop: Callable[[], object],
    push: Callable[[], object],
    pop: Callable[[], object],
) -> list[float]:
    def warm() -> float:
        region()
        wait()
        return 0.0

    def measured() -> float:
        wait()
        start()
        push()
        begin = time.perf_counter()
        region()
        wait()
        seconds = time.perf_counter() - begin
        pop()
        stop()
        return seconds

    for _ in range(options.warm_ups):
        warm()
    if not options.wait:
        return [measured() for _ in range(options.repeats)]
    print("ready", flush=True)
    seconds = []
    for line in sys.stdin:
        took = measured() if line.strip() == "measure" else warm()
        if took:
            seconds.append(took)
        print(json.dumps({"region": took}), flush=True)
    if not seconds:
        raise SystemExit("no region was asked for")
    return seconds


def finish(
    program: Program, options: argparse.Namespace, seconds: Sequence[float], error: float, tolerance: float
) -> int:
    """Prints the result; the exit status is 1 where the check failed."""
    result = {
        "program": program.name,
        "variant": options.variant,
        "rounds": options.rounds,
        "median_seconds": statistics.median(seconds),
        "seconds": list(seconds),
    }
    return _say(result, error, tolerance)


def finish_reference(program: Program, error: float, tolerance: float) -> int:
    """Prints what the host's reference is off a known answer by; the exit status is 1 beyond the tolerance."""
    return _say({"program": program.name, "reference": True}, error, tolerance)


def _say(result: dict[str, object], error: float, tolerance: float) -> int:
    error = float(error)
    right = error <= tolerance  # false for a NaN
    shown = error if math.isfinite(error) else 1e300
    print(json.dumps(result | {"error": shown, "tolerance": tolerance, "right": right}), flush=True)
    return 0 if right else 1
