"""Which row of one table a number of another means: correlations are nearly dense, so no join is needed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["distinct", "first_rows"]

#: A direct table may be this many times longer than what is looked up in it.
SPARSE = 8
SMALL = 1 << 20


def first_rows(keys: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The first row of `keys` that equals each of `wanted`; -1 where there is none."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    most = int(keys.max())
    if most < SPARSE * (len(keys) + len(wanted)) + SMALL:
        rows = np.full(most + 2, -1, np.int64)  # the last place answers for all that are greater
        rows[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
        return rows[np.minimum(wanted, np.uint64(most + 1))]
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    places = np.minimum(np.searchsorted(ranked, wanted), len(keys) - 1)
    return np.where(ranked[places] == wanted, order[places], -1)


def distinct(
    numbers: npt.NDArray[np.uint64], most: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The numbers that occur, in order, and each one's place among them; what is over `most` counts as 0."""
    small = np.where(numbers <= most, numbers, 0).astype(np.int64)
    used = np.flatnonzero(np.bincount(small, minlength=1))
    if not len(used):
        used = np.zeros(1, np.int64)
    places = np.zeros(int(used[-1]) + 1, np.int64)
    places[used] = np.arange(len(used))
    return used.astype(np.uint64), places[small]
