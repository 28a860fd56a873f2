"""A node as a plan sees it: the curves of its host link each way, and which overlap its GPU allows.

Measured figures of the node come first, then its data sheet, then estimates; `basis` says which was taken for each.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from busfare.cost.copies import SERIAL_BYTES, cache_bytes, copy_seconds_per_byte, of_node
from busfare.cost.kernels.limits import SHARE_OF_PEAK, limits_of, pipeline_of
from busfare.errors import InputError
from busfare.nodes import Contention, Curve, Flow, Gpu, Node
from busfare.nodes.contention import published
from busfare.nodes.transfers import DEFAULT_LATENCY_S
from busfare.timeline.program import GpuRules

#: The devices that overlap differently [W14 §IV].
Category = Literal["implicit-synchronization", "one-copy-engine", "two-copy-engines"]
Direction = Literal["h2d", "d2h"]
Kind = Literal["recorded", "measured", "data-sheet", "estimated", "assumed"]
#: What page faults add to each byte, over the link's own time, and the first fault [cwpearson/ms-thesis, Comm|Scope
#: NUMAUM_Coherence: P100 on PCIe 3 31 and 160 ps/B, V100 on 3 NVLinks 40 and 90 ps/B; rounded middle].
FAULT_SECONDS_PER_BYTE = {"h2d": 3.5e-11, "d2h": 1.25e-10}
FAULT_LATENCY_S = {"h2d": 4.8e-5, "d2h": 1.85e-5}
#: Managed memory of coherent machines that host and GPU touch in turn: its pages move, though the GPU can read them in place
#: [GH200: dnhkng.github.io, 2026-04-25, 18 to 29 GB/s; MI250X: cwpearson/frontier-gpu-bandwidth, implicit_managed].
MIGRATED_BYTES_PER_S = {"c2c": 23.5e9, "gfx": 5.2e9}
#: `cudaMemPrefetchAsync` of up to 64 KiB [the same source, NUMAUM_Prefetch, P100].
PREFETCH_LATENCY_S = 4.4e-5
#: The least that a GPU moves for one access to host memory: a sector of its cache.
SECTOR_BYTES = 32.0


#: The rate of fp16 as a part of that of fp32, where GPUs have no such units (0) or few: results per clock cycle of a
#: multiprocessor by compute capability (CUDA C++ programming guide, throughput of native arithmetic instructions).
HALF_RATES = dict.fromkeys(("2.0", "2.1", "3.0", "3.2", "3.5", "3.7", "5.0", "5.2"), 0.0) | {"6.1": 2 / 128}


@dataclass(frozen=True, slots=True)
class Basis:
    """One parameter: its value in SI units, and what it rests on."""

    parameter: str
    value: float | str
    unit: str
    kind: Kind
    source: str


class HostCurves(NamedTuple):
    """What carries data one way: pinned and pageable copies, kernels on mapped memory, managed memory by faults or sent."""

    copy: Curve
    pageable: Curve
    mapped: Curve
    faulted: Curve
    prefetched: Curve


@dataclass(frozen=True, eq=False)
class Machine:
    """What a plan needs to know of a node's first GPU."""

    node: Node
    gpu: Gpu
    category: Category
    h2d: HostCurves
    d2h: HostCurves
    contention: Contention
    basis: tuple[Basis, ...]

    def curves(self, direction: str) -> HostCurves:
        """The curves into the GPU (h2d) or out of it."""
        return self.h2d if direction == "h2d" else self.d2h

    def rules(self, call_s: float = 0.0) -> GpuRules:
        """How the GPU runs a program; `call_s` as of `GpuRules`."""
        engines = 2 if self.category == "two-copy-engines" else 1
        holds_up = self.category == "implicit-synchronization"
        return GpuRules(self.contention, engines, holds_up, call_s)

    def flops_per_s(self, type_: str | None) -> float | None:
        """Operations a second of numbers of a type (None: fp32) by the data sheet: of fp32 and fp64 without tensor cores, of
        others on them where the GPU has them. None where the rate of fp32 is unknown. Raises InputError for another type.
        """
        single, capability = self.gpu.flops_per_s, self.gpu.compute_capability or ""
        if type_ in (None, "fp32"):
            return single
        if type_ == "fp16" and capability in HALF_RATES:
            if not HALF_RATES[capability]:
                raise InputError(
                    f"`type` fp16: {self.node.name} cannot compute in fp16 (compute capability {capability}); give fp32, "
                    "in which it computes with such data"
                )
            return single and single * HALF_RATES[capability]
        try:
            limits = limits_of(self.node, measured=False)
        except InputError:
            limits = None
        rate, fp32 = (limits and limits.peak(name) for name in (pipeline_of(str(type_)), "fp32"))
        if not rate:
            raise InputError(
                f"`type` {type_}: its operations per second on {self.node.name} are unknown; give the kernel time"
            )
        # The node's file may count fp32 at another clock than the data sheet: types keep their ratio.
        return single * rate / fp32 if single and fp32 else rate / SHARE_OF_PEAK

    def flops_basis(self, type_: str | None) -> Basis | None:
        """What that rate rests on; None where it is unknown."""
        if (rate := self.flops_per_s(type_)) is None:
            return None
        if type_ is None:
            return Basis("operations fp32", rate, "FLOP/s", "assumed", "no number type given")
        cores = "" if type_ in ("fp32", "fp64") else ", tensor cores where it has them"
        return Basis(f"operations {type_}", rate, "FLOP/s", "data-sheet", f"peak rate of the GPU{cores}")

    def access_cost(self, flow: Flow, access_bytes: float) -> float:
        """How much longer a byte takes in accesses of `access_bytes` than in long copies; at least 1. An access takes
        packets of its own, and moves one sector of 32 bytes at least.
        """
        if self.gpu.unified_memory:
            return 1.0
        moved = max(access_bytes, SECTOR_BYTES)
        path = self.node.host_path(0)
        alone = float(path.seconds(np.array([moved]), flow)[0])
        return max(1.0, alone * path.bandwidth(flow) / access_bytes)


