"""What one path takes by size: straight lines piece by piece, and what each further copy at once adds [W14 §V]."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from busfare.node.arrays import FloatArray
from busfare.node.figures import Ordinal, Seconds, SecondsPerByte, Size
from busfare.node.source import Sourced

__all__ = ["MOST_PIECES", "Curve", "Direction", "MemoryKind"]

Direction = Literal["h2d", "d2h", "d2d", "p2p"]
MemoryKind = Literal["pageable", "pinned", "managed", "mapped", "device"]
#: More pieces predict held-out sizes no better (docs/models.md).
MOST_PIECES = 3


class Curve(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One path and memory kind: seconds = L+o + bytes · G, with an L+o and a G for each piece of the sizes.

    Piece i holds sizes up to and including `up_to_bytes[i]`; the last piece, which has no such end, all larger ones.
    `issue_interval_s` is, by the number of streams that hold one copy each, what each further copy adds beside its
    bytes' G; under 1 stream, copies back to back in it: g. `timing` says what the clock held: the whole call, or the
    device alone. `faults`: pages of managed memory that move when they are touched, in place of prefetches.
    `peer`: the GPU that copies between GPUs go to.
    """

    direction: Direction
    memory: MemoryKind
    latency_overhead_s: tuple[Seconds, ...]
    gap_per_byte_s: tuple[SecondsPerByte, ...]
    up_to_bytes: tuple[Size, ...] = ()
    issue_interval_s: dict[int, Seconds] = msgspec.field(default_factory=dict)
    faults: bool = False
    timing: Literal["call", "device"] = "device"
    gpu: Ordinal | None = None
    peer: Ordinal | None = None

    def seconds(self, sizes: ArrayLike) -> FloatArray:
        """Seconds of one copy of each of `sizes` bytes; the shape of `sizes`."""
        return self.latency_overhead(sizes) + self.gap_per_byte(sizes) * np.asarray(sizes, np.float64)

    def latency_overhead(self, sizes: ArrayLike = 0.0) -> FloatArray:
        """L+o (s) of the piece that holds each of `sizes` bytes."""
        return self._by_piece(self.latency_overhead_s, sizes)

    def gap_per_byte(self, sizes: ArrayLike) -> FloatArray:
        """G (s/B) of the piece that holds each of `sizes` bytes."""
        return self._by_piece(self.gap_per_byte_s, sizes)

    def _by_piece(self, values: tuple[float, ...], sizes: ArrayLike) -> FloatArray:
        which = np.searchsorted(np.asarray(self.up_to_bytes, np.float64), np.asarray(sizes, np.float64))
        found: FloatArray = np.asarray(values, np.float64)[which]
        return found

    @property
    def long_gap_per_byte_s(self) -> float:
        """G of the longest copies, s/B."""
        return self.gap_per_byte_s[-1]

    def issue_interval(self, streams: ArrayLike = 1) -> FloatArray:
        """What each further copy adds (s) beside its bytes where `streams` streams hold one copy each.

        Linear in the number of streams between those measured, flat outside; L+o where none was measured.
        """
        if not self.issue_interval_s:
            return np.full(np.shape(streams), self.latency_overhead_s[0])
        counts = sorted(self.issue_interval_s)
        intervals = [self.issue_interval_s[count] for count in counts]
        return np.asarray(np.interp(np.asarray(streams, np.float64), counts, intervals))

    def together(self, copies: ArrayLike, sizes: ArrayLike) -> FloatArray:
        """Seconds of `copies` equal copies of `sizes` bytes each at once, one a stream [W14 §V]."""
        copies = np.asarray(copies, np.float64)
        further = self.issue_interval(copies) + self.long_gap_per_byte_s * np.asarray(sizes, np.float64)
        return self.seconds(sizes) + (copies - 1) * further

    def scaled(self, factor: float) -> Curve:
        """The same with every G times `factor`; starts and intervals as they are."""
        return msgspec.structs.replace(
            self, gap_per_byte_s=tuple(gap * factor for gap in self.gap_per_byte_s)
        )
