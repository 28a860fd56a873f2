"""Which row of one table a number of another means: correlations are nearly dense, so no join is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from busfare.trace import _rows
from busfare.trace.bounds import SMALL, SPARSE

__all__ = [
    "distinct",
    "first_pairs",
    "first_rows",
    "in_order",
    "occurring",
    "occurs",
    "order_of",
    "places",
    "taken",
]

A_CHUNK = 1 << 16
MOST_NEGATIVE = -(1 << 63)


def first_rows(keys: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The first row of `keys` that equals each of `wanted`; -1 where there is none."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    most = int(keys.max())
    if most < SPARSE * (len(keys) + len(wanted)) + SMALL:
        rows = np.full(most + 2, -1, np.int64)  # the last place answers for all that are greater
        rows[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
        return rows[np.minimum(wanted, np.uint64(most + 1))]
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    places = np.minimum(np.searchsorted(ranked, wanted), len(keys) - 1)
    return np.where(ranked[places] == wanted, order[places], -1)


def distinct(
    numbers: npt.NDArray[np.uint64], most: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The numbers that occur, in order, and each one's place among them; what is over `most` counts as 0."""
    small = np.where(numbers <= most, numbers, 0).astype(np.int64)
    used = np.flatnonzero(np.bincount(small, minlength=1))
    if not len(used):
        used = np.zeros(1, np.int64)
    places = np.zeros(int(used[-1]) + 1, np.int64)
    places[used] = np.arange(len(used))
    return used.astype(np.uint64), places[small]


def places(ids: pl.Series, wanted: pl.Series) -> npt.NDArray[np.uint32]:
    """Where each of `wanted` stands in `ids`, whole numbers that are all unlike; len(ids) where it does not."""
    none = len(ids)
    if not none:
        return np.zeros(len(wanted), np.uint32)
    least, most = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
    if least > MOST_NEGATIVE and most - least < SPARSE * (none + len(wanted)) + SMALL:
        table = np.full(most - least + 3, none, np.uint32)  # the first and last place answer for all outside
        table[ids.to_numpy() - (least - 1)] = np.arange(none, dtype=np.uint32)
        numbers = _numbers(wanted, least - 1)
        found = np.empty(len(numbers), np.uint32)
        for at in range(0, len(numbers), A_CHUNK):  # a piece at a time stays in the processor's cache
            piece = slice(at, at + A_CHUNK)
            np.take(
                table,
                np.clip(numbers[piece], least - 1, most + 1) - (least - 1),
                out=found[piece],
                mode="clip",
            )
        return found
    table_of = pl.DataFrame({"id": ids, "place": np.arange(none, dtype=np.uint32)})
    joined = wanted.alias("id").to_frame().join(table_of, on="id", how="left", maintain_order="left")
    return joined["place"].fill_null(none).to_numpy(writable=True)


def order_of(numbers: pl.Series) -> npt.NDArray[np.uint32]:
    """The rows in order of their numbers, like ones as they stand. Parts that are in order are merged, which is fast."""
    order = np.empty(len(numbers), np.uint32)
    if _rows.merged(_parts(numbers), order):
        return order
    return np.argsort(numbers.to_numpy(), kind="stable").astype(np.uint32)


def in_order(column: pl.Series, order: npt.NDArray[np.uint32], less: int = 0) -> pl.Series:
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
        found = pl.Series(_rows.sorted_column(numbers.__arrow_c_stream__(), order))
        found = found - less if less else found
    else:
        found = pl.Series(taken(_parts(numbers), order, less))
    # A name given to the series beside the column would not be heeded.
    return (found.cat.to(column.dtype) if words else found).alias(column.name)


def _parts(numbers: pl.Series) -> list[npt.NDArray[Any]]:
    return [np.ascontiguousarray(part.to_numpy()) for part in numbers.get_chunks()]


def taken(parts: list[npt.NDArray[Any]], order: npt.NDArray[np.uint32], less: int = 0) -> npt.NDArray[Any]:
    """The whole numbers of the rows `order`, less `less`, of parts that lie one behind the other."""
    found = np.empty(len(order), parts[0].dtype)
    _rows.take(parts, order, found, less)
    return found


def occurring(numbers: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.bool_]:
    """Of each number below `count`, whether it is among `numbers`. Raises IndexError for one that is not below."""
    found = np.zeros(count, np.uint8)
    _rows.occurring(numbers, found)
    return found.view(np.bool_)


def occurs(have: pl.DataFrame, wanted: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Of each row of `wanted`, whether its process and correlation are those of a row of `have`.

    Nulls are like nulls.
    """
    found = np.empty(wanted.height, np.uint8)
    names = ("process", "correlation")
    of_have, of_wanted = (
        [_numbers(frame[name], MOST_NEGATIVE) for name in names] for frame in (have, wanted)
    )
    _rows.occurs(of_have[0], of_have[1], of_wanted[0], of_wanted[1], found)
    return found.view(np.bool_)


def _numbers(column: pl.Series, none: int) -> npt.NDArray[np.int64]:
    """A column's numbers, with `none` for null."""
    return np.ascontiguousarray((column.fill_null(none) if column.null_count() else column).to_numpy())


def first_pairs(have: pl.DataFrame, wanted: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The first row of `have` of the process and correlation of each row of `wanted`; -1 where there is none.

    Nulls of processes are like nulls; a null correlation is nobody's.
    """
    found = np.empty(wanted.height, np.int64)
    names = ("process", "correlation")
    of_have, of_wanted = (
        [_numbers(frame[name], MOST_NEGATIVE) for name in names] for frame in (have, wanted)
    )
    _rows.first(of_have[0], of_have[1], of_wanted[0], of_wanted[1], found)
    if wanted["correlation"].null_count():
        found[wanted["correlation"].is_null().to_numpy()] = -1
    return found
