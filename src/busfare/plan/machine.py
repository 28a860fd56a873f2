"""A node as a plan sees it: the parameters of its host link each way, and which overlap its GPU allows.

Measured figures of the node come first, then its data sheet, then estimates; `basis` says which was taken for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from busfare.cost.latency import DEFAULT_LATENCY_S, of_node
from busfare.cost.staging import CACHE_BYTES, SERIAL_BYTES, copy_seconds_per_byte
from busfare.node import Cpu, Flow, Gpu, Measured, Node, PcieLink
from busfare.node.arrays import FloatArray
from busfare.plan.basis import Basis, Kind, cited, measured_line
from busfare.plan.line import Line, line_of, one_piece
from busfare.plan.mapped import first_share, mapped_beside_copy, mapped_both, mapped_line
from busfare.plan.starving import LULL_S, WAIT_S
from busfare.plan.way import EVENT_S, JUST_WRITTEN, Way

__all__ = [
    "Basis",
    "Category",
    "Machine",
    "Way",
    "beside_another_gpu",
    "category_of",
    "in_one_stream",
    "machine_of",
]

#: The devices that overlap differently [W14 §IV].
Category = Literal["implicit-synchronization", "one-copy-engine", "two-copy-engines"]

#: How much slower copies in, and mapped writes out, get beside each other: GTX Titan, PCIe 3.0 [W14 table II over I].
BESIDE_MAPPED = {"h2d": 1.193386e-10 / 8.318392e-11, "d2h": 1.480396e-10 / 7.924734e-11}
#: What page faults add to each byte, over the link's own time, and the first fault [cwpearson/ms-thesis, Comm|Scope
#: NUMAUM_Coherence: P100 on PCIe 3 31 and 160 ps/B, V100 on 3 NVLinks 40 and 90 ps/B; rounded middle].
FAULT_SECONDS_PER_BYTE = {"h2d": 3.5e-11, "d2h": 1.25e-10}
FAULT_LATENCY_S = {"h2d": 4.8e-5, "d2h": 1.85e-5}
#: `cudaMemPrefetchAsync` of up to 64 KiB [the same source, NUMAUM_Prefetch, P100].
PREFETCH_LATENCY_S = 4.4e-5
#: The least that a GPU moves for one access to host memory: a sector of its cache.
SECTOR_BYTES = 32.0


@dataclass(frozen=True)
class Machine:
    """What a plan needs to know of a node's first GPU. `kernels_in_order`: all kernels are in one stream;
    `copies_in_order`: all copies in are. `as_graph`: copies and kernels are nodes of a CUDA graph.
    """

    node: Node
    gpu: Gpu
    category: Category
    h2d: Way
    d2h: Way
    basis: tuple[Basis, ...]
    kernels_in_order: bool = False
    copies_in_order: bool = False
    as_graph: bool = False

    @property
    def migrates_on_fault(self) -> bool:
        """Whether managed pages move when they are touched (compute capability 6.0 and later)."""
        version = self.gpu.compute_capability
        return version is None or version.startswith("gfx") or float(version) >= 6.0

    def waits(self, streams: FloatArray, after_copy: FloatArray | float) -> FloatArray:
        """What a chunk's copies and kernel wait for each other (s): `after_copy` in one stream.

        Where each engine has a stream of its own, for events of another one; the nodes of a graph wait alike.
        """
        apart = self.as_graph | (self.kernels_in_order & (streams > 1))
        return np.where(apart, self.h2d.event_wait + self.d2h.event_wait, after_copy)

    def access_cost(self, flow: Flow, access_bytes: float | None) -> float:
        """How much longer a byte takes in accesses of `access_bytes` than in long copies; at least 1.

        An access takes packets of its own, and moves one sector of 32 bytes at least.
        """
        if access_bytes is None or self.gpu.unified_memory:
            return 1.0
        moved = max(access_bytes, SECTOR_BYTES)
        path = self.node.host_path(0)
        alone = float(path.seconds(np.array([moved]), flow)[0])
        return max(1.0, alone * path.bandwidth(flow) / access_bytes)


def in_one_stream(machine: Machine, *ways: Literal["h2d", "d2h"]) -> Machine:
    """The same machine where all copies of these ways go through one stream: g of such a train holds, and no rows. So
    do all kernels where both ways do.
    """
    found = {way: getattr(machine, way) for way in ways}
    both = len(ways) == 2
    # A byte takes as long as the other way's streams make it, whichever way is in one.
    queued = {
        w: replace(way, copy=replace(way.copy, rows=()), beside_streams=() if both else way.beside_streams)
        for w, way in found.items()
    }
    return replace(machine, kernels_in_order=both, copies_in_order="h2d" in ways, **queued)


def beside_another_gpu(machine: Machine) -> Machine:
    """The same machine while another GPU of its host does the same, as far as that was measured: what moves both ways waits
    for the host's memory.
    """
    return replace(machine, h2d=_both_on_two(machine.h2d), d2h=_both_on_two(machine.d2h))


def _both_on_two(way: Way) -> Way:
    least = way.beside_gpu or 1.0
    rows = tuple((copies, max(times, least)) for copies, times in way.beside_streams)
    return replace(way, beside_copy=max(way.beside_copy, least), beside_streams=rows)


def category_of(gpu: Gpu) -> tuple[Category, Basis]:
    """The device's category [W14 §IV], and why."""
    version = gpu.compute_capability or ""
    fermi = version.startswith("2.")
    if gpu.implicit_synchronization or fermi:
        why = "Fermi architecture" if fermi else "the node file says so"
        return "implicit-synchronization", _category("implicit synchronisation", "data-sheet", why)
    if gpu.copy_engines is None:
        return "two-copy-engines", _category("two copy engines", "assumed", "the node file does not say")
    if gpu.copy_engines == 1:
        return "one-copy-engine", _category("one copy engine", "data-sheet", "copy_engines = 1")
    return "two-copy-engines", _category(
        "two copy engines", "data-sheet", f"copy_engines = {gpu.copy_engines}"
    )


