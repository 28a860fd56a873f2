"""Copies and kernels on mapped memory while others run the other way."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from busfare.measure.case import Case, Direction, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import lead_in_of
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import in_one_stream, record, seconds, synchronised, wait
from busfare.measure.device import UnavailableError

__all__ = ["beside_mapped", "both", "kernel", "kernel_beside_copies"]

#: Threads a processor of the kernel beside a copy: as few as fill a link by Little's law (16 bytes each, 1 µs of
#: latency, 132 processors: 68 GB/s). More would only queue up, and starve the copy by their number.
_TRAFFIC_THREADS = 32
#: Copies beside a kernel on mapped memory: they outlast it even where it takes three times as long as they do.
_COPIES_BESIDE = 4
#: Time for the traffic kernel to fill the GPU before a copy starts beside it.
_TRAFFIC_START_S = 5e-4


def both(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The measured direction's copies while more of the same size run the other way until past their end."""
    copy = submit.one(case, ends, board)
    opposite = Case(_away(case), case.memory, case.mode, case.bytes, case.count, case.gpu)
    back = submit.one(opposite, submit.ends_of(opposite, board, None), board)

    def issue(stream: Any) -> None:
        for i in range(case.count):
            copy(i, stream)

    def issue_back(stream: Any) -> None:
        for n in range(2 * case.count + 2):
            back(n % case.count, stream)

    ended = "the opposite copies ended first: one direction is over twice as fast"
    return _while(issue_back, issue, board, repeats, ended)


def beside_mapped(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy while a kernel reads or writes mapped memory the other way, as hybrid strategies do [W14]."""
    copy = submit.one(case, ends, board)
    reads = case.direction == "d2h"
    side = "source" if reads else "target"
    mapped = board.buffer("pinned", side, case.total_bytes)
    # Small enough that a pass, and so the wait for its end, is short; large enough to fill the link.
    span = min(board.most("pinned"), 1 << 25)
    _, aside = board.streams(2)
    lead_in = lead_in_of(case, board, ends)

    def issue(stream: Any) -> None:
        for i in range(case.count):
            copy(i, stream)

    samples = Samples((), ())
    for _ in range(repeats):
        board.flags.start_traffic(aside, mapped, span, reads, _TRAFFIC_THREADS)
        time.sleep(_TRAFFIC_START_S)
        try:
            samples += in_one_stream(issue, board, 1, lead_in)
        finally:
            board.flags.stop_traffic()
            synchronised(aside)
    return samples


def kernel(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A kernel that reads mapped memory (h2d), writes it (d2h), or does both at once (kernel-both)."""
    if case.bytes % 16:
        raise UnavailableError("mapped memory is read sixteen bytes at a time")
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    name = "read16" if case.direction == "h2d" and case.mode == "kernel" else "copy16"
    arguments = (ends.source, ends.target, case.bytes // 16)

    def issue(stream: Any) -> None:
        board.kernels.launch_wide(name, stream, arguments, (pointer, pointer, long))

    return in_one_stream(issue, board, repeats)


def kernel_beside_copies(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A kernel that reads or writes mapped memory while copies run the other way until past its end."""
    opposite = Case(_away(case), "pinned", "copies", case.bytes, 1, case.gpu)
    back = submit.one(opposite, submit.ends_of(opposite, board, None), board)
    name = "read16" if case.direction == "h2d" else "copy16"
    arguments = (ends.source, ends.target, case.bytes // 16)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong

    def issue(stream: Any) -> None:
        board.kernels.launch_wide(name, stream, arguments, (pointer, pointer, long))

    def issue_back(stream: Any) -> None:
        for _ in range(_COPIES_BESIDE):
            back(0, stream)

    return _while(issue_back, issue, board, repeats, "the opposite copies ended before the kernel did")


def _away(case: Case) -> Direction:
    return "d2h" if case.direction == "h2d" else "h2d"


def _while(
    issue_back: Callable[[Any], None], issue: Callable[[Any], None], board: Board, repeats: int, ended: str
) -> Samples:
    """Samples of the work of `issue` while that of `issue_back`, which must outlast it, runs in another stream.

    Raises UnavailableError, with the words of `ended`, where it does not.
    """
    first, there, here = board.streams(3)
    start, end, last = board.events(3)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        record(start, first)
        wait(there, start)
        wait(here, start)
        issue_back(here)
        record(last, here)
        before = clock()
        issue(there)
        after = clock()
        record(end, there)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(seconds(start, end))
        api_s.append(after - before)
        if seconds(start, last) < device_s[-1]:
            raise UnavailableError(ended)
    return Samples(tuple(device_s), tuple(api_s))
