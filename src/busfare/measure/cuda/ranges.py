"""Named ranges on the time line of a profiler (NVTX), where the package for them is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["named"]

try:
    import nvtx
except ImportError:
    nvtx = None


def named(name: str) -> AbstractContextManager[Any]:
    """A range of this name around what runs within; nothing where NVTX is not installed."""
    return nullcontext() if nvtx is None else nvtx.annotate(name, domain="busfare")