def _category(value: str, kind: Kind, why: str) -> Basis:
    return Basis("device", value, "", kind, why)


def machine_of(node: Node) -> Machine:
    """The parameters of `node`'s first GPU and its host link. Raises InputError where no host memory reaches it."""
    gpu = node.gpu(0)
    category, why = category_of(gpu)
    h2d, h2d_basis = _way(node, "h2d", "read")
    d2h, d2h_basis = _way(node, "d2h", "write")
    return Machine(node, gpu, category, h2d, d2h, (why, *h2d_basis, *d2h_basis))


def _way(node: Node, direction: str, flow: Flow) -> tuple[Way, list[Basis]]:
    pinned = node.measurement(direction, "pinned")
    copy, basis = _copy_line(node, direction, flow, pinned)
    gap, gap_basis = _gap(direction, pinned, copy)
    slow, slow_basis = _slowdowns(node, direction, pinned, copy)
    mapped, mapped_basis = mapped_line(node, direction, copy)
    both, both_basis = mapped_both(node, direction, mapped, slow[0])
    beside_copy, beside_basis = mapped_beside_copy(node, direction, mapped, slow[1])
    long = copy.long_gap
    pageable = measured_line(node.measurement(direction, "pageable"), copy.latencies[0])
    managed = node.measurement(direction, "managed")
    faulted = one_piece(FAULT_LATENCY_S[direction], long + FAULT_SECONDS_PER_BYTE[direction])
    if managed is not None and managed.faults:
        faulted = line_of(managed.faults, copy.latencies[0])
    way = Way(
        copy=copy,
        pageable=pageable or _staged_line(node, copy.latencies[0], long),
        mapped=mapped,
        faulted=mapped if node.gpu(0).coherent or node.gpu(0).unified_memory else faulted,
        prefetched=measured_line(managed, copy.latencies[0]) or one_piece(PREFETCH_LATENCY_S, long),
        gap=gap,
        beside_copy=slow[0],
        beside_mapped=slow[1],
        mapped_both=both,
        mapped_beside_copy=beside_copy,
        beside_streams=_beside_streams(pinned, copy),
        gap_beside_copy=(pinned.both_directions_gap_s or 0.0) if pinned else 0.0,
        beside_gpu=_beside_gpu(pinned, copy),
        lull=LULL_S if pinned is None or pinned.mapped_lull_s is None else pinned.mapped_lull_s,
        kernel_wait=WAIT_S if pinned is None or pinned.mapped_wait_s is None else pinned.mapped_wait_s,
        first_share=first_share(node, direction),
        after_copy=0.0 if pinned is None else pinned.after_copy_s or 0.0,
        event_wait=EVENT_S[direction]
        if pinned is None or pinned.event_wait_s is None
        else pinned.event_wait_s,
        written={
            m.memory: line_of(m.written, copy.latencies[0])
            for m in (pinned, node.measurement(direction, "pageable"), managed)
            if m is not None and m.written
        },
        written_by_default=JUST_WRITTEN[direction],
        starving_measured=bool(
            pinned and pinned.mapped_gap_per_byte_s and node.measurement("d2h", "mapped") is not None
        ),
    )
    found = [*basis, gap_basis, *slow_basis, mapped_basis, both_basis, beside_basis]
    if way.starving_measured and direction == "h2d":
        told = pinned is not None and pinned.mapped_lull_s is not None
        kind: Kind = "measured" if told else "estimated"
        said = "[[measured]] mapped_lull_s" if told else "H200s 15 to 19 µs, H100s 8 to 12"
        found.append(Basis("lull of mapped writes, a kernel", way.lull, "s", kind, said))
        told = pinned is not None and pinned.mapped_wait_s is not None
        said = "[[measured]] mapped_wait_s" if told else "H100s and H200s 12 to 16 µs"
        found.append(
            Basis(
                "wait of a kernel for a copy that writes held",
                way.kernel_wait,
                "s",
                "measured" if told else "estimated",
                said,
            )
        )
    return way, found


