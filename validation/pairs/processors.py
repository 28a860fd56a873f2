"""Which processors are quick just now: on a shared machine, other guests halve the pace of some for seconds on end.

Chosen by a fixed piece of work alone, never by what is measured.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
import zlib
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "Processors"]

#: Fits the first-level cache, so that the time is the processor's alone.
_WORK = bytes(range(256)) * 64
#: The pace of one look in so many is that of a quiet moment; times as slow as then and still quiet.
QUIET_ONE_IN, SLOW = 10, 1.3
#: The piece of work is done so often in a look, and its middle counts: one alone may be interrupted.
LOOKS = 5
#: All are looked at so often before one is taken, so far apart: paces change within a region.
SWEEPS, SWEEP_S = 4, 0.005
#: A processor's rank is its mean pace in so many looks (neighbours stay for seconds), of which none counts as slower
#: than so many times a quiet one: that was an interruption.
REMEMBERED, MOST_SLOW = 24, 3.0
#: Processors for threads besides the program's own: drivers and libraries start some.
BESIDE = 3
#: Between two looks, while all are slow.
WAIT_S = 0.05


@dataclass(frozen=True)
class Place:
    """The processor of a program's own thread, and those of its other threads."""

    own: int
    others: tuple[int, ...]

    def taken_by(self, process: int) -> None:
        """Binds the threads of a process; its first thread is its own."""
        with contextlib.suppress(OSError):  # it has ended: what it said tells why
            for thread in Path(f"/proc/{process}/task").iterdir():
                first = int(thread.name) == process
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(
                        int(thread.name), {self.own} if first else set(self.others or (self.own,))
                    )


class Processors:
    """The processors that this process may use, watched from region to region."""

    def __init__(
        self, pace: Callable[[], float] | None = None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._allowed = os.sched_getaffinity(0)
        self._pace, self._pause = pace or _pace, pause
        self._last = {number: deque[float](maxlen=REMEMBERED) for number in sorted(self._allowed)}
        self._paces: list[float] = []
        for _ in range(2 * SWEEPS):
            self._look(*self._allowed)
            self._pause(SWEEP_S)

    @property
    def quiet_s(self) -> float:
        """Seconds of the piece of work at a quiet moment: its fastest tenth of all looks."""
        return self._paces[len(self._paces) // QUIET_ONE_IN]

    @property
    def limit_s(self) -> float:
        """Up to here it is quiet."""
        return SLOW * self.quiet_s

    def place(self, threads: int, patience_s: float) -> Place:
        """The quickest processors; waits up to `patience_s` while there are too few quiet ones for `threads`."""
        end = time.monotonic() + patience_s
        while True:
            for sweep in range(SWEEPS):
                if sweep:
                    self._pause(SWEEP_S)
                found = self._look(*self._allowed)
            order = sorted(found, key=lambda number: (found[number] > self.limit_s, self._rank(number)))
            own = order[0]
            beside = _shares_core_with(own)
            others = [number for number in order[1:] if number not in beside][:BESIDE]
            slowest = max(found[number] for number in (own, *others[: threads - 1]))
            if slowest <= self.limit_s or time.monotonic() > end:
                return self._away_from(Place(own, tuple(others)))
            self._pause(WAIT_S)

    def pace_at(self, place: Place, threads: int) -> float:
        """Seconds that the piece of work takes there now: the slowest of as many processors as threads work."""
        numbers = (place.own, *place.others[: threads - 1])
        pace = max(self._look(*numbers).values())
        self._away_from(place)
        return pace

    def all_again(self) -> None:
        """This process, and those that it starts, may run anywhere."""
        os.sched_setaffinity(0, self._allowed)

    def _rank(self, number: int) -> float:
        return statistics.fmean(min(pace, MOST_SLOW * self.quiet_s) for pace in self._last[number])

    def _away_from(self, place: Place) -> Place:
        os.sched_setaffinity(0, (self._allowed - {place.own, *place.others}) or self._allowed)
        return place

    def _look(self, *numbers: int) -> dict[int, float]:
        found = {}
        for number in numbers:
            os.sched_setaffinity(0, {number})
            found[number] = statistics.median(self._pace() for _ in range(LOOKS))
            self._last[number].append(found[number])
            insort(self._paces, found[number])
        os.sched_setaffinity(0, self._allowed)
        return found


def _shares_core_with(number: int) -> set[int]:
    try:
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        return _numbers(path.read_text())
    except OSError:
        return {number}


def _numbers(listed: str) -> set[int]:
    """The numbers in a list as the system writes it, '0-15,32-47'."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _pace() -> float:
    """Seconds of a fixed piece of work (a checksum of 16 KiB): what clocks and neighbours leave of the processor."""
    zlib.crc32(_WORK)
    before = time.perf_counter()
    zlib.crc32(_WORK)
    return time.perf_counter() - before
