"""What a reader of a large trace added up while it read, in place of columns and calls that nobody looks at."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["LANE_KEYS", "CallsLeftOut", "Summed", "keep", "summed_of"]

#: What tells lanes of operations apart.
LANE_KEYS = ("kind", "direction", "source_memory", "destination_memory", "device", "process", "stream")


@dataclass(frozen=True, eq=False)
class CallsLeftOut:
    """All calls of a trace whose table holds only those that wait, copy, or are named by records of events.

    `first_ns`, `last_ns`: the first start and the last end. `during(start_ns, end_ns)`: start_ns, end_ns and name of the
    calls that run then, in order of their starts; read again from the file.
    """

    count: int
    first_ns: int
    last_ns: int
    during: Callable[[int, int], pl.DataFrame]


@dataclass(frozen=True, eq=False)
class Summed:
    """Operations as times and lanes, for a table that holds nothing but times.

    `lanes`: a row a lane, in order of first operation: LANE_KEYS, communication (whether it is of kernels
    that carry data between GPUs), peer_device, copy_count; and count, ns, bytes (of those
    whose size is known), and of those that also took time rated_bytes and rated_ns.
    `lane_of`, `starts`, `ends` (nanoseconds), `sizes` (bytes, -1 where not known): of each operation, shape (n,).
    `sized`: those of a known size, which are all copies, migrations and sets, in order.
    `names`: kind, name, count and ns of kernels. `submitted`: by pattern, the operations whose call has such a name.
    `orphans`: how many have no call. Times count from `first_ns` of the times as they were read; `last_ns`: the end of the
    last operation or call.
    """

    lanes: pl.DataFrame
    lane_of: NDArray[np.uint32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sized: NDArray[np.uint32]
    names: pl.DataFrame
    submitted: Mapping[str, NDArray[np.uint32]]
    orphans: int
    first_ns: int
    last_ns: int
    calls: CallsLeftOut

    def rows(self, columns: tuple[str, ...], rows: NDArray[np.uint32]) -> pl.DataFrame:
        """Some columns of some operations, as the whole table would have them."""
        of_lanes = [name for name in columns if name in self.lanes.columns and name != "bytes"]
        found: pl.DataFrame = self.lanes.select(of_lanes)[self.lane_of[rows]]
        given = {"start_ns": self.starts, "end_ns": self.ends, "bytes": self.sizes}
        taken = [pl.Series(name, given[name][rows]) for name in columns if name in given]
        size = pl.col("bytes")
        found = found.with_columns(taken)
        if "bytes" in columns:
            found = found.with_columns(pl.when(size >= 0).then(size).alias("bytes"))
        return found.select(columns)


#: By the table's identity; an entry goes with its table.
_known: dict[int, Summed] = {}


def keep(operations: pl.DataFrame, summed: Summed) -> None:
    """Remembers what a table of operations stands for."""
    _known[id(operations)] = summed
    weakref.finalize(operations, _known.pop, id(operations), None)


def summed_of(operations: pl.DataFrame) -> Summed | None:
    """What a table of operations that holds only times stands for; None for one that holds everything itself."""
    return _known.get(id(operations))
