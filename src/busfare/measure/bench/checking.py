"""Inputs filled, references computed and results compared, level by level on all processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from busfare.measure.bench.ocean import water_column
from busfare.measure.bench.work import Work
from busfare.measure.device import WrongDataError
from busfare.node.arrays import FloatArray

__all__ = ["RELATIVE", "Expected", "expected", "fill"]

#: A result may differ from the reference by this share of itself, and of the largest value of its array: a GPU
#: contracts products and sums, the reference does not.
RELATIVE, OF_LARGEST = 1e-10, 1e-12
#: Elements computed or compared at once: what fits a processor's cache, and is long against a call of Python's.
BLOCK = 1 << 16


def _by_level(work: Work, of_level: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        list(threads.map(of_level, range(work.levels)))


def _levels(work: Work, arrays: Sequence[FloatArray]) -> list[FloatArray]:
    return [array.reshape(work.levels, work.level) for array in arrays]


def _blocks(work: Work) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, work.level, BLOCK)]


def fill(work: Work, inputs: Sequence[FloatArray]) -> None:
    """Sea water in all inputs: temperatures in the even ones, salinities in the odd ones."""
    grids = _levels(work, inputs)

    def of_level(k: int) -> None:
        for pair in range(0, len(grids), 2):
            # Drawn in place: a gigabyte of short-lived arrays would cost more than the numbers in it.
            water_column(k, [grid[k] for grid in grids[pair : pair + 2]], pair)

    _by_level(work, of_level)


def _largest(work: Work, array: FloatArray) -> float:
    """The largest absolute value."""
    (grid,), found = _levels(work, [array]), np.zeros(work.levels)

    def of_level(k: int) -> None:
        found[k] = max(float(grid[k].max()), -float(grid[k].min()))

    _by_level(work, of_level)
    return float(found.max())


class Expected:
    """What every version must give."""

    def __init__(self, work: Work, arrays: list[FloatArray], against: str) -> None:
        self._work, self.arrays = work, arrays
        #: What the results are compared with, for the record.
        self.against = against
        #: What an element may differ by, array by array, besides RELATIVE of itself.
        self.slacks = [OF_LARGEST * _largest(work, array) for array in arrays]

    def check(self, outputs: Sequence[FloatArray]) -> float:
        """The largest error over what is allowed (at most 1). Raises WrongDataError where an element is wrong."""
        worst = np.zeros(self._work.levels)
        wrong = np.zeros(self._work.levels, np.int64)
        pairs = list(
            zip(_levels(self._work, outputs), _levels(self._work, self.arrays), self.slacks, strict=True)
        )

        def of_level(k: int) -> None:
            for got, want, slack in pairs:
                for part in _blocks(self._work):
                    share = np.abs(got[k, part] - want[k, part]) / (
                        RELATIVE * np.abs(want[k, part]) + slack + 1e-300
                    )
                    wrong[k] += int(np.count_nonzero(~(share <= 1.0)))  # what is no number is wrong
                    worst[k] = max(worst[k], float(share.max()))

        _by_level(self._work, of_level)
        if wrong.any():
            k = int(wrong.argmax())
            raise WrongDataError(
                f"{int(wrong.sum())} elements differ from {self.against}, most of them in level {k}"
            )
        return float(worst.max())


def expected(work: Work, inputs: Sequence[FloatArray]) -> Expected:
    """The reference in float64, on the CPU. Raises ValueError for a kernel that has none."""
    if work.kernel.reference is None:
        raise ValueError(f"{work.kernel.name} has no reference")
    reference = work.kernel.reference
    grids = _levels(work, inputs)
    made = [np.empty((work.levels, work.level)) for _ in range(work.kernel.outputs)]

    def of_level(k: int) -> None:
        # Places of a level depend on the same places of others alone.
        for part in _blocks(work):
            for grid, values in zip(made, reference([g[:, part] for g in grids], k), strict=True):
                grid[k, part] = values

    _by_level(work, of_level)
    return Expected(work, [grid.reshape(-1) for grid in made], "the reference in float64 on the CPU")
