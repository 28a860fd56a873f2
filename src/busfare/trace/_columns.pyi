from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

def unite(
    starts: Numbers, ends: Numbers, lane_of: NDArray[np.uint32], chosen: NDArray[np.uint8]
) -> tuple[Numbers, Numbers] | None:
    """The union of the intervals in chosen lanes; None if they are not in order of their starts."""

def lengths(
    starts: Numbers, ends: Numbers, lane_of: NDArray[np.uint32], sets_of: NDArray[np.uint64], sets: int
) -> Numbers | None:
    """The lengths of the unions of the intervals of sets of lanes; bit k of `sets_of` a lane: whether it is in set k.

    None if the intervals are not in order of their starts. At most 64 sets.
    """

def shared(a_starts: Numbers, a_ends: Numbers, b_starts: Numbers, b_ends: Numbers) -> int:
    """Nanoseconds in both of two unions."""

def first_rows(
    have_first: NDArray[np.int32],
    have_second: Numbers,
    first: NDArray[np.int32],
    second: Numbers,
    rows: NDArray[np.int32],
) -> None:
    """Sets `rows` to the first row among `have_first`, `have_second` that equals each pair (first, second), or to -1."""

def number_rows(columns: list[NDArray[Any]], number: NDArray[np.uint32], most: int) -> Numbers | None:
    """Sets `number` to the number of each row, the same where all columns (whole numbers) are equal, in order of appearance;
    gives the first row of each. None, and nothing done, where the columns' ranges allow more than `most` different rows.
    """

def previous_rows(number: NDArray[np.uint32], count: int, before: NDArray[np.int32]) -> None:
    """Sets `before` to the row before each with the same number, which is below `count`; -1 for none."""