def machine_of(node: Node) -> Machine:
    """The parameters of `node`'s first GPU and its host link. Raises InputError where no host memory reaches it."""
    gpu, contention = node.gpu(0), node.contention()
    category, why = _category_of(gpu)
    basis = [why]
    h2d, d2h = _curves(node, "h2d", basis), _curves(node, "d2h", basis)
    basis += _contention_basis(contention)
    return Machine(node, gpu, category, h2d, d2h, contention, tuple(basis))


def migrates_on_fault(gpu: Gpu) -> bool:
    """Whether managed pages move when they are touched (compute capability 6.0 and later)."""
    version = gpu.compute_capability
    return version is None or version.startswith("gfx") or float(version) >= 6.0


def _category_of(gpu: Gpu) -> tuple[Category, Basis]:
    """The device's category [W14 §IV], and why."""
    category: Category = "one-copy-engine" if gpu.copy_engines == 1 else "two-copy-engines"
    kind: Kind = "assumed" if gpu.copy_engines is None else "data-sheet"
    why = "not in the node file" if gpu.copy_engines is None else f"copy_engines = {gpu.copy_engines}"
    if gpu.implicit_synchronization or (gpu.compute_capability or "").startswith("2."):
        category, kind = "implicit-synchronization", "data-sheet"
        why = "from the node file" if gpu.implicit_synchronization else "Fermi architecture"
    return category, Basis("device", category.replace("-", " ").replace("z", "s"), "", kind, why)


def _curves(node: Node, direction: Direction, basis: list[Basis]) -> HostCurves:
    """What carries data one way; adds what that rests on."""
    copy = _copy_curve(node, direction, basis)
    start, long, gpu = copy.latency_overhead_s[0], copy.long_gap_per_byte_s, node.gpu(0)

    line = partial(Curve.line, direction)
    mapped, kind, why = node.curve(direction, "mapped"), "measured", f"[[measured]] of {node.name}"
    if gpu.unified_memory:
        mapped, kind, why = line("mapped", start, 0.0), "data-sheet", "CPU and GPU share one memory"
    elif mapped is None:
        # [W14 eq 6] takes the copies' own L+o and G.
        mapped = line("mapped", start, long / node.contention().mapped.of(direction))
        kind, why = "estimated", "the rate of copies [W14 eq 6], as is typical of the GPU"
    basis.append(Basis(f"G {direction} mapped", mapped.long_gap_per_byte_s, "s/B", kind, why))  # type: ignore[arg-type]
    pageable = node.curve(direction, "pageable") or _staged_curve(node, copy)
    faulted = node.curve(direction, "managed", faults=True) or line(
        "managed", FAULT_LATENCY_S[direction], _migrated_gap(node) or long + FAULT_SECONDS_PER_BYTE[direction]
    )
    # Before Pascal the driver moves whole managed allocations at the launch.
    faulted = faulted if migrates_on_fault(gpu) else pageable.scaled(published("managed_before_pascal").high)
    prefetched = node.curve(direction, "managed") or line("managed", PREFETCH_LATENCY_S, long)
    return HostCurves(copy, pageable, mapped, faulted, prefetched)


