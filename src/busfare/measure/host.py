"""The processor that measures: which one, and how fast it is just now."""

from __future__ import annotations

import ctypes
import time
import zlib

__all__ = ["pace", "processor"]

#: Fits the first-level cache, so that the time is the processor's alone.
_WORK = bytes(range(256)) * 64
_libc = ctypes.CDLL(None)


def processor() -> int | None:
    """The processor that this thread runs on; None where the system does not tell."""
    try:
        return int(_libc.sched_getcpu())
    except AttributeError:
        return None


def pace() -> float:
    """Seconds of a fixed piece of work (a checksum of 16 KiB): what clocks and neighbours leave of the processor."""
    zlib.crc32(_WORK)
    before = time.perf_counter()
    zlib.crc32(_WORK)
    return time.perf_counter() - before
