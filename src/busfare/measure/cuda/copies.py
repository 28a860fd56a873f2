"""Copies in one stream: one or a train of them, in a batch, as a graph, of rows, and of what was just written."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from busfare.measure.case import Case, Samples
from busfare.measure.cuda import submit
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import in_one_stream, record, seconds, synchronised
from busfare.measure.device import UnavailableError

__all__ = ["batch", "copies", "graph", "lead_in_of", "packed", "strided", "written"]

#: Copies whose data the host itself moves: a blocking kernel would wait for them for ever.
_HOST_MOVED = ("pageable",)
#: Up to here the lead-in is as long as the copy: beyond it every copy takes the same engine.
_LEAD_IN_BYTES = 1 << 16
#: Untimed pageable copies of each visit, besides its first one; of longer ones the first takes what the third does.
_CACHE_FILLS, _CACHE_BYTES = 2, 1 << 26


def lead_in_of(case: Case, board: Board, ends: submit.Ends, chunk: int = 0) -> Callable[[Any], None]:
    """A copy of the same way and, up to a size at which nothing but length matters, of the same bytes."""
    first = submit.one(dataclasses.replace(case, bytes=min(case.bytes, _LEAD_IN_BYTES), count=1), ends, board)
    return lambda stream: first(chunk, stream)


def copies(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """`case.count` copies one after the other. Raises CudaError."""
    copy = submit.one(case, ends, board)
    if case.memory in _HOST_MOVED:
        fills = _CACHE_FILLS if case.total_bytes <= _CACHE_BYTES else 0
        return _by_the_host(copy, case.count, board, repeats, fills)

    def sampled(first: int, repeats: int) -> Samples:
        """Samples of the chunks from `first` on."""

        def issue(stream: Any) -> None:
            for i in range(first, first + case.count):
                copy(i, stream)

        lead_in = None if case.mode in ("after-kernel", "unblocked") else lead_in_of(case, board, ends, first)
        return in_one_stream(issue, board, repeats, lead_in, blocked=case.mode != "unblocked")

    if not ends.apart:
        return sampled(0, repeats)
    return sum((sampled(n, 1) for n in range(repeats)), Samples((), ()))


def _by_the_host(
    copy: Callable[[int, Any], None], count: int, board: Board, repeats: int, fills: int
) -> Samples:
    """Pageable copies: the API time runs until the data are there, for the call may return earlier.

    `fills` copies that are not timed go before: what fits the processor's cache is in it.
    """
    (stream,), (start, end) = board.streams(1), board.events(2)
    clock = time.perf_counter
    device_s, api_s = [], []
    for n in range(-fills, repeats):
        record(start, stream)
        before = clock()
        for i in range(count):
            copy(i, stream)
        record(end, stream)
        synchronised(stream)
        after = clock()
        if n >= 0:
            api_s.append(after - before)
            device_s.append(seconds(start, end))
    return Samples(tuple(device_s), tuple(api_s))


def written(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy from, or to, host memory that this thread has written just before: the processor's own caches hold it."""
    copy = submit.one(case, ends, board)
    at = ends.source if case.direction == "h2d" else ends.target
    words = np.ctypeslib.as_array((ctypes.c_uint64 * (case.bytes // 8)).from_address(at))
    lead_in = lead_in_of(case, board, ends)
    samples = Samples((), ())
    for _ in range(repeats):
        # Every word is written, and none is changed.
        np.bitwise_or(words, 0, out=words)
        if case.memory in _HOST_MOVED:
            samples += _by_the_host(copy, 1, board, 1, 0)
        else:
            samples += in_one_stream(lambda stream: copy(0, stream), board, 1, lead_in)
    return samples


def batch(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """All copies in one call. Raises UnavailableError where the driver has none."""
    if not hasattr(driver, "cuMemcpyBatchAsync"):
        raise UnavailableError("this driver has no cuMemcpyBatchAsync (CUDA 12.8 and newer have)")
    return in_one_stream(submit.batch(case, ends), board, repeats, lead_in_of(case, board, ends))


def graph(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """All copies captured into a graph, whose launch is timed. Raises CudaError."""
    copy = submit.one(case, ends, board)
    stream = board.streams(1)[0]
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    checked(driver.cuStreamBeginCapture(stream, relaxed), "cuStreamBeginCapture")
    for i in range(case.count):
        copy(i, stream)
    captured = checked(driver.cuStreamEndCapture(stream), "cuStreamEndCapture")
    runnable = checked(driver.cuGraphInstantiate(captured, 0), "cuGraphInstantiate")

    def launch(stream: Any) -> None:
        checked(driver.cuGraphLaunch(runnable, stream), "cuGraphLaunch")

    try:
        return in_one_stream(launch, board, repeats, lead_in_of(case, board, ends))
    finally:
        checked(driver.cuGraphExecDestroy(runnable), "cuGraphExecDestroy")
        checked(driver.cuGraphDestroy(captured), "cuGraphDestroy")


def strided(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """Rows with gaps between them, in one call. Raises CudaError."""
    return in_one_stream(submit.strided(case, ends), board, repeats, lead_in_of(case, board, ends))


def packed(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The same rows, packed by a kernel and copied as one. Raises CudaError."""
    return in_one_stream(submit.packed(case, ends, board), board, repeats, lead_in_of(case, board, ends))
