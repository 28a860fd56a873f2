"""What is done otherwise where much is to be done: limits, and work by other threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

#: Usable times in nanoseconds: wide enough for those since 1970, and any difference of two fits 64 bits.
EARLIEST, LATEST = -(1 << 60), 3 << 60
#: A direct table may be this many times longer than what is looked up in it, and so much longer.
SPARSE = 8
SMALL = 1 << 20
#: A run of more calls and operations is not replayed for a report: a replay would take longer than reading.
REPLAYED_ROWS = 2_000_000
#: From here on another thread is worth its start.
MANY_ROWS = 1 << 18
T = TypeVar("T")


def beside(rows: int, work: Callable[[], T]) -> Callable[[], T]:
    """Gives what waits for `work` and hands over its result; of few rows, it is then that the work is done."""
    if rows < MANY_ROWS:
        return work
    from concurrent.futures import ThreadPoolExecutor

    thread = ThreadPoolExecutor(1)
    done = thread.submit(work)
    thread.shutdown(wait=False)
    return done.result


def several(rows: int, works: Sequence[Callable[[], T]]) -> list[T]:
    """What each of `works` gives; of many rows, two of them at a time."""
    if rows < MANY_ROWS:
        return [work() for work in works]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as threads:
        return [done.result() for done in [threads.submit(work) for work in works]]
