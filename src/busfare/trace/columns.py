"""Columns of whole numbers: rows numbered, chosen, sorted and looked up in another table; work on many rows in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._columns import first, group, sorted_column, take
from busfare.trace._columns import occurring as mark_occurring
from busfare.trace._columns import occurs as mark_occurs
from busfare.trace._columns import order_of as merge_order
from busfare.trace._columns import rows_of as chosen_rows
from busfare.trace._columns import rows_sized as sized_rows

Rows = NDArray[np.uint32]
T = TypeVar("T")
MOST_NEGATIVE = -(1 << 63)
#: A direct table may be this many times longer than what is looked up in it, and so much longer.
SPARSE, SMALL = 8, 1 << 20
#: From here on another thread is worth its start.
MANY_ROWS = 1 << 18


def numbered(columns: Sequence[NDArray[Any]]) -> tuple[Rows, NDArray[np.int64]]:
    """The number of each row, the same where all columns are equal, and the first row of each number.

    Columns are whole numbers, shape (rows,). Numbers are given in order of appearance.
    """
    number_of = np.empty(len(columns[0]), np.uint32)  # numpy asks for large pages
    return number_of, group(list(columns), number_of)


def plain(column: pl.Series) -> list[NDArray[np.int64]]:
    """A column's numbers, and where it has nulls, which those are."""
    numbers = column.to_physical()
    if not numbers.null_count():
        return [np.ascontiguousarray(numbers.to_numpy())]
    return [numbers.fill_null(0).to_numpy(), column.is_null().cast(pl.UInt8).to_numpy()]


def numbers_of(column: pl.Series, none: int) -> NDArray[np.int64]:
    """A column's numbers, with `none` for null."""
    return np.ascontiguousarray((column.fill_null(none) if column.null_count() else column).to_numpy())


