"""Parts read by processes of this machine, whatever becomes of these."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

from busfare.errors import InputError
from busfare.jobs.parts import Part, size_of
from busfare.nodes import Node

#: What a worker does with a part, given the node that the user named: its Outcome as JSON.
Work = Callable[[Part, "Node | None"], bytes]
#: A part whose workers died is tried so often with nothing beside it before it is reported.
ALONE_TRIES = 2
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
#: Of either version of control groups: its folder, files of the limit and of what is taken, and in memory.stat what caches
#: of files hold [Linux, Documentation: cgroup-v2, cgroup-v1/memory].
VERSION_2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
VERSION_1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def read_by(
    workers: Processes, parts: Iterator[Part], node: Node | None, work: Work
) -> Generator[tuple[Part, bytes | str]]:
    """Each part with its Outcome, as they come, or with why there is none: its workers died.

    Raises InputError if the workers cannot do the work at all.
    """
    running: dict[Future[bytes], tuple[Part, int]] = {}
    suspects: deque[tuple[Part, int]] = deque()
    while True:
        while len(running) < workers.wanted() and (part := next(parts, None)):
            running[workers.submit(work, part, node)] = part, 0
        if not running and suspects:
            part, deaths = suspects.popleft()
            running[workers.submit(work, part, node)] = part, deaths
        if not running:
            return
        for future in wait(running, LOOK_SECONDS, FIRST_COMPLETED).done:
            part, deaths = running.pop(future)
            try:
                outcome: bytes | str = future.result()
            except BrokenProcessPool as error:
                # All that the dead had to do is blamed: who is to blame shows when each is tried alone.
                if deaths < ALONE_TRIES:
                    suspects.append((part, deaths + 1))
                    continue
                outcome = f"every worker that read it died ({short(error)})"
            except Exception as error:  # do_part never raises: the worker could not even run it
                raise InputError(
                    f"a worker failed ({type(error).__name__}: {short(error)}); install busfare again"
                ) from None
            yield part, outcome


def short(error: BaseException) -> str:
    """The last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


class Processes:
    """Processes of this machine. A context: they end with it, at once. `wanted`: how many parts to have handed out."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._earlier_children = multiprocessing.active_children()
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in multiprocessing.active_children():
            if process not in self._earlier_children:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def wanted(self) -> int:
        return self._jobs + 1

    def submit(self, task: Callable[..., bytes], *arguments: Any) -> Future[bytes]:
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


def usual_processes(parts: Sequence[Part]) -> int:
    """How many processes read `parts` where the user does not say: one, or of many parts one a core, as memory allows.

    Another program than `busfare` starts none unasked: each would import that program's main module again.
    """
    main = sys.modules["__main__"]
    of_busfare = main.__spec__.parent if main.__spec__ else Path(getattr(main, "__file__", "")).name
    if len(parts) < MANY_PARTS or of_busfare != "busfare":
        return 1
    largest = max((size_of(part.path) for part in parts), default=0)
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, MOST_PROCESSES, free_memory() // (PROCESS_BYTES + BYTES_A_BYTE * largest)))


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be taken on this machine, and in each group that this process is in or that holds one of these:
    what caches of files hold is free, too. `root`: of the file system.
    """
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    free = [
        int(available[1]) << 10 if available else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    ]
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, taken, cached = VERSION_1 if controllers else VERSION_2
        within = PurePosixPath(path.lstrip("/"))
        for group in (root / folder / level for level in (within, *within.parents)):
            most, used = _text(group / limit), _text(group / taken)
            if most.isdigit() and used.isdigit():
                held = re.search(rf"^{cached} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
                free.append(max(0, int(most) - int(used) + (int(held[1]) if held else 0)))
    return min(free)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
