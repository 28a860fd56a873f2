"""Work of several streams: a chunk in each, kernels that wait for copies, and hybrids of copies and mapped writes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import lead_in_of
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import in_one_stream, record, seconds, synchronised, wait

__all__ = ["InStreams", "event_kernel", "hybrid", "streams", "there_and_back", "through", "through_of"]


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


def there_and_back(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy in, an empty kernel and a copy of as many bytes out, one behind the other in one stream."""
    copy, back = submit.one(case, ends, board), _back(case, board)

    def issue(stream: Any) -> None:
        copy(0, stream)
        board.kernels.launch("nothing", stream)
        back(0, stream)

    return in_one_stream(issue, board, repeats, lead_in_of(case, board, ends))


def _back(case: Case, board: Board) -> Callable[[int, Any], None]:
    """What issues the copy of chunk `i` out of the GPU, of as many bytes as go in."""
    out = replace(case, direction="d2h", gpu=board.ordinal, peer=None)
    return submit.one(out, submit.ends_of(out, board, None), board)


def through(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """Chunks in, an empty kernel each, and as many bytes out, a stream a chunk: submitted step by step, as programs that
    overlap both ways are; the last one's end counts.
    """
    return _in_streams(through_of(case, board, ends), case.count, board, repeats)


def through_of(case: Case, board: Board, ends: submit.Ends) -> Callable[[Sequence[Any]], None]:
    """What issues the chunks of `through` into their streams."""
    copy, back = submit.one(case, ends, board), _back(case, board)

    def issue(streams: Sequence[Any]) -> None:
        for i, stream in enumerate(streams):
            copy(i, stream)
        for stream in streams:
            board.kernels.launch("nothing", stream)
        for i, stream in enumerate(streams):
            back(i, stream)

    return issue


class InStreams:
    """Work of `issue` in `count` streams of one GPU, which begin at one event behind the blocking kernel."""

    def __init__(self, issue: Callable[[Sequence[Any]], None], count: int, board: Board) -> None:
        self.board, self._issue = board, issue
        self._first, *self._streams = board.streams(count + 1)
        self._start, *self._ended = board.events(count + 1)

    def submit(self, holder: Board | None = None) -> float:
        """Submits it, held until this GPU's word, or `holder`'s, is given; what the calls of `issue` took (s)."""
        flags = self.board.flags
        if holder is None:
            flags.hold(self._first)
        else:
            flags.hold_with(holder.flags, self._first)
        record(self._start, self._first)
        for stream in self._streams:
            wait(stream, self._start)
        before = time.perf_counter()
        self._issue(self._streams)
        taken = time.perf_counter() - before
        for stream, end in zip(self._streams, self._ended, strict=True):
            record(end, stream)
        return taken

    def seconds(self) -> float:
        """From its start to the last one's end, once it is over. Raises StalledError where the blocking kernel gave up."""
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        self.board.flags.verify()
        return max(seconds(self._start, end) for end in self._ended)


def _in_streams(issue: Callable[[Sequence[Any]], None], count: int, board: Board, repeats: int) -> Samples:
    """Samples of work in `count` streams that begin at one event behind the blocking kernel, until the last one's end."""
    work = InStreams(issue, count, board)
    device_s, api_s = [], []
    for _ in range(repeats):
        api_s.append(work.submit())
        board.flags.release()
        device_s.append(work.seconds())
    return Samples(tuple(device_s), tuple(api_s))