def rows_of(number_of: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """The rows whose number is chosen, in order. Raises IndexError for a number that `chosen` does not have."""
    into = np.empty(len(number_of), np.uint32)  # what is left over takes no memory
    return into[: chosen_rows(number_of, chosen.view(np.uint8), into)]


def rows_sized(
    lane_of: Rows, chosen: NDArray[np.bool_], sizes: NDArray[np.int64], least: int, most: int
) -> Rows:
    """The rows in chosen lanes whose size is from `least` to `most`, in order."""
    into = np.empty(len(lane_of), np.uint32)
    return into[: sized_rows(lane_of, chosen.view(np.uint8), sizes, least, most, into)]


def first_rows(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The first row of `keys` that equals each of `wanted`; -1 where there is none."""
    found = np.empty(len(wanted), np.int64)
    have, want = (np.ascontiguousarray(some).view(np.int64) for some in (keys, wanted))
    first(np.zeros(len(have), np.int64), have, np.zeros(len(want), np.int64), want, found)
    return found


def distinct(numbers: NDArray[np.uint64], most: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The numbers that occur, in order, and each one's place among them; what is over `most` counts as 0."""
    small = np.where(numbers <= most, numbers, 0).astype(np.int64)
    used = np.flatnonzero(np.bincount(small, minlength=1))
    if not len(used):
        used = np.zeros(1, np.int64)
    places = np.zeros(int(used[-1]) + 1, np.int64)
    places[used] = np.arange(len(used))
    return used.astype(np.uint64), places[small]


def places(ids: pl.Series, wanted: pl.Series) -> Rows:
    """Where each of `wanted` stands in `ids`, whole numbers that are all unlike; len(ids) where it does not."""
    none = len(ids)
    if not none:
        return np.zeros(len(wanted), np.uint32)
    least, most = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
    if least > MOST_NEGATIVE and most - least < SPARSE * (none + len(wanted)) + SMALL:
        table = np.full(most - least + 3, none, np.uint32)  # the first and last place answer for all outside
        table[ids.to_numpy() - (least - 1)] = np.arange(none, dtype=np.uint32)
        numbers = numbers_of(wanted, least - 1)
        return table[np.clip(numbers, least - 1, most + 1) - (least - 1)]
    table_of = pl.DataFrame({"id": ids, "place": np.arange(none, dtype=np.uint32)})
    joined = wanted.alias("id").to_frame().join(table_of, on="id", how="left", maintain_order="left")
    return joined["place"].fill_null(none).to_numpy(writable=True)


def order_of(numbers: pl.Series) -> Rows:
    """The rows in order of their numbers, like ones as they stand. Parts that are in order are merged."""
    order = np.empty(len(numbers), np.uint32)
    merge_order(_parts(numbers), order)
    return order


def in_order(column: pl.Series, order: Rows, less: int = 0) -> pl.Series:
    """The column's values in the rows that `order` names; numbers less `less`.

    Memory is what this costs: values are taken from wherever their part of the column lies, once, into large pages.
    """
    if column.null_count() == len(column):
        return column
    words = isinstance(column.dtype, pl.Enum | pl.Categorical)
    numbers = column.to_physical() if words else column
    if not numbers.dtype.is_integer():
        return column[pl.Series(order)]
    if numbers.null_count():
        found = pl.Series(sorted_column(numbers.__arrow_c_stream__(), order))
        found = found - less if less else found
    else:
        found = pl.Series(taken(_parts(numbers), order, less))
    # A name given to the series beside the column would not be heeded.
    return (found.cat.to(column.dtype) if words else found).alias(column.name)


def _parts(numbers: pl.Series) -> list[NDArray[Any]]:
    return [np.ascontiguousarray(part.to_numpy()) for part in numbers.get_chunks()]


def taken(parts: list[NDArray[Any]], order: Rows, less: int = 0) -> NDArray[Any]:
    """The whole numbers of the rows `order`, less `less`, of parts that lie one behind the other."""
    found = np.empty(len(order), parts[0].dtype)
    take(parts, order, found, less)
    return found


def occurring(numbers: Rows, count: int) -> NDArray[np.bool_]:
    """Of each number below `count`, whether it is among `numbers`. Raises IndexError for one that is not below."""
    found = np.zeros(count, np.uint8)
    mark_occurring(numbers, found)
    return found.view(np.bool_)


def _pairs(frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return numbers_of(frame["process"], MOST_NEGATIVE), numbers_of(frame["correlation"], MOST_NEGATIVE)


def occurs(have: pl.DataFrame, wanted: pl.DataFrame) -> NDArray[np.bool_]:
    """Of each row of `wanted`, whether its process and correlation are those of a row of `have`.

    Nulls are like nulls.
    """
    found = np.empty(wanted.height, np.uint8)
    mark_occurs(*_pairs(have), *_pairs(wanted), found)
    return found.view(np.bool_)


def first_pairs(have: pl.DataFrame, wanted: pl.DataFrame) -> NDArray[np.int64]:
    """The first row of `have` of the process and correlation of each row of `wanted`; -1 where there is none.

    Nulls of processes are like nulls; a null correlation is nobody's.
    """
    found = np.empty(wanted.height, np.int64)
    first(*_pairs(have), *_pairs(wanted), found)
    if wanted["correlation"].null_count():
        found[wanted["correlation"].is_null().to_numpy()] = -1
    return found


def beside(rows: int, work: Callable[[], T]) -> Callable[[], T]:
    """Gives what waits for `work` and hands over its result; of few rows, it is then that the work is done."""
    if rows < MANY_ROWS:
        return work
    thread = ThreadPoolExecutor(1)
    done = thread.submit(work)
    thread.shutdown(wait=False)
    return done.result


def several(rows: int, works: Sequence[Callable[[], T]]) -> list[T]:
    """What each of `works` gives; of many rows, two of them at a time."""
    if rows < MANY_ROWS:
        return [work() for work in works]
    with ThreadPoolExecutor(2) as threads:
        return [done.result() for done in [threads.submit(work) for work in works]]
