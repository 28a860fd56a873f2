"""A kernel's recorded time, moved from one GPU to another by what bounds it: a floor, a memory share and a compute share.

    t  = F + W                               F: floor, W: work; seconds
    t' = F' + W · (Σ sᵢ · rᵢᵖ)^(1/p)         sᵢ: shares of W, Σ sᵢ = 1; rᵢ: a part's time there over its time here

A larger p lets the parts overlap more (`power_mean`). Symbols: B: rate of the memory, L: of L2, bytes/s; M: multiprocessors;
f: clock, Hz; u = M · f · √(threads that a multiprocessor holds) (`Limits.units`). A prime marks the GPU there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from busfare.cost.kernels.classes import MEMORY
from busfare.cost.kernels.limits import OVERLAP, Limits, product_seconds
from busfare.nodes import FloatArray

Rows = NDArray[np.intp]
#: What a moved time went by: `between` the memories' ratio and the multiprocessors' where nothing is known of the kernel;
#: `none`: not predicted.
BOUNDS = ("between", "memory", "compute", "counted", "allocated", "none")

# Fitted constants: `python validation/kernels.py --constants` halves and doubles each.

#: Where nothing tells which of two causes counts, each counts half (of the logarithm): of what a library's kernel takes
#: beyond the model, on a GPU of another generation; of the time of kernels that may be streams, the memory.
HALF = 0.5
#: Kernels that nothing is known of may be streams where they move at most so many bytes a thread.
STREAM_BYTES = 128.0
#: Of the difference between two GPUs' floors an empty kernel shows all, and a kernel of this work a factor of e less, s.
FLOOR_HIDDEN_S = 2e-6
#: Threads of a multiprocessor whose loads fill the memory's queue.
THREADS_NEEDED = 512.0
#: Threads that a multiprocessor begins and ends in a cycle, where they do next to nothing.
THREADS_A_CYCLE = 1.4

#: Registers of a multiprocessor [CUDA C++ Programming Guide, compute capabilities].
REGISTERS = 65536
#: Keeps divisions by work finite, s.
LEAST_S = 1e-12


@dataclass
class Evidence:
    """Distinct kernels, one per row; missing columns and NaN are unknown.

    `kinds`, `pipelines`: by name (`busfare.cost.kernels.classes`). Columns: `flops` and `bytes` of the algorithm, from
    shapes; `dram_bytes`, of which `written_bytes`, and `l2_bytes` (requested from L2), from counters; `allocated_bytes`: GPU
    memory of the program at that time; `user_code`: 1 if only words of the name give its class; `blocks`, `threads` per
    block, `registers`, `shared_bytes`; `in_graph`: 1 if launched by a graph; `batch`, `m`, `n`, `k` and `element_bytes` of a
    matrix product.
    """

    kinds: list[str]
    pipelines: list[str | None]
    columns: dict[str, FloatArray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> FloatArray:
        column = self.columns.get(name)
        return np.full(len(self.kinds), np.nan) if column is None else column


class Moved(NamedTuple):
    """Seconds there of each kernel, NaN where not predicted, and the place in BOUNDS of what it went by: shape (rows,)."""

    seconds: FloatArray
    bounds: NDArray[np.int8]


def move(evidence: Evidence, of: Rows, seconds: FloatArray, here: Limits, there: Limits) -> Moved:
    """Kernels that took `seconds` `here`, there; `of`: the row of `evidence` of each. Shape (rows,) both."""
    kinds = np.array(evidence.kinds, dtype=object)
    product_here, product_there = _products(evidence, here, there)
    dense = np.isin(kinds, ["gemm", "convolution", "attention"])
    peaks = np.where(dense, _peaks(evidence, here, there), np.nan)
    pass_here, pass_there = _passes(evidence, here, there)
    passed = np.isfinite(pass_here + pass_there)
    derived = {
        "product_here": product_here, "product_there": product_there, "peaks": peaks,
        "pass_here": pass_here, "pass_there": pass_there,
    }  # fmt: skip
    # Launches of one kernel are of one kind, however their times scatter.
    logs = np.bincount(of, np.log(np.maximum(seconds, 1e-12))) / np.maximum(np.bincount(of), 1)
    typical = np.exp(logs)[of]
    bound = np.select(
        [
            kinds == "communication",
            np.isfinite(evidence["dram_bytes"]),
            (np.isin(kinds, list(MEMORY)) & (evidence["user_code"] != 1)) | passed,
            np.isfinite(product_here + product_there) | np.isfinite(peaks),
        ],
        [BOUNDS.index(name) for name in ("none", "counted", "memory", "compute")],
        BOUNDS.index("between"),
    ).astype(np.int8)[of]
    allocated = _allocated(Launches(evidence.columns, of, typical), here, there)
    bound[(bound == BOUNDS.index("between")) & np.isfinite(allocated[0])] = BOUNDS.index("allocated")
    result = np.full(len(seconds), np.nan)
    prices = {
        "between": _unknown, "memory": _streamed, "compute": _computed, "counted": _counted, "allocated": _counted,
    }  # fmt: skip
    for name, price in prices.items():
        rows = np.flatnonzero(bound == BOUNDS.index(name))
        if len(rows):
            at = Launches({**evidence.columns, **derived}, of[rows], typical[rows], allocated[:, rows])
            result[rows] = price(seconds[rows], at, here, there)
    return Moved(result, bound)


class Launches(NamedTuple):
    """Some launches of kernels: `columns` as of their evidence, whose row each is in `of`; `typical`: the geometric mean
    of the seconds of that kernel's; `allocated`: seconds here and there of moving what is allocated, NaN where not known.
    """

    columns: dict[str, FloatArray]
    of: Rows
    typical: FloatArray
    allocated: FloatArray | float = np.nan

    def __call__(self, name: str) -> FloatArray:
        """A column; NaN where it is not known."""
        return self.columns[name][self.of] if name in self.columns else np.full(len(self.of), np.nan)


def split(
    seconds: FloatArray, in_graph: FloatArray, here: Limits, there: Limits
) -> tuple[FloatArray, FloatArray]:
    """Seconds of work here, and of the floor there; shape (rows,) both.

    **Floor.** What an empty kernel takes: F here and F' there, of which less shows the longer a kernel works.

        W = t − F,   F' = F · (1 + h · (f'/f − 1))

    f, f': seconds of an empty kernel; F = min(f, t). h = exp(−W / 2 µs), and 0 where a graph launched the kernel
    (`in_graph` 1).
    """
    empty_here = here.launch_s or there.least_s
    empty_there = there.launch_s or empty_here
    work = np.maximum(seconds - empty_here, LEAST_S)
    shown = np.where(in_graph == 1, 0.0, np.exp(-work / FLOOR_HIDDEN_S))
    return work, (seconds - work) * (1 + shown * (empty_there / empty_here - 1))


def memory_share(launches: Launches, limits: Limits) -> FloatArray:
    """**Memory share.** The most that the threads in flight can ask for of the memory's rate, 0 to 1:

        min(1, blocks / M) · min(1, threads in flight of a multiprocessor / 512)

    Registers, shared memory and the GPU limit the threads in flight. 1 where their number is not known.
    """
    blocks, threads = launches("blocks"), launches("threads")
    with np.errstate(divide="ignore"):
        by_registers = REGISTERS / launches("registers")
        by_shared = np.floor(limits.shared_bytes / launches("shared_bytes")) * threads
    room = np.fmin(np.fmin(by_registers, by_shared), limits.threads)
    in_flight = np.minimum(blocks * threads / limits.multiprocessors, room)
    share = np.minimum(blocks / limits.multiprocessors, 1) * np.minimum(in_flight / THREADS_NEEDED, 1)
    return np.where(np.isnan(share), 1.0, share)


def compute_share(work: FloatArray, launches: Launches, limits: Limits) -> FloatArray:
    """**Compute share.** The least part of the work that is none of the memory's: beginning and ending threads.

        min(1, blocks · threads / (M · f · 1.4) / W)

    0 where blocks or threads are not known.
    """
    threads_per_s = limits.multiprocessors * limits.clock_hz * THREADS_A_CYCLE
    return np.nan_to_num(np.clip(launches("blocks") * launches("threads") / threads_per_s / work, 0, 1))


def as_memory_share(share: FloatArray, work: FloatArray, launches: Launches, limits: Limits) -> FloatArray:
    """`share` of the work at the memory's rate, as far as memory share and compute share leave room for it."""
    compute = compute_share(work, launches, limits)
    return np.minimum(share, memory_share(launches, limits)) * (1 - compute**2)


