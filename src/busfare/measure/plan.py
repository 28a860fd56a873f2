"""Which cases are measured: those that the parameters are fitted to, and those that they are judged on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from busfare.measure.case import Case, Direction, Memory, Mode

__all__ = [
    "AFTER",
    "HOST_WAYS",
    "MATTERS",
    "OTHER_WAY",
    "ROW_COUNTS",
    "Plan",
    "full",
    "is_held_out",
    "matters",
    "quick",
]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOST_WAYS: tuple[Direction, Direction] = ("h2d", "d2h")

#: Where a copy's time stops being all latency and is not yet all bandwidth: sized every half octave.
_BEND = (4 * KIB, 16 * MIB)
#: Pageable copies turn here to another way (staging begins; buffers outgrow the processor's cache): every quarter.
_KNEES = ((32 * KIB, 64 * KIB), (16 * MIB, 32 * MIB))
#: No power of two and no neat multiple, so that no fitted size is among them, and odd ones that end in a
#: part of a packet.
HELD_OUT_BYTES = (
    3, 100, 777, 1500, 5_000, 10_001, 23_456, 45_678, 91_000, 150_000, 300_007, 700_000, 1_300_000,
    2_500_000, 5_500_000, 11_111_111, 27_000_000, 90_000_001, 300_000_000, 800_000_000,
)  # fmt: skip
#: A pinned copy out of the GPU takes no longer for more bytes up to here somewhere: quarters of an octave show where.
_FLAT_UNTIL = (10 * KIB, 14 * KIB)
#: Chunks and counts of copies in several streams at once. One is of no whole pages, as a program's seldom are: of more than
#: 176 streams out of the GPU, those that are take 1 % less (`validation/rows_by_count.py`).
ROW_CHUNKS = (
    1, KIB, 2 * KIB, 8 * KIB, 12 * KIB, 16 * KIB, 32 * KIB, 47_000, 64 * KIB, 96 * KIB, 128 * KIB, 192 * KIB, 256 * KIB,
    512 * KIB, MIB, 4 * MIB,
)  # fmt: skip
#: What a copy out of the GPU adds grows up to some 180 streams, and hardly further; into it the number makes no difference.
ROW_COUNTS, OUT_ONLY_COUNTS = (2, 3, 4, 8, 32, 64, 96, 128, 176, 256), (176,)
#: Of so many streams a sample takes longer to submit than to run, and without these chunks rows are as near: what they
#: would cost is time for more visits of others.
MANY_STREAMS, NOT_OF_MANY = 96, (96 * KIB, 192 * KIB, MIB)
#: Of a quick run.
QUICK_CHUNKS = (1, 2 * KIB, 32 * KIB, 128 * KIB, MIB)
HELD_OUT_CHUNKS = (37, 1500, 10_000, 50_000, 100_000, 400_000, 2_500_000)
HELD_OUT_COUNTS = (16, 100, 200)
#: Chunks of the hybrid whose kernels' lulls are fitted: long enough for the link, too many for their number not to show.
HYBRID_BYTES, HYBRID_COUNT = 4 * MIB, 32
#: Short chunks of the hybrid that shows how long kernels wait for their copies: a copy is over before the writes beside
#: it, and not before they begin.
SHORT_HYBRID_BYTES, SHORT_HYBRID_COUNT = MIB, 128
#: As many bytes both ways in so many streams: how much longer a byte takes then than in a train of one stream each way.
THROUGH_BYTES, THROUGH_COUNTS = 128 * MIB, (8, 32, 128)
#: As many of them as two GPUs move both ways at once.
THROUGH_BESIDE_COUNT = 8
#: How mapped memory fares while data move the other way too.
MAPPED_BOTH: tuple[Mode, Mode] = ("kernel-both", "kernel-beside-copies")
#: Of such a kernel as many bytes each way as all threads that a GPU holds move once.
ROUND_BYTES = MIB
#: What may go before a copy in place of another copy, and what waits for it.
AFTER: tuple[Mode, Mode] = ("after-kernel", "after-event")
AROUND: tuple[Mode, ...] = (*AFTER, "event-kernel")
#: Sizes of those: of the first two nothing is fitted.
AROUND_BYTES = (1, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
#: Two of them, of what goes in, through an empty kernel and out again.
AND_BACK_BYTES = (64 * KIB, MIB)
#: A kernel on mapped memory, and what moves data both ways at once: few cases, each of which is a parameter.
OTHER_WAY: tuple[Mode, ...] = (
    "kernel",
    "both",
    "beside-mapped",
    "hybrid",
    "through",
    "there-and-back",
    "through-beside-gpu",
    "both-beside-gpu",
    *MAPPED_BOTH,
)
#: From here on a case's precision shows in predictions.
MATTERS = 0.4
#: What programs call most: of three visits a launch took 5.1, 6.8 and 11.9 µs.
_HOST = ("launch", "synchronise")


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
    return case.mode == "streams" and case.count in HELD_OUT_COUNTS


def powers(first: int, last: int, factor: int = 2) -> list[int]:
    """first, first · factor, … up to and including `last`."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def fitted_bytes(most: int) -> list[int]:
    """Powers of two, and between them where the curve bends."""
    between = [size * 3 // 2 for size in powers(*_BEND)]
    return sorted(size for size in {*powers(1, most), *between} if size <= most)


def _knee_bytes(most: int) -> list[int]:
    """Quarters of the octaves in which pageable copies turn."""
    quarters = [size * part // 4 for knee in _KNEES for size in knee for part in (5, 6, 7, 8)]
    return [size for size in quarters if size <= most]


def matters(case: Case) -> float:
    """How much a case's precision is worth, beside that of a pinned copy: the goal for pageable ones is looser, and
    what stands in no curve is shown as it is. MATTERS or more for what parameters of a path rest on.
    """
    if case.mode in OTHER_WAY or (case.mode in AROUND and case.bytes > KIB):
        return 1.0
    if case.mode in _HOST:
        return MATTERS
    curve = case.mode == "streams" or (case.mode == "copies" and case.count == 1)
    return {"pinned": 1.0, "device": 1.0, "pageable": MATTERS}.get(case.memory, 0.3) if curve else 0.3


def full(gpu: int, peers: Sequence[int], most: int = GIB, bound: bool = False) -> Plan:
    """All that 30 seconds hold. `bound`: also with the processor next to the GPU, where others are not next to it."""
    fitted = list(_single("pinned", sorted({*fitted_bytes(most), *_FLAT_UNTIL}), gpu))
    held_out = list(_single("pinned", HELD_OUT_BYTES, gpu))
    fitted += _single("pageable", sorted({*fitted_bytes(most), *_knee_bytes(most)}), gpu)
    held_out += _single("pageable", HELD_OUT_BYTES, gpu)
    fitted += _rows(ROW_CHUNKS, ROW_COUNTS, gpu, most)
    held_out += _rows(HELD_OUT_CHUNKS, HELD_OUT_COUNTS, gpu, most)
    fitted += _device(gpu, peers, most)
    shown = (*_shown(gpu, most), *_placed(gpu, peers, bound, (64 * KIB, 16 * MIB, 64 * MIB)))
    return Plan(tuple(fitted), tuple(held_out), shown)


def quick(gpu: int, peers: Sequence[int], most: int = GIB, bound: bool = False) -> Plan:
    """What 10 seconds hold: the same paths on a coarser grid."""
    fitted = list(_single("pinned", powers(1, most, 4), gpu))
    held_out = list(_single("pinned", HELD_OUT_BYTES[1::2], gpu))
    fitted += _single("pageable", powers(1, min(most, 256 * MIB), 4), gpu)
    held_out += _single("pageable", HELD_OUT_BYTES[1:-2:2], gpu)
    fitted += _rows(QUICK_CHUNKS, (2, 8, 64), gpu, 256 * MIB)
    held_out += _rows(HELD_OUT_CHUNKS[::2], (16,), gpu, 256 * MIB)
    fitted += _device(gpu, peers, 64 * MIB)
    shown = [Case(way, "pinned", "copies", 64, count, gpu) for way in HOST_WAYS for count in (16, 128)]
    shown += [
        Case(way, "pinned", mode, size, 1, gpu)
        for way in HOST_WAYS
        for size in (16 * KIB, 256 * KIB, MIB)
        for mode in AROUND
    ]
    for size, count in ((MIB, 16), (64 * MIB, 4)):
        shown += [Case(way, "pinned", "both", size, count, gpu) for way in HOST_WAYS]
    shown += [Case(way, "pinned", "beside-mapped", 64 * MIB, 1, gpu) for way in HOST_WAYS]
    for way in HOST_WAYS:
        for size in (64 * KIB, MIB, 16 * MIB, 64 * MIB):
            shown += [
                Case(way, "managed", "touch", size, 1, gpu),
                Case(way, "managed", "prefetch", size, 1, gpu),
            ]
        shown += [Case(way, "mapped", "kernel", size, 1, gpu) for size in powers(64 * KIB, 64 * MIB, 16)]
        shown += [Case(way, "mapped", mode, 64 * MIB, 1, gpu) for mode in MAPPED_BOTH]
    shown += [Case("h2d", "pinned", "streams", HYBRID_BYTES, HYBRID_COUNT, gpu)]
    shown += [Case("d2h", "mapped", "kernel", HYBRID_BYTES, 1, gpu)]
    shown += _written(gpu, (4 * MIB, 16 * MIB, 64 * MIB))
    shown += _placed(gpu, peers, bound, (64 * MIB,))
    return Plan(tuple(fitted), tuple(held_out), (*shown, *_costs(gpu, 16 * MIB)))


def _single(memory: Memory, sizes: Sequence[int], gpu: int) -> Iterator[Case]:
    for way, size in product(HOST_WAYS, sizes):
        yield Case(way, memory, "copies", size, 1, gpu)


def _rows(chunks: Sequence[int], counts: Sequence[int], gpu: int, most: int) -> Iterator[Case]:
    for way, chunk, count in product(HOST_WAYS, chunks, counts):
        left_out = count >= MANY_STREAMS and chunk in NOT_OF_MANY
        left_out |= way == "h2d" and count in OUT_ONLY_COUNTS
        if chunk * count <= most and not left_out:
            yield Case(way, "pinned", "streams", chunk, count, gpu)


def _device(gpu: int, peers: Sequence[int], most: int) -> Iterator[Case]:
    for size in powers(1, most, 4):
        yield Case("d2d", "device", "copies", size, 1, gpu)
        for peer in peers:
            yield Case("p2p", "device", "copies", size, 1, gpu, peer)


def _shown(gpu: int, most: int) -> Iterator[Case]:
    """What has no curve of its own in a node file, or is shown beside one."""
    wide = min(most, 256 * MIB)
    for way, size in product(HOST_WAYS, AROUND_BYTES):
        yield from (Case(way, "pinned", mode, size, 1, gpu) for mode in AROUND)
    for way in HOST_WAYS:
        for chunk, count in product((64, 4 * KIB, 64 * KIB, MIB), (16, 128)):
            for mode in ("copies", "batch", "graph"):
                yield Case(way, "pinned", mode, chunk, count, gpu)
        for width in (64, 512, 4 * KIB, 64 * KIB):
            yield Case(way, "pinned", "plane", width, 1024, gpu)
            yield Case(way, "pinned", "block", width, 1024, gpu)
            yield Case(way, "pinned", "packed", width, 1024, gpu)
            yield Case(way, "pinned", "copies", width * 1024, 1, gpu)
        # The link's pace from long trains, which fill no cache; what each copy adds from many short ones. No longer than
        # a few milliseconds: a quiet moment of the host's memory is as short.
        for size, count in ((64 * KIB, 4), (MIB, 32), (16 * MIB, 4), (64 * MIB, 4)):
            yield Case(way, "pinned", "both", size, count, gpu)
            yield Case(way, "pinned", "beside-mapped", size, 1, gpu)
        for size, both in product((16 * MIB, 64 * MIB), MAPPED_BOTH):
            yield Case(way, "mapped", both, size, 1, gpu)
        for size in (1, KIB, 16 * KIB, 64 * KIB, MIB):
            yield Case(way, "pinned", "unblocked", size, 1, gpu)
        for size in powers(64 * KIB, wide, 4):
            yield Case(way, "mapped", "kernel", size, 1, gpu)
            yield Case(way, "registered", "copies", size, 1, gpu)
            yield Case(way, "write-combined", "copies", size, 1, gpu)
        for size in powers(64 * KIB, wide, 4):
            yield Case(way, "managed", "touch", size, 1, gpu)
            yield Case(way, "managed", "prefetch", size, 1, gpu)
        if most >= GIB:
            yield Case(way, "pinned", "again", 512 * MIB, 16, gpu)
    # One round of threads, the first of which have nothing to write and the last ones nothing to read.
    yield Case("h2d", "mapped", "kernel-both", ROUND_BYTES, 1, gpu)
    # Closer where buffers outgrow the processor's cache.
    yield from _written(gpu, sorted({*powers(MIB, wide, 4), *powers(8 * MIB, min(wide, 32 * MIB), 4)}))
    yield from _costs(gpu, wide)


def _written(gpu: int, sizes: Sequence[int]) -> Iterator[Case]:
    """What depends on what the processor, or a kernel, writes at the same time or just before."""
    for size in AND_BACK_BYTES:
        yield Case("h2d", "pinned", "there-and-back", size, 1, gpu)
    yield Case("h2d", "pinned", "hybrid", HYBRID_BYTES, HYBRID_COUNT, gpu)
    yield Case("h2d", "pinned", "hybrid", SHORT_HYBRID_BYTES, SHORT_HYBRID_COUNT, gpu)
    for count in THROUGH_COUNTS:
        yield Case("h2d", "pinned", "through", THROUGH_BYTES // count, count, gpu)
    for size in sizes:
        yield Case("h2d", "pinned", "written", size, 1, gpu)
        yield Case("h2d", "managed", "written", size, 1, gpu)
        for way in HOST_WAYS:
            yield Case(way, "pageable", "written", size, 1, gpu)


def _placed(gpu: int, peers: Sequence[int], bound: bool, sizes: Sequence[int]) -> Iterator[Case]:
    """What depends on what else hangs on the host: other GPUs that copy too, and which processor issues."""
    # More than a processor's cache holds, which is up to half as fast again.
    for way, peer in product(HOST_WAYS, _two_of(peers, gpu)):
        yield Case(way, "pinned", "both-beside-gpu", 64 * MIB, 4, gpu, peer)
    for peer in _two_of(peers, gpu):
        chunk = THROUGH_BYTES // THROUGH_BESIDE_COUNT
        yield Case("h2d", "pinned", "through-beside-gpu", chunk, THROUGH_BESIDE_COUNT, gpu, peer)
    for way, size in product(HOST_WAYS, sizes):
        for peer in peers:
            yield Case(way, "pinned", "beside-gpu", size, 4, gpu, peer)
        if bound:
            yield Case(way, "pinned", "bound", size, 1, gpu)
            yield Case(way, "pageable", "bound", size, 1, gpu)


def _two_of(peers: Sequence[int], gpu: int) -> list[int]:
    """Of many other GPUs two: the next one, which often hangs on the same processor, and one half-way round."""
    ring = sorted(peers, key=lambda peer: (peer < gpu, peer))
    return sorted({ring[0], ring[len(ring) // 2]}) if ring else []


def _costs(gpu: int, most: int) -> Iterator[Case]:
    for mode in ("empty", "call", "launch", "synchronise", "create-stream", "create-event"):
        yield Case("none", "none", mode, 0, 1, gpu)
    for size in powers(4 * KIB, most, 16):
        yield Case("none", "pinned", "allocate", size, 1, gpu)
        yield Case("none", "device", "allocate", size, 1, gpu)
        yield Case("none", "pageable", "register", size, 1, gpu)
