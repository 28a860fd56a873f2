"""A kernel's recorded time, moved from one GPU to another by what bounds it on each.

A time is split into the floor that no kernel escapes, latency, and work at a limit; each goes by its own ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from busfare.cost.kernels.classes import MEMORY
from busfare.cost.kernels.gemm import product_seconds
from busfare.cost.kernels.limits import Limits
from busfare.nodes.arrays import FloatArray

__all__ = ["BOUNDS", "Evidence", "Moved", "memory_seconds", "move", "parted"]

Rows = NDArray[np.intp]
#: What a moved time went by: `between` the memories' ratio and the multiprocessors' where nothing is known of the kernel;
#: `none`: not predicted.
BOUNDS = ("between", "memory", "compute", "counted", "allocated", "none")
# What half and twice of a constant that has no source would do to the errors: `python validation/kernels.py --constants`.

#: What a kernel takes beyond its known work, up to this, is latency: it goes with the clock, s.
LATENCY_S = 3e-6
#: How long a kernel of which no shapes are known waits for its first loads and its last blocks, beside what it moves, s.
RAMP_S = 4e-6
#: Where shapes are known, a library reaches more or less than the model; half of that (its logarithm) shows on a GPU of
#: another generation too, all of it where the same code runs.
CARRIED_ELSEWHERE = 0.5
MOST_RESIDUAL = 3.0
#: The share of a kernel's time that the memory takes, where nothing but its class is known: of products of matrices, and of
#: kernels that nothing is known of, where they move so few bytes a thread that they may be streams; else none.
DENSE_SHARE = 0.1
STREAM_SHARE = 0.5
STREAM_BYTES = (8.0, 128.0)
#: What is allocated is moved once, unless the memory takes longer for it than this share of the kernel's time.
ALLOCATED_TAKES = 1.1
#: What a kernel that moves the same bytes at each launch finds in L2 again: all of the first share of L2's size, and nothing
#: of the second.
KEPT_IN_L2 = (0.4, 0.8)
#: Of a kernel's time, work at least: the floor is what an empty kernel takes, and some take less.
LEAST_WORK = 0.1
#: Of the difference between two GPUs' floors a kernel shows all where it is empty, and less the longer it works: a factor of
#: e less after so long, s. Kernels of unknown class show a share of it, and those of a graph a share of either.
FLOOR_HIDDEN_S = 2e-6
FLOOR_SHOWN = 0.6
FLOOR_SHOWN_IN_GRAPH = 0.2
#: Times the size of L2, above which nothing of what a kernel moves is there any more.
L2_TIMES = 2.0
#: Registers of a multiprocessor [CUDA C++ Programming Guide, compute capabilities].
REGISTERS = 65536
#: Threads of a multiprocessor whose loads fill the memory's queue.
THREADS_NEEDED = 512.0
#: Threads that a multiprocessor begins and ends in a cycle, where they do next to nothing.
THREADS_A_CYCLE = 1.4
#: The norm by which times at memory, L2 and elsewhere add up where they overlap; of streams and what else they do.
OVERLAP = 3.0
STREAM_OVERLAP = 2.0
#: Of the rate at which L2 is read in order, what other kernels reach of it.
L2_REACHED = 0.5


@dataclass
class Evidence:
    """What is known of distinct kernels, a row each; columns that are not there, and NaN, are not known.

    `kinds`, `pipelines`: by name (`busfare.cost.kernels.classes`). Columns: `flops` and `bytes` of the algorithm, by shapes;
    `dram_bytes`, of which `written_bytes`, and `l2_bytes` (that L2 was asked for) as counted; `allocated_bytes`: of the
    memory that the program has there; `own_code`: 1 where words of the name are all that tells its class; `blocks`,
    `threads` of a block, `registers`, `shared_bytes`; `in_graph`: 1 where a graph launched it; `batch`, `m`, `n`, `k` and
    `element_bytes` of a product of matrices.
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
    own, other = _products(evidence, here, there)
    peaks = np.where(
        np.isin(kinds, ["gemm", "convolution", "attention"]), _peaks(evidence, here, there), np.nan
    )
    own_pass, other_pass = _passes(evidence, here, there)
    passed = np.isfinite(own_pass + other_pass)
    derived = {
        "own": own, "other": other, "peaks": peaks, "own_pass": own_pass, "other_pass": other_pass,
        "classed": np.where((kinds == "other") | (evidence["own_code"] == 1), 0.0, 1.0),
    }  # fmt: skip
    # Launches of one kernel are of one kind, however their times scatter.
    logs = np.bincount(of, np.log(np.maximum(seconds, 1e-12))) / np.maximum(np.bincount(of), 1)
    typical = np.exp(logs)[of]
    bound = np.select(
        [
            kinds == "communication",
            np.isfinite(evidence["dram_bytes"]),
            (np.isin(kinds, list(MEMORY)) & (evidence["own_code"] != 1)) | passed,
            np.isfinite(own + other) | np.isfinite(peaks),
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

    def filled(self, limits: Limits) -> FloatArray:
        """The share of the memory's rate that so many threads can ask for at once; 1 where their number is not known."""
        blocks, threads = self("blocks"), self("threads")
        with np.errstate(divide="ignore"):
            by_registers = REGISTERS / self("registers")
            by_shared = np.floor(limits.shared_bytes / self("shared_bytes")) * threads
        room = np.fmin(np.fmin(by_registers, by_shared), limits.threads)
        in_flight = np.minimum(blocks * threads / limits.multiprocessors, room)
        share = np.minimum(blocks / limits.multiprocessors, 1) * np.minimum(in_flight / THREADS_NEEDED, 1)
        return np.where(np.isnan(share), 1.0, share)

    def busy(self, work: FloatArray, limits: Limits) -> FloatArray:
        """The share of `work` seconds in which multiprocessors do nothing but begin and end threads; 0 where not known."""
        a_second = limits.multiprocessors * limits.clock_hz * THREADS_A_CYCLE
        return np.nan_to_num(np.clip(self("blocks") * self("threads") / a_second / work, 0, 1))


def memory_seconds(moved: FloatArray, limits: Limits, l2_bytes: float | None = None) -> FloatArray:
    """What `moved` bytes take: as much of them comes from L2, or so many bytes of it, as may still be there."""
    missed = np.clip(moved / (L2_TIMES * (l2_bytes or limits.l2_bytes)), 0, 1)
    return np.asarray(moved * ((1 - missed) / max(limits.l2, limits.memory) + missed / limits.memory))


def _moved_in(seconds: FloatArray, limits: Limits, l2_bytes: float | None = None) -> FloatArray:
    """The most bytes that can be moved in so many seconds: what `memory_seconds` takes them for."""
    moved = seconds * limits.memory
    for _ in range(8):
        moved = 0.5 * (moved + seconds * moved / np.maximum(memory_seconds(moved, limits, l2_bytes), 1e-15))
    return np.asarray(moved)


def parted(
    seconds: FloatArray, in_graph: FloatArray, here: Limits, there: Limits, known: FloatArray | bool = True
) -> tuple[FloatArray, FloatArray]:
    """A kernel's work here, and what the floor under every kernel is there. `in_graph`: 1 where a graph launched it.

    `known`: whether the class of each is known.
    """
    own = here.launch_s or there.least_s
    work = np.maximum(seconds - own, LEAST_WORK * seconds)
    shown = np.where(known, np.exp(-work / FLOOR_HIDDEN_S), FLOOR_SHOWN)
    shown = np.where(in_graph == 1, FLOOR_SHOWN_IN_GRAPH * shown, shown)
    return work, (seconds - work) * (1 + shown * ((there.launch_s or own) / own - 1))


def _streamed(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels that move each byte once: at the memory's rate as far as they reach it, else by the threads in flight."""
    work, floor = parted(seconds, at("in_graph"), here, there)
    # What a small L2 does not hold, a larger one need not: nothing says that it is used twice.
    smaller = min(here.l2_bytes, there.l2_bytes)
    bytes_ = at("bytes")
    # All of the work, where bytes are not known.
    known = np.fmin(memory_seconds(bytes_, here), work)
    moved = _moved_in(known, here, smaller)
    faster = memory_seconds(moved, there, smaller) / np.maximum(memory_seconds(moved, here, smaller), 1e-15)
    latency = np.clip(work - known, 0, LATENCY_S)
    took = work - latency
    waited = np.where(np.isnan(bytes_), np.clip(RAMP_S / np.maximum(took, 1e-15), 0, 1), 0.0)
    share = known / np.maximum(took, 1e-15) * (1 - waited**STREAM_OVERLAP) ** (1 / STREAM_OVERLAP)
    # What few threads, or threads that do little, cannot ask for is no time of the memory.
    share, busy = np.minimum(share, at.filled(here)), at.busy(work, here)
    share = np.clip(share * (1 - busy**2), 0, 1)
    # Of the rest as much is left as `units` say, and both overlap.
    rest = (1 - share**STREAM_OVERLAP) ** (1 / STREAM_OVERLAP) * (here.units / there.units)
    left = ((share * faster) ** STREAM_OVERLAP + rest**STREAM_OVERLAP) ** (1 / STREAM_OVERLAP)
    as_streams = floor + latency * here.clock_hz / there.clock_hz + took * left
    as_passes = _as_passes(seconds, at, here, there)
    return np.where(np.isnan(as_passes), as_streams, as_passes)


def _allocated(at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Seconds here and there in which what is allocated is moved once, what L2 keeps by L2; shape (2, rows). NaN where it is
    not known or none, and where the memory here takes longer than the kernel ran.
    """
    work, _ = parted(at.typical, at("in_graph"), here, there, known=False)
    bytes_, (all_kept, none_kept) = at("allocated_bytes"), KEPT_IN_L2
    took = []
    for limits in (here, there):
        missed = np.clip((bytes_ / limits.l2_bytes - all_kept) / (none_kept - all_kept), 0, 1)
        took.append(bytes_ * (missed / limits.memory + (1 - missed) / max(limits.l2, limits.memory)))
    possible = (bytes_ > 0) & (bytes_ < ALLOCATED_TAKES * work * here.memory)
    return np.where(possible, took, np.nan)


def _as_passes(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels of whose class and bytes passes were measured on both GPUs, NaN for others: a time goes as that of a pass.

    What the same code takes beyond a pass is no time of the memory; of other code half of it (its logarithm) shows.
    """
    own, other = at("own_pass"), at("other_pass")
    # A pass has its floor in it; what times show of the floors' difference comes on top.
    work, floor = parted(seconds, at("in_graph"), here, there)
    shown = floor - (seconds - work)
    residual = np.clip(seconds / own, 1 / MOST_RESIDUAL, MOST_RESIDUAL)
    if here.generation == there.generation:
        share = np.minimum(1 / residual, 1) ** OVERLAP
        faster, units = other / own, here.units / there.units
        left = (share * faster**OVERLAP + (1 - share) * units**OVERLAP) ** (1 / OVERLAP)
    else:
        left = other / own * residual ** (CARRIED_ELSEWHERE - 1)
    return np.asarray(np.maximum(seconds * left + shown, floor))


def _unknown(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Kernels of which nothing but times and launches is known: they may be streams where they move few bytes a thread."""
    work, floor = parted(seconds, at("in_graph"), here, there, known=False)
    typical, _ = parted(at.typical, at("in_graph"), here, there, known=False)
    each = typical * here.memory / (at("blocks") * at("threads"))
    streams = (each > STREAM_BYTES[0]) & (each < STREAM_BYTES[1])
    missed = np.clip(typical * here.memory / (L2_TIMES * here.l2_bytes), 0, 1)
    as_stream = STREAM_SHARE * at.filled(here) * (1 - at.busy(typical, here) ** 2) * missed
    share = np.where(streams, as_stream, 0.0)
    memory, units = np.log(here.memory / there.memory), np.log(here.units / there.units)
    return np.asarray(floor + work * np.exp(share * memory + (1 - share) * units))


def _computed(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """Products of matrices whose sides are known by what both GPUs take for them; else by the peaks of the pipeline."""
    work, floor = parted(seconds, at("in_graph"), here, there)
    faster = at("peaks") ** (1 - DENSE_SHARE) * (here.memory / there.memory) ** DENSE_SHARE
    own, other = at("own"), at("other")
    carried = 1.0 if here.generation == there.generation else CARRIED_ELSEWHERE
    residual = seconds / own
    # What is further off than any library is no product of this shape, and says nothing of another generation's libraries.
    library = np.clip(residual, 1 / MOST_RESIDUAL, MOST_RESIDUAL)
    as_product = other * library**carried * (residual / library)
    return np.where(np.isfinite(own + other), as_product, floor + work * faster)


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
        own, other = here.peak(pipeline or "fp32"), there.peak(pipeline or "fp32")
        ratios[pipeline] = own / other if own and other else np.nan
    return np.array([ratios[pipeline] for pipeline in evidence.pipelines], np.float64)


def _counted(seconds: FloatArray, at: Launches, here: Limits, there: Limits) -> FloatArray:
    """A roofline by the counted shares of the memory's and of L2's rate, or by what is allocated (docs/kernels.md)."""
    work, floor = parted(seconds, at("in_graph"), here, there, at("classed") == 1)
    # Neither the memory's nor L2's: beginning and ending threads, and the waits of a short kernel.
    busy = np.maximum(at.busy(work, here), np.clip(RAMP_S / work, 0, 1)) ** OVERLAP
    counted, (took, there_takes) = (
        at("dram_bytes") / here.memory,
        np.broadcast_to(at.allocated, (2, len(work))),
    )
    faster = np.where(np.isnan(counted), there_takes / took, here.memory / there.memory)
    memory = np.minimum((np.where(np.isnan(counted), took, counted) / work) ** OVERLAP, 1 - busy)
    # What only writes waits for nothing: other threads begin meanwhile.
    written = np.nan_to_num(at("written_bytes") / (work * here.memory)) ** OVERLAP
    memory = np.clip(np.maximum(memory, written), 0, 1)
    l2 = np.nan_to_num(at("l2_bytes") / (work * here.l2 * L2_REACHED)) ** OVERLAP
    l2 = np.clip(l2, 0, np.maximum(1 - busy - memory, 0))
    parts = (
        (memory, faster),
        (l2, here.l2 / there.l2),
        (1 - memory - l2, here.units / there.units),
    )
    return np.asarray(floor + work * sum(part * ratio**OVERLAP for part, ratio in parts) ** (1 / OVERLAP))
