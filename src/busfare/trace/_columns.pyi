from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Rows = NDArray[np.uint32]

def group(columns: list[NDArray[Any]], lane_of: NDArray[np.uint32]) -> Numbers:
    """Numbers rows that are alike in all columns: sets the lane of each row, and gives the first row of each lane."""

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

def longest_gaps(
    starts: Numbers,
    ends: Numbers,
    lane_of: NDArray[np.uint32],
    set_of: NDArray[np.uint32],
    sets: int,
    most: int,
) -> list[tuple[Numbers, Numbers]] | None:
    """Of each set of lanes, the longest gaps between intervals of its union, longest first; None if out of order.

    `set_of` a lane: its set; none, if that is `sets` or more.
    """

def lengths(
    starts: Numbers, ends: Numbers, lane_of: NDArray[np.uint32], sets_of: NDArray[np.uint64], sets: int
) -> Numbers | None:
    """The lengths of the unions of the intervals of sets of lanes; bit k of `sets_of` a lane: whether it is in set k.

    None if the intervals are not in order of their starts. At most 64 sets.
    """

def length_with(
    starts: Numbers,
    ends: Numbers,
    lane_of: NDArray[np.uint32],
    chosen: NDArray[np.uint8],
    rows: NDArray[np.uint32],
) -> int | None:
    """The length of the union of the intervals in chosen lanes and of `rows`; None if either is out of order."""

def tally(
    number_of: NDArray[np.uint32],
    lane_of: NDArray[np.uint32],
    chosen: NDArray[np.uint8],
    starts: Numbers,
    ends: Numbers,
    numbers: int,
) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
    """By number, of the rows in chosen lanes: the first row (-1: none), how many, and their ns.

    Raises IndexError for a number of `numbers` or more.
    """

def decades(
    lane_of: NDArray[np.uint32],
    chosen: NDArray[np.uint8],
    sizes: Numbers,
    starts: Numbers,
    ends: Numbers,
) -> tuple[Numbers, NDArray[np.float64]]:
    """By decade of size, of the rows in chosen lanes whose size is not below zero: how many, and their seconds."""

def rows_of(number_of: Rows, chosen: NDArray[np.uint8], into: Rows) -> int:
    """Writes the rows whose number is chosen, and says how many they are. `into` is as long as `number_of`.

    Raises IndexError for a number that `chosen` does not have.
    """

def rows_sized(
    lane_of: Rows, chosen: NDArray[np.uint8], sizes: Numbers, least: int, most: int, into: Rows
) -> int:
    """Writes the rows in chosen lanes whose size is from `least` to `most`, and says how many they are."""

def shared(a_starts: Numbers, a_ends: Numbers, b_starts: Numbers, b_ends: Numbers) -> int:
    """Nanoseconds in both of two unions."""

def sums_among(
    rows: NDArray[np.uint32],
    lane_of: NDArray[np.uint32],
    starts: Numbers,
    ends: Numbers,
    bytes: Numbers,
    lanes: int,
) -> dict[str, Numbers]:
    """Of some rows, by lane: `count`, `bytes` (those that are known), `ns`, and `first`, the place among `rows` of its
    first one (-1: it has none). Raises IndexError for a row or a lane that is not there.
    """

def longest(rows: NDArray[np.uint32], starts: Numbers, ends: Numbers, most: int) -> NDArray[np.uint32]:
    """Of some rows those that last as long as the one at place `most` by length, or longer; all if there are fewer.

    Raises IndexError for one that is not there.
    """

def occurs(
    have_first: Numbers, have_second: Numbers, first: Numbers, second: Numbers, found: NDArray[np.uint8]
) -> None:
    """Sets `found` to whether each pair (first, second) is one of the others."""

def first(have_first: Numbers, have_second: Numbers, first: Numbers, second: Numbers, found: Numbers) -> None:
    """Sets `found` to the first of the others that each pair (first, second) is, or to -1."""

def occurring(numbers: NDArray[np.uint32], found: NDArray[np.uint8]) -> None:
    """Sets `found` at each of the numbers to 1. Raises IndexError for a number that it does not have."""

def take(values: list[NDArray[Any]], order: NDArray[np.uint32], taken: NDArray[Any], less: int = 0) -> None:
    """Sets `taken` to the whole numbers of those rows, less `less`; `values` come in parts, one behind the other.

    Raises IndexError for a row that is not there.
    """

def order_of(numbers: list[Numbers], order: NDArray[np.uint32]) -> None:
    """Sets `order` to the rows in order of their numbers, which come in parts; like ones as they stand."""

class SortedColumn:
    """Shared by Arrow's C interface, not copied."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

def sorted_column(stream: Any, order: NDArray[np.uint32]) -> SortedColumn:
    """The rows `order` of a column of whole numbers, given by Arrow's stream interface.

    Raises IndexError for a row that is not there.
    """
