"""A strategy as the operations that a program issues, in their order, with their streams and what they wait for.

The same program is run on a GPU, on a virtual node, and, in the tests, on plain arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from busfare.measure.bench.work import Span, Work

__all__ = [
    "Operation",
    "Program",
    "batched",
    "explicit",
    "hybrid",
    "kernels_alone",
    "link_alone",
    "mapped",
    "streams",
    "three_streams",
]


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
    mapped_in: bool = False
    mapped_out: bool = False
    as_graph: bool = False

    @property
    def led(self) -> bool:
        """Whether its first stream alone starts by itself: all others wait for what is in it."""
        firsts: dict[int, Operation] = {}
        for op in self.operations:
            firsts.setdefault(op.stream, op)
        return all(op.stream == 0 or op.after for op in firsts.values())

    @property
    def awaited(self) -> frozenset[int]:
        """Indices of operations that others wait for."""
        return frozenset(index for op in self.operations for index in op.after)


def _whole(work: Work) -> Span:
    return Span(0, work.elements)


def explicit(work: Work) -> Program:
    """All in, the kernel, all out: one copy an array."""
    whole, kernel = _whole(work), work.kernel
    copies_in = [Operation("h2d", 0, whole, (n,)) for n in range(kernel.inputs)]
    copies_out = [Operation("d2h", 0, whole, (n,)) for n in range(kernel.outputs)]
    return Program("explicit", 1, (*copies_in, Operation("kernel", 0, whole), *copies_out))


def batched(work: Work) -> Program:
    """The same with all arrays of a way in one call."""
    whole, kernel = _whole(work), work.kernel
    into = Operation("h2d", 0, whole, tuple(range(kernel.inputs)))
    out = Operation("d2h", 0, whole, tuple(range(kernel.outputs)))
    return Program("batched", 1, (into, Operation("kernel", 0, whole), out))


def mapped(work: Work) -> Program:
    """The kernel alone, on the host's memory."""
    return Program("mapped", 1, (Operation("kernel", 0, _whole(work)),), mapped_in=True, mapped_out=True)


def streams(
    work: Work,
    count: int,
    strategy: str = "streams",
    own: Sequence[int] | None = None,
    mapped_out: bool = False,
    as_graph: bool = False,
) -> Program:
    """`count` chunks, one a stream, breadth first: all copies in, all kernels, all copies out [W14 §VII].

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
        for array in range(work.kernel.inputs):
            last_copy[chunk] = len(operations)
            stream = 0 if in_order else stream_of[chunk]
            operations.append(Operation("h2d", stream, cut[chunk], (array,)))
    for chunk in chosen:
        # In order, the last copy stands for those before it.
        after = (last_copy[max(needed[chunk])],) if in_order else ()
        operations.append(Operation("kernel", stream_of[chunk], cut[chunk], after=after))
    for chunk in chosen if not mapped_out else ():
        operations += [
            Operation("d2h", stream_of[chunk], cut[chunk], (array,)) for array in range(work.kernel.outputs)
        ]
    used = len(stream_of) + in_order
    return Program(strategy, used, tuple(operations), mapped_out=mapped_out, as_graph=as_graph)


def three_streams(work: Work, count: int) -> Program:
    """`count` chunks, depth first, a stream for copies in, one for kernels, one for copies out: every engine takes them
    in the order of issue.
    """
    cut = work.cut(count)
    operations: list[Operation] = []
    last_copy: list[int] = []
    for part in cut:
        operations += [Operation("h2d", 0, part, (array,)) for array in range(work.kernel.inputs)]
        last_copy.append(len(operations) - 1)
        awaited = last_copy[max(work.chunks_of(part, cut))]
        kernel = len(operations)
        operations.append(Operation("kernel", 1, part, after=(awaited,)))
        for array in range(work.kernel.outputs):
            operations.append(Operation("d2h", 2, part, (array,), (kernel,) if array == 0 else ()))
    return Program("three-streams", 3, tuple(operations))


def hybrid(work: Work, count: int) -> Program:
    """Copies in with streams; the kernels write their results to mapped host memory."""
    return streams(work, count, "hybrid", mapped_out=True)


def kernels_alone(work: Work, count: int) -> Program:
    """The kernels of `count` chunks one after the other, their data in device memory: t_E."""
    return Program("kernel", 1, tuple(Operation("kernel", 0, part) for part in work.cut(count)))


def link_alone(work: Work, way: Literal["h2d", "d2h"] | None = None) -> Program:
    """All copies in and all copies out at once, in two streams, or those of one way: what the link takes."""
    whole, kernel = _whole(work), work.kernel
    copies_in = [Operation("h2d", 0, whole, (n,)) for n in range(kernel.inputs)]
    if way is None:
        copies_out = [Operation("d2h", 1, whole, (n,)) for n in range(kernel.outputs)]
        return Program("link", 2, (*copies_in, *copies_out))
    copies_out = [Operation("d2h", 0, whole, (n,)) for n in range(kernel.outputs)]
    return Program("link", 1, tuple(copies_in if way == "h2d" else copies_out))