def _copy_line(node: Node, direction: str, flow: Flow, measured: Measured | None) -> tuple[Line, list[Basis]]:
    """L+o and G of pinned copies."""
    names = (f"L+o {direction}", f"G {direction}")
    known = of_node(node).seconds
    latency = known.get((direction, "pinned"), known.get((direction, "pageable")))
    first = (
        Basis(names[0], latency, "s", "measured", _latency_source(node, measured))
        if latency is not None
        else Basis(
            names[0],
            DEFAULT_LATENCY_S[direction],
            "s",
            "estimated",
            "W14 table I: g, the copy engine's own start",
        )
    )
    start = DEFAULT_LATENCY_S[direction] if latency is None else latency
    line = measured_line(measured, start)
    if measured is not None and line is not None:
        rows = tuple((row.copies, line_of(row.pieces, start)) for row in measured.rows)
        line = replace(line, rows=rows, after_kernel=measured.after_kernel_s or 0.0)
        cite = cited(node, measured, "pieces")
        return line, [first, Basis(names[1], line.long_gap, "s/B", "measured", cite)]
    gap, source = _data_sheet_gap(node, flow)
    if measured is not None and measured.both_directions_gap_per_byte_s is not None:
        # A copy alone is at least as fast as it was beside another.
        gap = min(gap, measured.both_directions_gap_per_byte_s)
    return one_piece(start, gap), [first, Basis(names[1], gap, "s/B", "data-sheet", source)]


def _latency_source(node: Node, measured: Measured | None) -> str:
    if measured is None or measured.latency_overhead_s is None:
        return f"pageable copies of {node.name}, which start alike"
    return cited(node, measured, "pieces")


