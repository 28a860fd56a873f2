"""Workers of a Dask cluster: one that the user runs, or one of Slurm jobs, started for one report and ended with it."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from busfare.errors import InputError, instead_of
from busfare.job.workers import LOOK_SECONDS, short
from busfare.printable import printable

#: Groups of parts handed out at once for each thread of the cluster: enough to keep it busy, few enough to hold no more.
AHEAD, FEWEST_AHEAD = 3, 16
CONNECT_SECONDS = 15
PATIENT_SECONDS = 60.0
#: With no worker for so long after there were some, none will come: a nanny restarts one within seconds.
LONELY_SECONDS = 120.0

#: What `--slurm` takes: words of dask-jobqueue's SLURMCluster, and how their values are written. Lists part at `;`.
KINDS: dict[str, Any] = {
    **dict.fromkeys(("queue", "account", "walltime", "memory", "job_mem", "job_name", "log_directory"), str),
    **dict.fromkeys(("local_directory", "shared_temp_directory", "interface", "protocol", "python"), str),
    **dict.fromkeys(("cores", "processes", "job_cpu", "death_timeout"), int),
    **dict.fromkeys(("job_extra_directives", "job_directives_skip"), list),
    **dict.fromkeys(("job_script_prologue", "worker_extra_args"), list),
}
DEFAULTS = {"cores": 1, "memory": "4GB", "job_name": "busfare"}


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
        raise _not_installed("--scheduler needs Dask") from None
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


def _not_installed(what: str) -> InputError:
    return InputError(f"{what}, which is not installed; run `pip install 'busfare[jobs]'`")


def slurm_options(text: str) -> dict[str, Any]:
    """'queue=gpu,cores=4,memory=8GB' as arguments of SLURMCluster. Raises InputError for words that it does not know."""
    options: dict[str, Any] = dict(DEFAULTS)
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        word, _, value = (part.strip() for part in piece.partition("="))
        word = word.replace("-", "_")
        if word not in KINDS:
            raise InputError(f"--slurm: {word[:60]!r} is no option; {instead_of(word, KINDS)}")
        if not value:
            raise InputError(f"--slurm: {word} has no value; write {word}=VALUE")
        if KINDS[word] is int and not (value.isdecimal() and len(value) < 10 and int(value)):
            raise InputError(f"--slurm: {word}={value[:60]} is no whole number above 0")
        options[word] = (
            [item for item in value.split(";") if item] if KINDS[word] is list else KINDS[word](value)
        )
    # A process a core: readers are quickest with an interpreter each.
    options.setdefault("processes", options["cores"])
    if options["cores"] % options["processes"]:
        raise InputError(
            f"--slurm: {options['processes']} processes do not share {options['cores']} cores evenly; "
            "give processes a divisor of cores"
        )
    return options


@contextmanager
def slurm_cluster(text: str, jobs: int) -> Iterator[Any]:
    """A client of `jobs` Slurm jobs with the options `text`, which are cancelled at the end.

    Raises InputError if dask-jobqueue is missing, an option is wrong, or Slurm does not take the jobs.
    """
    options = slurm_options(text)
    try:
        from dask_jobqueue import SLURMCluster
        from distributed import Client
    except ImportError:
        raise _not_installed("--slurm needs dask-jobqueue") from None
    _silence_dask()
    try:
        cluster = SLURMCluster(**options, scheduler_options={"dashboard_address": ":0"})
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise InputError(f"--slurm: {short(error)}; see docs/many-traces.md for what it takes") from None
    taken = False

    async def submitted() -> None:
        # What `scale` does, but waiting until Slurm has taken the jobs: `scale` would keep its refusal to itself.
        while len(cluster.worker_spec) < jobs:
            cluster.worker_spec.update(cluster.new_worker_spec())
        await cluster

    try:
        with Client(cluster, set_as_default=False) as client:
            try:
                cluster.sync(submitted)
                taken = True
            except (OSError, RuntimeError, ValueError) as error:
                raise InputError(
                    f"--slurm: the jobs could not be submitted ({short(error)}); "
                    "check the options, and run busfare where sbatch works"
                ) from None
            yield client
    finally:
        with suppress(AssertionError):  # it does not foresee jobs that Slurm never took
            cluster.close(timeout=10 if taken else 1)
