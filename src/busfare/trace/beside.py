"""Work on many rows by another thread, while this one does something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

#: From here on another thread is worth its start.
MANY_ROWS = 1 << 18
T = TypeVar("T")


def beside(rows: int, work: Callable[[], T]) -> Callable[[], T]:
    """Gives what waits for `work` and hands over its result; of few rows, it is then that the work is done."""
    if rows < MANY_ROWS:
        return work
    thread = ThreadPoolExecutor(1)
    done = thread.submit(work)
    thread.shutdown(wait=False)
    return done.result


def several(rows: int, works: Sequence[Callable[[], T]]) -> list[T]:
    """What each of `works` gives; of many rows, two of them at a time."""
    if rows < MANY_ROWS:
        return [work() for work in works]
    with ThreadPoolExecutor(2) as threads:
        return [done.result() for done in [threads.submit(work) for work in works]]
