"""What a probe measures besides copies: a GPU's memories, pipelines and library GEMMs; NCCL's operations among all GPUs."""

import math
from collections.abc import Iterable, Iterator
from itertools import product
from statistics import median
from typing import Any, get_args

import msgspec
import numpy as np

from busfare.errors import NoGpuError
from busfare.measure.cases import GIB, KIB, MIB, Case, Measurement, powers
from busfare.measure.node_file import SOURCE
from busfare.nodes import CollectiveCurve, Gemm, Kernels
from busfare.nodes.component import Pass, PassKind, Pipeline, Stream
from busfare.nodes.transfers import Collective, fit

#: Seconds a GPU, and with `--quick`.
KERNELS_S, QUICK_KERNELS_S = 9.0, 3.5
#: Bytes that a stream moves; of 16 KiB tiles, in one, two or three arrays.
STREAM_BYTES = (48 * MIB, 192 * MIB, 768 * MIB)
#: L2 where nobody says how large it is; the part of it that is read, and how many times.
L2_BYTES, L2_PART, L2_PASSES = 16 * MIB, 4, 256
TILE_BYTES = 1 << 14
#: Empty kernels in a chain: what the longer one takes more is the others' time.
CHAIN = (16, 272)
KERNEL_MODES = ("chain-", "stream-", "pass-", "l2-", "pipeline-", "gemm-")
#: Passes by class: the arrays that each reads and writes; bytes of an array, from what any L2 holds to what none does, and
#: passes a sample; rows of arrays in bytes.
PASSES: dict[PassKind, int] = {"elementwise": 3, "norm": 2, "softmax": 2, "gather": 2, "activation": 3}
PASS_BYTES = {256 * KIB: 32, 4 * MIB: 32, 16 * MIB: 8, 32 * MIB: 8, 128 * MIB: 4}
ROW_BYTES, SOFTMAX_ROW_BYTES = 1 << 13, 1 << 12
#: Of each pipeline the operations that 1,024 threads do in a loop of `rates.cu`, and loops: some milliseconds at most.
LOOPS: dict[Pipeline, tuple[int, int]] = {
    "fp64": (1 << 14, 8192), "fp32": (1 << 14, 24576), "fp16": (1 << 15, 24576), "fp64_tensor": (1 << 18, 2048),
    "tf32_tensor": (1 << 18, 8192), "fp16_tensor": (1 << 19, 8192), "bf16_tensor": (1 << 19, 8192),
    "fp8_tensor": (1 << 20, 8192), "int8_tensor": (1 << 20, 8192),
}  # fmt: skip
#: GEMMs by type: how many of m, n, k. A layer's weights are n × k, m its tokens; activations multiply each other in batches.
LARGEST = (1, 8192, 8192, 8192)
BATCHES = ((64, 512, 512, 512), (256, 32, 512, 256), (256, 512, 32, 256), (256, 32, 32, 512))
GEMMS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "fp16": (LARGEST, *((1, m, 4096, 4096) for m in (16, 128, 1024)), *BATCHES),
    "fp32": (LARGEST, (1, 1024, 1024, 1024), *((1, m, 4096, 4096) for m in (16, 128, 512, 2048)), *BATCHES),
    **dict.fromkeys(("tf32", "bf16", "fp8", "int8"), (LARGEST,)),
}
#: Operations of a sample of GEMMs, and the most calls.
SAMPLE_FLOPS, MOST_CALLS = 4e11, 64
#: Before the name of the operation, in the mode of a case.
PREFIX = "nccl-"
KINDS: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
COLLECTIVES_S, QUICK_COLLECTIVES_S = 30.0, 10.0
LEAST_BYTES = 8


def kernel_cases(facts: dict[str, Any], gpu: int, fast: bool) -> tuple[Case, ...]:
    """What is measured of GPU number `gpu`, of whose `facts` the size of L2 counts; `fast`: one size of streams."""
    part = (facts.get("l2_bytes") or L2_BYTES) // L2_PART // TILE_BYTES * TILE_BYTES
    sizes = STREAM_BYTES[-1:] if fast else STREAM_BYTES

    def gemm_case(kind: str, sides: tuple[int, int, int, int]) -> Case:
        # As many calls as take about as long as the largest. The number of products is named where it is not 1.
        calls = max(1, min(MOST_CALLS, round(SAMPLE_FLOPS / (2 * math.prod(sides)))))
        names = sides if sides[0] > 1 else sides[1:]
        return Case("none", "device", f"gemm-{kind}-{'x'.join(map(str, names))}", 0, calls, gpu)

    return (
        *(Case("none", "none", f"chain-{how}", 0, count, gpu) for how in ("graph", "stream") for count in CHAIN),
        *(Case("none", "device", f"stream-{s}", size, 1, gpu) for s, size in product(get_args(Stream), sizes)),
        Case("none", "device", "l2-read", part, L2_PASSES, gpu),
        *(Case("none", "none", f"pipeline-{name}", 0, loops, gpu) for name, (_, loops) in LOOPS.items()),
        *(
            Case("none", "device", f"pass-{kind}", arrays * size, count, gpu)
            for (kind, arrays), (size, count) in product(PASSES.items(), PASS_BYTES.items())
        ),
        *(gemm_case(kind, sides) for kind, shapes in GEMMS.items() for sides in shapes),
    )  # fmt: skip


def gemm_of(mode: str, seconds: float = 1.0) -> Gemm:
    """The products that a case's `gemm-TYPE-MxNxK`, or `-BATCHxMxNxK`, stands for."""
    _, kind, sides = mode.split("-")
    *batch, m, n, k = map(int, sides.split("x"))
    fields = {"type": kind, "m": m, "n": n, "k": k, "seconds": seconds, "batch": (batch or [1])[0]}
    return msgspec.convert(fields, Gemm)