def power_mean(parts: Sequence[tuple[FloatArray, FloatArray | float]], power: float) -> FloatArray:
    """(Σ sᵢ · rᵢᵖ)^(1/p) of shares sᵢ, which add up to 1, and ratios rᵢ; for p = 0 its limit Π rᵢ^sᵢ. Shape (rows,)."""
    if not power:
        return np.asarray(np.exp(sum(share * np.log(ratio) for share, ratio in parts)))
    return np.asarray(sum(share * ratio**power for share, ratio in parts) ** (1 / power))


def memory_seconds(moved: FloatArray, limits: Limits, l2_bytes: float | None = None) -> FloatArray:
    """Seconds of moving b bytes, L2 holding S or `l2_bytes`: b · ((1 − x) / max(L, B) + x / B), x = min(1, b / S)"""
    missed = np.clip(moved / (l2_bytes or limits.l2_bytes), 0, 1)
    return np.asarray(moved * ((1 - missed) / max(limits.l2, limits.memory) + missed / limits.memory))


def moved_bytes(seconds: FloatArray, limits: Limits, l2_bytes: float | None = None) -> FloatArray:
    """The most bytes that can be moved in so many seconds: the inverse of `memory_seconds`, by iteration."""
    moved = seconds * limits.memory
    for _ in range(8):
        moved = 0.5 * (moved + seconds * moved / np.maximum(memory_seconds(moved, limits, l2_bytes), 1e-15))
    return np.asarray(moved)


