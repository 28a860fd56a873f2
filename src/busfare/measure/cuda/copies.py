"""How the copies of each case are issued and timed: a small function a mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from busfare.measure.cases import Case, Direction, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import LONG, POINTER, checked, driver
from busfare.measure.cuda.timing import LEAD_IN_BYTES, captured, record, sampled, seconds, wait
from busfare.measure.device import UnavailableError

#: Chunks start at multiples of this, as allocators give them, so that no two share a line.
_STEP = 256
#: Untimed pageable copies of each visit, so that what fits the processor's cache is in it; of longer ones the first
#: takes what the third does.
_CACHE_FILLS, _CACHE_BYTES = 2, 1 << 26
#: A pass of the kernel beside a copy: short enough to wait for its end, long enough to fill the link; and its start.
_TRAFFIC_BYTES, _TRAFFIC_START_S = 1 << 25, 5e-4


class Ends:
    """Where a case's data come from and go to: addresses, the target's kind of memory and GPU, and the bytes from one
    chunk or row to the next. And what issues their copies: `one` chunk, the `train` of all behind each other in the first
    of the streams, and the `lead_in`, a short one of the same direction.
    """

    def __init__(self, case: Case, board: Board, peer: Board | None = None) -> None:
        """Raises UnavailableError where memory does not suffice."""
        if case.mode in ("plane", "block"):
            self.pitch = 2 * case.bytes
        else:
            self.pitch = case.bytes if case.count == 1 else -(-case.bytes // _STEP) * _STEP
        host = "pinned" if case.memory == "mapped" else case.memory
        kinds = {"h2d": (host, "device"), "d2h": ("device", host)}
        source, self.target_kind = kinds.get(case.direction, ("device", "device"))
        if case.mode == "kernel-both":
            source = self.target_kind = "pinned"
        self.source = board.buffer(source, "source", case.count * self.pitch)
        self.board = peer or board
        self.board.enter()
        self.target = self.board.buffer(self.target_kind, "target", case.count * self.pitch)
        board.enter()
        self.one = one = self._copier(case, board, case.bytes)
        self.lead_in = partial(self._copier(case, board, min(case.bytes, LEAD_IN_BYTES)), 0)

        def train(streams: Sequence[Any]) -> None:
            for i in range(case.count):
                one(i, streams[0])

        self.train = train

    def _copier(self, case: Case, board: Board, size: int) -> Callable[[int, Any], None]:
        """What issues the copy of `size` bytes of chunk `i` into a stream."""
        pitch, source, target = self.pitch, self.source, self.target
        if case.peer is not None:
            there, here = self.board.context, board.context

            def across(i: int, stream: Any) -> None:
                at = i * pitch
                answer = driver.cuMemcpyPeerAsync(target + at, there, source + at, here, size, stream)
                checked(answer, "cuMemcpyPeerAsync")

            return across
        copy = {
            "h2d": driver.cuMemcpyHtoDAsync, "d2h": driver.cuMemcpyDtoHAsync, "d2d": driver.cuMemcpyDtoDAsync,
        }[case.direction]  # fmt: skip

        def issue(i: int, stream: Any) -> None:
            at = i * pitch
            checked(copy(target + at, source + at, size, stream), f"{case.direction} copy")

        return issue


def _opposite(case: Case) -> Case:
    """The same in the other direction."""
    direction: Direction = "d2h" if case.direction == "h2d" else "h2d"
    return replace(case, direction=direction)


def copies(case: Case, board: Board, ends: Ends, repeats: int, held: bool = True) -> Samples:
    """Copies one after the other."""
    if case.memory == "pageable":
        return _by_the_host(case, board, ends, repeats)
    return sampled(board, ends.train, repeats, held=held, lead_in=ends.lead_in)


def _after_kernel(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """Copies right behind the blocking kernel."""
    return sampled(board, ends.train, repeats)


def _there_and_back(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """A copy in, an empty kernel and a copy out of as many bytes in one stream."""
    into, out = ends.one, Ends(_opposite(case), board).one

    def issue(streams: Any) -> None:
        into(0, streams[0])
        board.kernels.launch("nothing", streams[0])
        out(0, streams[0])

    return sampled(board, issue, repeats, lead_in=ends.lead_in)


def _event_kernel(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """A copy, and an empty kernel of another stream that waits for it."""
    # The first four time the two streams.
    copy, copied = ends.one, board.events(5)[-1]

    def issue(streams: Any) -> None:
        copy(0, streams[0])
        record(copied, streams[0])
        wait(streams[1], copied)
        board.kernels.launch("nothing", streams[1])

    return sampled(board, issue, repeats, 2, led=True, lead_in=ends.lead_in)


def _by_the_host(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """Pageable copies, which the host moves: a blocking kernel would wait for them for ever, and the API time runs until
    the data are there, for the call may return earlier.
    """
    streams, (start, end) = board.streams(1), board.events(2)
    fills = _CACHE_FILLS if case.total_bytes <= _CACHE_BYTES else 0
    device_s, api_s = [], []
    for _ in range(fills + repeats):
        record(start, streams[0])
        before = time.perf_counter()
        ends.train(streams)
        record(end, streams[0])
        checked(driver.cuStreamSynchronize(streams[0]), "cuStreamSynchronize")
        api_s.append(time.perf_counter() - before)
        device_s.append(seconds(start, end))
    return Samples(tuple(device_s[fills:]), tuple(api_s[fills:]))


def _streams(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """A copy a stream."""
    copy = ends.one

    def issue(streams: Any) -> None:
        for i, stream in enumerate(streams):
            copy(i, stream)

    return sampled(board, issue, repeats, case.count)


def batched(pairs: list[tuple[int, int]], sizes: list[int]) -> Callable[[Any], None]:
    """What issues copies of (target, source) in one call. Raises UnavailableError where the driver has none."""
    if not hasattr(driver, "cuMemcpyBatchAsync"):
        raise UnavailableError("this driver has no cuMemcpyBatchAsync (CUDA 12.8 and newer have)")
    targets, sources = ([driver.CUdeviceptr(pair[n]) for pair in pairs] for n in (0, 1))
    attributes = driver.CUmemcpyAttributes()
    attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    count = len(pairs)

    def issue(stream: Any) -> None:
        answer = driver.cuMemcpyBatchAsync(targets, sources, sizes, count, [attributes], [0], 1, stream)
        checked(answer, "cuMemcpyBatchAsync")

    return issue


def _batch(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """All copies in one call."""
    starts = [i * ends.pitch for i in range(case.count)]
    issue = batched([(ends.target + at, ends.source + at) for at in starts], [case.bytes] * case.count)
    return sampled(board, lambda s: issue(s[0]), repeats, lead_in=ends.lead_in)


def _graph(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """All copies captured into a graph, whose launch is timed."""
    with captured(board.streams(1), ends.train) as launch:
        return sampled(board, launch, repeats, lead_in=ends.lead_in)


def _strided(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """One 2D or 3D copy of `count` rows with gaps between them; a block has as many rows a plane as planes."""
    flat = case.mode == "plane"
    rows = case.count if flat else round(case.count**0.5)
    shape: Any = driver.CUDA_MEMCPY2D() if flat else driver.CUDA_MEMCPY3D()
    shape.WidthInBytes, shape.Height = case.bytes, rows
    shape.srcPitch = shape.dstPitch = ends.pitch
    if not flat:
        shape.Depth = case.count // rows
        shape.srcHeight = shape.dstHeight = rows
    kinds = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, driver.CUmemorytype.CU_MEMORYTYPE_HOST
    sides = (("src", case.direction == "h2d", ends.source), ("dst", case.direction == "d2h", ends.target))
    for side, host, address in sides:
        setattr(shape, f"{side}MemoryType", kinds[host])
        setattr(shape, f"{side}{'Host' if host else 'Device'}", address)
    copy = driver.cuMemcpy2DAsync if flat else driver.cuMemcpy3DAsync

    def issue(streams: Any) -> None:
        checked(copy(shape, streams[0]), copy.__name__)

    return sampled(board, issue, repeats, lead_in=ends.lead_in)


def _other_way(case: Case, board: Board) -> Callable[[Any], None]:
    """Pinned copies of the same size in the other direction: twice as many as the case's, and two more."""
    copy = Ends(replace(_opposite(case), memory="pinned"), board).one

    def issue(stream: Any) -> None:
        for n in range(2 * case.count + 2):
            copy(n % case.count, stream)

    return issue


