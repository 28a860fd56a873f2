"""Traces of GPU programs: `read(path)` gives a `Trace`, whatever profiler wrote the file."""

from typing import TYPE_CHECKING, Any

from busfare.trace.open import is_trace_directory, may_be_trace, read

if TYPE_CHECKING:
    from busfare.trace.model import Omission, Trace

__all__ = ["Omission", "Trace", "is_trace_directory", "may_be_trace", "read"]


def __getattr__(name: str) -> Any:
    """What takes long to import: reading begins before."""
    if name in ("Omission", "Trace"):
        from busfare.trace import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
