"""Rows that are alike, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from busfare.account import _lanes

__all__ = ["numbered"]


def numbered(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The number of each row, the same where all columns are equal, and the first row of each number.

    Columns are whole numbers, shape (rows,). Numbers are given in order of appearance.
    """
    number_of = np.empty(len(columns[0]), np.uint32)  # numpy asks for large pages
    return number_of, _lanes.group(list(columns), number_of)
