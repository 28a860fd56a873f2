"""Operations grouped once: whatever a trace adds up to is a sum over lanes, or a union of the times of some."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._columns import lengths, shared, unite
from busfare.trace.columns import longest, numbered, numbers_of, plain, rows_of
from busfare.trace.words import CLASSES, Words, kind_codes, of_codes

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in order of time, in nanoseconds."""

    starts: Times
    ends: Times

    @staticmethod
    def of(starts: Times, ends: Times) -> "Union":
        """The union of any intervals, in any order."""
        if len(starts) == 0:
            return Union(np.zeros(0, np.int64), np.zeros(0, np.int64))
        lane, chosen = np.zeros(len(starts), np.uint32), np.ones(1, np.uint8)
        united = unite(starts, ends, lane, chosen)
        if united is None:  # they are not in order
            order = np.argsort(starts, kind="stable")
            united = unite(starts[order], ends[order], lane, chosen)
            assert united is not None
        return Union(*united)

    @cached_property
    def before(self) -> Times:
        """The length of all intervals before each."""
        before = np.zeros(len(self.starts), np.int64)
        np.cumsum((self.ends - self.starts)[:-1], out=before[1:])
        return before

    def length(self) -> int:
        """Nanoseconds covered."""
        return int(self.ends.sum() - self.starts.sum())

    def covered_before(self, times: Times) -> Times:
        """How many nanoseconds of the union lie before each of `times`; shape (n,)."""
        if len(self.starts) == 0:
            return np.zeros(len(times), np.int64)
        index = np.maximum(np.searchsorted(self.starts, times, side="right") - 1, 0)
        inside = np.clip(times, self.starts[index], self.ends[index]) - self.starts[index]
        return np.asarray(self.before[index] + inside, np.int64)

    def covered_within(self, starts: Times, ends: Times) -> Times:
        """How many nanoseconds of the union lie within each interval; shape (n,)."""
        return self.covered_before(ends) - self.covered_before(starts)

    def minus(self, excluded: "Union") -> int:
        """Nanoseconds in this union but not in `excluded`."""
        return self.length() - shared(self.starts, self.ends, excluded.starts, excluded.ends)


NS = 1e-9
T = TypeVar("T")
#: What tells lanes of operations apart.
LANE_KEYS = ("kind", "direction", "source_memory", "destination_memory", "device", "process", "stream")
#: How many lengths one pass finds.
MOST_SETS = 64
LARGEST = (1 << 63) - 1


def is_transfer() -> pl.Expr:
    """Copies and migrations."""
    return pl.col("kind").is_in(["copy", "migration"])


def is_work() -> pl.Expr:
    """Kernels that compute, and graph launches whose inside the trace hides."""
    return pl.col("kind").is_in(["kernel", "graph"])


def is_communication() -> pl.Expr:
    """Kernels that carry data between GPUs; of lanes only, as a table of operations calls them kernels."""
    return pl.col("kind") == "communication"


