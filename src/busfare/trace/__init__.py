"""Traces of GPU programs: `read(path)` gives a `Trace`, whatever profiler wrote the file.

It imports no package of busfare, only what all share (errors, printable text, files). It gives the tables of a trace, what
they add up to, a reader for each profiler's formats, and files for the tools of others. What operations cost, what waits for
what, and which advice follows belong to `cost`, `timeline` and `advise`.
"""

from busfare.trace.model import Trace
from busfare.trace.omissions import Omission
from busfare.trace.open import is_trace_directory, may_be_trace, read

__all__ = ["Omission", "Trace", "is_trace_directory", "may_be_trace", "read"]
