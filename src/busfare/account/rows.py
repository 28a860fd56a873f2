"""Rows of chosen lanes, or other numbers: where there are many, in large pages, of which those left over take no memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.account import _lanes

__all__ = ["rows_among", "rows_of", "rows_sized"]

Rows = NDArray[np.uint32]


def rows_of(number_of: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """The rows whose number is chosen, in order. Raises IndexError for a number that `chosen` does not have."""
    into = np.empty(len(number_of), np.uint32)  # numpy asks for large pages
    return into[: _lanes.rows_of(number_of, chosen.view(np.uint8), into)]


def rows_sized(
    lane_of: Rows, chosen: NDArray[np.bool_], sizes: NDArray[np.int64], least: int, most: int
) -> Rows:
    """The rows in chosen lanes whose size is from `least` to `most`, in order."""
    into = np.empty(len(lane_of), np.uint32)
    return into[: _lanes.rows_sized(lane_of, chosen.view(np.uint8), sizes, least, most, into)]


def rows_among(
    rows: Rows,
    lane_of: Rows,
    chosen: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    least: int,
    most: int,
) -> Rows:
    """`rows_sized` of some rows only. Raises IndexError for one that is not there."""
    into = np.empty(len(rows), np.uint32)
    return into[: _lanes.rows_among(rows, lane_of, chosen.view(np.uint8), sizes, least, most, into)]
