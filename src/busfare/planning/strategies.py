"""What each strategy does with a problem: the curves that carry its data, its program of copies and kernels, and the closed
forms of overlap [W14 eq 1–6], of the explicit copy and of the number of streams. Also the roofline extended by the host
link: three bounds on a kernel's performance [W14 §III-A].

Times are in seconds. The arrays of a `Cut` broadcast against each other, so that one call answers for many kernels and many
numbers of streams at once.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from busfare.errors import InputError
from busfare.nodes import Contention, Curve, FloatArray, Shares
from busfare.planning.machine import Machine
from busfare.planning.problem import Problem
from busfare.timeline.program import Mapped, Program, mapped_seconds


class Layout(NamedTuple):
    """Which curves carry the data each way; all work in `one` stream, a stream a `chunk`, or a stream an `engine`."""

    into: str
    out: str
    over: Literal["one", "chunk", "engine"]


#: Every strategy; of those that take as long, the one with less to write comes first.
STRATEGIES = {
    "managed": Layout("faulted", "faulted", "one"),
    "mapped": Layout("mapped", "mapped", "one"),
    "explicit": Layout("copy", "copy", "one"),
    "batched": Layout("copy", "copy", "one"),
    "explicit-pageable": Layout("pageable", "pageable", "one"),
    "managed-prefetch": Layout("prefetched", "prefetched", "one"),
    "three-streams": Layout("copy", "copy", "engine"),
    "streams": Layout("copy", "copy", "chunk"),
    "streams-pageable": Layout("pageable", "pageable", "chunk"),
    "graph": Layout("copy", "copy", "chunk"),
    "hybrid": Layout("copy", "mapped", "chunk"),
}
#: Strategies that hand all arrays of a direction over at once.
AT_ONCE = ("batched", "managed", "managed-prefetch", "mapped")


def layout_of(machine: Machine, strategy: str) -> Layout:
    """The strategy's layout; managed memory of a GPU that shares the host's is mapped."""
    return STRATEGIES["mapped" if strategy == "managed" and machine.gpu.unified_memory else strategy]


def shares_of(machine: Machine, layout: Layout) -> tuple[float, float]:
    """The share of its rate that each direction of a layout keeps while the other moves data."""
    c = _contention(machine, layout)
    pairs: dict[tuple[bool, bool], tuple[Shares, Shares]] = {
        (False, False): (c.both, c.both),
        (True, True): (c.mapped_both, c.mapped_both),
        (False, True): (c.copy_beside_mapped, c.mapped_beside_copy),
    }
    into, out = pairs[layout.into == "mapped", layout.out == "mapped"]
    return into.h2d, out.d2h


def _contention(machine: Machine, layout: Layout) -> Contention:
    """The machine's; where streams hold a chunk each, what they keep of it."""
    c = machine.contention
    return c.in_many_streams() if layout.over == "chunk" else c


def kernel_seconds(problem: Problem, machine: Machine) -> float:
    """t_E of the whole problem with its data in device memory, in seconds. As given, or by the roofline from flops and
    device bytes. Raises InputError where neither is possible.
    """
    if problem.kernel_seconds is not None:
        return problem.kernel_seconds
    rates = (
        (problem.flops, machine.flops_per_s(problem.type) if problem.flops else None),
        (problem.device_bytes, machine.gpu.memory_bandwidth_bytes_per_s),
    )
    parts = [work / rate for work, rate in rates if work is not None and rate is not None]
    if not parts:
        raise InputError(
            f"{problem.name}: the kernel time is missing; give `kernel`, or `flops` or `device_bytes` for a node "
            f"with GPU rates ({machine.node.name} may lack them)"
        )
    return max(parts)


def kernel_split(problem: Problem, whole: float, streams: FloatArray, layout: Layout) -> FloatArray:
    """t_E(n): seconds of all chunks' kernels together, between the given points along a line in n; `whole` for one. The
    points are of kernels that take turns. In streams of their own, small ones fill the GPU together.
    """
    seconds_by_chunks = {1: whole} | dict(problem.kernel_at)
    points = sorted(seconds_by_chunks)
    split = np.interp(streams, points, [seconds_by_chunks[n] for n in points])
    return np.asarray(np.minimum(split, whole) if layout.over == "chunk" else split)


def carried(problem: Problem, layout: Layout) -> tuple[float, float]:
    """How often each byte crosses the link, in and out: mapped ones once an access [W14 §VI]."""
    into = problem.accesses_in if layout.into == "mapped" else 1.0
    return into, problem.accesses_out if layout.out == "mapped" else 1.0


