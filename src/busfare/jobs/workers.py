"""Parts read by workers elsewhere, whatever becomes of these: processes of this machine, or others (`cluster.py`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Protocol

from busfare.errors import InputError
from busfare.jobs.memory import free_memory
from busfare.jobs.parts import Part
from busfare.jobs.work import Work, do_part, failed, stamp_of
from busfare.nodes import Node

#: A part whose workers died is tried so often with nothing beside it before it is reported.
ALONE_TRIES = 2
#: Small parts go to a worker together, up to so many bytes: to hand one out may cost as much as to read it.
TOGETHER_BYTES = 4 << 20
LOOK_SECONDS = 2.0
#: Fewer parts are read here, one after the other: to start processes costs a second each.
MANY_PARTS = 16
#: What a process takes before it reads, and at most for each byte of a compressed trace; and how many are started unasked.
PROCESS_BYTES, BYTES_A_BYTE, MOST_PROCESSES = 400 << 20, 100, 16
#: One trace after another takes the same memory: it is not given back to the system in between, by either allocator.
KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}


class Workers(Protocol):
    """Where parts are read. `lost` is what a future raises whose workers died; `together`, the most parts of a group."""

    lost: type[Exception]
    together: int

    def wanted(self) -> int:
        """How many groups of parts to have handed out. Raises InputError if all workers are gone for good."""

    def submit(self, task: Callable[..., list[bytes]], *arguments: Any) -> Future[list[bytes]]:
        """Has a worker call `task`."""


def read_by(
    workers: Workers, parts: Iterator[Part], node: Node | None, work: Work = do_part
) -> Generator[tuple[Part, bytes]]:
    """Each part with its Outcome, as they come.

    Raises InputError if the workers cannot do the work at all, or they or their scheduler are lost.
    """
    running: dict[Future[list[bytes]], tuple[list[Part], int]] = {}
    suspects: deque[tuple[Part, int]] = deque()
    submitted = 0

    # A part at a time first, so that a short job is spread over all workers; then more and more.
    def most() -> int:
        return min(workers.together, 1 + submitted // workers.wanted())

    groups = small_ones_together(parts, most)
    while True:
        while len(running) < workers.wanted() and (group := next(groups, None)):
            running[workers.submit(_do_all, work, group, node)] = group, 0
            submitted += 1
        if not running and suspects:
            part, deaths = suspects.popleft()
            running[workers.submit(_do_all, work, [part], node)] = [part], deaths
        if not running:
            return
        for future in wait(running, LOOK_SECONDS, FIRST_COMPLETED).done:
            group, deaths = running.pop(future)
            outcomes: list[bytes] = []
            try:
                outcomes = future.result()
            except workers.lost as error:
                # All that the dead had to do is blamed: who is to blame shows when each is tried alone.
                if deaths < ALONE_TRIES:
                    suspects.extend((part, deaths + 1) for part in group)
                else:
                    why = f"the workers that read it, and nothing else, died ({short(error)})"
                    outcomes = [failed(part, why) for part in group]
            except CancelledError:
                raise InputError("the Dask scheduler was lost; start it again") from None
            except Exception as error:  # do_part never raises: the worker could not even run it
                raise InputError(
                    f"a worker cannot do the work ({type(error).__name__}: {short(error)}); "
                    "install busfare with the same packages on the workers"
                ) from None
            yield from zip(group, outcomes, strict=False)


def _do_all(work: Work, group: list[Part], node: Node | None) -> list[bytes]:
    return [work(part, node) for part in group]


def small_ones_together(parts: Iterator[Part], most: Callable[[], int]) -> Iterator[list[Part]]:
    """Each part once, in order, with its neighbours as long as they are at most so many, and small together."""
    group: list[Part] = []
    held = 0
    for part in parts:
        size = (stamp_of(part.path) or (0,))[0]
        if group and (len(group) >= most() or held + size > TOGETHER_BYTES):
            yield group
            group, held = [], 0
        group.append(part)
        held += size
    if group:
        yield group


def short(error: BaseException) -> str:
    """The last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


class Processes:
    """Processes of this machine. A context: they end with it, at once."""

    lost: type[Exception] = BrokenProcessPool
    together = 1

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._others = multiprocessing.active_children()
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def wanted(self) -> int:
        return self._jobs + 1

    def submit(self, task: Callable[..., list[bytes]], *arguments: Any) -> Future[list[bytes]]:
        with _starting(self._jobs):
            try:
                return self._pool.submit(task, *arguments)
            except BrokenProcessPool:
                self._pool = self._started()
                return self._pool.submit(task, *arguments)


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """What raises KeyboardInterrupt once Ctrl-C was pressed: Python loses one that comes while it frees an object."""
    pressed = False

    def pressed_now(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def interrupted() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, pressed_now)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _starting(jobs: int) -> Iterator[None]:
    """What is started here shares the cores out, and is deaf to Ctrl-C, which is for us."""
    resource_tracker.ensure_running()  # it would lift what follows
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    settings = {"POLARS_MAX_THREADS": str(max(1, (os.cpu_count() or 1) // jobs)), **KEEPS_MEMORY}
    new = settings.keys() - os.environ.keys()
    os.environ.update((name, settings[name]) for name in new)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        for name in new:
            del os.environ[name]


def _is_busfare(main: ModuleType) -> bool:
    return (
        main.__spec__.parent == "busfare"
        if main.__spec__
        else Path(getattr(main, "__file__", "")).name == "busfare"
    )


def usual_processes(parts: Sequence[Part]) -> int:
    """How many processes read `parts` where the user does not say: one, or of many parts one a core, as memory allows.

    Another program than `busfare` starts none unasked: each would import that program's main module again.
    """
    if len(parts) < MANY_PARTS or not _is_busfare(sys.modules["__main__"]):
        return 1
    largest = max((stamp[0] for part in parts if (stamp := stamp_of(part.path))), default=0)
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, MOST_PROCESSES, free_memory() // (PROCESS_BYTES + BYTES_A_BYTE * largest)))
