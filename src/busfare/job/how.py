"""Where the traces of a job are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from busfare.errors import InputError

__all__ = ["How"]

MOST_JOBS = 1024


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
        return (self.jobs, self.scheduler, self.slurm, self.resume) != (None, None, None, None)

    def check(self) -> None:
        """Raises InputError where the options do not go together."""
        if self.jobs is not None and not 1 <= self.jobs <= MOST_JOBS:
            raise InputError(f"--jobs {self.jobs}: give a number from 1 to {MOST_JOBS}")
        if self.scheduler and self.slurm:
            raise InputError("--scheduler and --slurm: give one of them")
        if self.scheduler and self.jobs:
            raise InputError("--scheduler has its own workers; leave --jobs out")