def program_of(problem: Problem, machine: Machine, strategy: str, streams: int = 1) -> Program:
    """The strategy's program of `streams` chunks, issued as breadth-first code does: copies in, kernels, copies out of all
    chunks; chunk by chunk where an engine has a stream. Raises InputError for a kernel without a time.
    """
    layout = layout_of(machine, strategy)
    count = 1 if layout.over == "one" else streams
    part = 1 / count
    whole = kernel_seconds(problem, machine)
    total = float(kernel_split(problem, whole, np.array(float(count)), layout))
    more_in, more_out = carried(problem, layout)
    sides = ("h2d", layout.into, problem.h2d_bytes), ("d2h", layout.out, problem.d2h_bytes)
    curves = {side[0]: _curve(machine, *side) for side in sides}
    arrays = (1, 1) if strategy in AT_ONCE else (problem.copies_in, problem.copies_out)
    blocks = layout.into == "pageable"
    rules = machine.rules(0.0 if strategy == "graph" else problem.launch_seconds)
    program = Program(replace(rules, contention=_contention(machine, layout)))
    first: tuple[int, ...] = ()
    shared = 0.0 if layout.over == "one" else problem.shared_bytes
    if shared:
        first = (program.copy("h2d", shared, curves["h2d"], 0, first, blocks),)
    into = problem.h2d_bytes * more_in * (1 - shared / max(problem.h2d_bytes, shared, 1.0))
    out = problem.d2h_bytes * more_out
    last: list[tuple[int, ...]] = [first] * count

    def copies(direction: Literal["h2d", "d2h"], n: int, size: float, number: int, stream: int) -> None:
        behind = last[n]
        for _ in range(number if size > 0 else 0):
            last[n] = (program.copy(direction, size / number, curves[direction], stream, behind, blocks),)

    by_engine = layout.over == "engine"
    ahead = problem.reads_neighbours
    in_order = by_engine or ahead or problem.copies_in_order
    rounds = [(n,) for n in range(count)] if by_engine and not ahead else [tuple(range(count))]
    for chunks in rounds:
        for n in chunks if layout.into != "mapped" else ():
            copies("h2d", n, into * part, arrays[0], 0 if in_order else n + 2)
        following = [*last[1:], ()] if ahead else [()] * count
        for n in chunks:
            reads, writes = (
                Mapped(size * part, curves[direction]) if memory == "mapped" and size > 0 else None
                for direction, memory, size in (("h2d", layout.into, into), ("d2h", layout.out, out))
            )
            stream = 1 if by_engine else n + 2
            last[n] = (program.kernel(total * part, stream, last[n] + following[n], reads, writes),)
        for n in chunks if layout.out != "mapped" else ():
            copies("d2h", n, out * part, arrays[1], 2 if by_engine else n + 2)
    return program


def _curve(machine: Machine, direction: str, memory: str, size: float) -> Curve:
    """The curve that carries a buffer of `size` bytes, chunk by chunk. A part of a pageable one that outgrows the
    processor's cache is not in it either: no byte is cheaper than in one copy of all.
    """
    curve: Curve = getattr(machine.curves(direction), memory)
    if memory != "pageable":
        return curve
    least = float(curve.gap_per_byte(size))
    return msgspec.structs.replace(curve, gap_per_byte_s=tuple(max(g, least) for g in curve.gap_per_byte_s))


class Cut(NamedTuple):
    """Work cut into `streams` equal chunks, one a stream.

    `h2d` and `d2h` are B·G of the whole problem, `kernel` is t_E of all chunks together; `h2d_latency` is L+o
    of one copy, `h2d_gap` the g of each further one. `h2d_slowdown` (≥ 1): how much longer all that takes while the
    other direction moves data. `mapped_start`: seconds that a kernel on mapped memory both ways takes besides.
    """

    streams: FloatArray
    h2d: FloatArray
    kernel: FloatArray
    d2h: FloatArray
    h2d_latency: FloatArray
    d2h_latency: FloatArray
    h2d_gap: FloatArray
    d2h_gap: FloatArray
    h2d_slowdown: FloatArray | float = 1.0
    d2h_slowdown: FloatArray | float = 1.0
    mapped_start: FloatArray | float = 0.0

    @property
    def all_in(self) -> FloatArray:
        """(L+o) + B_hd·G_hd + g(n−1): all copies into the device, back to back."""
        return self.h2d_latency + self.h2d + self.h2d_gap * (self.streams - 1)

    @property
    def all_out(self) -> FloatArray:
        """(L+o) + B_dh·G_dh + g(n−1)."""
        return self.d2h_latency + self.d2h + self.d2h_gap * (self.streams - 1)

    @property
    def first_in(self) -> FloatArray:
        """(L+o) + B_hd/n·G_hd: the first chunk's copy, before which nothing can be computed."""
        return self.h2d_latency + self.h2d / self.streams

    @property
    def last_out(self) -> FloatArray:
        """(L+o) + B_dh/n·G_dh."""
        return self.d2h_latency + self.d2h / self.streams

    @property
    def chunk_kernel(self) -> FloatArray:
        """t_E/n."""
        return self.kernel / self.streams


