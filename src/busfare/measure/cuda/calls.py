"""How calls, and managed memory on its way to the other side, are timed: neither has a source and a target."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from busfare.measure.cases import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import (
    allocate,
    checked,
    driver,
    prefer_gpu,
    prefetch,
    record,
    register,
    seconds,
    synchronise,
    view,
)
from busfare.measure.cuda.timing import sampled
from busfare.measure.device import UnavailableError


def _managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address, size = board.buffer("managed", "source", case.bytes), case.bytes
    (stream,), (start, end) = board.streams(1), board.events(2)
    to, away = (board.ordinal, None) if case.direction == "h2d" else (None, board.ordinal)
    sink, pages = board.buffer("device", "target", 16), view(address, size)
    prefetched = case.mode == "prefetch"
    # Pages that were never on a side are made there first, untimed.
    prefetch(address, size, away, stream)
    prefetch(address, size, to, stream)
    synchronise(stream)
    if prefetched:  # as `bench methods` has it; what is touched has no advice
        prefer_gpu(address, size, board.ordinal)
    device_s, api_s = [], []
    try:
        for _ in range(repeats):
            if by_host := not prefetched and case.direction == "d2h":
                # As in a program whose kernel writes it: what came by page faults goes back in smaller pieces than what
                # was prefetched.
                board.launch_wide("fill", stream, address, size, size, size)
            else:
                prefetch(address, size, away, stream)
            synchronise(stream)
            before = time.perf_counter()
            if by_host:
                pages[::4096].sum()
                api_s.append(time.perf_counter() - before)
                continue
            record(start, stream)
            if prefetched:
                prefetch(address, size, to, stream)
            else:
                board.launch_wide("read16", stream, address, sink, size // 16)
            record(end, stream)
            synchronise(stream)
            api_s.append(time.perf_counter() - before)
            device_s.append(seconds(start, end))
    finally:
        if prefetched:
            prefer_gpu(address, size, board.ordinal, prefer=False)
    return Samples(tuple(device_s), tuple(api_s))


def _called(make: Callable[[], Any], repeats: int, undo: Callable[[Any], Any] = lambda made: None) -> Samples:
    """The host's clock around a call, and what takes it back."""
    api_s = []
    for _ in range(repeats):
        before = time.perf_counter()
        made = make()
        api_s.append(time.perf_counter() - before)
        undo(made)
    return Samples((), tuple(api_s))


def _allocate(case: Case, board: Board, repeats: int) -> Samples:
    if case.bytes > board.most(case.memory):
        raise UnavailableError(f"{case.bytes} bytes are more than is left for {case.memory} memory")
    return _called(lambda: allocate(case.memory, case.bytes), repeats, lambda made: made.free())


def _register(case: Case, board: Board, repeats: int) -> Samples:
    """Pinning pages that exist and are resident."""
    at = board.buffer("pageable", "target", case.bytes)
    undo = partial(driver.cuMemHostUnregister, at)
    return _called(lambda: register(at, case.bytes), repeats, lambda _: checked(undo()))


#: What is measured of each mode of a case; of `empty`, what every device time holds besides its copy.
CALLS: dict[str, Callable[[Case, Board, int], Samples]] = {
    "touch": _managed,
    "prefetch": _managed,
    "empty": lambda case, board, repeats: sampled(board, lambda streams: None, repeats),
    "launch": lambda case, board, repeats: sampled(
        board, lambda streams: board.kernels.launch("nothing", streams[0]), repeats
    ),
    "synchronise": lambda case, board, repeats: _called(
        partial(driver.cuStreamSynchronize, board.streams(1)[0]), repeats
    ),
    "allocate": _allocate,
    "register": _register,
}