@dataclass(frozen=True, eq=False)
class Lanes:
    """Lanes of operations that are in order of their starts.

    `groups`: a row a lane, of operations alike in some columns, in order of their first one: those columns, count,
    seconds, bytes (of those whose size is known), and of those that also took time rated_bytes and rated_seconds. Kernels
    that carry data between GPUs are of kind `communication` there.

    `lane_of`, `starts`, `ends` (nanoseconds), `sizes` (bytes, -1 where they are not known): of each operation, shape (n,).
    """

    groups: pl.DataFrame
    lane_of: NDArray[np.uint32]
    starts: Times
    ends: Times
    sizes: NDArray[np.int64]
    # By the lanes chosen: most are asked for often.
    _unions: dict[bytes, Union] = field(default_factory=dict)
    _lengths: dict[bytes, int] = field(default_factory=dict)

    @staticmethod
    def of(operations: pl.DataFrame, keys: Sequence[str] = LANE_KEYS) -> "Lanes":
        """The lanes of operations that are alike in columns `keys`."""
        table = operations.select(keys)
        words = Words(operations)
        codes = {name: words.codes(name) for name, kind in table.schema.items() if kind == pl.Enum}
        if "kind" in codes and "name" in operations.columns:
            codes["kind"] = kind_codes(operations)
        numbers = [array for column in table if column.dtype != pl.Enum for array in plain(column)]
        lane_of, first_rows = numbered([*codes.values(), *numbers])
        starts, ends = (np.ascontiguousarray(operations[name].to_numpy()) for name in ("start_ns", "end_ns"))
        sizes = numbers_of(operations["bytes"], -1)
        groups = pl.concat([table[first_rows], _sums(lane_of, starts, ends, sizes)], how="horizontal")
        if "kind" in codes:
            kinds = of_codes(codes["kind"][first_rows], pl.Series(dtype=CLASSES))
            groups = groups.with_columns(kind=kinds)
        return Lanes(groups, lane_of, starts, ends, sizes)

    def chosen(self, which: pl.Expr) -> NDArray[np.bool_]:
        """Of each lane, whether `which` (of the groups' columns) is true; shape (lanes,)."""
        return self.masks([which])[0]

    def masks(self, which: Sequence[pl.Expr]) -> list[NDArray[np.bool_]]:
        """`chosen` of each, all at once."""
        columns = [expression.fill_null(False).alias(str(number)) for number, expression in enumerate(which)]
        # With columns, so that a constant stands for every lane.
        made = self.groups.with_columns(columns)
        return [made[str(number)].to_numpy() for number in range(len(columns))]

    def rows(self, which: pl.Expr, least: int | None = None, most: int | None = None) -> NDArray[np.uint32]:
        """The operations of the chosen lanes, in order; with a limit, only those of a known size of `least` to `most`."""
        chosen = self.chosen(which)
        if not chosen.any():
            return np.zeros(0, np.uint32)
        if least is None and most is None:
            return rows_of(self.lane_of, chosen)
        sized = (self.sizes >= (least or 0)) & (self.sizes <= (LARGEST if most is None else most))
        return np.flatnonzero(sized & chosen[self.lane_of]).astype(np.uint32)

    @cached_property
    def transfers_alone(self) -> bool:
        """Whether no two copies or migrations ever run beside each other."""
        seconds = float(self.groups["seconds"].filter(pl.Series(self.chosen(is_transfer()))).sum())
        return seconds <= self.lengths(is_transfer())[0] * NS * (1 + 1e-9)

    def union(self, which: pl.Expr) -> Union:
        """The time in which at least one operation of the chosen lanes runs."""
        chosen = self.chosen(which)
        key = chosen.tobytes()
        if key not in self._unions:
            united = unite(self.starts, self.ends, self.lane_of, chosen.view(np.uint8))
            self._unions[key] = Union(*_ordered(united))
        return self._unions[key]

    def uncovered_ns(self, rows: NDArray[np.uint32], which: pl.Expr) -> int:
        """Nanoseconds in which one of the operations `rows` runs, and none of the chosen lanes does."""
        either = self.chosen(which)[self.lane_of]
        either[rows] = True
        sets = np.array([0, 1], np.uint64)
        united = lengths(self.starts, self.ends, either.astype(np.uint32), sets, 1)
        return int(_ordered(united)[0]) - self.lengths(which)[0]

    def longest_gaps(self, which: pl.Expr, most: int) -> list[tuple[int, int]]:
        """Starts and ends of the longest times between operations of the chosen lanes, longest first."""
        chosen = self.chosen(which).view(np.uint8)
        begun, ended = _ordered(unite(self.starts, self.ends, self.lane_of, chosen))
        starts, ends = ended[:-1], begun[1:]
        places = longest(ends - starts, most)
        places = places[np.argsort(starts[places] - ends[places], kind="stable")][:most]
        return list(zip(starts[places].tolist(), ends[places].tolist(), strict=True))

    def lengths(self, *which: pl.Expr) -> list[int]:
        """Of each, the nanoseconds in which at least one operation of its lanes runs: one pass for all of them."""
        return self.lengths_of(self.masks(which))

    def lengths_of(self, masks: Sequence[NDArray[np.bool_]]) -> list[int]:
        """`lengths` of lanes that were chosen before."""
        keys = [chosen.tobytes() for chosen in masks]
        wanted = {key: chosen for key, chosen in zip(keys, masks, strict=True) if key not in self._lengths}
        sets = list(wanted.items())
        for first in range(0, len(sets), MOST_SETS):
            some = sets[first : first + MOST_SETS]
            bits = np.zeros(self.groups.height, np.uint64)
            for number, (_, chosen) in enumerate(some):
                bits |= chosen.astype(np.uint64) << np.uint64(number)
            covered_ns = _ordered(lengths(self.starts, self.ends, self.lane_of, bits, len(some)))
            self._lengths.update(zip((key for key, _ in some), covered_ns.tolist(), strict=True))
        return [self._lengths[key] for key in keys]


def _ordered(made: T | None) -> T:
    if made is None:
        raise ValueError("operations that are not in order of their starts")
    return made


def _sums(lane_of: NDArray[np.uint32], starts: Times, ends: Times, sizes: Times) -> pl.DataFrame:
    """A row a lane: the sums that `groups` has."""
    rows = pl.LazyFrame({"lane": lane_of, "ns": ends - starts, "size": sizes})
    ns, size = pl.col("ns"), pl.col("size")
    rated = (size >= 0) & (ns > 0)
    return (
        rows.group_by("lane")
        .agg(
            count=pl.len().cast(pl.Int64),
            seconds=ns.sum() * NS,
            bytes=size.filter(size > 0).sum(),
            rated_bytes=size.filter(rated).sum(),
            rated_seconds=ns.filter(rated).sum() * NS,
        )
        .sort("lane")
        .drop("lane")
        .collect()
    )
