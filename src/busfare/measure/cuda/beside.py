"""Copies of two GPUs at once: what they share of the host's links and memory shows."""

from __future__ import annotations

import dataclasses
import time

from busfare.measure.case import Case, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import record, seconds
from busfare.measure.device import UnavailableError

__all__ = ["beside_gpu"]


def beside_gpu(case: Case, board: Board, other: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The copies of `board`'s GPU while those of `other`'s, twice as many and more, run until past their end."""
    theirs = dataclasses.replace(case, gpu=other.ordinal, peer=None)
    other.enter()
    beside = submit.one(theirs, submit.ends_of(theirs, other, None), other)
    (there,), (from_, last) = other.streams(1), other.events(2)
    board.enter()
    copy = submit.one(case, ends, board)
    (here,), (start, end) = board.streams(1), board.events(2)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        # Both GPUs wait for one word, so that they begin together.
        board.flags.hold(here)
        other.enter()
        other.flags.hold_with(board.flags, there)
        record(from_, there)
        for n in range(2 * case.count + 2):
            beside(n % case.count, there)
        record(last, there)
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
        other.enter()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        other.flags.verify()
        passed = seconds(from_, last)
        board.enter()
        if passed < device_s[-1]:
            raise UnavailableError(f"the copies of GPU {other.ordinal} ended first: its link is far faster")
    return Samples(tuple(device_s), tuple(api_s))
