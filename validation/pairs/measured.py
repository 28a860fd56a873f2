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
from argparse import Namespace as Options
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from table import variants_of

Call = Callable[[], object]
#: How far a result is off what is known of it, and how far it may be.
Off = tuple[Any, float]
#: The region that is measured, and what checks its result afterwards.
Prepared = tuple[Call, Callable[[], Off]]


class Profiler(NamedTuple):
    """How a library waits for the GPU, turns a recorder on and off, and says where a range begins and ends."""

    wait: Call
    start: Call
    stop: Call
    push: Call
    pop: Call


def torch_profiler() -> Profiler:
    from torch import cuda

    push = partial(cuda.nvtx.range_push, "measured")
    return Profiler(cuda.synchronize, cuda.profiler.start, cuda.profiler.stop, push, cuda.nvtx.range_pop)


def cupy_profiler() -> Profiler:
    from cupy.cuda import nvtx, runtime

    push = partial(nvtx.RangePush, "measured")
    return Profiler(
        runtime.deviceSynchronize, runtime.profilerStart, runtime.profilerStop, push, nvtx.RangePop
    )


def jax_profiler() -> Profiler:
    """By the driver; JAX may have made its context by then."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        if status := getattr(driver, name)(*arguments):
            raise SystemExit(f"{name}: status {status}")

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    calls = (partial(call, name) for name in ("cuCtxSynchronize", "cuProfilerStart", "cuProfilerStop"))
    return Profiler(*calls, push=lambda: None, pop=lambda: None)


PROFILERS = {"torch": torch_profiler, "cupy": cupy_profiler, "jax": jax_profiler}


def run(
    library: str, rounds: int, prepare: Callable[[Options], Prepared], reference: Callable[[], Off]
) -> None:
    """Measures the calling program and ends it, with status 1 where its check fails.

    `rounds`: how often the measured region repeats its work, unless the options say otherwise. `reference`: how far the
    host's own answer is off one that is known.
    """
    source = Path(sys.argv[0])
    text = source.read_text("utf-8")
    parser = argparse.ArgumentParser(prog=source.stem, description=text.split('"""')[1].partition("\n")[0])
    parser.add_argument("--variant", choices=variants_of(text), default="before")
    parser.add_argument("--rounds", type=_positive, default=rounds, help="work in the measured region")
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
    options = parser.parse_args()
    if options.reference:
        sys.exit(_say({"program": source.stem, "reference": True}, *reference()))
    region, check = prepare(options)
    seconds = measure(options, region, PROFILERS[library]())
    result = {
        "program": source.stem, "variant": options.variant, "rounds": options.rounds,
        "median_seconds": statistics.median(seconds), "seconds": seconds,
    }  # fmt: skip
    sys.exit(_say(result, *check()))


def _positive(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 up is needed")
    return int(text)


def measure(options: Options, region: Call, gpu: Profiler) -> list[float]:
    """Seconds of each measured region; the time ends when the GPU is idle."""

    def warm() -> float:
        region()
        gpu.wait()
        return 0.0

    def measured() -> float:
        gpu.wait()
        gpu.start()
        gpu.push()
        begin = time.perf_counter()
        region()
        gpu.wait()
        seconds = time.perf_counter() - begin
        gpu.pop()
        gpu.stop()
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


def _say(result: dict[str, object], error: float, tolerance: float) -> int:
    error = float(error)
    right = error <= tolerance  # false for a NaN
    shown = error if math.isfinite(error) else 1e300
    print(json.dumps(result | {"error": shown, "tolerance": tolerance, "right": right}), flush=True)
    return 0 if right else 1
