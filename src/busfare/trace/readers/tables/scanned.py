"""Tables of operations that were scanned, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.trace._sqlite_columns import OperationScan

__all__ = ["Lanes", "Operations", "operations_of"]


@dataclass(frozen=True, eq=False)
class Lanes:
    """Column by column: of each lane, what tells it apart (a number or None each), and its sums."""

    keys: dict[str, list[int | None]]
    marks: NDArray[np.uint8]
    first_row: NDArray[np.int64]
    count: NDArray[np.int64]
    ns: NDArray[np.int64]
    bytes: NDArray[np.int64]
    rated_bytes: NDArray[np.int64]
    rated_ns: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Operations:
    """Of each row, in order of time: start and end, the number of its lane, and its bytes, if they were asked for.

    `last`: the last end.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lane_of: NDArray[np.uint16]
    sizes: NDArray[np.int64] | None
    last: int
    lanes: Lanes


def operations_of(scan: OperationScan, given: Sequence[str], keys: Sequence[str]) -> Operations:
    """`keys` tell lanes apart, of which those `given` were there to be scanned."""
    found = scan.lanes
    values = [lane[0] for lane in found]
    known = {key: [one[at] for one in values] for at, key in enumerate(["process", *given])}
    lacking = {key: [None] * len(found) for key in keys if key not in known}
    sums = np.array([lane[2:] for lane in found], np.int64).reshape(-1, 6)
    marks = np.array([lane[1] for lane in found], np.uint8)
    lanes = Lanes(known | lacking, marks, *sums.T)
    return Operations(scan.starts, scan.ends, scan.lane_of, scan.sizes, scan.last, lanes)
