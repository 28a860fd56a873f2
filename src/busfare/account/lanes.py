"""Operations grouped once: whatever a trace adds up to is a sum over lanes, or a union of the times of some."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.account import _lanes
from busfare.account.intervals import Times, Union

__all__ = ["Lanes", "grouped", "lanes_of"]

NS = 1e-9
KEYS = ("kind", "direction", "source_memory", "destination_memory", "device", "process", "stream")


@dataclass(frozen=True, eq=False)
class Lanes:
    """`groups`: a row a lane, of operations alike in some columns, in order of their first one: those columns, count,
    seconds, bytes (of those whose size is known), and of those that also took time rated_bytes and rated_seconds.

    `lane_of`, `starts`, `ends`: of each operation, shape (n,); nanoseconds.
    """

    groups: pl.DataFrame
    lane_of: NDArray[np.uint32]
    starts: Times
    ends: Times
    _unions: dict[bytes, Union] = field(default_factory=dict)  # by the lanes chosen: most are asked for often

    def chosen(self, which: pl.Expr) -> NDArray[np.bool_]:
        """Of each lane, whether `which` (of the groups' columns) is true; shape (lanes,)."""
        return self.groups.select(which.fill_null(False)).to_series().to_numpy()

    def rows(self, which: pl.Expr) -> NDArray[np.bool_]:
        """Of each operation, whether its lane is chosen; shape (n,)."""
        return self.chosen(which)[self.lane_of]

    def union(self, which: pl.Expr) -> Union:
        """The time in which at least one operation of the chosen lanes runs."""
        chosen = self.chosen(which)
        key = chosen.tobytes()
        if key not in self._unions:
            united = _lanes.unite(self.starts, self.ends, self.lane_of, chosen.view(np.uint8))
            if united is None:  # the operations are not in order
                rows = chosen[self.lane_of]
                self._unions[key] = Union.of(self.starts[rows], self.ends[rows])
            else:
                self._unions[key] = Union(*united)
        return self._unions[key]


#: By the table's identity; an entry goes with its table.
_known: dict[int, Lanes] = {}


def lanes_of(operations: pl.DataFrame) -> Lanes:
    """The lanes of a table of operations; grouped once, however often they are asked for."""
    found = _known.get(id(operations))
    if found is None:
        found = _known[id(operations)] = grouped(operations, KEYS)
        weakref.finalize(operations, _known.pop, id(operations), None)
    return found


def grouped(operations: pl.DataFrame, keys: Sequence[str]) -> Lanes:
    """The lanes of operations that are alike in columns `keys`."""
    table = operations.select(keys)
    lane_of, first_rows = _lanes.group([array for column in table for array in _plain(column)])
    starts, ends = (np.ascontiguousarray(operations[name].to_numpy()) for name in ("start_ns", "end_ns"))
    sizes = np.ascontiguousarray(operations["bytes"].fill_null(-1).to_numpy())
    sums = _lanes.sums(lane_of, starts, ends, sizes, len(first_rows))
    groups = table[first_rows].with_columns(
        count=sums["count"],
        seconds=sums["ns"] * NS,
        bytes=sums["bytes"],
        rated_bytes=sums["rated_bytes"],
        rated_seconds=sums["rated_ns"] * NS,
    )
    return Lanes(groups, lane_of, starts, ends)


def _plain(column: pl.Series) -> list[NDArray[np.int64]]:
    """A column's numbers, and where it has nulls, which those are."""
    numbers = column.to_physical()
    if not numbers.null_count():
        return [np.ascontiguousarray(numbers.to_numpy())]
    return [numbers.fill_null(0).to_numpy(), column.is_null().cast(pl.UInt8).to_numpy()]
