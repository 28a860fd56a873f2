"""Workers of a Dask cluster that the user runs."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.jobs.workers import LOOK_SECONDS, short
from busfare.printable import printable

#: Groups of parts handed out at once for each thread of the cluster: enough to keep it busy, few enough to hold no more.
AHEAD, FEWEST_AHEAD = 3, 16
CONNECT_SECONDS = 15
PATIENT_SECONDS = 60.0
#: With no worker for so long after there were some, none will come: a nanny restarts one within seconds.
LONELY_SECONDS = 120.0


class DaskWorkers:
    """The workers of `client`, asked now and then how many they are."""

    together = 8

    def __init__(self, client: Any, warn: Callable[[str], None]) -> None:
        from distributed import KilledWorker

        self.lost: type[Exception] = KilledWorker
        self._client, self._warn = client, warn
        self._executor = client.get_executor(pure=False)
        self._asked, self._threads = float("-inf"), 0
        self._seen: float | None = None
        self._warn_after = time.monotonic() + PATIENT_SECONDS

    def submit(self, task: Callable[..., list[bytes]], *arguments: Any) -> Future[list[bytes]]:
        future: Future[list[bytes]] = self._executor.submit(task, *arguments)
        return future

    def wanted(self) -> int:
        """How many groups to have handed out. Raises InputError if all workers are gone for good."""
        now = time.monotonic()
        if now - self._asked > LOOK_SECONDS:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            self._asked, self._threads = now, sum(worker["nthreads"] for worker in workers)
            if workers:
                self._seen = now
            elif self._seen is None and now > self._warn_after:
                self._warn_after = float("inf")
                self._warn("still waiting for the first worker; is one in the queue?")
            elif self._seen is not None and now - self._seen > LONELY_SECONDS:
                raise InputError(
                    f"no worker has been left for {LONELY_SECONDS:.0f} s (killed, or their time was up); start more"
                )
        return max(FEWEST_AHEAD, AHEAD * self._threads)


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
    _silence_dask()
    where = {"scheduler_file" if Path(address).is_file() else "address": address}
    try:
        client = Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        client, refusal = None, short(error)
    except AssertionError:  # it gives its event loop ten seconds to start
        raise InputError("Dask could not start on this machine, which is busy; try again") from None
    if client is None:
        gc.collect()  # a client half made that is freed while Dask starts another waits for itself, for ever
        raise InputError(
            f"--scheduler {printable(address)}: no Dask scheduler answers there ({refusal}); "
            "give tcp://HOST:PORT or a scheduler file"
        )
    try:
        yield client
    finally:
        client.close(timeout=5)


def _silence_dask() -> None:
    """Keeps Dask's own log off the terminal, to the end of the process: what matters is said in our one line."""
    # Each of its loggers may have a level of its own.
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
