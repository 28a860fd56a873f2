"""A machine with NVIDIA GPUs, measured through the driver API: how each mode of a case is issued and timed, a small function
a mode. Copies have ends: a source and a target; calls, and managed memory on its way to the other side, have none.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from busfare.measure.cases import (
    ACROSS_ENGINES,
    ACROSS_STREAMS,
    ALL_GPUS,
    ALL_GPUS_DUPLEX,
    Case,
    Direction,
    Samples,
)
from busfare.measure.cuda import driver as cuda
from busfare.measure.cuda import timing
from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.host import CudaHost, roomy_bytes
from busfare.measure.cuda.rates import RATES, Communicators
from busfare.measure.cuda.timing import Issue, Step, Timed
from busfare.measure.kernels import kind_of
from busfare.measure.run import UnavailableError

#: Chunks start at multiples of this, as allocators give them, so that no two share a line.
_STEP = 256
#: Untimed pageable copies of each visit, so that what fits the processor's cache is in it; longer ones need none.
_CACHE_FILLS, _CACHE_BYTES = 2, 1 << 26
#: Bytes of the copy that waits until freed memory is cleared.
_FIRST_PART = 1 << 24
#: A pass of the kernel beside a copy: short enough to wait for its end, long enough to fill the link; and its start.
_TRAFFIC_BYTES, _TRAFFIC_START_S = 1 << 25, 5e-4


class Ends:
    """Source and destination of a case: addresses, memory kind and GPU of the destination, and the bytes from one chunk
    to the next. Functions that issue copies: `copy` for one chunk, `train` for all in a row in the first stream, and
    `lead_in` for a short copy of the same direction.
    """

    def __init__(self, case: Case, board: Board, peer: Board | None = None) -> None:
        """Raises UnavailableError where memory does not suffice."""
        self._case, self._here = case, board
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
        self.copy = self._copier(case.bytes)
        self.lead_in = partial(self._copier(min(case.bytes, timing.LEAD_IN_BYTES)), 0)

    @property
    def checked(self) -> tuple[str, int, int, int]:
        """The target's kind of memory, bytes, those of a chunk, and those from one to the next."""
        return self.target_kind, self._case.total_bytes, self._case.bytes, self.pitch

    def train(self, streams: Sequence[Any]) -> None:
        for i in range(self._case.count):
            self.copy(i, streams[0])

    def _copier(self, size: int) -> Callable[[int, Any], None]:
        """What issues the copy of `size` bytes of chunk `i` into a stream."""
        pitch, source, target, direction = self.pitch, self.source, self.target, self._case.direction
        there, here = self.board.context, self._here.context
        copy = cuda.copy_of(direction) if direction != "p2p" else None

        def issue(i: int, stream: Any) -> None:
            to, at = target + i * pitch, source + i * pitch
            if copy is None:
                checked(driver.cuMemcpyPeerAsync(to, there, at, here, size, stream), "cuMemcpyPeerAsync")
            else:
                checked(copy(to, at, size, stream), f"{direction} copy")

        return issue


def copies(case: Case, board: Board, ends: Ends, repeats: int, held: bool = True) -> Samples:
    """Samples of copies in their mode. Raises UnavailableError where this GPU or its driver has none of it."""
    if case.memory == "pageable":
        return _by_the_host(case, board, ends, repeats)
    if case.mode == "reallocated":
        return _reallocated(case, board, ends, repeats)
    streams = {
        "streams": case.count, ACROSS_STREAMS: case.count, ACROSS_ENGINES: 3, "event-kernel": 2,
    }.get(case.mode, 1)  # fmt: skip
    more: dict[str, Any] = {"led": case.mode == "event-kernel", "held": held}
    if case.mode in _LED_IN:
        more["lead_in"] = ends.lead_in
    if case.mode in ("both", "kernel-beside-copies"):
        more["opposing"] = _opposing(case, board)
    issue = _ISSUES[case.mode](case, board, ends) if case.mode in _ISSUES else ends.train
    if case.mode != "beside-mapped":
        return timing.sampled(board, issue, repeats, streams, **more)
    samples = Samples((), ())
    for _ in range(repeats):
        with _traffic(case, board):
            samples += timing.sampled(board, issue, 1, **more)
    return samples


def _of_all(case: Case, boards: Sequence[Board], repeats: int) -> Samples:
    """Copies of every GPU at once, in one mode with others beside them the other way: seconds of each at the mean rate."""
    timed, targets = [], []
    for board in boards:
        board.enter()
        ends = Ends(case, board)
        targets.append((board, ends.checked))
        board.poison(*ends.checked)
        opposing = _opposing(case, board) if case.mode == ALL_GPUS_DUPLEX else None
        timed.append(Timed(board, ends.train, opposing=opposing))
    runs = [timing.once(timed) for _ in range(repeats)]
    for board, target in targets:
        board.enter()
        board.check(*target)
    return Samples(
        tuple(len(ends) / sum(1 / end for end in ends) for ends, _ in runs),
        tuple(sum(calls) for _, calls in runs),
    )


