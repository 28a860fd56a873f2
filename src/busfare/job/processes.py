"""Parts read by worker processes of this machine; one that dies takes nothing with it but the part it had."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from busfare.job.parts import Part
from busfare.job.work import Work, do_part, failed
from busfare.node import Node

__all__ = ["by_processes"]

#: A part is given up when the worker that reads it has died this often.
MOST_DEATHS = 2
THREADS = "POLARS_MAX_THREADS"


def by_processes(
    parts: Iterator[Part], node: Node | None, jobs: int, work: Work = do_part
) -> Generator[tuple[Part, bytes]]:
    """Each part with its Outcome, as they come, by `jobs` processes. A generator: closing it ends them."""
    workers: list[_Worker] = []
    again: deque[Part] = deque()
    deaths: dict[str, int] = {}
    context = multiprocessing.get_context("spawn")  # a fork would share threads' locks with Polars

    def next_part() -> Part | None:
        return again.popleft() if again else next(parts, None)

    def start(part: Part) -> None:
        with _threads_for(jobs):
            worker = _Worker(context, work, node)
        workers.append(worker)
        worker.give(part)

    try:
        while True:
            while len(workers) < jobs and (part := next_part()):
                start(part)
            if not workers:
                return
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                part = worker.part
                said = worker.take()
                if said is not None:
                    yield part, said
                    following = next_part()
                else:
                    deaths[part.path] = deaths.get(part.path, 0) + 1
                    if deaths[part.path] < MOST_DEATHS:
                        again.append(part)
                    else:
                        yield (
                            part,
                            failed(part, f"the worker that read it died ({worker.how_it_ended()}), twice"),
                        )
                    following = None
                if following is None or not worker.give(following):
                    if following is not None:
                        again.append(following)
                    workers.remove(worker)
                    worker.end()
    finally:
        for worker in workers:
            worker.end(at_once=True)


class _Worker:
    """A process, the pipe to it, and the part that it reads."""

    def __init__(self, context: Any, work: Work, node: Node | None) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, work, node), daemon=True)
        with _without_ctrl_c():
            self._process.start()
        theirs.close()
        self.part = Part("", False)

    def give(self, part: Part) -> bool:
        """Hands a part over; False if the worker has died."""
        self.part = part
        try:
            self.pipe.send(part)
        except OSError:
            return False
        return True

    def take(self) -> bytes | None:
        """The Outcome that it sent; None if it died instead."""
        try:
            return bytes(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None

    def how_it_ended(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return (
                f"signal {signal.Signals(-code).name}" if -code in iter(signal.Signals) else f"signal {-code}"
            )
        return f"exit status {code}"

    def end(self, at_once: bool = False) -> None:
        self.pipe.close()
        if at_once:
            self._process.kill()
        self._process.join(5)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """What is started here is deaf to Ctrl-C, which is for us, while it has yet to import what it needs."""
    resource_tracker.ensure_running()  # it would lift what follows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, work: Work, node: Node | None) -> None:
    """A worker's life: parts come in, Outcomes go out, until the other end is closed."""
    while True:
        try:
            part = pipe.recv()
            pipe.send_bytes(work(part, node))
        except (EOFError, OSError):
            return


@contextmanager
def _threads_for(jobs: int) -> Iterator[None]:
    """Shares the cores out: `jobs` workers of as many threads as there are cores would stand in each other's way."""
    before = os.environ.get(THREADS)
    if before is None:
        os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(THREADS, None)
