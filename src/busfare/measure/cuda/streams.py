"""Work of several streams: a chunk in each, kernels that wait for copies, and hybrids of copies and mapped writes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import lead_in_of
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import record, seconds, synchronised, wait

__all__ = ["event_kernel", "hybrid", "streams", "through"]


def streams(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A chunk a stream: all wait for one event behind the blocking kernel; the last one's end counts."""
    copy = submit.one(case, ends, board)

    def issue(streams: Sequence[Any]) -> None:
        for i, stream in enumerate(streams):
            copy(i, stream)

    return _in_streams(issue, case.count, board, repeats)


def event_kernel(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy, and an empty kernel of another stream that waits for it."""
    copy, lead_in = submit.one(case, ends, board), lead_in_of(case, board, ends)
    (first, other), (start, copied, end) = board.streams(2), board.events(3)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        lead_in(first)
        record(start, first)
        before = clock()
        copy(0, first)
        record(copied, first)
        wait(other, copied)
        board.kernels.launch("nothing", other)
        after = clock()
        record(end, other)
        board.flags.release()
        synchronised(other)
        board.flags.verify()
        device_s.append(seconds(start, end))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))


def hybrid(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A chunk a stream: copies in, then kernels that write as many bytes of mapped memory; the last one's end counts."""
    copy = submit.one(case, ends, board)
    mapped = board.buffer("pinned", "target", case.count * ends.pitch)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong

    def issue(streams: Sequence[Any]) -> None:
        for i, stream in enumerate(streams):
            copy(i, stream)
        for i, stream in enumerate(streams):
            at = i * ends.pitch
            arguments = (ends.target + at, mapped + at, case.bytes // 16)
            board.kernels.launch_wide("copy16", stream, arguments, (pointer, pointer, long))

    return _in_streams(issue, case.count, board, repeats)


def through(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """Chunks in, an empty kernel each, and as many bytes out, a stream a chunk: submitted step by step, as programs that
    overlap both ways are; the last one's end counts.
    """
    copy = submit.one(case, ends, board)
    out = Case("d2h", case.memory, case.mode, case.bytes, case.count, case.gpu)
    back = submit.one(out, submit.ends_of(out, board, None), board)

    def issue(streams: Sequence[Any]) -> None:
        for i, stream in enumerate(streams):
            copy(i, stream)
        for stream in streams:
            board.kernels.launch("nothing", stream)
        for i, stream in enumerate(streams):
            back(i, stream)

    return _in_streams(issue, case.count, board, repeats)


def _in_streams(issue: Callable[[Sequence[Any]], None], count: int, board: Board, repeats: int) -> Samples:
    """Samples of work in `count` streams that begin at one event behind the blocking kernel, until the last one's end."""
    first, *streams = board.streams(count + 1)
    start, *ended = board.events(count + 1)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        record(start, first)
        for stream in streams:
            wait(stream, start)
        before = clock()
        issue(streams)
        after = clock()
        for stream, end in zip(streams, ended, strict=True):
            record(end, stream)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(max(seconds(start, end) for end in ended))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))
