"""Many traces of one job: each reduced to a small partial, wherever it is read, and the partials to the whole."""

from busfare.jobs.parts import How, one_trace

__all__ = ["How", "one_trace"]
