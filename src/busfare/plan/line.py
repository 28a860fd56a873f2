"""What a copy takes over its size: a line of pieces, and rows of several copies at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from busfare.node import Piece
from busfare.node.arrays import FloatArray

__all__ = ["LONGEST_OF_ROWS", "Line", "line_of", "one_piece"]

#: Rows are measured with copies up to so many bytes. What each adds is the difference of two times that grow with the
#: size: beyond the sizes measured it would be of their errors.
LONGEST_OF_ROWS = 4 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of one copy by size: (L+o) + k·G of the piece that holds k [W14 §V]; ends in bytes, the last infinite.

    `rows` are seconds of several copies at once, one a stream: their number, and a line over the bytes of one.
    `after_kernel` (s) is added where a kernel, and no copy, goes before.
    """

    ends: tuple[float, ...]
    latencies: tuple[float, ...]
    gaps_per_byte: tuple[float, ...]
    rows: tuple[tuple[int, Line], ...] = ()
    after_kernel: float = 0.0

    def at(self, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """L+o (s) and G (s/B) for copies of `sizes` bytes; both zero-dimensional where there is one piece."""
        if len(self.ends) == 1:
            return np.asarray(self.latencies[0]), np.asarray(self.gaps_per_byte[0])
        piece = np.searchsorted(self.ends, sizes, side="left")
        return np.asarray(self.latencies)[piece], np.asarray(self.gaps_per_byte)[piece]

    def gap_of(self, copies: FloatArray, sizes: FloatArray, gap: float) -> FloatArray:
        """What each copy after the first adds (s), of `copies` at once of `sizes` bytes each, one a stream.

        By the rows, along a line in the number of copies between and beyond them: no single gap holds for 2 and for
        256 streams. Longer copies than the rows are of add what those do. Without rows `gap`.
        """
        if not self.rows:
            return np.asarray(gap)
        sizes = np.minimum(sizes, LONGEST_OF_ROWS)
        copies, sizes = np.broadcast_arrays(np.maximum(copies, 2.0), sizes)
        latency, slope = self.at(sizes)
        counts = np.array([1.0, *(count for count, _ in self.rows)])
        curves = [latency + sizes * slope]
        for _, line in self.rows:
            start, pace = line.at(sizes)
            curves.append(start + sizes * pace)
        above = np.clip(np.searchsorted(counts, copies), 1, len(counts) - 1)
        stacked = np.stack([np.broadcast_to(curve, copies.shape) for curve in curves])
        low, high = (np.take_along_axis(stacked, (above - n)[None], 0)[0] for n in (1, 0))
        share = (copies - counts[above - 1]) / (counts[above] - counts[above - 1])
        every = low + share * (high - low)
        further: FloatArray = (every - latency - copies * sizes * slope) / (copies - 1)
        return np.maximum(further, 0.0)

    def seconds(self, size: float) -> float:
        """Seconds of one copy of `size` bytes; nothing takes no time."""
        if size <= 0:
            return 0.0
        piece = next(n for n, end in enumerate(self.ends) if size <= end)
        return self.latencies[piece] + size * self.gaps_per_byte[piece]

    @property
    def least_per_byte(self) -> float:
        """The fewest seconds a byte of one copy of any size, L+o in them: no copies back to back move data faster."""
        ends = zip(self.ends, self.latencies, self.gaps_per_byte, strict=True)
        return min(latency / end + gap for end, latency, gap in ends)

    @property
    def long_gap(self) -> float:
        """G of long copies, s/B."""
        return self.gaps_per_byte[-1]

    def no_faster_than(self, size: float) -> Line:
        """The same line with no byte cheaper than in one copy of `size` bytes: a part of a buffer that outgrows the
        cache is not in it either.
        """
        least = self.gaps_per_byte[next(n for n, end in enumerate(self.ends) if size <= end)]
        return Line(self.ends, self.latencies, tuple(max(g, least) for g in self.gaps_per_byte))

    def scaled(self, factor: float) -> Line:
        """The same line on a link `factor` times as fast; L+o stays."""
        rows = tuple((count, line.scaled(factor)) for count, line in self.rows)
        return replace(self, gaps_per_byte=tuple(g / factor for g in self.gaps_per_byte), rows=rows)


def one_piece(latency: float, gap_per_byte: float) -> Line:
    """The line of all sizes alike."""
    return Line((float("inf"),), (latency,), (gap_per_byte,))


def line_of(pieces: tuple[Piece, ...], start: float) -> Line:
    """The pieces as measured; `start` (s) for the L+o of those that have none."""
    return Line(
        tuple(float(p.up_to_bytes) if p.up_to_bytes else float("inf") for p in pieces),
        tuple(start if p.latency_overhead_s is None else p.latency_overhead_s for p in pieces),
        tuple(p.gap_per_byte_s for p in pieces),
    )