def _migrated_gap(node: Node) -> float | None:
    """Seconds a byte of managed memory that moves between host and GPU, where machines of the kind published it."""
    gpu = node.gpu(0)
    if node.host_path(0).is_c2c:
        return 1 / MIGRATED_BYTES_PER_S["c2c"]
    of_amd = gpu.coherent and (gpu.compute_capability or "").startswith("gfx")
    return 1 / MIGRATED_BYTES_PER_S["gfx"] if of_amd else None


def _copy_curve(node: Node, direction: Direction, basis: list[Basis]) -> Curve:
    """L+o, G and g of pinned copies."""
    latencies, least = of_node(node).seconds, DEFAULT_LATENCY_S[direction]
    latency = latencies.get((direction, "pinned"), latencies.get((direction, "pageable")))
    measured: tuple[Kind, str] = ("measured", f"[[measured]] of {node.name}")
    first, moving, further = measured, measured, measured
    if latency is None:
        latency, first = least, ("estimated", "W14 table I: g, the copy engine's own start")
    curve = node.curve(direction, "pinned")
    if curve is None:
        gap, source = _data_sheet_gap(node, "read" if direction == "h2d" else "write")
        curve = Curve.line(direction, "pinned", latency, gap)
        moving = ("data-sheet", source)
    if not curve.issue_interval_s:
        curve = msgspec.structs.replace(curve, issue_interval_s={1: min(least, latency or least)})
        further = ("estimated", "W14 table I (GTX Titan), at most L+o")
    basis += [
        Basis(f"L+o {direction}", latency, "s", *first),
        Basis(f"G {direction}", curve.long_gap_per_byte_s, "s/B", *moving),
        Basis(f"g {direction}", float(curve.issue_interval(1)), "s", *further),
    ]
    return curve


def _data_sheet_gap(node: Node, flow: Flow) -> tuple[float, str]:
    gpu = node.gpu(0)
    if gpu.unified_memory and gpu.copy_bandwidth_bytes_per_s is not None:
        return 1 / gpu.copy_bandwidth_bytes_per_s, "one memory, at the published rate of its copies"
    if gpu.unified_memory and gpu.memory_bandwidth_bytes_per_s is not None:
        return 2 / gpu.memory_bandwidth_bytes_per_s, "one memory, read and written by each copy"
    path = node.host_path(0)
    return 1 / path.bandwidth(flow), path.narrowest(flow).label


def _contention_basis(c: Contention) -> list[Basis]:
    """What each direction keeps of its rate, as times that a byte takes longer."""
    kind: Kind = "measured" if c.rung == "probed" else "estimated"
    source = "[[contention]]" if c.rung == "probed" else "typical of the GPU's generation and link"
    names = {
        "beside a copy": c.both,
        "beside mapped memory": c.copy_beside_mapped,
        "mapped, both ways": c.mapped_both,
        "mapped beside copies": c.mapped_beside_copy,
    }
    return [
        Basis(f"{direction} {name}", 1 / shares.of(direction), "times", kind, source)
        for name, shares in names.items()
        for direction in ("h2d", "d2h")
    ]


def _staged_curve(node: Node, copy: Curve) -> Curve:
    """`busfare.cost.copies` as pieces: chunk by chunk up to 1 MiB, both at once beyond, slower beyond the cache."""
    latency, link = copy.latency_overhead_s[0], copy.long_gap_per_byte_s
    cache = max(int(cache_bytes(node)), int(SERIAL_BYTES) + 1)
    cached, beyond = (float(p) for p in copy_seconds_per_byte(np.array([SERIAL_BYTES, 1e18]), node))
    starts = [latency + SERIAL_BYTES * (link + gap - max(link, gap)) for gap in (cached, beyond)]
    return Curve(
        direction=copy.direction,
        memory="pageable",
        up_to_bytes=(int(SERIAL_BYTES), cache),
        latency_overhead_s=(latency, *starts),
        gap_per_byte_s=(link + cached, max(link, cached), max(link, beyond)),
    )
