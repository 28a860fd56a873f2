"""A kernel on a grid of levels; a strategy as the operations that a program issues, in their order, with their streams and
what they wait for; and what runs such programs.

The same program is run on a GPU, on a virtual node, and, in the tests, on plain arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

from busfare.measure.bench.kernel import Kernel
from busfare.measure.device import GpuHost
from busfare.nodes.arrays import FloatArray

ELEMENT_BYTES = 8
#: Chunks within a level start at multiples of so many elements: 256 bytes, as allocators give.
ALIGNED = 32
#: The most streams that are tried; and the most chunks that the queue of one stream takes while it is held.
MOST_STREAMS, MOST_IN_ORDER = 256, 128


@dataclass(frozen=True, slots=True)
class Span:
    """Elements `first` up to, and without, `end`."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class Work:
    """`kernel` on `levels` of `level` elements each."""

    kernel: Kernel
    levels: int
    level: int

    @property
    def name(self) -> str:
        return f"{self.kernel.name} {self.levels}×{self.level}"

    @property
    def elements(self) -> int:
        return self.levels * self.level

    @property
    def whole(self) -> Span:
        return Span(0, self.elements)

    @property
    def array_bytes(self) -> int:
        """Bytes of one array."""
        return self.elements * ELEMENT_BYTES

    @property
    def h2d_bytes(self) -> int:
        return self.kernel.inputs * self.array_bytes

    @property
    def d2h_bytes(self) -> int:
        return self.kernel.outputs * self.array_bytes

    @property
    def most_chunks(self) -> int:
        """Into how many chunks it can be cut."""
        return max(self.levels, self.elements // ALIGNED)

    @property
    def most_streams(self) -> int:
        """Into how many chunks it is cut at most: those that read others are copied in order, through one stream."""
        return min(MOST_IN_ORDER if self.kernel.reaches else MOST_STREAMS, self.most_chunks)

    def cut(self, chunks: int) -> list[Span]:
        """The elements in so many equal parts, to 256 bytes: 35 parts of 42 whole levels would be as long as 21.

        Raises ValueError for less than one chunk or more than there can be.
        """
        if not 1 <= chunks <= self.most_chunks:
            raise ValueError(f"{chunks} chunks of {self.name}")
        unit = self.level if self.levels % chunks == 0 else ALIGNED
        units = -(-self.elements // unit)
        edges = [min(self.elements, unit * (units * n // chunks)) for n in range(chunks + 1)]
        return [Span(a, b) for a, b in pairwise(edges)]

    def inputs_of(self, part: Span) -> list[Span]:
        """What of each input array a launch on `part` reads."""
        needed = [part]
        if "above" in self.kernel.reaches and part.end > self.level:
            needed.append(Span(max(0, part.first - self.level), part.end - self.level))
        if "surface" in self.kernel.reaches:
            start = part.first % self.level
            if part.count >= self.level:
                needed.append(Span(0, self.level))
            elif start + part.count <= self.level:
                needed.append(Span(start, start + part.count))
            else:
                needed += [Span(start, self.level), Span(0, start + part.count - self.level)]
        return needed

    def chunks_of(self, part: Span, cut: list[Span]) -> list[int]:
        """The chunks of `cut` that hold what a launch on `part` reads, in order."""
        starts = [span.first for span in cut]
        found: set[int] = set()
        for span in self.inputs_of(part):
            found.update(range(bisect_right(starts, span.first) - 1, bisect_right(starts, span.end - 1)))
        return sorted(found)


@dataclass(frozen=True, slots=True)
class Operation:
    """A copy of `part` of the arrays `arrays`, or a kernel on it; `after` are indices of operations of other streams."""

    kind: Literal["h2d", "kernel", "d2h"]
    stream: int
    part: Span
    arrays: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """What one GPU is given. Where an end is mapped, the kernel's pointers are the host's own."""

    strategy: str
    streams: int
    operations: tuple[Operation, ...]

    @property
    def mapped_in(self) -> bool:
        return self.strategy == "mapped"

    @property
    def mapped_out(self) -> bool:
        return self.strategy in ("mapped", "hybrid")

    @property
    def as_graph(self) -> bool:
        return self.strategy == "graph"

    @property
    def led(self) -> bool:
        """Whether its first stream alone starts by itself: all others wait for what is in it."""
        firsts: dict[int, Operation] = {}
        for op in self.operations:
            firsts.setdefault(op.stream, op)
        return all(op.stream == 0 or op.after for op in firsts.values())


def _copies(
    work: Work, kind: Literal["h2d", "d2h"], stream: int = 0, part: Span | None = None
) -> list[Operation]:
    """One copy an array of the inputs, or of the outputs."""
    arrays = work.kernel.inputs if kind == "h2d" else work.kernel.outputs
    return [Operation(kind, stream, part or work.whole, (n,)) for n in range(arrays)]


def explicit(work: Work) -> Program:
    """All in, the kernel, all out: one copy an array."""
    kernel = Operation("kernel", 0, work.whole)
    return Program("explicit", 1, (*_copies(work, "h2d"), kernel, *_copies(work, "d2h")))


def batched(work: Work) -> Program:
    """The same with all arrays of a direction in one call."""
    into = Operation("h2d", 0, work.whole, tuple(range(work.kernel.inputs)))
    out = Operation("d2h", 0, work.whole, tuple(range(work.kernel.outputs)))
    return Program("batched", 1, (into, Operation("kernel", 0, work.whole), out))


def mapped(work: Work) -> Program:
    """The kernel alone, on the host's memory."""
    return Program("mapped", 1, (Operation("kernel", 0, work.whole),))


def streams(work: Work, count: int, strategy: str = "streams", own: Sequence[int] | None = None) -> Program:
    """`count` chunks, one a stream, breadth first: all copies in, all kernels, all copies out [W14 §VII]; as a `graph`; or
    with kernels that write their results to mapped host memory (`hybrid`).

    Where kernels read other chunks, all copies in go through one stream: a GPU takes those of many streams in an
    order of its own, and a kernel would wait for a copy that is among the last. With `own`, only the kernels of
    those chunks are run, and only what they read is copied: one GPU's share.
    """
    cut, in_order = work.cut(count), bool(work.kernel.reaches) and count > 1
    chosen = list(range(count)) if own is None else list(own)
    needed = {chunk: work.chunks_of(cut[chunk], cut) for chunk in chosen}
    copied = sorted({other for chunks in needed.values() for other in chunks})
    stream_of = {chunk: n + in_order for n, chunk in enumerate(sorted({*copied, *chosen}))}
    operations: list[Operation] = []
    last_copy: dict[int, int] = {}
    for chunk in copied:
        operations += _copies(work, "h2d", 0 if in_order else stream_of[chunk], cut[chunk])
        last_copy[chunk] = len(operations) - 1
    for chunk in chosen:
        # In order, the last copy stands for those before it.
        after = (last_copy[max(needed[chunk])],) if in_order else ()
        operations.append(Operation("kernel", stream_of[chunk], cut[chunk], after=after))
    for chunk in chosen if strategy != "hybrid" else ():
        operations += _copies(work, "d2h", stream_of[chunk], cut[chunk])
    used = len(stream_of) + in_order
    return Program(strategy, used, tuple(operations))


def three_streams(work: Work, count: int) -> Program:
    """`count` chunks, depth first, a stream for copies in, one for kernels, one for copies out: every engine takes them
    in the order of issue.
    """
    cut = work.cut(count)
    operations: list[Operation] = []
    last_copy: list[int] = []
    for part in cut:
        operations += _copies(work, "h2d", 0, part)
        last_copy.append(len(operations) - 1)
        awaited = last_copy[max(work.chunks_of(part, cut))]
        operations.append(Operation("kernel", 1, part, after=(awaited,)))
        first, *others = _copies(work, "d2h", 2, part)
        operations += [replace(first, after=(len(operations) - 1,)), *others]
    return Program("three-streams", 3, tuple(operations))


def kernels_alone(work: Work, count: int) -> Program:
    """The kernels of `count` chunks one after the other, their data in device memory: t_E."""
    return Program("kernel", 1, tuple(Operation("kernel", 0, part) for part in work.cut(count)))


def link_alone(work: Work, kind: Literal["h2d", "d2h"] | None = None) -> Program:
    """All copies in and all copies out at once, in two streams, or those of one direction: what the link takes."""
    if kind is not None:
        return Program("link", 1, tuple(_copies(work, kind)))
    return Program("link", 2, (*_copies(work, "h2d"), *_copies(work, "d2h", 1)))


@dataclass(frozen=True)
class Timing:
    """Seconds of one program. `device_s`: from its first operation's start to its last one's end, by events on the
    GPU; `held`: everything was submitted before it began. `host_s`: from the first call until everything is done, by
    the host's clock, nothing held. `ends_s`: of each sample, when each stream ended, for one GPU's programs of a few.
    """

    device_s: tuple[float, ...] = ()
    host_s: tuple[float, ...] = ()
    held: bool = True
    ends_s: tuple[tuple[float, ...], ...] = ()

    def __add__(self, later: Timing) -> Timing:
        held = self.held and later.held
        return Timing(
            self.device_s + later.device_s, self.host_s + later.host_s, held, self.ends_s + later.ends_s
        )


@dataclass(frozen=True)
class Compared:
    """Results beside their reference: how many elements are wrong, the largest error over what is allowed among the
    others, and the place of the first wrong one in its array.
    """

    wrong: int
    worst: float
    first: int | None = None


class StrategyDevice(GpuHost, Protocol):
    """Runs programs on one kernel's arrays at a time."""

    def load(self, work: Work) -> None:
        """Makes the arrays and the kernel of `work` in place of the former ones.

        Raises UnavailableError where memory does not suffice, and InputError where the kernel does not compile.
        """

    def inputs(self) -> list[FloatArray]:
        """The host's input arrays, to be filled; none where nothing is computed (a virtual node)."""

    def outputs(self) -> list[FloatArray]:
        """The host's output arrays; none where nothing is computed."""

    def clear(self) -> None:
        """Overwrites all device arrays and the host's outputs with NaN: what no version could have left."""

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        """From here on `compare` holds the host's outputs against `arrays`: an element may differ by `relative` of the
        reference and by its array's slack. Raises UnavailableError where the device has no room for them.
        """

    def compare(self) -> Compared:
        """The host's outputs beside what was expected."""

    def run(self, programs: Sequence[Program], repeats: int, by_host: int = 0) -> Timing:
        """Runs a program a GPU, all at once, so many times; then `by_host` times without holding it, for the host's clock.

        Raises UnavailableError where it cannot be run here.
        """
