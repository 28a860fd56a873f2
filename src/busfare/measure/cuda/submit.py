"""How each kind of copy is issued: one function a mode, all of them asynchronous."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any
from zlib import crc32

from busfare.measure.case import Case
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver

__all__ = [
    "Ends",
    "batch",
    "ends_of",
    "one",
    "packed",
    "pitch_of",
    "place_of",
    "placed",
    "strided",
]

_DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
_HOST = driver.CUmemorytype.CU_MEMORYTYPE_HOST
#: Pinned copies of these modes begin at another page in each visit, where they span no more than this: on which pages of
#: the host's and the GPU's memory it lies makes a copy of a byte 5 % slower or faster, and nobody knows where a
#: program's own will lie.
_PLACED, _PLACED_BYTES, _PAGE = (
    ("copies", "streams", "after-kernel", "after-event", "event-kernel", "there-and-back", "unblocked"),
    1 << 26,
    1 << 12,
)
#: Single copies up to here lie on pages of their own in each sample.
_APART_MODES, _APART_BYTES = ("copies", "after-kernel", "unblocked"), 1 << 16
#: Chunks start at multiples of this, as allocators give them, so that no two share a line.
_STEP = 256


class Ends:
    """Where a case's data come from and go to, the kind of memory at each end, and the target's GPU. `moved` bytes are
    written in all `samples`; where each of these has pages of its own (`apart`), chunk n is that of sample n.
    """

    def __init__(self, case: Case, board: Board, peer: Board | None, turn: int, samples: int) -> None:
        self.pitch = pitch_of(case)
        span = case.bytes if case.mode == "again" else case.count * self.pitch
        self.moved = case.bytes if case.mode == "again" else case.total_bytes
        self.apart = placed(case) and case.mode in _APART_MODES and case.count == 1 and span <= _APART_BYTES
        if self.apart:
            self.pitch = -(-case.bytes // _PAGE) * _PAGE
            span, self.moved = samples * self.pitch, samples * case.bytes
        #: Bytes from one row to the next at the source.
        self.belongs = self.pitch
        if case.mode == "packed":
            span = 2 * case.total_bytes
            if case.direction == "h2d":
                self.belongs = case.bytes
            else:
                self.pitch = case.bytes
        host = "pinned" if case.memory == "mapped" else case.memory
        source, self.target_kind = {
            "h2d": (host, "device"),
            "d2h": ("device", host),
        }.get(case.direction, ("device", "device"))
        if case.mode == "kernel-both":
            source = self.target_kind = "pinned"
        room = min(board.most(kind) for kind in (source, self.target_kind))
        self.place = place_of(case, span, room, turn)
        self.source = board.buffer(source, "source", span) + self.place
        self.board = peer or board
        if peer is not None:
            peer.enter()
        self.target = self.board.buffer(self.target_kind, "target", span) + self.place
        board.enter()


def ends_of(case: Case, board: Board, peer: Board | None, turn: int = 0, samples: int = 1) -> Ends:
    """The buffers of a case in its visit number `turn`, of so many samples. Raises UnavailableError where memory does not
    suffice.
    """
    return Ends(case, board, peer, turn, samples)


def placed(case: Case) -> bool:
    """Whether a case is measured all over memory."""
    return (
        case.memory == "pinned"
        and case.mode in _PLACED
        and case.direction in ("h2d", "d2h")
        and case.count * pitch_of(case) <= _PLACED_BYTES
    )


def place_of(case: Case, span: int, room: int, turn: int) -> int:
    """Where in buffers of `room` bytes the `span` bytes of a visit begin: the same for the same case and turn."""
    if not placed(case):
        return 0
    return crc32(f"{case} {turn}".encode()) % ((room - span) // _PAGE + 1) * _PAGE


def pitch_of(case: Case) -> int:
    """Bytes from one chunk or row to the next."""
    if case.mode in ("plane", "block", "packed"):
        return 2 * case.bytes
    if case.mode == "again":
        return 0
    return case.bytes if case.count == 1 else -(-case.bytes // _STEP) * _STEP


def one(case: Case, ends: Ends, board: Board) -> Callable[[int, Any], None]:
    """What issues the copy of chunk `i` into a stream."""
    size, pitch, source, target = case.bytes, ends.pitch, ends.source, ends.target
    if case.direction == "h2d":
        copy, name = driver.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync"
    elif case.direction == "d2h":
        copy, name = driver.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync"
    elif case.peer is None:
        copy, name = driver.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync"
    else:
        there, here = ends.board.context, board.context

        def across(i: int, stream: Any) -> None:
            at = i * pitch
            answer = driver.cuMemcpyPeerAsync(target + at, there, source + at, here, size, stream)
            checked(answer, "cuMemcpyPeerAsync")

        return across

    def issue(i: int, stream: Any) -> None:
        at = i * pitch
        checked(copy(target + at, source + at, size, stream), name)

    return issue


def batch(case: Case, ends: Ends) -> Callable[[Any], None]:
    """What issues all chunks in one call."""
    attributes = driver.CUmemcpyAttributes()
    attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    starts = [i * ends.pitch for i in range(case.count)]
    targets = [driver.CUdeviceptr(ends.target + at) for at in starts]
    sources = [driver.CUdeviceptr(ends.source + at) for at in starts]
    sizes = [case.bytes] * case.count

    def issue(stream: Any) -> None:
        answer = driver.cuMemcpyBatchAsync(targets, sources, sizes, case.count, [attributes], [0], 1, stream)
        checked(answer, "cuMemcpyBatchAsync")

    return issue


def packed(case: Case, ends: Ends, board: Board) -> Callable[[Any], None]:
    """What issues one copy of all rows, packed by a kernel on the GPU before it, or taken apart by one after it."""
    together = board.buffer("device", "packed", case.total_bytes)
    # What an earlier visit left would pass for what this one should bring.
    checked(driver.cuMemsetD8(together, 0, case.total_bytes), "cuMemsetD8")
    checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    kinds = (pointer, pointer, long, long, long, long)
    wide, rows, apart = case.bytes // 16, case.count, max(ends.pitch, ends.belongs) // 16

    def issue(stream: Any) -> None:
        if case.direction == "h2d":
            answer = driver.cuMemcpyHtoDAsync(together, ends.source, case.total_bytes, stream)
            checked(answer, "cuMemcpyHtoDAsync")
            arguments = (together, ends.target, wide, rows, wide, apart)
            board.kernels.launch_wide("pack16", stream, arguments, kinds)
        else:
            arguments = (ends.source, together, wide, rows, apart, wide)
            board.kernels.launch_wide("pack16", stream, arguments, kinds)
            answer = driver.cuMemcpyDtoHAsync(ends.target, together, case.total_bytes, stream)
            checked(answer, "cuMemcpyDtoHAsync")

    return issue


def strided(case: Case, ends: Ends) -> Callable[[Any], None]:
    """What issues one 2D or 3D copy of `count` rows; a block has as many rows a plane as planes."""
    flat = case.mode == "plane"
    rows = case.count if flat else round(case.count**0.5)
    shape: Any = driver.CUDA_MEMCPY2D() if flat else driver.CUDA_MEMCPY3D()
    shape.WidthInBytes, shape.Height = case.bytes, rows
    shape.srcPitch = shape.dstPitch = ends.pitch
    if not flat:
        shape.Depth = case.count // rows
        shape.srcHeight = shape.dstHeight = rows
    _end(shape, "src", case.direction == "h2d", ends.source)
    _end(shape, "dst", case.direction == "d2h", ends.target)
    copy = driver.cuMemcpy2DAsync if flat else driver.cuMemcpy3DAsync

    def issue(stream: Any) -> None:
        checked(copy(shape, stream), copy.__name__)

    return issue


def _end(shape: Any, side: str, host: bool, address: int) -> None:
    setattr(shape, f"{side}MemoryType", _HOST if host else _DEVICE)
    setattr(shape, f"{side}{'Host' if host else 'Device'}", address)
