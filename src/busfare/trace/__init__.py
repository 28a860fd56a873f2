"""Traces of GPU programs: `read(path)` gives a `Trace`, whatever profiler wrote the file."""

from busfare.trace.detect import read
from busfare.trace.trace import Omission, Trace

__all__ = ["Omission", "Trace", "read"]
