"""Parts read by the workers of a Dask cluster: one that the user runs, or one started through Slurm for this job."""

from __future__ import annotations

import logging
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.job.parts import Part
from busfare.job.work import Work, do_part, failed, stamp_of
from busfare.node import Node
from busfare.printable import printable

__all__ = ["TOGETHER", "TOGETHER_BYTES", "by_dask", "connected", "small_ones_together"]

#: Groups of parts handed out at once for each thread of the cluster: enough to keep it busy, few enough to hold no more.
AHEAD = 3
FEWEST_AHEAD = 16
#: Small parts go to a worker together: to hand one out costs the scheduler as much as reading it costs a worker, or so.
TOGETHER = 8
TOGETHER_BYTES = 4 << 20
CONNECT_SECONDS = 15
#: A part that Dask gave up, for workers died under it, is tried so often with nothing beside it before it is reported.
ALONE_TRIES = 2
LOOK_SECONDS = 2.0
PATIENT_SECONDS = 60.0
#: With no worker for so long after there were some, none will come: a nanny restarts one within seconds.
LONELY_SECONDS = 120.0


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at `address` (tcp://host:port, or its scheduler file).

    Raises InputError if Dask is missing or nothing answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--scheduler needs Dask, which is not installed; run `pip install 'busfare[jobs]'`"
        ) from None
    _silence()
    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        _knock(address)
        client = Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise InputError(
            f"--scheduler {printable(address)}: no Dask scheduler answers there ({_short(error)}); "
            "give tcp://HOST:PORT or a scheduler file"
        ) from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def _silence() -> None:
    """Keeps Dask's own log off the terminal: what matters is said in our one line. Each of its loggers has a level."""
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _knock(address: str) -> None:
    """Raises OSError or ValueError if nothing listens there: a client that never connected is slow to give up."""
    if Path(address).is_file():
        return
    from distributed.comm import get_address_host_port, normalize_address, parse_address

    protocol, _ = parse_address(address)
    host, port = get_address_host_port(normalize_address(address), strict=True)
    if protocol in ("tcp", "tls"):
        socket.create_connection((host, port), CONNECT_SECONDS).close()


def by_dask(
    parts: Iterator[Part],
    node: Node | None,
    client: Any,
    warn: Callable[[str], None],
    work: Work = do_part,
) -> Generator[tuple[Part, bytes]]:
    """Each part with its Outcome, as they come, by the workers of `client`. A generator: closing it drops the rest.

    Raises InputError if the workers cannot do the work at all, or they or the scheduler are lost.
    """
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    cluster = _Cluster(client, warn)
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[str, tuple[list[Part], int]] = {}
    suspects: deque[tuple[Part, int]] = deque()
    number = 0
    # A part at a time first, so that a short job is spread over all workers; then more and more.
    groups = small_ones_together(parts, lambda: 1 + number // cluster.wanted())

    def hand_out(group: list[Part], deaths: int) -> None:
        nonlocal number
        number += 1
        # A key of its own: the same question asked twice must not be answered from what Dask remembers.
        future = client.submit(_do_all, work, group, node, key=f"busfare-{client.id}-{number}", pure=False)
        running[future.key] = (group, deaths)
        future.add_done_callback(finished.put)

    while True:
        while len(running) < cluster.wanted() and (group := next(groups, None)):
            hand_out(group, 0)
        if not running and suspects:
            suspect, deaths = suspects.popleft()
            hand_out([suspect], deaths)
        if not running:
            return
        try:
            future = finished.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            continue
        group, deaths = running.pop(future.key)
        said: list[bytes] = []
        try:
            said = future.result()
        except KilledWorker as error:
            # Dask blames all that a dead worker had to do: who is to blame shows when each is tried alone.
            if deaths < ALONE_TRIES:
                suspects.extend((part, deaths + 1) for part in group)
            else:
                why = f"the workers that read it, and nothing else, died ({_short(error)})"
                said = [failed(part, why) for part in group]
        except FutureCancelledError as error:
            raise InputError(f"the Dask scheduler was lost ({_short(error)}); start it again") from None
        except Exception as error:  # do_part never raises: the worker could not even run it
            raise InputError(
                f"a Dask worker cannot do the work ({type(error).__name__}: {_short(error)}); "
                f"install busfare with the same packages on the workers"
            ) from None
        future.release()
        yield from zip(group, said, strict=False)


def _do_all(work: Work, group: list[Part], node: Node | None) -> list[bytes]:
    return [work(part, node) for part in group]


def small_ones_together(parts: Iterator[Part], most: Callable[[], int]) -> Iterator[list[Part]]:
    """Each part once, in order, with its neighbours as long as they are at most so many, and small together."""
    group: list[Part] = []
    held = 0
    for part in parts:
        stamp = stamp_of(part.path)
        size = stamp.bytes if stamp else 0
        if group and (len(group) >= min(TOGETHER, most()) or held + size > TOGETHER_BYTES):
            yield group
            group, held = [], 0
        group.append(part)
        held += size
    if group:
        yield group


class _Cluster:
    """What the scheduler says of its workers, asked now and then."""

    def __init__(self, client: Any, warn: Callable[[str], None]) -> None:
        self._client = client
        self._warn = warn
        self._began = time.monotonic()
        self._asked = self._seen = -1.0
        self._threads = 0

    def wanted(self) -> int:
        """How many groups to have handed out. Raises InputError if all workers are gone for good."""
        now = time.monotonic()
        if self._asked < 0 or now - self._asked > LOOK_SECONDS:
            self._asked = now
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            self._threads = sum(worker["nthreads"] for worker in workers)
            if workers:
                self._seen = now
            elif self._seen < 0:
                if self._began and now - self._began > PATIENT_SECONDS:
                    self._began = 0.0
                    self._warn("still waiting for the first worker; is one in the queue?")
            elif now - self._seen > LONELY_SECONDS:
                raise InputError(
                    f"no worker is left since {LONELY_SECONDS:.0f} s (killed, or their time was up); start more"
                )
        return max(FEWEST_AHEAD, AHEAD * self._threads)


def _short(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
