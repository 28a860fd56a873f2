"""Parts read by workers, whatever becomes of these: processes of this machine, or of a Dask cluster that the user runs."""

import gc
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.jobs.parts import Part, size_of
from busfare.nodes import Node
from busfare.printable import printable

#: What a worker does with a part, given the node that the user named: its Outcome as JSON.
Work = Callable[[Part, "Node | None"], bytes]
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
#: Groups of parts handed out at once for each thread of the cluster: enough to keep it busy, few enough to hold no more.
AHEAD, FEWEST_AHEAD = 3, 16
CONNECT_SECONDS = 15
PATIENT_SECONDS = 60.0
#: With no worker for so long after there were some, none will come: a nanny restarts one within seconds.
LONELY_SECONDS = 120.0
#: Of either version of control groups: its folder, files of the limit and of what is taken, and in memory.stat what caches
#: of files hold [Linux, Documentation: cgroup-v2, cgroup-v1/memory].
VERSION_2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
VERSION_1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def read_by(
    workers: "Processes | DaskWorkers", parts: Iterator[Part], node: Node | None, work: Work
) -> Generator[tuple[Part, bytes | str]]:
    """Each part with its Outcome, as they come, or with why there is none: its workers died. Raises InputError if the
    workers cannot do the work at all, or they or their scheduler are lost.
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
            outcomes: Sequence[bytes | str] = []
            try:
                outcomes = future.result()
            except workers.lost as error:
                # All that the dead had to do is blamed: who is to blame shows when each is tried alone.
                if deaths < ALONE_TRIES:
                    suspects.extend((part, deaths + 1) for part in group)
                else:
                    outcomes = [f"every worker that read it died ({short(error)})"] * len(group)
            except CancelledError:
                raise InputError("lost the Dask scheduler; start it again") from None
            except Exception as error:  # do_part never raises: the worker could not even run it
                raise InputError(
                    f"a worker failed ({type(error).__name__}: {short(error)}); install busfare and the same "
                    "packages on the workers"
                ) from None
            yield from zip(group, outcomes, strict=False)


def _do_all(work: Work, group: list[Part], node: Node | None) -> list[bytes]:
    return [work(part, node) for part in group]


def small_ones_together(parts: Iterator[Part], most: Callable[[], int]) -> Iterator[list[Part]]:
    """Each part once, in order, with its neighbours as long as they are at most so many, and small together."""
    group: list[Part] = []
    held = 0
    for part in parts:
        size = size_of(part.path)
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
    """Processes of this machine. A context: they end with it, at once. `lost` is what a future raises whose workers died;
    `together`, the most parts of a group; `wanted`, how many groups to have handed out.
    """

    lost: type[Exception] = BrokenProcessPool
    together = 1

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._earlier_children = multiprocessing.active_children()
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, multiprocessing.get_context("spawn"))

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in multiprocessing.active_children():
            if process not in self._earlier_children:
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


class DaskWorkers:
    """The workers of `client`, asked now and then how many they are; else as `Processes`."""

    together = 8

    def __init__(self, client: Any, warn: Callable[[str], None]) -> None:
        from distributed import KilledWorker

        self.lost: type[Exception] = KilledWorker
        self._client, self._warn = client, warn
        self._counted, self._threads = float("-inf"), 0
        self._seen: float | None = None
        self._warn_after = time.monotonic() + PATIENT_SECONDS

    def submit(self, task: Callable[..., list[bytes]], *arguments: Any) -> Future[list[bytes]]:
        made: Future[list[bytes]] = Future()
        self._client.loop.add_callback(hand_over, self._client.submit(task, *arguments, pure=False), made)
        return made

    def wanted(self) -> int:
        """How many groups to have handed out. Raises InputError if all workers are gone for good."""
        now = time.monotonic()
        if now - self._counted > LOOK_SECONDS:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            self._counted, self._threads = now, sum(worker["nthreads"] for worker in workers)
            if workers:
                self._seen = now
            elif self._seen is None and now > self._warn_after:
                self._warn_after = float("inf")
                self._warn("still waiting for the first worker; is a worker queued?")
            elif self._seen is not None and now - self._seen > LONELY_SECONDS:
                raise InputError(f"no worker for {LONELY_SECONDS:.0f} s (killed or out of time); start more")
        return max(FEWEST_AHEAD, AHEAD * self._threads)


async def hand_over(running: Any, made: Future[list[bytes]]) -> None:
    """Ends `made` as the Dask future `running` ends, waiting in its client's loop; cancels it where the scheduler is lost.
    Dask's own executor raises a ValueError where that happens while a result is on its way.
    """
    try:
        made.set_result(await running.result())
    except BaseException as error:
        if running.status == "error":
            made.set_exception(error)
        else:
            made.cancel()
            made.set_running_or_notify_cancel()


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at `address` (tcp://host:port or its file). Raises InputError without Dask or an answer."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("`scheduler` needs Dask; run `pip install 'busfare[jobs]'`") from None
    # Its log stays off the terminal, to the end of the process; each of its loggers may have a level of its own.
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        client = Client(_address(address), timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        client, refusal = None, short(error)
    except AssertionError:  # it gives its event loop ten seconds to start
        raise InputError("Dask could not start because this machine is busy; try again") from None
    if client is None:
        gc.collect()  # a client half made that is freed while Dask starts another waits for itself, for ever
        raise InputError(
            f"`scheduler` {printable(address)}: no Dask scheduler answers there ({refusal}); "
            "give tcp://HOST:PORT or a scheduler file"
        )
    try:
        yield client
    finally:
        client.close(timeout=5)


class SchedulerFile(msgspec.Struct):
    """What Dask writes of its scheduler, as far as it is read."""

    address: str


def _address(place: str) -> str:
    """The address of a scheduler, or the one in its file at `place`. Raises InputError for a file of something else."""
    if not Path(place).is_file():
        return place
    try:
        return msgspec.json.decode(Path(place).read_bytes(), type=SchedulerFile).address
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(
            f"`scheduler` {printable(place)}: no scheduler file of Dask ({short(error)}); give the one that "
            "`dask scheduler --scheduler-file FILE` writes, or tcp://HOST:PORT"
        ) from None


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
