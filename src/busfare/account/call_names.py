"""API calls by what their names contain, each name looked at once."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.account.numbered import numbered
from busfare.account.rows import rows_of

__all__ = ["Names", "calls_named", "names_of"]

#: The number of a null among those of a Categorical column.
NONE = 0xFFFFFFFF


class Names(NamedTuple):
    """`texts`: each name once, in order of appearance; None for a null. `of`: which one each call has."""

    texts: list[str | None]
    of: NDArray[np.uint32]


#: By the table's identity; an entry goes with its table.
_known: dict[int, Names] = {}


def names_of(calls: pl.DataFrame) -> Names:
    """The names of a table of calls; found once, however often they are asked for."""
    found = _known.get(id(calls))
    if found is None:
        names = calls["name"]
        numbers = names.to_physical()
        if numbers.null_count():
            numbers = numbers.fill_null(NONE)
        of, first_rows = numbered([np.ascontiguousarray(numbers.to_numpy())])
        found = _known[id(calls)] = Names(names[first_rows].cast(pl.String).to_list(), of)
        weakref.finalize(calls, _known.pop, id(calls), None)
    return found


def calls_named(calls: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Process, correlation, times and waits_for of the calls whose name contains the regular expression `pattern`."""
    names = names_of(calls)
    named = pl.Series(names.texts, dtype=pl.String).str.contains(pattern).fill_null(False).to_numpy()
    columns = calls.select("process", "correlation", "start_ns", "end_ns", "waits_for")
    return columns[rows_of(names.of, named)] if named.any() else columns.clear()