def _streamed(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels that move each of their b bytes once, in T(b) seconds (`memory_seconds`; all of W where b is not known).

    t' = F' + W · √(m² · (T'/T)² + (1 − m²) · (u/u')²),   m: T(b) / W, at most the memory share
    """
    work, floor = split(seconds, at("in_graph"), here, there)
    took = np.fmin(memory_seconds(at("bytes"), here), work)
    # What a small L2 does not hold, a larger one need not: nothing says that it is used twice.
    smaller = min(here.l2_bytes, there.l2_bytes)
    moved = moved_bytes(took, here, smaller)
    faster = memory_seconds(moved, there, smaller) / np.maximum(memory_seconds(moved, here, smaller), 1e-15)
    memory = np.clip(as_memory_share(took / work, work, at, here), 0, 1) ** OVERLAP
    left = power_mean([(memory, faster), (1 - memory, here.units / there.units)], OVERLAP)
    as_passes = _as_passes(seconds, at, here, there)
    return np.where(np.isnan(as_passes), floor + work * left, as_passes)


def _allocated(at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Seconds here and there in which what is allocated is moved once; shape (2, rows). NaN where it is not known or none,
    and where it is more than the memory here can move meanwhile, by its data sheet.
    """
    work, _ = split(at.typical, at("in_graph"), here, there)
    bytes_ = at("allocated_bytes")
    possible = (bytes_ > 0) & (bytes_ < work * here.memory_peak)
    return np.where(possible, [memory_seconds(bytes_, limits) for limits in (here, there)], np.nan)


def _as_passes(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels of whose class and bytes passes were measured on both GPUs, in P and P' seconds; NaN for others.

        t' = t · √(s · (P'/P)² + (1 − s) · (u/u')²),   s = min(1, P/t)²     the same code, on one generation
        t' = P' · √(t/P)                                                    else

    A pass has its floor in it; what times show of the floors' difference comes on top.
    """
    pass_here, pass_there = at("pass_here"), at("pass_there")
    work, floor = split(seconds, at("in_graph"), here, there)
    if here.generation == there.generation:
        memory = np.minimum(pass_here / seconds, 1) ** OVERLAP
        faster, units = pass_there / pass_here, here.units / there.units
        moved = seconds * power_mean([(memory, faster), (1 - memory, units)], OVERLAP)
    else:
        moved = pass_there * (seconds / pass_here) ** HALF
    return np.asarray(np.maximum(moved + floor - (seconds - work), floor))


def _unknown(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels of which nothing but times and launches is known: they may be streams where they move few bytes a thread.

    t' = F' + W · (B/B')^m · (u/u')^(1 − m),   m: half of the memory share for at most 128 bytes a thread, else 0
    """
    work, floor = split(seconds, at("in_graph"), here, there)
    typical, _ = split(at.typical, at("in_graph"), here, there)
    most_bytes = typical * here.memory
    a_thread = most_bytes / (at("blocks") * at("threads"))
    streams = a_thread < STREAM_BYTES
    missed = np.clip(most_bytes / here.l2_bytes, 0, 1)
    as_stream = HALF * missed * as_memory_share(np.ones(len(typical)), typical, at, here)
    memory = np.where(streams, as_stream, 0.0)
    parts = [(memory, here.memory / there.memory), (1 - memory, here.units / there.units)]
    return floor + work * power_mean(parts, 0)


def _computed(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Products of matrices, of G and G' seconds by the model of `gemm.py`; other dense work by the peaks P of its pipeline.

    t' = G' · t/G,  or G' · √(t/G) on another generation;   t' = F' + W · P/P'
    """
    work, floor = split(seconds, at("in_graph"), here, there)
    carried = 1.0 if here.generation == there.generation else HALF
    as_product = at("product_there") * (seconds / at("product_here")) ** carried
    return np.where(np.isfinite(as_product), as_product, floor + work * at("peaks"))


def _counted(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """A roofline by counted bytes of memory b and of L2 c, or by what is allocated (docs/kernels.md).

    t' = F' + W · √(m · (B/B')² + l · (L/L')² + (1 − m − l) · (u/u')²)
    m = (b / (B·W))²,   l = (c / (L·W))²     with room for the compute share
    """
    work, floor = split(seconds, at("in_graph"), here, there)
    compute = compute_share(work, at, here) ** OVERLAP
    took, took_there = np.broadcast_to(at.allocated, (2, len(work)))
    counted = np.isfinite(at("dram_bytes"))
    faster = np.where(counted, here.memory / there.memory, took_there / took)
    took = np.where(counted, at("dram_bytes") / here.memory, took)
    memory = np.minimum((took / work) ** OVERLAP, 1 - compute)
    # What only writes waits for nothing: other threads begin meanwhile.
    written = np.nan_to_num(at("written_bytes") / (work * here.memory)) ** OVERLAP
    memory = np.clip(np.maximum(memory, written), 0, 1)
    l2 = np.nan_to_num(at("l2_bytes") / (work * here.l2)) ** OVERLAP
    l2 = np.clip(l2, 0, np.maximum(1 - compute - memory, 0))
    rest = (1 - memory - l2, here.units / there.units)
    return floor + work * power_mean([(memory, faster), (l2, here.l2 / there.l2), rest], OVERLAP)


def _products(evidence: Evidence, here: Limits, there: Limits) -> tuple[FloatArray, FloatArray]:
    """Seconds here and there of the products of matrices whose sides are known; NaN of others."""
    result = np.full((2, len(evidence.kinds)), np.nan)
    shaped = np.isfinite(evidence["m"]) & np.array([kind == "gemm" for kind in evidence.kinds], bool)
    pipelines = np.array(evidence.pipelines, dtype=object)
    for pipeline in {pipelines[row] for row in np.flatnonzero(shaped)}:
        rows = np.flatnonzero(shaped & (pipelines == pipeline))
        sides = [evidence[name][rows] for name in ("batch", "m", "n", "k", "element_bytes")]
        for place, limits in enumerate((here, there)):
            seconds = product_seconds(sides, pipeline or "fp32", limits)
            if seconds is not None:
                result[place, rows] = limits.least_s + seconds
    return result[0], result[1]


def tensor_products(evidence: Evidence, here: Limits, there: Limits) -> NDArray[np.bool_]:
    """Which kernels are matrix products of known size on tensor cores that both GPUs have; shape (distinct kernels,)."""
    shared = [name for name in here.peaks.keys() & there.peaks.keys() if name.endswith("_tensor")]
    on_tensor = np.isin(np.array(evidence.pipelines, object), shared) & np.isin(evidence.kinds, ["gemm"])
    return np.asarray(on_tensor & np.isfinite(evidence["m"]) & ~np.isfinite(evidence["dram_bytes"]))


def _passes(evidence: Evidence, here: Limits, there: Limits) -> tuple[FloatArray, FloatArray]:
    """Seconds here and there of passes of the class over the bytes of each kernel; NaN where one was not measured."""
    result = np.full((2, len(evidence.kinds)), np.nan)
    kinds = np.array(evidence.kinds, dtype=object)
    for kind in here.passes.keys() & there.passes.keys():
        rows = np.flatnonzero((kinds == kind) & np.isfinite(evidence["bytes"]))
        for place, limits in enumerate((here, there)):
            result[place, rows] = limits.passes[kind].seconds(evidence["bytes"][rows])
    return result[0], result[1]


def _peaks(evidence: Evidence, here: Limits, there: Limits) -> FloatArray:
    """The ratio of the peaks of each kernel's pipeline; NaN where one is not known."""
    ratios = {}
    for pipeline in set(evidence.pipelines):
        rate_here, rate_there = here.peak(pipeline or "fp32"), there.peak(pipeline or "fp32")
        ratios[pipeline] = rate_here / rate_there if rate_here and rate_there else np.nan
    return np.array([ratios[pipeline] for pipeline in evidence.pipelines], np.float64)
