"""What single calls cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.memory import allocate, register
from busfare.measure.cuda.timing import sampled
from busfare.measure.device import UnavailableError

__all__ = ["COSTS"]

Cost = Callable[[Case, Board, int], Samples]


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
    undo: Callable[[Any], Any] = lambda made: checked(driver.cuMemHostUnregister(at))  # noqa: E731
    return _called(lambda: register(at, case.bytes), repeats, undo)


#: What is measured of each mode of a case.
COSTS: dict[str, Cost] = {
    "empty": _empty,
    "launch": _launch,
    "synchronise": _synchronise,
    "allocate": _allocate,
    "register": _register,
}