def kernels_of(measured: dict[Case, Measurement], facts: dict[str, Any]) -> Iterator[Kernels]:
    """What the samples of one GPU's cases say, each as the median of its visits; nothing where there are none.

    A tensor pipeline's rate is the larger of two: products of registers (`mma.sync`, on Hopper and later some 60 % of what
    the hardware can), and the library's fastest GEMM.
    """
    seconds = {
        case: median(m.of_visits)
        for case, m in measured.items()
        if m.device_ns and case.mode.startswith(KERNEL_MODES)
    }
    if not seconds:
        return
    launch_s, _ = _chain(seconds, "chain-graph")
    interval_s, outside_s = _chain(seconds, "chain-stream")
    seconds = {case: max(s - outside_s, s / 2) for case, s in seconds.items()}
    units = facts.get("multiprocessors") or 1
    gemms = [gemm_of(c.mode, s / c.count) for c, s in seconds.items() if c.mode.startswith("gemm-")]
    sized = sorted(seconds, key=lambda c: c.bytes)
    stream_of: dict[str, Stream] = {f"stream-{kind}": kind for kind in get_args(Stream)}
    flops: dict[Pipeline, float] = {}
    for name, (operations, loops) in LOOPS.items():
        rates = [units * operations * loops / s for c, s in seconds.items() if c.mode == f"pipeline-{name}"]
        kind = name.removesuffix("_tensor")
        if kind != name:
            rates += [gemm.flops / gemm.seconds for gemm in gemms if gemm.type == kind]
        if rates:
            flops[name] = max(rates)
    yield Kernels(
        launch_s=launch_s,
        launch_interval_s=interval_s,
        # The largest of each comes last, and stays.
        memory_bytes_per_s={stream_of[c.mode]: c.bytes / seconds[c] for c in sized if c.mode in stream_of},
        l2_bytes_per_s=next((c.total_bytes / s for c, s in seconds.items() if c.mode == "l2-read"), None),
        flops_per_s=flops,
        gemm=tuple(gemm for gemm in gemms if len(GEMMS[gemm.type]) > 1),
        passes=tuple(
            Pass(kind, c.bytes, seconds[c] / c.count)
            for kind, c in product(PASSES, sized)
            if c.mode == f"pass-{kind}"
        ),
    )


def _chain(seconds: dict[Case, float], mode: str) -> tuple[float | None, float]:
    """What each further kernel of a chain takes, and what is in every time besides kernels: from the event before the first
    to its start. None and 0 where one of the two chains lacks.
    """
    chains = {c.count: s for c, s in seconds.items() if c.mode == mode}
    few, many = CHAIN
    if not {few, many} <= chains.keys():
        return None, 0.0
    further_s = max((chains[many] - chains[few]) / (many - few), 0.0)
    return further_s, max(chains[few] - few * further_s, 0.0)


def played(kernels: Kernels, case: Case, multiprocessors: int) -> float | None:
    """Seconds that a case takes on a GPU that reaches what `kernels` says; None where it does not say."""
    what, _, name = case.mode.partition("-")
    if what == "gemm":
        like = gemm_of(case.mode)
        same = (g for g in kernels.gemm if msgspec.structs.replace(g, seconds=like.seconds) == like)
        return next((case.count * gemm.seconds for gemm in same), None)
    if what == "pass":
        alike = (p for p in kernels.passes if (p.kind, p.bytes) == (name, case.bytes))
        return next((case.count * p.seconds for p in alike), None)
    if what == "chain":
        interval = kernels.launch_s if name == "graph" else kernels.launch_interval_s
        return None if interval is None else case.count * interval
    rates = dict[str, float]([*kernels.memory_bytes_per_s.items(), *kernels.flops_per_s.items()])
    rate = kernels.l2_bytes_per_s if what == "l2" else rates.get(name)
    operations = {str(kind): multiprocessors * a_loop * case.count for kind, (a_loop, _) in LOOPS.items()}
    work = operations.get(name, 0) if what == "pipeline" else case.total_bytes
    return None if rate is None else work / rate


def collective_cases(gpus: int, fast: bool) -> tuple[Case, ...]:
    """Each operation at sizes as nccl-tests counts them; `fast`: every other. Raises NoGpuError where one GPU is alone."""
    if gpus < 2:
        raise NoGpuError("collectives: this machine has only one GPU; run it on a machine with several")
    sizes = powers(LEAST_BYTES, GIB, 4 if fast else 2)
    return tuple(Case("none", "device", f"{PREFIX}{kind}", size) for kind in KINDS for size in sizes)


def kind_of(case: Case) -> Collective | None:
    """The operation that a case is of; None where it is of another thing."""
    name = case.mode.removeprefix(PREFIX)
    return next((k for k in get_args(Collective) if k == name and case.mode != name), None)


def collective_curves(measurements: Iterable[Measurement], ranks: int) -> Iterator[CollectiveCurve]:
    """A curve of every operation that was measured among `ranks` GPUs, of the quicker half of its visits."""
    measured = [(kind_of(m.case), m) for m in measurements if m.device_ns]
    for kind in KINDS:
        points = sorted((m.bytes, m.undisturbed_s) for of, m in measured if of == kind)
        if points:
            sizes, seconds = np.array(points, np.float64).T
            yield CollectiveCurve(kind=kind, ranks=ranks, source=SOURCE, **fit(sizes, seconds).lines)
