"""Many traces of one job: each reduced to a small partial, wherever it is read, and the partials to the whole."""

from busfare.job.parts import one_trace
from busfare.job.reduce import Job
from busfare.job.run import How, Progress, run_job

__all__ = ["How", "Job", "Progress", "one_trace", "run_job"]
