"""A machine with NVIDIA GPUs, measured through the driver API: copies as `copies` has them; and here what has no source and
target, single calls and managed memory on its way to the other side.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from busfare.measure.cases import Case, Samples
from busfare.measure.collectives import kind_of
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.copies import COPIES, Ends, copies
from busfare.measure.cuda.driver import (
    LONG,
    POINTER,
    CudaError,
    allocate,
    checked,
    driver,
    prefer_gpu,
    prefetch,
    register,
)
from busfare.measure.cuda.nccl import Communicators
from busfare.measure.cuda.rates import RATES
from busfare.measure.cuda.timing import record, sampled, seconds
from busfare.measure.device import UnavailableError


def _managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address, size = board.buffer("managed", "source", case.bytes), case.bytes
    (stream,), (start, end) = board.streams(1), board.events(2)
    to, away = (board.ordinal, None) if case.direction == "h2d" else (None, board.ordinal)
    sink = board.buffer("device", "target", 16)
    view = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    by_host = (case.mode, case.direction) == ("touch", "d2h")

    def synchronise() -> None:
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")

    # Pages that were never on a side are made there first, untimed.
    prefetch(address, size, away, stream)
    prefetch(address, size, to, stream)
    synchronise()
    if case.mode == "prefetch":  # as `bench methods` has it; what is touched has no advice
        prefer_gpu(address, size, board.ordinal)
    device_s, api_s = [], []
    try:
        for _ in range(repeats):
            if by_host:
                # As in a program whose kernel writes it: what came by page faults goes back in smaller pieces than what
                # was prefetched.
                board.on_bytes("fill", stream, address, size, size, size)
            else:
                prefetch(address, size, away, stream)
            synchronise()
            before = time.perf_counter()
            if by_host:
                view[::4096].sum()
                api_s.append(time.perf_counter() - before)
                continue
            record(start, stream)
            if case.mode == "prefetch":
                prefetch(address, size, to, stream)
            else:
                board.launch_wide("read16", stream, (address, sink, size // 16), (POINTER, POINTER, LONG))
            record(end, stream)
            synchronise()
            api_s.append(time.perf_counter() - before)
            device_s.append(seconds(start, end))
    finally:
        if case.mode == "prefetch":
            prefer_gpu(address, size, board.ordinal, prefer=False)
    return Samples(tuple(device_s), tuple(api_s))


def _empty(case: Case, board: Board, repeats: int) -> Samples:
    """Two events with nothing between them: what every device time holds besides its copy."""
    return sampled(board, lambda streams: None, repeats)


def _launch(case: Case, board: Board, repeats: int) -> Samples:
    return sampled(board, lambda streams: board.kernels.launch("nothing", streams[0]), repeats)


def _called(make: Callable[[], Any], repeats: int, undo: Callable[[Any], Any] = lambda made: None) -> Samples:
    """The host's clock around a call, and what takes it back."""
    api_s = []
    for _ in range(repeats):
        before = time.perf_counter()
        made = make()
        api_s.append(time.perf_counter() - before)
        undo(made)
    return Samples((), tuple(api_s))


def _synchronise(case: Case, board: Board, repeats: int) -> Samples:
    stream = board.streams(1)[0]
    return _called(lambda: driver.cuStreamSynchronize(stream), repeats)


def _allocate(case: Case, board: Board, repeats: int) -> Samples:
    if case.bytes > board.most(case.memory):
        raise UnavailableError(f"{case.bytes} bytes are more than is left for {case.memory} memory")
    return _called(lambda: allocate(case.memory, case.bytes), repeats, lambda made: made.free())


def _register(case: Case, board: Board, repeats: int) -> Samples:
    """Pinning pages that exist and are resident."""
    at = board.buffer("pageable", "target", case.bytes)

    def undo(_: object) -> None:
        checked(driver.cuMemHostUnregister(at))

    return _called(lambda: register(at, case.bytes), repeats, undo)


#: What is measured of each mode of a case.
CALLS: dict[str, Callable[[Case, Board, int], Samples]] = {
    "touch": _managed,
    "prefetch": _managed,
    "empty": _empty,
    "launch": _launch,
    "synchronise": _synchronise,
    "allocate": _allocate,
    "register": _register,
}


class CudaDevice(facts.CudaHost):
    """Runs cases on real GPUs."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._boards: dict[int, Board] = {}
        self._nccl: Communicators | None = None
        #: Whether each ordered pair of GPUs that was asked for copies without the host's help.
        self._direct: dict[tuple[int, int], bool] = {}
        self._most_bytes = min(MOST_BYTES, facts.roomy_bytes())

    def run(self, case: Case, repeats: int) -> Samples:
        try:
            if (kind := kind_of(case)) is not None:
                return self._communicators().samples(kind, case, repeats)
            board = self._board(case.gpu)
            board.enter()
            if case.mode in CALLS:
                return CALLS[case.mode](case, board, repeats)
            if (rate := RATES.get(case.mode.partition("-")[0])) is not None:
                return rate(case, board, repeats)
            return self._copied(case, board, repeats)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _copied(self, case: Case, board: Board, repeats: int) -> Samples:
        """Samples of copies; their target is overwritten before, and compared afterwards."""
        peer = None if case.peer is None else self._board(case.peer)
        board.enter()
        ends = Ends(case, board, peer)
        target = (ends.target_kind, case.total_bytes, case.bytes, ends.pitch)
        # A kernel that only reads leaves nothing to check.
        written = case.mode not in ("kernel", "kernel-beside-copies") or case.direction == "d2h"
        if written:
            ends.board.enter()
            ends.board.poison(*target)
            board.enter()
        if peer is not None and not self._reaches(board, peer):
            # The host stages them, and may wait for a stream that a blocking kernel holds.
            samples = copies(case, board, ends, repeats, held=False)
        else:
            samples = COPIES[case.mode](case, board, ends, repeats)
        if written:
            ends.board.enter()
            ends.board.check(*target)
        return samples

    def close(self) -> None:
        if self._nccl is not None:
            self._nccl.close()
            self._nccl = None
        for board in self._boards.values():
            board.close()
        self._boards.clear()

    def _communicators(self) -> Communicators:
        if self._nccl is None:
            self._nccl = Communicators([self._board(ordinal) for ordinal in range(self.gpus)])
        return self._nccl

    def _board(self, ordinal: int) -> Board:
        if ordinal not in self._boards:
            self._boards[ordinal] = Board(ordinal, self._most_bytes)
        return self._boards[ordinal]

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
