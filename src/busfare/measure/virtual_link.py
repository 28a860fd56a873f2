"""What a virtual GPU's host link does while data move both ways: each law once, for the probe's cases and for programs.

Seconds and bytes throughout. Ways are "h2d" and "d2h".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from busfare.measure.case import Case
from busfare.node import Measured

__all__ = ["REREAD_SHARE", "ROUND_BYTES", "HostLink"]

#: What the machines that were measured show where a node file has no figure of its own.
_SLOWED_BY_BOTH_WAYS, _SLOWED_BY_MAPPED = 1.1, 1.5
_MAPPED_SLOWED_BY_MAPPED, _MAPPED_SLOWED_BY_COPIES = 1.15, 1.05
#: What a wait for an event of another stream adds.
_EVENT_S = {"h2d": 5e-6, "d2h": 0.0}
#: For how long copies go on in each kernel that writes mapped memory.
_LULL_S = 1e-5
#: Of a mapped write's place in its queue a read of device memory takes so much; what is read again, from the cache, more.
_READ_SHARE, REREAD_SHARE = 0.4, 0.85
#: How long a kernel waits for its copy: for one that ended `_HELD_S` after mapped writes or later, and for one that they
#: held until they ended.
_FREE_WAIT_S, _HELD_WAIT_S, _HELD_S = 8e-6, 1.2e-5, 1e-5
#: Mapped writes that slow copies by less hold none.
_LEAST_HELD = 2.0
#: Of the first round of a kernel's threads on mapped memory, what moves one way after the other; the bytes of the probe's.
_FIRST_SHARE, ROUND_BYTES = 0.4, 1 << 20
#: A copy waits for the other way's turns for this share of its own bytes' time at most.
_MOST_TURN = 0.5


class HostLink:
    """The parameters `truth(way, memory)` of one GPU's link, and what follows from them."""

    def __init__(self, truth: Callable[[str, str], Measured]) -> None:
        self.copies = {way: truth(way, "pinned") for way in ("h2d", "d2h")}
        self.mapped = {way: truth(way, "mapped") for way in ("h2d", "d2h")}

    def slowed(self, way: str, mapped: bool, streams: int = 1, gpus: int = 1) -> float:
        """G (s/B) of pinned copies while copies in so many streams, or a kernel on mapped memory, use the other way; where
        two GPUs copy both ways, of each.
        """
        own = self.copies[way]
        slope = own.pieces[-1].gap_per_byte_s
        if mapped:
            return own.mapped_gap_per_byte_s or _SLOWED_BY_MAPPED * slope
        paces = {1: own.both_directions_gap_per_byte_s or _SLOWED_BY_BOTH_WAYS * slope}
        paces |= {row.copies: row.pieces[-1].gap_per_byte_s for row in own.both_directions_rows}
        pace = float(np.interp(np.log(streams), np.log(list(paces)), list(paces.values())))
        beside = own.both_directions_beside_gpu_gap_per_byte_s
        return pace if gpus < 2 or beside is None else max(pace, beside)

    def slowed_mapped(self, way: str, mapped: bool) -> float:
        """G (s/B) of a kernel on mapped memory while such a kernel, or copies, move data the other way."""
        own = self.mapped[way]
        slope = own.pieces[-1].gap_per_byte_s
        if mapped:
            return own.mapped_gap_per_byte_s or _MAPPED_SLOWED_BY_MAPPED * slope
        return own.both_directions_gap_per_byte_s or _MAPPED_SLOWED_BY_COPIES * slope

    def turn(self, way: str, streams: int) -> float:
        """What handing out a copy takes where so many streams have one (s)."""
        own, one = self.copies[way], np.ones(1)
        if streams < 2:
            return 0.0
        return float(own.row_seconds(streams, one)[0] - own.seconds(one)[0]) / (streams - 1)

    def beside(self, way: str, size: float, other_turn: float) -> float:
        """What a copy takes longer (s), besides its bytes, where copies go the other way, of `other_turn` seconds each."""
        own = self.copies[way]
        moving = size * own.pieces[-1].gap_per_byte_s
        added = max((own.both_directions_gap_s or 0.0) - (own.gap_s or 0.0), 0.0)
        return min(other_turn, _MOST_TURN * moving) + min(added, moving)

    def event_wait(self, way: str) -> float:
        """What a wait for an event of another stream adds (s): of a kernel for a copy in, of a copy out for a kernel."""
        own = self.copies[way].event_wait_s
        return _EVENT_S[way] if own is None else own

    @property
    def after_copy(self) -> float:
        """What a copy in, a kernel and a copy out of one stream take longer than by themselves (s)."""
        return self.copies["h2d"].after_copy_s or 0.0

    @property
    def lull(self) -> float:
        """For how long (s) copies in go on as if a kernel did not write mapped memory, in each such kernel."""
        own = self.copies["h2d"].mapped_lull_s
        return _LULL_S if own is None else own

    @property
    def holds(self) -> bool:
        """Whether mapped writes hold the copy in that is under way until they end, and let no other begin."""
        alone = self.copies["h2d"].pieces[-1].gap_per_byte_s
        return self.slowed("h2d", mapped=True) >= _LEAST_HELD * alone

    def kernel_wait(self, late: float) -> float:
        """From a copy in to the kernel that waits for it (s), where the copy ended `late` seconds after mapped writes."""
        own = self.copies["h2d"].mapped_wait_s
        held = _HELD_WAIT_S if own is None else own
        return _FREE_WAIT_S + (held - _FREE_WAIT_S) * max(0.0, 1 - late / _HELD_S)

    def queue(self, reads: float, again: float = 0.0) -> float:
        """The length of the queue of mapped writes, 1 for a kernel that only writes: `reads` bytes of device memory, and
        `again` of the cache, for each that is written.
        """
        return 1 / (1 + _READ_SHARE * reads + REREAD_SHARE * again)

    def first_round(self, into: float, out: float, rounds: float = 1.0) -> float:
        """What a kernel on mapped memory takes longer (s) because its first threads, of so many rounds, have nothing to
        write yet.
        """
        own = self.mapped["h2d"].mapped_first_share
        share = _FIRST_SHARE if own is None else own
        ways = (("h2d", into), ("d2h", out))
        alone = sum(size * self.mapped[way].pieces[-1].gap_per_byte_s for way, size in ways)
        both = max(size * self.slowed_mapped(way, mapped=True) for way, size in ways)
        return share / max(rounds, 1.0) * max(alone - both, 0.0)

    def hybrid(self, case: Case) -> float:
        """Copies in that wait in the queue of mapped writes, but for a lull a kernel; none is over before them."""
        copies, written = self.copies["h2d"], self.mapped["d2h"].pieces[-1]
        writing = case.bytes * written.gap_per_byte_s
        slower = self.slowed("h2d", mapped=True) / copies.pieces[-1].gap_per_byte_s - 1
        lull = min(self.lull, writing)
        into = float(copies.row_seconds(case.count, np.array([case.bytes], np.float64))[0])
        hidden = (case.count - 1) * (lull + (writing - lull) / (1 + slower * self.queue(1.0)))
        overlapped = into + case.count * writing - hidden
        in_turn = into / case.count + writing + (case.count - 1) * (self.kernel_wait(0.0) + writing)
        return max(overlapped, in_turn) + (written.latency_overhead_s or 0.0)

    def through(self, case: Case, gpus: int = 1) -> float:
        """Chunks in and out again, a stream each: the first in alone, the last out alone, and both ways between, where
        each copy waits for the turns of both ways' streams; on so many GPUs at once. The slower way is alone while the
        other waits for it.
        """
        size, turns = float(case.bytes), {way: self.turn(way, case.count) for way in self.copies}
        every = {
            way: self.slowed(way, False, case.count, gpus) * size
            + turns[way]
            + self.beside(way, size, turns[other])
            for way, other in (("h2d", "d2h"), ("d2h", "h2d"))
        }
        slower, quicker = sorted(every, key=lambda way: -every[way])
        both = every[quicker] / every[slower]
        alone = size * self.copies[slower].pieces[-1].gap_per_byte_s + turns[slower]
        cycle = every[quicker] + (1 - both) * alone
        ends = sum(float(own.seconds(np.array([size]))[0]) for own in self.copies.values())
        return ends + (self.copies["d2h"].after_kernel_s or 0.0) + (case.count - 1) * cycle
