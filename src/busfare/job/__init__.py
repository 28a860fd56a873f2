"""Many traces of one job: each reduced to a small partial, wherever it is read, and the partials to the whole."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busfare.errors import InputError
from busfare.job.parts import one_trace

if TYPE_CHECKING:
    from busfare.job.reduce import Job
    from busfare.job.run import Progress, run_job

__all__ = ["How", "Job", "Progress", "one_trace", "run_job"]

MOST_JOBS = 1024
#: What only a job needs, by the module that has it: a report of one trace starts without them.
LATER = {"Job": "reduce", "Progress": "run", "run_job": "run"}


@dataclass(frozen=True)
class How:
    """Where parts are read: in `jobs` processes here; by the Dask `scheduler`; in `jobs` Slurm jobs with options `slurm`.

    What was read is kept in the folder `resume`, and what that holds is not read again.
    """

    jobs: int | None = None
    scheduler: str | None = None
    slurm: str | None = None
    resume: Path | None = None

    @property
    def asked(self) -> bool:
        """Whether the user said how: then even one trace is a job."""
        return self != How()

    def check(self) -> None:
        """Raises InputError where the options do not go together."""
        if self.jobs is not None and not 1 <= self.jobs <= MOST_JOBS:
            raise InputError(f"--jobs {self.jobs}: give a number from 1 to {MOST_JOBS}")
        if self.scheduler and self.slurm:
            raise InputError("--scheduler and --slurm: give one of them")
        if self.scheduler and self.jobs:
            raise InputError("--scheduler has its own workers; leave --jobs out")


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"busfare.job.{LATER[name]}"), name)
