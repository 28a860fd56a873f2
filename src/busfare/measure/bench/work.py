"""A kernel on a grid of levels: its size, how it is cut, and what of its inputs a part needs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from busfare.measure.bench.kernel import Kernel

__all__ = ["ELEMENT_BYTES", "Span", "Work"]

ELEMENT_BYTES = 8
#: Chunks within a level start at multiples of so many elements: 256 bytes, as allocators give.
ALIGNED = 32


@dataclass(frozen=True, slots=True)
class Span:
    """Elements `first` up to, and without, `end`."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class Work:
    """`kernel` on `levels` of `level` elements each."""

    kernel: Kernel
    levels: int
    level: int

    @property
    def name(self) -> str:
        return f"{self.kernel.name} {self.levels}×{self.level}"

    @property
    def elements(self) -> int:
        return self.levels * self.level

    @property
    def array_bytes(self) -> int:
        """Bytes of one array."""
        return self.elements * ELEMENT_BYTES

    @property
    def h2d_bytes(self) -> int:
        return self.kernel.inputs * self.array_bytes

    @property
    def d2h_bytes(self) -> int:
        return self.kernel.outputs * self.array_bytes

    @property
    def most_chunks(self) -> int:
        """Into how many chunks it can be cut."""
        return max(self.levels, self.elements // ALIGNED)

    def cut(self, chunks: int) -> list[Span]:
        """The elements in so many equal parts, to 256 bytes: 35 parts of 42 whole levels would be as long as 21.

        Raises ValueError for less than one chunk or more than there can be.
        """
        if not 1 <= chunks <= self.most_chunks:
            raise ValueError(f"{chunks} chunks of {self.name}")
        unit = self.level if self.levels % chunks == 0 else ALIGNED
        units = -(-self.elements // unit)
        edges = [min(self.elements, unit * (units * n // chunks)) for n in range(chunks + 1)]
        return [Span(a, b) for a, b in pairwise(edges)]

    def inputs_of(self, part: Span) -> list[Span]:
        """What of each input array a launch on `part` reads."""
        needed = [part]
        if "above" in self.kernel.reaches and part.end > self.level:
            needed.append(Span(max(0, part.first - self.level), part.end - self.level))
        if "surface" in self.kernel.reaches:
            start = part.first % self.level
            if part.count >= self.level:
                needed.append(Span(0, self.level))
            elif start + part.count <= self.level:
                needed.append(Span(start, start + part.count))
            else:
                needed += [Span(start, self.level), Span(0, start + part.count - self.level)]
        return needed

    def chunks_of(self, part: Span, cut: list[Span]) -> list[int]:
        """The chunks of `cut` that hold what a launch on `part` reads, in order."""
        starts = [span.first for span in cut]
        found: set[int] = set()
        for span in self.inputs_of(part):
            found.update(range(bisect_right(starts, span.first) - 1, bisect_right(starts, span.end - 1)))
        return sorted(found)
