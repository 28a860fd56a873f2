"""Operations grouped once: whatever a trace adds up to is a sum over lanes, or a union of the times of some."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.account import _lanes
from busfare.account.intervals import Times, Union
from busfare.account.numbered import numbered
from busfare.account.rows import rows_among, rows_of, rows_sized
from busfare.trace.communication import CLASSES, kind_codes
from busfare.trace.summed import LANE_KEYS, Summed, summed_of
from busfare.trace.words import of_codes, words_of

__all__ = ["Lanes", "grouped", "lanes_of", "plain"]

NS = 1e-9
#: How many lengths one pass finds.
MOST_SETS = 64
LARGEST = (1 << 63) - 1
A_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Lanes:
    """`groups`: a row a lane, of operations alike in some columns, in order of their first one: those columns, count,
    seconds, bytes (of those whose size is known), and of those that also took time rated_bytes and rated_seconds. Kernels
    that carry data between GPUs are of kind `communication` there.

    `lane_of`, `starts`, `ends` (nanoseconds), `sizes` (bytes, -1 where they are not known): of each operation, shape (n,).
    """

    groups: pl.DataFrame
    lane_of: NDArray[np.uint32]
    starts: Times
    ends: Times
    sizes: NDArray[np.int64]
    #: Where it is known: the operations of a known size, in order. Lanes are then wholly among them, or not at all.
    sized: NDArray[np.uint32] | None = None
    # By the lanes chosen: most are asked for often.
    _unions: dict[bytes, Union] = field(default_factory=dict)
    _lengths: dict[bytes, int] = field(default_factory=dict)

    def chosen(self, which: pl.Expr) -> NDArray[np.bool_]:
        """Of each lane, whether `which` (of the groups' columns) is true; shape (lanes,)."""
        return self.masks([which])[0]

    def masks(self, which: Sequence[pl.Expr]) -> list[NDArray[np.bool_]]:
        """`chosen` of each, all at once."""
        asked = [expression.fill_null(False).alias(str(number)) for number, expression in enumerate(which)]
        # With columns, so that a constant stands for every lane.
        found = self.groups.with_columns(asked)
        return [found[str(number)].to_numpy() for number in range(len(asked))]

    def rows(self, which: pl.Expr, least: int | None = None, most: int | None = None) -> NDArray[np.uint32]:
        """The operations of the chosen lanes, in order; with a limit, only those of a known size of `least` to `most`."""
        chosen = self.chosen(which)
        if not chosen.any():
            return np.zeros(0, np.uint32)
        limits = (least or 0, LARGEST if most is None else most)
        if self.sized is not None and self._has_sizes[chosen].all():
            if limits == (0, LARGEST) and chosen[self._has_sizes].all():
                return self.sized
            return rows_among(self.sized, self.lane_of, chosen, self.sizes, *limits)
        if least is None and most is None:
            return rows_of(self.lane_of, chosen)
        return rows_sized(self.lane_of, chosen, self.sizes, *limits)

    @cached_property
    def _has_sizes(self) -> NDArray[np.bool_]:
        return self.chosen(pl.col("kind").is_in(["copy", "migration", "set"]))

    @cached_property
    def transfers_alone(self) -> bool:
        """Whether no two copies or migrations ever run beside each other."""
        moved = pl.col("kind").is_in(["copy", "migration"])
        return float(self.groups["seconds"].filter(pl.Series(self.chosen(moved))).sum()) <= (
            self.lengths(moved)[0] * NS * (1 + 1e-9)
        )

    def union(self, which: pl.Expr) -> Union:
        """The time in which at least one operation of the chosen lanes runs."""
        chosen = self.chosen(which)
        key = chosen.tobytes()
        if key not in self._unions:
            united = _lanes.unite(self.starts, self.ends, self.lane_of, chosen.view(np.uint8))
            if united is None:  # the operations are not in order
                rows = rows_of(self.lane_of, chosen)
                self._unions[key] = Union.of(self.starts[rows], self.ends[rows])
            else:
                self._unions[key] = Union(*united)
        return self._unions[key]

    def not_beside(self, rows: NDArray[np.uint32], which: pl.Expr) -> int:
        """Nanoseconds in which one of the operations `rows` runs, and none of the chosen lanes does."""
        chosen = self.chosen(which).view(np.uint8)
        either = _lanes.length_with(self.starts, self.ends, self.lane_of, chosen, rows)
        if either is None:  # operations or rows are not in order
            return Union.of(self.starts[rows], self.ends[rows]).minus(self.union(which))
        return either - self.lengths(which)[0]

    def longest_gaps(self, which: Sequence[pl.Expr], most: int) -> list[list[tuple[int, int]]]:
        """Of each, the starts and ends of the longest times between operations of its lanes, longest first.

        No lane is chosen by two of them.
        """
        set_of = np.full(self.groups.height, len(which), np.uint32)
        for number, chosen in enumerate(self.masks(which)):
            set_of[chosen] = number
        found = _lanes.longest_gaps(self.starts, self.ends, self.lane_of, set_of, len(which), most)
        if found is None:  # the operations are not in order
            order = np.argsort(self.starts, kind="stable")
            ordered = self.starts[order], self.ends[order], self.lane_of[order]
            found = _lanes.longest_gaps(*ordered, set_of, len(which), most)
            assert found is not None
        return [list(zip(starts.tolist(), ends.tolist(), strict=True)) for starts, ends in found]

    def lengths(self, *which: pl.Expr) -> list[int]:
        """Of each, the nanoseconds in which at least one operation of its lanes runs: one pass for all of them."""
        return self.lengths_of(self.masks(which))

    def lengths_of(self, masks: Sequence[NDArray[np.bool_]]) -> list[int]:
        """`lengths` of lanes that were chosen before."""
        keys = []
        wanted: dict[bytes, NDArray[np.bool_]] = {}
        for chosen in masks:
            keys.append(chosen.tobytes())
            if keys[-1] not in self._lengths:
                wanted[keys[-1]] = chosen
        sets = list(wanted.items())
        for first in range(0, len(sets), MOST_SETS):
            some = sets[first : first + MOST_SETS]
            bits = np.zeros(self.groups.height, np.uint64)
            for number, (_, chosen) in enumerate(some):
                bits |= chosen.astype(np.uint64) << np.uint64(number)
            found = _lanes.lengths(self.starts, self.ends, self.lane_of, bits, len(some))
            if found is None:  # the operations are not in order
                order = np.argsort(self.starts, kind="stable")
                ordered = self.starts[order], self.ends[order], self.lane_of[order]
                found = _lanes.lengths(*ordered, bits, len(some))
                assert found is not None
            self._lengths.update(zip((key for key, _ in some), found.tolist(), strict=True))
        return [self._lengths[key] for key in keys]


_one_at_a_time = threading.Lock()
#: By the table's identity; an entry goes with its table.
_known: dict[int, Lanes] = {}


def lanes_of(operations: pl.DataFrame) -> Lanes:
    """The lanes of a table of operations; grouped once, however often they are asked for."""
    with _one_at_a_time:  # a second thread waits for the first one's
        found = _known.get(id(operations))
        if found is None:
            summed = summed_of(operations)
            made = grouped(operations, LANE_KEYS) if summed is None else _given(summed)
            found = _known[id(operations)] = made
            weakref.finalize(operations, _known.pop, id(operations), None)
    return found


def grouped(operations: pl.DataFrame, keys: Sequence[str]) -> Lanes:
    """The lanes of operations that are alike in columns `keys`."""
    table = operations.select(keys)
    words = words_of(operations)
    codes = {name: words.codes(name) for name, kind in table.schema.items() if kind == pl.Enum}
    if "kind" in codes and "name" in operations.columns:
        codes["kind"] = kind_codes(operations)
    of_words = list(codes.values())
    others = [column for column in table if column.dtype != pl.Enum]
    packed = [_packed(of_words[at : at + 4]) for at in range(0, len(of_words), 4)]
    lane_of, first_rows = numbered([*packed, *(array for column in others for array in plain(column))])
    starts, ends = (np.ascontiguousarray(operations[name].to_numpy()) for name in ("start_ns", "end_ns"))
    sizes = _sizes(operations["bytes"])
    sums = _lanes.sums(lane_of, starts, ends, sizes, len(first_rows))
    groups = table[first_rows].with_columns(
        count=sums["count"],
        seconds=sums["ns"] * NS,
        bytes=sums["bytes"],
        rated_bytes=sums["rated_bytes"],
        rated_seconds=sums["rated_ns"] * NS,
        **(
            {"kind": of_codes(codes["kind"][first_rows], pl.Series(dtype=CLASSES))} if "kind" in codes else {}
        ),
    )
    return Lanes(groups, lane_of, starts, ends, sizes)


def _given(summed: Summed) -> Lanes:
    """The lanes that a reader found."""
    kind = (
        pl.when("communication")
        .then(pl.lit("communication", CLASSES))
        .otherwise(pl.col("kind").cast(CLASSES))
    )
    groups = summed.lanes.select(
        kind.alias("kind"),
        *LANE_KEYS[1:],
        "count",
        seconds=pl.col("ns") * NS,
        bytes="bytes",
        rated_bytes="rated_bytes",
        rated_seconds=pl.col("rated_ns") * NS,
    )
    return Lanes(groups, summed.lane_of, summed.starts, summed.ends, summed.sizes, summed.sized)


def _packed(codes: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint32]:
    """Up to four columns of small numbers as one: what is alike in it is alike in all."""
    made = codes[0].astype(np.uint32)
    for code in codes[1:]:
        made <<= np.uint32(8)
        made |= code
    return made


def _sizes(bytes_: pl.Series) -> NDArray[np.int64]:
    """The numbers of a column, -1 for null."""
    if not bytes_.null_count():
        return np.ascontiguousarray(bytes_.to_numpy())
    found = np.empty(len(bytes_), np.int64)  # numpy asks for large pages, which Polars does not
    at = 0
    for part in bytes_.get_chunks():
        for first in range(0, len(part), A_CHUNK):
            piece = part.slice(first, A_CHUNK)
            found[at : at + len(piece)] = piece.fill_null(-1).to_numpy()
            at += len(piece)
    return found


def plain(column: pl.Series) -> list[NDArray[np.int64]]:
    """A column's numbers, and where it has nulls, which those are."""
    numbers = column.to_physical()
    if not numbers.null_count():
        return [np.ascontiguousarray(numbers.to_numpy())]
    return [numbers.fill_null(0).to_numpy(), column.is_null().cast(pl.UInt8).to_numpy()]
