"""A Dask cluster of Slurm jobs, started for one report and ended with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from busfare.errors import InputError

__all__ = ["OPTIONS", "slurm_cluster", "slurm_options"]

#: What `--slurm` takes: words of dask-jobqueue's SLURMCluster, and how their values are written. Lists part at `;`.
OPTIONS: dict[str, type] = {
    "queue": str,
    "account": str,
    "walltime": str,
    "cores": int,
    "processes": int,
    "memory": str,
    "job_cpu": int,
    "job_mem": str,
    "job_extra_directives": list,
    "job_directives_skip": list,
    "job_script_prologue": list,
    "worker_extra_args": list,
    "job_name": str,
    "log_directory": str,
    "local_directory": str,
    "shared_temp_directory": str,
    "interface": str,
    "protocol": str,
    "death_timeout": int,
    "python": str,
}
DEFAULTS: dict[str, Any] = {"cores": 1, "memory": "4GB", "job_name": "busfare"}


def slurm_options(text: str) -> dict[str, Any]:
    """'queue=gpu,cores=4,memory=8GB' as arguments of SLURMCluster. Raises InputError for words that it does not know."""
    options = dict(DEFAULTS)
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        word, equals, value = (part.strip() for part in piece.partition("="))
        word = word.replace("-", "_")
        if word not in OPTIONS:
            near = difflib.get_close_matches(word, OPTIONS, 1)
            mend = f"did you mean {near[0]}?" if near else f"known: {', '.join(OPTIONS)}"
            raise InputError(f"--slurm: {word[:60]!r} is no option; {mend}")
        if not equals or not value:
            raise InputError(f"--slurm: {word} has no value; write {word}=VALUE")
        options[word] = _value(word, value)
    # A process a core: readers are quickest with an interpreter each.
    options.setdefault("processes", options["cores"])
    if options["cores"] % options["processes"]:
        raise InputError(
            f"--slurm: {options['processes']} processes do not share {options['cores']} cores evenly; "
            "give processes a divisor of cores"
        )
    return options


def _value(word: str, value: str) -> Any:
    kind = OPTIONS[word]
    if kind is list:
        return [item for item in value.split(";") if item]
    if kind is not int:
        return value
    if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) == int(value)):
        raise InputError(f"--slurm: {word}={value[:60]} is no whole number above 0")
    return int(value)


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
        raise InputError(
            "--slurm needs dask-jobqueue, which is not installed; run `pip install 'busfare[jobs]'`"
        ) from None
    try:
        cluster = SLURMCluster(**options, scheduler_options={"dashboard_address": ":0"})
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise InputError(f"--slurm: {_short(error)}; see docs/many-traces.md for what it takes") from None

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
                    f"--slurm: the jobs could not be submitted ({_short(error)}); "
                    "check the options, and run busfare where sbatch works"
                ) from None
            yield client
    finally:
        with suppress(AssertionError):  # it does not foresee jobs that Slurm never took
            cluster.close(timeout=10 if taken else 1)


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
