"""A figure along the ranks of a job, in at most 256 cells, each of one rank or of neighbouring ones."""

from __future__ import annotations

import msgspec

__all__ = ["MOST_CELLS", "Cell", "Strip"]

MOST_CELLS = 256


class Cell(msgspec.Struct):
    """Ranks `first` to `last`: how many traces of them there are, and the sums and largest of each figure."""

    first: int
    last: int
    count: int
    sums: list[int]
    most: list[int]


class Strip:
    """Cells get twice as wide whenever a rank would fall beyond the last one, so the order of arrival is lost."""

    def __init__(self, figures: int) -> None:
        self._figures = figures
        self._shift = 0
        self._cells: dict[int, tuple[int, list[int], list[int]]] = {}

    def add(self, rank: int, values: list[int]) -> None:
        self._widen_to(max(self._shift, (rank // MOST_CELLS).bit_length()))
        self._join(rank >> self._shift, 1, values, values)

    def merge(self, other: Strip) -> None:
        self._widen_to(max(self._shift, other._shift))
        for number, (count, sums, most) in other._cells.items():
            self._join(number >> (self._shift - other._shift), count, sums, most)

    def cells(self) -> list[Cell]:
        """The cells that hold a trace, in the order of their ranks."""
        width = 1 << self._shift
        return [
            Cell(number * width, (number + 1) * width - 1, *self._cells[number])
            for number in sorted(self._cells)
        ]

    def _widen_to(self, shift: int) -> None:
        by, self._shift = shift - self._shift, shift
        if by:
            before, self._cells = self._cells, {}
            for number, (count, sums, most) in before.items():
                self._join(number >> by, count, sums, most)

    def _join(self, number: int, count: int, sums: list[int], most: list[int]) -> None:
        none = [0] * self._figures
        held, held_sums, held_most = self._cells.get(number, (0, none, none))
        self._cells[number] = (
            held + count,
            [a + b for a, b in zip(held_sums, sums, strict=True)],
            [max(a, b) for a, b in zip(held_most, most, strict=True)],
        )
