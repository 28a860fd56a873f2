"""Copies of two GPUs at once: what they share of the host's links and memory shows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from busfare.measure.case import Case, Direction, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import record, seconds
from busfare.measure.cuda.streams import InStreams, through_of
from busfare.measure.device import UnavailableError
from busfare.measure.plan import HOST_WAYS

__all__ = ["BESIDE"]


def _copies(case: Case, board: Board, other: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The copies of `board`'s GPU while those of `other`'s, twice as many and more, run until past their end: the same
    way, or, in the mode `both-beside-gpu`, both ways on both.
    """
    ways = HOST_WAYS if case.mode == "both-beside-gpu" else (case.direction,)
    beside = [
        _Beside(case, way, gpu)
        for gpu in (board, other)
        for way in ways
        if gpu is other or way != case.direction
    ]
    board.enter()
    copy = submit.one(case, ends, board)
    (here,), (start, end) = board.streams(1), board.events(2)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        # All wait for one word, so that they begin together.
        board.enter()
        board.flags.hold(here)
        for copies in beside:
            copies.issue(board)
        board.enter()
        record(start, here)
        before = clock()
        for i in range(case.count):
            copy(i, here)
        after = clock()
        record(end, here)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(seconds(start, end))
        api_s.append(after - before)
        for copies in beside:
            if copies.seconds() < device_s[-1]:
                raise UnavailableError(
                    f"the copies of GPU {copies.board.ordinal} ended first: its link is far faster"
                )
        board.enter()
    return Samples(tuple(device_s), tuple(api_s))


class _Beside:
    """Copies one way of one GPU that outlast those of `case`."""

    def __init__(self, case: Case, way: Direction, board: Board) -> None:
        own = dataclasses.replace(case, direction=way, gpu=board.ordinal, peer=None)
        self.board, self._count = board, case.count
        board.enter()
        self._copy = submit.one(own, submit.ends_of(own, board, None), board)
        # The measured copies have their GPU's first stream and its first two events.
        place = HOST_WAYS.index(way)
        self._stream: Any = board.streams(3)[1 + place]
        self._from, self._last = board.events(6)[2 + 2 * place : 4 + 2 * place]

    def issue(self, holder: Board) -> None:
        """Submits them behind the word that `holder`'s first stream waits for."""
        self.board.enter()
        self.board.flags.hold_with(holder.flags, self._stream)
        record(self._from, self._stream)
        for n in range(2 * self._count + 2):
            self._copy(n % self._count, self._stream)
        record(self._last, self._stream)

    def seconds(self) -> float:
        """How long they took, once they are over. Raises StalledError where the blocking kernel gave up."""
        self.board.enter()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        self.board.flags.verify()
        return seconds(self._from, self._last)


def _through(case: Case, board: Board, other: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The same chunks in, through an empty kernel and out again on both GPUs: until both are through."""
    theirs = dataclasses.replace(case, gpu=other.ordinal, peer=None)
    other.enter()
    there = InStreams(through_of(theirs, other, submit.ends_of(theirs, other, None)), case.count, other)
    board.enter()
    here = InStreams(through_of(case, board, ends), case.count, board)
    device_s, api_s = [], []
    for _ in range(repeats):
        board.enter()
        taken = here.submit()
        other.enter()
        there.submit(board)
        board.flags.release()
        beside = there.seconds()
        board.enter()
        device_s.append(max(here.seconds(), beside))
        api_s.append(taken)
    return Samples(tuple(device_s), tuple(api_s))


#: What measures each mode of two GPUs: the case, its GPU, the other one, the case's ends, and how many samples.
BESIDE: dict[str, Callable[[Case, Board, Board, submit.Ends, int], Samples]] = {
    "beside-gpu": _copies,
    "both-beside-gpu": _copies,
    "through-beside-gpu": _through,
}