def _opposite(case: Case) -> Case:
    """The same in the other direction."""
    direction: Direction = "d2h" if case.direction == "h2d" else "h2d"
    return replace(case, direction=direction)


def _by_the_host(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """Pageable copies, which the host moves: a blocking kernel would wait for them for ever, and the API time runs until
    the data are there, for the call may return earlier.
    """
    streams, (start, end) = board.streams(1), board.events(2)
    fills = _CACHE_FILLS if case.total_bytes <= _CACHE_BYTES else 0
    device_s, api_s = [], []
    for _ in range(fills + repeats):
        cuda.record(start, streams[0])
        before = time.perf_counter()
        ends.train(streams)
        cuda.record(end, streams[0])
        cuda.synchronise(streams[0])
        api_s.append(time.perf_counter() - before)
        device_s.append(cuda.seconds(start, end))
    return Samples(tuple(device_s[fills:]), tuple(api_s[fills:]))


def _reallocated(case: Case, board: Board, ends: Ends, repeats: int) -> Samples:
    """A buffer is freed and allocated again (API time), and its first part copied: the host's clock until that has arrived.
    The copy waits until the driver has cleared what was freed.
    """
    (stream,), device_s, api_s, target = board.streams(1), [], [], 0
    for _ in range(repeats):
        before = time.perf_counter()
        target = board.reallocated(case.bytes)
        api_s.append(time.perf_counter() - before)
        cuda.copier(case.direction, target, ends.source, ends.checked[1])(stream)
        cuda.synchronise(stream)
        device_s.append(time.perf_counter() - before)
    cuda.copier("d2d", ends.target, target, ends.checked[1])(stream)  # where it is checked
    return Samples(tuple(device_s), tuple(api_s))


def _opposing(case: Case, board: Board) -> Callable[[Any], None]:
    """Pinned copies of the same size in the other direction: twice as many as the case's, and two more."""
    copy = Ends(replace(_opposite(case), memory="pinned"), board).copy

    def issue(stream: Any) -> None:
        for n in range(2 * case.count + 2):
            copy(n % case.count, stream)

    return issue


@contextmanager
def _traffic(case: Case, board: Board) -> Iterator[None]:
    """A kernel reads or writes mapped memory the other way meanwhile, as in hybrid strategies [W14]."""
    reads = case.direction == "d2h"
    mapped = board.buffer("pinned", "source" if reads else "target", case.total_bytes)
    span, aside = min(board.most("pinned"), _TRAFFIC_BYTES), board.streams(2)[1]
    board.flags.start_traffic(aside, mapped, span, reads, board.multiprocessors)
    time.sleep(_TRAFFIC_START_S)
    try:
        yield
    finally:
        board.flags.stop_traffic()
        cuda.synchronise(aside)


def _there_and_back(case: Case, board: Board, ends: Ends) -> Issue:
    """A copy in, an empty kernel and a copy out of as many bytes in one stream."""
    out = Ends(_opposite(case), board).copy

    def issue(streams: Sequence[Any]) -> None:
        ends.copy(0, streams[0])
        board.kernels.launch("nothing", streams[0])
        out(0, streams[0])

    return issue


def _event_kernel(case: Case, board: Board, ends: Ends) -> Issue:
    """A copy, and an empty kernel of another stream that waits for it."""
    # The first four time the two streams.
    copied = board.events(5)[-1]

    def issue(streams: Sequence[Any]) -> None:
        ends.copy(0, streams[0])
        cuda.record(copied, streams[0])
        cuda.wait(streams[1], copied)
        board.kernels.launch("nothing", streams[1])

    return issue


def _streams(case: Case, board: Board, ends: Ends) -> Issue:
    """A copy a stream."""

    def issue(streams: Sequence[Any]) -> None:
        for i, stream in enumerate(streams):
            ends.copy(i, stream)

    return issue


def _across(case: Case, board: Board, ends: Ends) -> Issue:
    """Chunks copied in, computed on and copied out, breadth first: in a stream each, or in a stream an engine."""
    out, count = Ends(_opposite(case), board), case.count
    many = case.mode == ACROSS_STREAMS

    def kernel(i: int, stream: Any) -> None:
        at, to = ends.target + i * ends.pitch, out.source + i * out.pitch
        board.launch_wide("copy16", stream, at, to, case.bytes // 16)

    # Loaded late, behind the blocking kernel, it would wait for that one for ever.
    kernel(0, board.streams(1)[0])
    cuda.finish()
    stages: tuple[Callable[[int, Any], None], ...] = (ends.copy, kernel, out.copy)
    steps = [
        Step(i if many else stage, partial(work, i), () if many or stage == 0 else ((stage - 1) * count + i,))
        for stage, work in enumerate(stages)
        for i in range(count)
    ]
    return timing.in_order(board, steps)


def _batch(case: Case, board: Board, ends: Ends) -> Issue:
    """All copies in one call."""
    starts = [i * ends.pitch for i in range(case.count)]
    issue = cuda.batched([(ends.target + at, ends.source + at) for at in starts], [case.bytes] * case.count)
    return lambda streams: issue(streams[0])


def _kernel(case: Case, board: Board, ends: Ends) -> Issue:
    """A kernel reads mapped memory (h2d), writes it (d2h) or both (kernel-both), alone or while copies run the other way."""
    if case.bytes % 16:
        raise UnavailableError("mapped memory is read in units of 16 bytes")
    name = "read16" if case.direction == "h2d" and case.mode != "kernel-both" else "copy16"
    return lambda streams: board.launch_wide(name, streams[0], ends.source, ends.target, case.bytes // 16)


#: What issues each mode of a case whose data have ends; other modes a train of copies.
_ISSUES: dict[str, Callable[[Case, Board, Ends], Issue]] = {
    "there-and-back": _there_and_back,
    "event-kernel": _event_kernel,
    "streams": _streams,
    **dict.fromkeys((ACROSS_STREAMS, ACROSS_ENGINES), _across),
    "batch": _batch,
    **dict.fromkeys(("kernel", "kernel-both", "kernel-beside-copies"), _kernel),
}
#: Modes with a lead-in. `after-kernel` is right behind the blocking kernel; the others begin with no copy, or with several.
_LED_IN = {"copies", "there-and-back", "event-kernel", "batch", "beside-mapped"}


class CudaDevice(CudaHost):
    """Runs cases on real GPUs."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._nccl: Communicators | None = None
        #: Whether each ordered pair of GPUs that was asked for copies without the host's help.
        self._direct: dict[tuple[int, int], bool] = {}
        self.most_bytes = min(MOST_BYTES, roomy_bytes())

    def run(self, case: Case, repeats: int) -> Samples:
        if (kind := kind_of(case)) is not None:
            if self._nccl is None:
                self._nccl = Communicators([self.board_of(ordinal) for ordinal in range(self.gpus)])
            return self._nccl.samples(kind, case, repeats)
        if case.mode in (ALL_GPUS, ALL_GPUS_DUPLEX):
            return _of_all(case, [self.board_of(ordinal) for ordinal in range(self.gpus)], repeats)
        board = self.board_of(case.gpu)
        board.enter()
        if case.mode in timing.CALLS:
            return timing.CALLS[case.mode](case, board, repeats)
        if (rate := RATES.get(case.mode.partition("-")[0])) is not None:
            return rate(case, board, repeats)
        return self._copied(case, board, repeats)

    def _copied(self, case: Case, board: Board, repeats: int) -> Samples:
        """Samples of copies; their target is overwritten before, and compared afterwards."""
        peer = None if case.peer is None else self.board_of(case.peer)
        board.enter()
        part = replace(case, bytes=min(case.bytes, _FIRST_PART)) if case.mode == "reallocated" else case
        ends = Ends(part, board, peer)
        # A kernel that only reads leaves nothing to check.
        written = case.mode not in ("kernel", "kernel-beside-copies") or case.direction == "d2h"
        if written:
            ends.board.enter()
            ends.board.poison(*ends.checked)
            board.enter()
        # The host stages what cannot reach the other GPU, and may wait for a stream that a blocking kernel holds.
        samples = copies(case, board, ends, repeats, held=peer is None or self._reaches(board, peer))
        if written:
            ends.board.enter()
            ends.board.check(*ends.checked)
        return samples

    def close(self) -> None:
        if self._nccl is not None:
            self._nccl.close()
            self._nccl = None
        super().close()

    def _reaches(self, here: Board, there: Board) -> bool:
        """Whether one GPU copies to another without the host's help."""
        pair = (here.ordinal, there.ordinal)
        if pair not in self._direct:
            can = checked(driver.cuDeviceCanAccessPeer(here.handle, there.handle), "cuDeviceCanAccessPeer")
            here.enter()
            if can:
                checked(driver.cuCtxEnablePeerAccess(there.context, 0), "cuCtxEnablePeerAccess")
            self._direct[pair] = bool(can)
        return self._direct[pair]