def explicit(cut: Cut) -> FloatArray:
    """Copies in, kernel, copies out, one after the other [W14 §III]: a Cut of one stream."""
    return cut.h2d_latency + cut.h2d + cut.kernel + cut.d2h_latency + cut.d2h


def eq1(cut: Cut) -> FloatArray:
    """[W14 eq 1] Implicit synchronisation; the kernel dominates."""
    return cut.first_in + cut.kernel + cut.all_out


def eq2(cut: Cut) -> FloatArray:
    """[W14 eq 2] Implicit synchronisation; transfers dominate."""
    return cut.all_in + cut.chunk_kernel + cut.all_out


def eq3(cut: Cut) -> FloatArray:
    """[W14 eq 3] One copy engine; the kernel dominates."""
    return cut.first_in + cut.kernel + cut.last_out


def eq4(cut: Cut) -> FloatArray:
    """[W14 eq 4] One copy engine; transfers dominate."""
    longer_direction = np.maximum(
        cut.all_in + cut.chunk_kernel + cut.last_out, cut.first_in + cut.chunk_kernel + cut.all_out
    )
    return np.maximum(cut.all_in + cut.all_out, longer_direction)


def eq5_shared(cut: Cut) -> FloatArray:
    """[W14 eq 5] Two copy engines, with each direction slowed only while the other moves data too, which is ours; with
    slow-downs of 1 it is eq 5.

    W14 puts the slowed G into eq 5 for the whole run, which is too much where one direction has less to move: the rest
    of the longer one has the link to itself. So have the copies in until the first copy out moves a byte.
    """
    h2d_slowdown, d2h_slowdown = np.asarray(cut.h2d_slowdown), np.asarray(cut.d2h_slowdown)
    in_busy = (cut.h2d + cut.h2d_gap * (cut.streams - 1)) * h2d_slowdown
    out_busy = (cut.d2h + cut.d2h_gap * (cut.streams - 1)) * d2h_slowdown
    before_out = cut.first_in + cut.chunk_kernel + cut.d2h_latency
    together = np.maximum(cut.all_in - before_out, 0.0) * h2d_slowdown
    overlapped_in = np.minimum((1 - 1 / cut.streams) * out_busy, together)
    overlapped_out = np.minimum(np.minimum((1 - 1 / cut.streams) * in_busy, out_busy), together)
    into = cut.all_in + (1 - 1 / h2d_slowdown) * overlapped_in + cut.chunk_kernel + cut.last_out
    out = cut.first_in + cut.chunk_kernel + cut.all_out + (1 - 1 / d2h_slowdown) * overlapped_out
    return np.asarray(np.maximum(np.maximum(into, cut.first_in + cut.kernel + cut.last_out), out), np.float64)


def eq6(cut: Cut) -> FloatArray:
    """[W14 eq 6] The kernel reads and writes host memory itself; the longest of the three hides the others.

    Bytes count every access that crosses the link. Each direction is slowed by the other (`mapped_seconds`); with
    slow-downs of 1 this is eq 6.
    """
    slowdowns = np.asarray(cut.h2d_slowdown), np.asarray(cut.d2h_slowdown)
    moving = mapped_seconds(cut.h2d, cut.d2h, *slowdowns) + cut.mapped_start
    return np.asarray(cut.h2d_latency + np.maximum(moving, cut.kernel) + cut.d2h_latency, np.float64)


