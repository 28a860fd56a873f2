"""What single calls cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import in_one_stream
from busfare.measure.cuda.memory import allocate, register
from busfare.measure.device import UnavailableError

__all__ = ["COSTS"]


def _empty(case: Case, board: Board, repeats: int) -> Samples:
    """Two events with nothing between them: what every device time holds besides its copy."""
    return in_one_stream(lambda stream: None, board, repeats)


def _call(case: Case, board: Board, repeats: int) -> Samples:
    """The cheapest call there is: what Python's binding adds to every API time."""
    return _timed(driver.cuDriverGetVersion, repeats)


def _launch(case: Case, board: Board, repeats: int) -> Samples:
    return in_one_stream(lambda s: board.kernels.launch("nothing", s), board, repeats)


def _synchronise(case: Case, board: Board, repeats: int) -> Samples:
    stream = board.streams(1)[0]
    return _timed(lambda: driver.cuStreamSynchronize(stream), repeats)


def _create_stream(case: Case, board: Board, repeats: int) -> Samples:
    return _made(lambda: driver.cuStreamCreate(1), driver.cuStreamDestroy, repeats)


def _create_event(case: Case, board: Board, repeats: int) -> Samples:
    return _made(lambda: driver.cuEventCreate(0), driver.cuEventDestroy, repeats)


def _allocate(case: Case, board: Board, repeats: int) -> Samples:
    if case.bytes > board.most(case.memory):
        raise UnavailableError(f"{case.bytes} bytes are more than is left for {case.memory} memory")
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        made = allocate(case.memory, case.bytes)
        api_s.append(clock() - before)
        made.free()
    return Samples((), tuple(api_s))


def _register(case: Case, board: Board, repeats: int) -> Samples:
    """Pinning pages that exist and are resident."""
    at = board.buffer("pageable", "target", case.bytes)
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        register(at, case.bytes)
        api_s.append(clock() - before)
        checked(driver.cuMemHostUnregister(at), "cuMemHostUnregister")
    return Samples((), tuple(api_s))


def _timed(call: Callable[[], Any], repeats: int) -> Samples:
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        call()
        api_s.append(clock() - before)
    return Samples((), tuple(api_s))


def _made(make: Callable[[], Any], destroy: Callable[[Any], Any], repeats: int) -> Samples:
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        answer = make()
        api_s.append(clock() - before)
        checked(destroy(checked(answer)))
    return Samples((), tuple(api_s))


#: What is measured of each mode of a case.
COSTS: dict[str, Callable[[Case, Board, int], Samples]] = {
    "empty": _empty,
    "call": _call,
    "launch": _launch,
    "synchronise": _synchronise,
    "create-stream": _create_stream,
    "create-event": _create_event,
    "allocate": _allocate,
    "register": _register,
}
