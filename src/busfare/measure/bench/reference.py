"""Inputs filled and references computed, level by level on all processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from busfare.measure.bench.ocean import water_column
from busfare.measure.bench.program import Work
from busfare.node.arrays import FloatArray

__all__ = ["RELATIVE", "expected", "fill", "slacks"]

#: A result may differ from the reference by this share of itself, and of the largest value of its array: a GPU
#: contracts products and sums, the reference does not.
RELATIVE, OF_LARGEST = 1e-10, 1e-12
#: Elements computed at once: what fits a processor's cache, and is long against a call of Python's.
BLOCK = 1 << 16


def _by_level(work: Work, of_level: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        list(threads.map(of_level, range(work.levels)))


def fill(work: Work, inputs: Sequence[FloatArray]) -> None:
    """Sea water in all inputs: temperatures in the even ones, salinities in the odd ones."""
    grids = [array.reshape(work.levels, work.level) for array in inputs]

    def of_level(k: int) -> None:
        for pair in range(0, len(grids), 2):
            # Drawn in place: a gigabyte of short-lived arrays would cost more than the numbers in it.
            water_column(k, [grid[k] for grid in grids[pair : pair + 2]], pair)

    _by_level(work, of_level)


def expected(work: Work, inputs: Sequence[FloatArray]) -> list[FloatArray]:
    """What every version must give: the reference in float64, on the CPU. Raises ValueError for a kernel without one."""
    if work.kernel.reference is None:
        raise ValueError(f"{work.kernel.name} has no reference")
    reference = work.kernel.reference
    grids = [array.reshape(work.levels, work.level) for array in inputs]
    made = [np.empty((work.levels, work.level)) for _ in range(work.kernel.outputs)]

    def of_level(k: int) -> None:
        # Places of a level depend on the same places of others alone.
        for start in range(0, work.level, BLOCK):
            part = slice(start, start + BLOCK)
            for grid, values in zip(made, reference([g[:, part] for g in grids], k), strict=True):
                grid[k, part] = values

    _by_level(work, of_level)
    return [grid.reshape(-1) for grid in made]


def slacks(arrays: Sequence[FloatArray]) -> list[float]:
    """What an element may differ by, array by array, besides RELATIVE of itself."""
    return [OF_LARGEST * max(float(array.max()), -float(array.min())) for array in arrays]
