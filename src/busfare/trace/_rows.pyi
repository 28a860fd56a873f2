from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

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

def merged(numbers: list[Numbers], order: NDArray[np.uint32]) -> bool:
    """Sets `order` to the rows in order of their numbers, which come in parts; False if a part is not in order."""

#: Starts, ends, lanes, sizes; and by its lanes what each is called in the whole, and its marks.
Part = tuple[Numbers, Numbers, NDArray[np.uint16], Numbers | None, list[int], list[int]]

def merge_timed(
    parts: list[Part],
    less: int,
    marks: list[int],
    starts: Numbers,
    ends: Numbers,
    lanes: NDArray[np.uint32],
    sizes: Numbers,
    sized: NDArray[np.uint32],
) -> list[NDArray[np.uint32]]:
    """Merges parts that are in order of time, of like starts the first part's first; times count from `less`.

    Gives the rows that have each of `marks`; `sized` are those of parts with sizes, others get size -1. Raises
    IndexError for a lane that is not there.
    """

class SortedColumn:
    """Shared by Arrow's C interface, not copied."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

def sorted_column(stream: Any, order: NDArray[np.uint32]) -> SortedColumn:
    """The rows `order` of a column of whole numbers, given by Arrow's stream interface.

    Raises IndexError for a row that is not there.
    """