def _both(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """Copies while more of the same size run the other way until past their end."""
    return sampled(board, ends.train, repeats, beside=_other_way(case, board))


def _beside_mapped(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """Copies while a kernel reads or writes mapped memory the other way, as hybrid strategies do [W14]."""
    reads = case.direction == "d2h"
    mapped = board.buffer("pinned", "source" if reads else "target", case.total_bytes)
    span = min(board.most("pinned"), _TRAFFIC_BYTES)
    aside = board.streams(2)[1]
    samples = Samples((), ())
    for _ in range(repeats):
        board.flags.start_traffic(aside, mapped, span, reads, board.multiprocessors)
        time.sleep(_TRAFFIC_START_S)
        try:
            samples += sampled(board, ends.train, 1, lead_in=ends.lead_in)
        finally:
            board.flags.stop_traffic()
            checked(driver.cuStreamSynchronize(aside), "cuStreamSynchronize")
    return samples


def _kernel(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """A kernel that reads mapped memory (h2d), writes it (d2h), or does both at once (kernel-both); by itself, or while
    copies run the other way until past its end.
    """
    if case.bytes % 16:
        raise UnavailableError("mapped memory is read sixteen bytes at a time")
    name = "read16" if case.direction == "h2d" and case.mode != "kernel-both" else "copy16"
    arguments = (ends.source, ends.target, case.bytes // 16)

    def issue(streams: Any) -> None:
        board.launch_wide(name, streams[0], arguments, (POINTER, POINTER, LONG))

    beside = _other_way(case, board) if case.mode == "kernel-beside-copies" else None
    return sampled(board, issue, repeats, beside=beside)


#: What measures each mode of a case whose data have ends: the case, its GPU, its ends, and how many samples.
COPIES: dict[str, Callable[[Case, Board, Ends, int], Samples]] = {
    "copies": copies,
    "after-kernel": _after_kernel,
    "there-and-back": _there_and_back,
    "event-kernel": _event_kernel,
    "streams": _streams,
    "batch": _batch,
    "graph": _graph,
    "plane": _strided,
    "block": _strided,
    "both": _both,
    "beside-mapped": _beside_mapped,
    "kernel": _kernel,
    "kernel-both": _kernel,
    "kernel-beside-copies": _kernel,
}
