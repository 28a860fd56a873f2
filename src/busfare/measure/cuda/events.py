"""Work in streams, held until all of it is submitted, and timed by events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from busfare.measure.case import Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver

__all__ = ["in_one_stream", "record", "seconds", "synchronised", "wait"]


def record(event: Any, stream: Any) -> None:
    """An event where `stream` stands now. Raises CudaError."""
    checked(driver.cuEventRecord(event, stream), "cuEventRecord")


def wait(stream: Any, event: Any) -> None:
    """What `stream` is given from now on waits for `event`. Raises CudaError."""
    checked(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent")


def synchronised(stream: Any) -> None:
    """Waits until `stream` is through. Raises CudaError."""
    checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")


def seconds(start: Any, end: Any) -> float:
    """Between two events that have passed. Raises CudaError."""
    return float(checked(driver.cuEventElapsedTime(start, end), "cuEventElapsedTime")) * 1e-3


def in_one_stream(
    issue: Callable[[Any], None],
    board: Board,
    repeats: int,
    lead_in: Callable[[Any], None] | None = None,
    blocked: bool = True,
) -> Samples:
    """Samples of work in one stream: held until all is submitted, then timed by events around it.

    `lead_in` is issued before the first event, so that the engine that will do the work holds the stream:
    without it, the time holds the way from the blocking kernel to a copy engine.
    """
    (stream,), (start, end) = board.streams(1), board.events(2)
    flags, clock = board.flags, time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        if blocked:
            flags.hold(stream)
        if lead_in:
            lead_in(stream)
        record(start, stream)
        before = clock()
        issue(stream)
        after = clock()
        record(end, stream)
        flags.release()
        synchronised(stream)
        if blocked:
            flags.verify()
        device_s.append(seconds(start, end))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))
