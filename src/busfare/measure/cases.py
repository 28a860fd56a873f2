"""What is measured: cases that the parameters are fitted to, those that they are judged on, those that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

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
    """Raw samples of one case, in seconds, side by side: what the device took, and what the API calls took.

    `device_s` is empty where no device time exists (an allocation).
    """

    device_s: tuple[float, ...]
    api_s: tuple[float, ...]

    def __add__(self, other: Samples) -> Samples:
        return Samples(self.device_s + other.device_s, self.api_s + other.api_s)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOST_DIRECTIONS: tuple[Direction, Direction] = ("h2d", "d2h")

#: No power of two and no neat multiple, so that no fitted size is among them, and odd ones that end in a
#: part of a packet.
HELD_OUT_BYTES = (
    3, 100, 777, 1500, 5_000, 10_001, 23_456, 45_678, 91_000, 150_000, 300_007, 700_000, 1_300_000,
    2_500_000, 5_500_000, 11_111_111, 27_000_000, 90_000_001, 300_000_000, 800_000_000,
)  # fmt: skip
#: Copies in several streams at once: sizes, and numbers of streams. Into the GPU the number makes no difference but for the
#: first; out of it more than some 180 take longer each.
CHUNKS = (1, 2 * KIB, 12 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 4 * MIB)
STREAMS = {"h2d": (2, 32, 256), "d2h": (2, 8, 32, 96, 256)}
HELD_OUT_CHUNKS = (37, 1500, 10_000, 50_000, 100_000, 400_000, 2_500_000)
HELD_OUT_STREAMS = (16, 100, 200)
#: Copies behind a kernel, and those that a kernel of another stream waits for; both plans copy them alone, too.
WAITING = (16 * KIB, 64 * KIB, 256 * KIB, MIB)
#: Modes in which data move the other way, too, and the share of `Contention` that is left there.
SHARES = {
    "both": "both",
    "beside-mapped": "copy_beside_mapped",
    "kernel-both": "mapped_both",
    "kernel-beside-copies": "mapped_beside_copy",
}
#: Copies behind each other in one stream.
TRAINS = (16, 128)


@dataclass(frozen=True)
class Plan:
    """Cases to fit, cases held out, and the cases that are reported as they are."""

    fitted: tuple[Case, ...]
    held_out: tuple[Case, ...]
    shown: tuple[Case, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every case once."""
        return tuple(dict.fromkeys((*self.fitted, *self.held_out, *self.shown)))


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


