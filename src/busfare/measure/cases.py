"""What is measured: cases that the parameters are fitted to, those that they are judged on, those that are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

Direction = Literal["h2d", "d2h", "d2d", "p2p", "none"]
#: `registered` is pageable memory made pinned afterwards; `none` is a cost that moves nothing.
Memory = Literal["pageable", "pinned", "registered", "write-combined", "mapped", "managed", "device", "none"]


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """What to measure. `bytes` is the size of each of `count` copies; a strided copy has `count` rows of it. `mode`: how the
    copies, or the call, are issued (docs/probe.md); files of older runs hold others, which nothing reads.
    """

    direction: Direction
    memory: Memory
    mode: str
    bytes: int = 0
    count: int = 1
    gpu: int = 0
    peer: int | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes that one sample moves in the measured direction."""
        return self.bytes * self.count

    def __str__(self) -> str:
        pair = f"{self.gpu}→{self.peer} " if self.peer is not None else ""
        return f"{pair}{self.direction} {self.memory} {self.mode} {self.count}×{self.bytes} B"


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw samples, in seconds, side by side: what the device took, what the API calls took, and what passed from the first
    call until all was done. What was not timed, or cannot be (an allocation on the device), is empty.
    """

    device_s: tuple[float, ...] = ()
    api_s: tuple[float, ...] = ()
    host_s: tuple[float, ...] = ()

    def __add__(self, other: Samples) -> Samples:
        return Samples(self.device_s + other.device_s, self.api_s + other.api_s, self.host_s + other.host_s)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOST_DIRECTIONS: tuple[Direction, Direction] = ("h2d", "d2h")

#: No power of two and no neat multiple, so that no fitted size is among them, and odd ones that end in a
#: part of a packet.
HELD_OUT_BYTES = (
    3, 100, 777, 1500, 5_000, 10_001, 23_456, 45_678, 91_000, 150_000, 300_007, 700_000, 1_300_000,
    2_500_000, 5_500_000, 11_111_111, 27_000_000, 90_000_001, 300_000_000, 800_000_000,
)  # fmt: skip
#: Copies in several streams at once: sizes, and numbers of streams.
CHUNKS = (1, 2 * KIB, 12 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 4 * MIB)
HELD_OUT_CHUNKS = (37, 1500, 10_000, 50_000, 100_000, 400_000, 2_500_000)
HELD_OUT_STREAMS = (16, 100, 200)
#: Modes in which data move the other way, too, and the share of `Contention` that is left there.
SHARES = {
    "both": "both",
    "beside-mapped": "copy_beside_mapped",
    "kernel-both": "mapped_both",
    "kernel-beside-copies": "mapped_beside_copy",
}
#: Modes in which chunks are copied in, computed on and copied out: in a stream each, and in a stream an engine.
ACROSS_STREAMS, ACROSS_ENGINES = "across-streams", "across-engines"
#: Modes in which every GPU copies at the same time, one way and both.
ALL_GPUS, ALL_GPUS_BOTH = "all-gpus", "all-gpus-both"
#: Copies behind each other in one stream; strided ones: rows.
TRAINS, ROWS = (16, 128), 1024


def is_held_out(case: Case) -> bool:
    """Whether nothing is fitted to a case: the parameters are judged on it."""
    if case.mode == "copies" and case.count == 1 and case.memory in ("pinned", "pageable"):
        return case.bytes in HELD_OUT_BYTES
    return case.mode == "streams" and case.count in HELD_OUT_STREAMS


def powers(first: int, last: int, factor: int = 2) -> list[int]:
    """first, first · factor, … up to and including `last`."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


class Row(NamedTuple):
    """Cases of every direction, memory, mode, size and count that it names, of at most `most` bytes in all."""

    directions: str
    memories: str
    modes: str
    sizes: Sequence[int]
    counts: Sequence[int] = (1,)
    most: int = GIB

    def cases(self, gpu: int, peers: Sequence[int]) -> Iterator[Case]:
        """Of one GPU; what goes to another one, to each of `peers`."""
        words = (self.directions.split(), self.memories.split(), self.modes.split())
        for direction, memory, mode, count, size in product(*words, self.counts, self.sizes):
            if size * count <= self.most:
                for peer in peers if direction == "p2p" else (None,):
                    yield Case(direction, memory, mode, size, count, gpu, peer)  # type: ignore[arg-type]


