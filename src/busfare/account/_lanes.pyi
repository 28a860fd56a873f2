from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

def group(columns: list[NDArray[Any]]) -> tuple[NDArray[np.uint32], Numbers]:
    """Numbers rows that are alike in all columns: the lane of each row, and the first row of each lane."""

def sums(
    lane_of: NDArray[np.uint32], starts: Numbers, ends: Numbers, bytes: Numbers, lanes: int
) -> dict[str, NDArray[Any]]:
    """By lane: count, ns, bytes, and of rows of known size that took time rated_bytes, rated_ns.

    A size below zero is not known.
    """

def unite(
    starts: Numbers, ends: Numbers, lane_of: NDArray[np.uint32], chosen: NDArray[np.uint8]
) -> tuple[Numbers, Numbers] | None:
    """The union of the intervals in chosen lanes; None if they are not in order of their starts."""

def shared(a_starts: Numbers, a_ends: Numbers, b_starts: Numbers, b_ends: Numbers) -> int:
    """Nanoseconds in both of two unions."""