def fitted_bytes(most: int) -> list[int]:
    """Powers of two, and between them where a copy's time stops being all latency and is not yet all bandwidth."""
    between = (size * 3 // 2 for size in powers(4 * KIB, 16 * MIB))
    return sorted(size for size in {*powers(1, most), *between} if size <= most)


def full(gpu: int, peers: Sequence[int], most: int = GIB) -> Plan:
    """All that 30 seconds hold, of copies up to `most` bytes."""
    wide = min(most, 256 * MIB)
    fitted = (
        *_copies(("pinned", "pageable"), fitted_bytes(most), gpu),
        *(c for d in HOST_DIRECTIONS for c in _streams((d,), CHUNKS, STREAMS[d], gpu, most)),
        *_others(gpu, peers, powers(1, most, 4), powers(64 * KIB, wide, 4), wide),
    )
    held_out = (
        *_copies(("pinned", "pageable"), HELD_OUT_BYTES, gpu),
        *_streams(HOST_DIRECTIONS, HELD_OUT_CHUNKS, HELD_OUT_STREAMS, gpu, most),
    )
    shown = (
        *_trains((64, 4 * KIB, 64 * KIB, MIB), ("copies", "batch", "graph"), gpu),
        *_strided((64, 512, 4 * KIB, 64 * KIB), gpu),
        *_copies(("registered", "write-combined"), powers(64 * KIB, wide, 16), gpu),
    )
    return Plan(fitted, held_out, shown)


def quick(gpu: int, peers: Sequence[int], most: int = GIB) -> Plan:
    """What 10 seconds hold: the same paths on a coarser grid, and nothing that is shown alone."""
    fitted = (
        *_copies(("pinned",), powers(1, most, 4), gpu),
        *_copies(("pageable",), powers(1, min(most, 256 * MIB), 4), gpu),
        *_streams(HOST_DIRECTIONS, CHUNKS[::2], (2, 32, 256), gpu, min(most, 256 * MIB)),
        *_others(gpu, peers, powers(1, 64 * MIB, 4), powers(64 * KIB, 64 * MIB, 16), 16 * MIB),
    )
    held_out = (
        *_copies(("pinned",), HELD_OUT_BYTES[1::2], gpu),
        *_copies(("pageable",), HELD_OUT_BYTES[1:-2:2], gpu),
        *_streams(HOST_DIRECTIONS, HELD_OUT_CHUNKS[::2], (16,), gpu, 256 * MIB),
    )
    return Plan(fitted, held_out)


def _copies(kinds: Sequence[Memory], sizes: Sequence[int], gpu: int) -> Iterator[Case]:
    """Single copies."""
    for memory, direction, size in product(kinds, HOST_DIRECTIONS, sizes):
        yield Case(direction, memory, "copies", size, 1, gpu)


def _streams(
    directions: Iterable[Direction], chunks: Sequence[int], counts: Sequence[int], gpu: int, most: int
) -> Iterator[Case]:
    """A copy in each of several streams."""
    for direction, chunk, count in product(directions, chunks, counts):
        if chunk * count <= most:
            yield Case(direction, "pinned", "streams", chunk, count, gpu)


def _others(
    gpu: int, peers: Sequence[int], inside: Sequence[int], reached: Sequence[int], allocated: int
) -> Iterator[Case]:
    """What both plans measure besides copies of the host's memory: copies inside the GPU and to others, memory that kernels,
    page faults or prefetches reach, data both ways at once, and calls.
    """
    for size in inside:
        yield Case("d2d", "device", "copies", size, 1, gpu)
        for peer in peers:
            yield Case("p2p", "device", "copies", size, 1, gpu, peer)
    for direction, size in product(HOST_DIRECTIONS, reached):
        yield Case(direction, "mapped", "kernel", size, 1, gpu)
        yield Case(direction, "managed", "touch", size, 1, gpu)
        yield Case(direction, "managed", "prefetch", size, 1, gpu)
    for direction, size in product(HOST_DIRECTIONS, (16 * MIB, 64 * MIB)):
        yield Case(direction, "pinned", "both", size, 4, gpu)
        yield Case(direction, "mapped", "kernel-beside-copies", size, 1, gpu)
    for size in (MIB, 16 * MIB, 64 * MIB):
        yield Case("h2d", "mapped", "kernel-both", size, 1, gpu)
    for direction in HOST_DIRECTIONS:
        yield Case(direction, "pinned", "beside-mapped", 64 * MIB, 1, gpu)
    for mode, size in product(("after-kernel", "there-and-back", "event-kernel"), WAITING):
        yield Case("h2d", "pinned", mode, size, 1, gpu)
    yield from _trains((64,), ("copies",), gpu)
    for mode in ("empty", "launch", "synchronise"):
        yield Case("none", "none", mode, 0, 1, gpu)
    for size in powers(4 * KIB, allocated, 16):
        yield Case("none", "pinned", "allocate", size, 1, gpu)
        yield Case("none", "pageable", "register", size, 1, gpu)


def _trains(sizes: Sequence[int], modes: Sequence[str], gpu: int) -> Iterator[Case]:
    """Copies behind each other in one stream, in one call, and as a graph."""
    for direction, size, count, mode in product(HOST_DIRECTIONS, sizes, TRAINS, modes):
        yield Case(direction, "pinned", mode, size, count, gpu)


def _strided(widths: Sequence[int], gpu: int) -> Iterator[Case]:
    """1024 rows with gaps between them as one 2D and one 3D copy, and as many bytes without gaps."""
    for direction, width in product(HOST_DIRECTIONS, widths):
        yield Case(direction, "pinned", "plane", width, 1024, gpu)
        yield Case(direction, "pinned", "block", width, 1024, gpu)
        yield Case(direction, "pinned", "copies", width * 1024, 1, gpu)