def _in_both(inside: Sequence[int], reached: Sequence[int], allocated: int) -> tuple[Row, ...]:
    """What both plans measure besides copies of the host's memory: copies inside the GPU and to others, memory that kernels,
    page faults or prefetches reach, data both ways at once, and calls.
    """
    allocations = powers(4 * KIB, allocated, 16)
    return (
        Row("d2d p2p", "device", "copies", inside),
        Row("h2d d2h", "mapped", "kernel", reached),
        Row("h2d d2h", "managed", "touch prefetch", reached),
        Row("h2d d2h", "pinned", "both", (16 * MIB, 64 * MIB), (4,)),
        Row("h2d", "pinned", f"{ACROSS_STREAMS} {ACROSS_ENGINES}", (16 * MIB,), (16,)),
        Row("h2d d2h", "mapped", "kernel-beside-copies", (16 * MIB, 64 * MIB)),
        Row("h2d", "mapped", "kernel-both", (MIB, 16 * MIB, 64 * MIB)),
        Row("h2d d2h", "pinned", "beside-mapped", (64 * MIB,)),
        Row(
            "h2d", "pinned", "after-kernel there-and-back event-kernel", (16 * KIB, 64 * KIB, 256 * KIB, MIB)
        ),
        Row("h2d d2h", "pinned", "copies", (64,), TRAINS),
        Row("none", "none", "empty launch synchronise", (0,)),
        Row("none", "pinned", "allocate", allocations),
        Row("none", "pageable", "register", allocations),
    )


#: Powers of two, and between them where a copy's time stops being all latency and is not yet all bandwidth.
_FITTED_BYTES = (*powers(1, GIB), *powers(6 * KIB, 24 * MIB))
#: All that 30 seconds hold. Into the GPU the number of streams makes no difference but for the first; out of it more than
#: some 180 take longer each. The last four are shown, and nothing is fitted to them.
_FULL = (
    Row("h2d d2h", "pinned pageable", "copies", (*_FITTED_BYTES, *HELD_OUT_BYTES)),
    Row("h2d", "pinned", "streams", CHUNKS, (2, 32, 256)),
    Row("d2h", "pinned", "streams", CHUNKS, (2, 8, 32, 96, 256)),
    Row("h2d d2h", "pinned", "streams", HELD_OUT_CHUNKS, HELD_OUT_STREAMS),
    *_in_both(powers(1, GIB, 4), powers(64 * KIB, 256 * MIB, 4), 256 * MIB),
    Row("h2d d2h", "pinned", "copies batch graph", (64, 4 * KIB, 64 * KIB, MIB), TRAINS),
    Row("h2d d2h", "pinned", "plane block", (64, 512, 4 * KIB, 64 * KIB), (ROWS,)),
    Row("h2d d2h", "pinned", "copies", (64 * ROWS, 512 * ROWS, 4 * KIB * ROWS, 64 * KIB * ROWS)),
    Row("h2d d2h", "registered write-combined", "copies", powers(64 * KIB, 256 * MIB, 16)),
)
#: What 10 seconds hold: the same paths on a coarser grid, and nothing that is shown alone.
_QUICK = (
    Row("h2d d2h", "pinned", "copies", (*powers(1, GIB, 4), *HELD_OUT_BYTES[1::2])),
    Row("h2d d2h", "pageable", "copies", (*powers(1, 256 * MIB, 4), *HELD_OUT_BYTES[1:-2:2])),
    Row("h2d d2h", "pinned", "streams", CHUNKS[::2], (2, 32, 256), 256 * MIB),
    Row("h2d d2h", "pinned", "streams", HELD_OUT_CHUNKS[::2], (16,)),
    *_in_both(powers(1, 64 * MIB, 4), powers(64 * KIB, 64 * MIB, 16), 16 * MIB),
)


def at_once(fast: bool) -> tuple[Case, ...]:
    """Copies of all GPUs together: what the host's memory then carries."""
    size = 16 * MIB if fast else 64 * MIB
    return tuple(
        Case(direction, "pinned", mode, size, 4)
        for mode in (ALL_GPUS, ALL_GPUS_BOTH)
        for direction in HOST_DIRECTIONS
    )


def copies(gpu: int, peers: Sequence[int], fast: bool) -> tuple[Case, ...]:
    """Every case once of a GPU's copies: to fit, to hold the fit against (`is_held_out`), and to show."""
    cases = (case for row in (_QUICK if fast else _FULL) for case in row.cases(gpu, peers))
    return tuple(dict.fromkeys(cases))
