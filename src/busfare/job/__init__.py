"""Many traces of one job: each reduced to a small partial, wherever it is read, and the partials to the whole."""

from typing import TYPE_CHECKING, Any

from busfare.job.how import How
from busfare.job.named import one_trace

if TYPE_CHECKING:
    from busfare.job.reduce import Job
    from busfare.job.run import Progress, run_job

__all__ = ["How", "Job", "Progress", "one_trace", "run_job"]


def __getattr__(name: str) -> Any:
    """What only a job needs: a report of one trace starts without it."""
    if name == "Job":
        from busfare.job.reduce import Job

        return Job
    if name in ("Progress", "run_job"):
        from busfare.job import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
