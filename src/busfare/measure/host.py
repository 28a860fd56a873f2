"""The processors of the host: which one measures, how fast it is just now, and lists of them."""

from __future__ import annotations

import ctypes
import os
import time
import zlib
from pathlib import Path

__all__ = ["move_to", "near", "pace", "processor", "processors"]

#: Fits the first-level cache, so that the time is the processor's alone.
_WORK = bytes(range(256)) * 64
_libc = ctypes.CDLL(None)


def processor() -> int | None:
    """The processor that this thread runs on; None where the system does not tell."""
    try:
        return int(_libc.sched_getcpu())
    except AttributeError:
        return None


def processors(told: str | None) -> set[int]:
    """The numbers in a list as the system writes it, '0-15,32-47'; none where it is no such list."""
    found: set[int] = set()
    for part in (told or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def near(number: int | None) -> list[int]:
    """The other processors that this thread may use and whose memory is the same as that of processor `number`."""
    try:
        allowed = os.sched_getaffinity(0) - {number}
    except AttributeError:
        return []
    for node in Path(f"/sys/devices/system/cpu/cpu{number}").glob("node[0-9]*"):
        try:
            return sorted(allowed & processors((node / "cpulist").read_text()))
        except OSError:
            break
    return sorted(allowed)


def move_to(number: int) -> bool:
    """Moves this thread to a processor, without binding it there; whether that went well."""
    try:
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {number})
        os.sched_setaffinity(0, allowed)
    except (AttributeError, OSError):
        return False
    return True


def pace() -> float:
    """Seconds of a fixed piece of work (a checksum of 16 KiB): what clocks and neighbours leave of the processor."""
    zlib.crc32(_WORK)
    before = time.perf_counter()
    zlib.crc32(_WORK)
    return time.perf_counter() - before
