"""What a probe measures besides copies, and what that says: of a GPU's kernels its memories, pipelines and library GEMMs;
and NCCL's operations among all GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from statistics import median
from typing import Any, get_args

import msgspec
import numpy as np

from busfare.errors import NoGpuError
from busfare.measure.cases import GIB, MIB, Case, powers
from busfare.measure.node_file import SOURCE
from busfare.measure.raw import Measurement
from busfare.node import CollectiveCurve, Gemm, Kernels
from busfare.node.component import Pipeline, Stream
from busfare.node.curve import Collective, fit

#: Seconds a GPU, and with `--quick`.
KERNELS_S, QUICK_KERNELS_S = 9.0, 3.5
#: Bytes that a stream moves; of 16 KiB tiles, in one, two or three arrays.
STREAM_BYTES = (48 * MIB, 192 * MIB, 768 * MIB)
#: L2 where nobody says how large it is; the part of it that is read, and how many times.
L2_BYTES, L2_PART, L2_PASSES = 16 * MIB, 4, 256
TILE_BYTES = 1 << 14
#: Empty kernels in a chain: what the longer one takes more is the others' time.
CHAIN = (16, 272)
KERNEL_MODES = ("chain-", "stream-", "l2-", "pipeline-", "gemm-")
#: Of each pipeline the operations that 1,024 threads do in a loop of `rates.cu`, and loops: some milliseconds at most.
LOOPS: dict[Pipeline, tuple[int, int]] = {
    "fp64": (1 << 14, 8192),
    "fp32": (1 << 14, 24576),
    "fp16": (1 << 15, 24576),
    "fp64_tensor": (1 << 18, 2048),
    "tf32_tensor": (1 << 18, 8192),
    "fp16_tensor": (1 << 19, 8192),
    "bf16_tensor": (1 << 19, 8192),
    "fp8_tensor": (1 << 20, 8192),
    "int8_tensor": (1 << 20, 8192),
}
#: Sides m, n, k of GEMMs, and calls a sample: a layer's weights are n × k, m its tokens.
SHAPES = {
    (8192, 8192, 8192): 1,
    (4096, 4096, 4096): 4,
    (1024, 1024, 1024): 64,
    **{(m, side, side): 64 for m in (16, 128) for side in (4096, 8192)},
}
LARGEST = (8192, 8192, 8192)
#: GEMMs that a node file holds, beside those that are in the rates of pipelines; the others are with the raw samples.
KEPT = {
    "fp16": (LARGEST, (1024, 1024, 1024), (128, 8192, 8192), (16, 8192, 8192)),
    "tf32": (LARGEST, (1024, 1024, 1024), (128, 8192, 8192)),
    "fp32": (LARGEST, (1024, 1024, 1024)),
}


#: Before the name of the operation, in the mode of a case.
PREFIX = "nccl-"
KINDS: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
COLLECTIVES_S, QUICK_COLLECTIVES_S = 30.0, 10.0
LEAST_BYTES = 8


def kernel_cases(facts: dict[str, Any], gpu: int, fast: bool) -> tuple[Case, ...]:
    """What is measured of GPU number `gpu`, of whose `facts` the size of L2 counts; `fast`: of GEMMs only those that are
    kept, and one size of streams.
    """
    part = (facts.get("l2_bytes") or L2_BYTES) // L2_PART // TILE_BYTES * TILE_BYTES
    sizes = STREAM_BYTES[-1:] if fast else STREAM_BYTES
    shapes = KEPT if fast else dict.fromkeys(("fp32", "tf32", "fp16", "bf16"), tuple(SHAPES))
    peaks = {kind: (LARGEST,) for kind in ("bf16", "fp8", "int8") if kind not in shapes}
    return (
        *(Case("none", "none", f"chain-{how}", 0, count, gpu) for how in ("graph", "stream") for count in CHAIN),
        *(Case("none", "device", f"stream-{s}", size, 1, gpu) for s, size in product(get_args(Stream), sizes)),
        Case("none", "device", "l2-read", part, L2_PASSES, gpu),
        *(Case("none", "none", f"pipeline-{name}", 0, loops, gpu) for name, (_, loops) in LOOPS.items()),
        *(
            Case("none", "device", f"gemm-{kind}-{m}x{n}x{k}", 0, SHAPES[m, n, k], gpu)
            for kind, sides in (shapes | peaks).items()
            for m, n, k in sides
        ),
    )  # fmt: skip


def gemm_of(mode: str, seconds: float = 1.0) -> Gemm:
    """The product that a case's `gemm-TYPE-MxNxK` stands for."""
    _, kind, sides = mode.split("-")
    m, n, k = map(int, sides.split("x"))
    return msgspec.convert({"type": kind, "m": m, "n": n, "k": k, "seconds": seconds}, Gemm)


