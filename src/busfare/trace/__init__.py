"""Traces of GPU programs: `read(path)` gives a `Trace`, whatever profiler wrote the file."""

from busfare.trace.detect import is_trace_directory, may_be_trace, read
from busfare.trace.trace import Omission, Trace

__all__ = ["Omission", "Trace", "is_trace_directory", "may_be_trace", "read"]