def hybrid(cut: Cut) -> FloatArray:
    """Copies in, stream by stream, beside kernels that write mapped memory. Ours.

    A chunk's kernel takes the longer of computing and writing. While kernels write, copies are slowed by `h2d_slowdown`;
    where the next chunk's copies last longer than they do, the rest follows alone. `h2d_gap` holds no bytes.
    """
    n = cut.streams
    slowdown = np.asarray(cut.h2d_slowdown)
    writes = np.maximum(cut.chunk_kernel, cut.d2h / n)
    slowed_writes = np.maximum(cut.chunk_kernel, cut.d2h * np.asarray(cut.d2h_slowdown) / n)
    # From the end of one chunk's copy to its kernel, the next one's gap and first bytes pass undisturbed.
    free = np.asarray(cut.h2d_latency)
    rest = np.maximum(cut.h2d / n - np.maximum(free - cut.h2d_gap, 0.0), 0.0)
    gap = np.maximum(cut.h2d_gap - free, 0.0)
    shared = np.minimum(np.maximum(slowed_writes - gap, 0.0), rest * slowdown)
    cycle = np.maximum(free + gap + rest + shared * (1 - 1 / slowdown), slowed_writes)
    # Where the copies of all chunks are over before, the last kernels write alone.
    alone = np.where(cut.h2d > 0, cycle, np.maximum(cut.kernel, cut.d2h) / n)
    return np.asarray(cut.first_in + (n - 1) * alone + writes + cut.d2h_latency, np.float64)


def best_streams(equation: int, cut: Cut) -> FloatArray:
    """The number of streams that [W14 §VI] derives for eq 1, 2, 4 or 5, as real numbers of one at least.

    For eq 4 it is the smallest number that still helps, for the others the largest. NaN where no number follows: eq 3
    only falls, and so does each equation without a gap.
    """
    terms = cut.h2d, cut.kernel, cut.d2h, cut.h2d_gap, cut.d2h_gap
    into, kernel, out, gap_in, gap_out = np.broadcast_arrays(*terms)
    in_leads = into >= out
    if equation == 4:
        # B·G + g(n−1) = t_E/n + B·G/n, of the lesser direction: a quadratic in n.
        lesser, gap = np.where(in_leads, out, into), np.where(in_leads, gap_out, gap_in)
        gap = np.where(gap > 0, gap, np.nan)
        half = (lesser - gap) / (2 * gap)
        return np.asarray(np.maximum(1.0, np.sqrt(half * half + (kernel + lesser) / gap) - half))
    hidden, gap = {
        1: (into, gap_out),
        2: (kernel, gap_in + gap_out),
        5: (np.where(in_leads, out, into) + kernel, np.where(in_leads, gap_in, gap_out)),
    }.get(equation, (kernel, np.zeros_like(kernel)))
    return np.asarray(np.maximum(1.0, np.sqrt(hidden / np.where(gap > 0, gap, np.nan))))


@dataclass(frozen=True, slots=True)
class Roofline:
    """Intensities are flops per byte, bandwidths bytes per second, the rest flops per second.

    `data_intensity`: flops per byte that crosses the link once; `operational_intensity`: per byte of device memory.
    `link_bytes_per_s` is both ways one after the other, `duplex_bytes_per_s` both at once: W14 has one bandwidth, but
    a bound must let both directions run.
    """

    data_intensity: float
    operational_intensity: float
    peak: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    duplex_bytes_per_s: float
    roof: float
    full_overlap: float
    no_overlap: float
    mapped: float


def roofline_of(problem: Problem, machine: Machine) -> Roofline | None:
    """The bounds of `problem`; None where its flops, or the GPU's rates, are not known. Without `device_bytes` each element
    is taken to be read or written once. Bytes are those of the problem, mapped ones times their accesses.
    """
    flops, memory = problem.flops, machine.gpu.memory_bandwidth_bytes_per_s
    peak = machine.flops_per_s(problem.type) if flops else None
    if flops is None or peak is None or memory is None:
        return None
    moved = problem.h2d_bytes + problem.d2h_bytes
    device = problem.device_bytes or moved
    into = problem.h2d_bytes * machine.h2d.copy.long_gap_per_byte_s
    out = problem.d2h_bytes * machine.d2h.copy.long_gap_per_byte_s
    if into + out <= 0:
        return None
    data_intensity, operational = flops / moved, flops / device
    link, duplex = moved / (into + out), moved / max(into, out)
    roof = min(peak, memory * operational)
    accessed = max(into * problem.accesses_in, out * problem.accesses_out)
    full, none = min(roof, duplex * data_intensity), flops / (moved / link + flops / roof)
    bounds = full, none, min(peak, flops / accessed)
    return Roofline(data_intensity, operational, peak, memory, link, duplex, roof, *bounds)