def kernels_of(own: dict[Case, Measurement], facts: dict[str, Any]) -> Iterator[Kernels]:
    """What the samples of one GPU's cases say, each as the median of its visits; nothing where there are none.

    A tensor pipeline's rate is the larger of two: products of registers (`mma.sync`, on Hopper and later some 60 % of what
    the hardware can), and the largest GEMM of the library.
    """
    seconds = {
        case: median(m.of_visits)
        for case, m in own.items()
        if m.device_ns and case.mode.startswith(KERNEL_MODES)
    }
    if not seconds:
        return
    launch_s, _ = _chain(seconds, "chain-graph")
    interval_s, outside_s = _chain(seconds, "chain-stream")
    seconds = {case: max(s - outside_s, s / 2) for case, s in seconds.items()}
    units = facts.get("multiprocessors") or 1
    gemms = [gemm_of(c.mode, s / c.count) for c, s in seconds.items() if c.mode.startswith("gemm-")]
    streams = sorted((c for c in seconds if c.mode.startswith("stream-")), key=lambda c: c.bytes)
    flops: dict[Pipeline, float] = {}
    for name, (operations, loops) in LOOPS.items():
        rates = [units * operations * loops / s for c, s in seconds.items() if c.mode == f"pipeline-{name}"]
        kind = name.removesuffix("_tensor")
        if kind != name:
            rates += [one.flops / one.seconds for one in gemms if (one.type, one.m) == (kind, LARGEST[0])]
        if rates:
            flops[name] = max(rates)
    yield Kernels(
        launch_s=launch_s,
        launch_interval_s=interval_s,
        # The largest of each comes last, and stays.
        memory_bytes_per_s={
            kind: c.bytes / seconds[c]
            for kind in get_args(Stream)
            for c in streams
            if c.mode == f"stream-{kind}"
        },
        l2_bytes_per_s=next((c.total_bytes / s for c, s in seconds.items() if c.mode == "l2-read"), None),
        flops_per_s=flops,
        gemm=tuple(one for one in gemms if (one.m, one.n, one.k) in KEPT.get(one.type, ())),
    )


def _chain(seconds: dict[Case, float], mode: str) -> tuple[float | None, float]:
    """What each further kernel of a chain takes, and what is in every time besides kernels: from the event before the first
    to its start. None and 0 where one of the two chains lacks.
    """
    chains = {c.count: s for c, s in seconds.items() if c.mode == mode}
    few, many = CHAIN
    if not {few, many} <= chains.keys():
        return None, 0.0
    each = max((chains[many] - chains[few]) / (many - few), 0.0)
    return each, max(chains[few] - few * each, 0.0)


def played(kernels: Kernels, case: Case, multiprocessors: int) -> float | None:
    """Seconds that a case takes on a GPU that reaches what `kernels` says; None where it does not say."""
    what, _, name = case.mode.partition("-")
    if what == "gemm":
        like = gemm_of(case.mode)
        same = (
            one
            for one in kernels.gemm
            if (one.type, one.m, one.n, one.k) == (like.type, like.m, like.n, like.k)
        )
        return next((case.count * one.seconds for one in same), None)
    if what == "chain":
        each = kernels.launch_s if name == "graph" else kernels.launch_interval_s
        return None if each is None else case.count * each
    rates = dict[str, float]([*kernels.memory_bytes_per_s.items(), *kernels.flops_per_s.items()])
    rate = kernels.l2_bytes_per_s if what == "l2" else rates.get(name)
    operations = next((each for kind, (each, _) in LOOPS.items() if kind == name), 0)
    work = multiprocessors * operations * case.count if what == "pipeline" else case.total_bytes
    return None if rate is None else work / rate


def collective_cases(gpus: int, fast: bool) -> tuple[Case, ...]:
    """Each operation at sizes as nccl-tests counts them; `fast`: every other. Raises NoGpuError where one GPU is alone."""
    if gpus < 2:
        raise NoGpuError(
            "--collectives: one GPU is here, and nothing to exchange; run it where there are several"
        )
    sizes = powers(LEAST_BYTES, GIB, 4 if fast else 2)
    return tuple(Case("none", "device", f"{PREFIX}{kind}", size) for kind in KINDS for size in sizes)


def kind_of(case: Case) -> Collective | None:
    """The operation that a case is of; None where it is of another thing."""
    name = case.mode.removeprefix(PREFIX)
    return next((k for k in get_args(Collective) if k == name and case.mode != name), None)


def collective_curves(measurements: Iterable[Measurement], ranks: int) -> Iterator[CollectiveCurve]:
    """A curve of every operation that was measured among `ranks` GPUs, of the quicker half of its visits."""
    own = [(kind_of(m.case), m) for m in measurements if m.device_ns]
    for kind in KINDS:
        points = sorted((m.bytes, m.undisturbed_s) for of, m in own if of == kind)
        if points:
            sizes, seconds = np.array(points, np.float64).T
            yield CollectiveCurve(kind=kind, ranks=ranks, source=SOURCE, **fit(sizes, seconds).lines)