def _data_sheet_gap(node: Node, flow: Flow) -> tuple[float, str]:
    gpu = node.gpu(0)
    memory = gpu.memory_bandwidth_bytes_per_s
    if gpu.unified_memory and gpu.copy_bandwidth_bytes_per_s is not None:
        return 1 / gpu.copy_bandwidth_bytes_per_s, "one memory, as fast as its copies were published"
    if node.gpu(0).unified_memory and memory is not None:
        return 2 / memory, "one memory, read and written by each copy"
    path = node.host_path(0)
    return 1 / path.bandwidth(flow), path.narrowest(flow).label


def _gap(direction: str, measured: Measured | None, copy: Line) -> tuple[float, Basis]:
    name = f"g {direction}"
    if measured is not None and measured.gap_s is not None:
        told = "[[measured]] rows; gap_s in one stream" if measured.rows else "[[measured]] gap_s"
        return measured.gap_s, Basis(name, measured.gap_s, "s", "measured", told)
    gap = min(DEFAULT_LATENCY_S[direction], copy.latencies[0] or DEFAULT_LATENCY_S[direction])
    return gap, Basis(name, gap, "s", "estimated", "W14 table I (GTX Titan), no more than L+o")


def _slowdowns(
    node: Node, direction: str, measured: Measured | None, copy: Line
) -> tuple[tuple[float, float], list[Basis]]:
    """How many times as long a byte takes while a copy, or mapped memory, moves data the other way."""
    both = measured.both_directions_gap_per_byte_s if measured else None
    mapped = measured.mapped_gap_per_byte_s if measured else None
    names = (f"{direction} beside a copy", f"{direction} beside mapped memory")
    slow_both = max(1.0, both / copy.long_gap) if both else 1.0
    first = (
        Basis(names[0], slow_both, "times", "measured", "[[measured]] both_directions_gap_per_byte_s")
        if both
        else Basis(names[0], 1.0, "times", "assumed", "not measured; the link is taken as full duplex")
    )
    if mapped:
        slow_mapped = max(1.0, mapped / copy.long_gap)
        second = Basis(names[1], slow_mapped, "times", "measured", "[[measured]] mapped_gap_per_byte_s")
    elif isinstance(node.host_path(0).narrowest("write"), PcieLink) and not node.gpu(0).unified_memory:
        slow_mapped = BESIDE_MAPPED[direction]
        second = Basis(
            names[1], slow_mapped, "times", "estimated", "W14 tables I and II, GTX Titan on PCIe 3.0"
        )
    else:
        slow_mapped = 1.0
        second = Basis(names[1], 1.0, "times", "assumed", "not measured, and not PCIe")
    return (slow_both, slow_mapped), [first, second]


def _beside_streams(measured: Measured | None, copy: Line) -> tuple[tuple[int, float], ...]:
    """How many times as long a byte takes where copies go both ways in several streams, by their number."""
    rows = measured.both_directions_rows if measured else ()
    return tuple((row.copies, max(1.0, row.pieces[-1].gap_per_byte_s / copy.long_gap)) for row in rows)


def _beside_gpu(measured: Measured | None, copy: Line) -> float | None:
    """How many times as long a byte takes where copies go both ways on this and another GPU; None: not measured."""
    gap = measured.both_directions_beside_gpu_gap_per_byte_s if measured else None
    return None if gap is None else max(1.0, gap / copy.long_gap)


def _staged_line(node: Node, latency: float, link_pace: float) -> Line:
    """`busfare.cost.staging` as pieces: chunk by chunk up to 1 MiB, both at once beyond, slower beyond the cache."""
    cpu = next((c for c in node.components if isinstance(c, Cpu)), None)
    cache = max(float((cpu and cpu.cache_bytes) or CACHE_BYTES), SERIAL_BYTES + 1)
    cached, beyond = (float(p) for p in copy_seconds_per_byte(np.array([SERIAL_BYTES, 1e18]), node))
    gaps = [link_pace + cached, max(link_pace, cached), max(link_pace, beyond)]
    starts = [
        latency,
        *(latency + SERIAL_BYTES * (link_pace + pace - max(link_pace, pace)) for pace in (cached, beyond)),
    ]
    return Line((SERIAL_BYTES, cache, float("inf")), tuple(starts), tuple(gaps))
