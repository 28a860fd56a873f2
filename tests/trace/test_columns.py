"""Rows looked up in another table, against looking at each."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace.columns import first_pairs, in_order, occurring, occurs, order_of, places
from busfare.trace.tables import MEMORY_KINDS

#: Dense, sparse, and at the ends of what fits.
number = st.one_of(
    st.integers(-5, 40), st.integers(0, 1 << 40), st.sampled_from([-(1 << 63), 1 - (1 << 63), (1 << 63) - 1])
)
wanted = st.lists(st.one_of(st.none(), number), max_size=30)


@settings(deadline=None)
@given(st.lists(number, unique=True, max_size=20), wanted)
def test_the_place_of_each_among_ids(ids: list[int], wanted: list[int | None]) -> None:
    found = places(pl.Series(ids, dtype=pl.Int64), pl.Series(wanted, dtype=pl.Int64))
    assert found.tolist() == [ids.index(w) if w in ids else len(ids) for w in wanted]


pair = st.tuples(st.one_of(st.none(), st.integers(0, 3), st.integers(0, 200)), st.one_of(st.none(), number))


Pairs = list[tuple[int | None, int | None]]


@settings(deadline=None)
@given(st.lists(pair, max_size=90), st.lists(pair, max_size=30))
def test_which_pairs_occur_and_the_first_row_of_each(have: Pairs, rows: Pairs) -> None:
    low = -(1 << 63)  # stands for null

    def plain(pairs: Pairs) -> Pairs:
        return [(low if a is None else a, low if b is None else b) for a, b in pairs]

    schema = {"process": pl.Int64, "correlation": pl.Int64}
    frames = [pl.DataFrame(part, schema=schema, orient="row") for part in (have, rows)]
    assert occurs(*frames).tolist() == [p in plain(have) for p in plain(rows)]
    first = [
        plain(have).index(p) if p in plain(have) and row[1] is not None else -1
        for p, row in zip(plain(rows), rows, strict=True)
    ]
    assert first_pairs(*frames).tolist() == first


column_parts = st.lists(
    st.one_of(
        st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=20),
        st.lists(st.integers(0, 6), max_size=20),
        st.lists(st.none(), max_size=20),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(column_parts, st.randoms(), st.integers(0, 9))
def test_rows_of_a_column_in_parts(parts: list[list[int | None]], dice: random.Random, cut: int) -> None:
    rows = [row for part in parts for row in part][cut:]
    order = np.array(dice.sample(range(len(rows)), len(rows)), np.uint32)
    for kind in (pl.Int64(), pl.Int32(), pl.UInt8(), pl.Enum(MEMORY_KINDS), pl.Categorical(), pl.String()):
        words = not kind.is_integer()
        of = [[MEMORY_KINDS[n] if words and n is not None else n for n in part] for part in parts]
        column = pl.concat([pl.Series("a", part, dtype=kind) for part in of], rechunk=False).slice(cut)
        found = in_order(column, order)
        assert (found.name, found.dtype) == ("a", kind)
        assert found.to_list() == [column.to_list()[row] for row in order]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5), st.booleans())
def test_the_order_of_parts(parts: list[list[int]], sort: bool) -> None:
    if sort:
        parts = [sorted(part) for part in parts]
    numbers = pl.concat([pl.Series(part, dtype=pl.Int64) for part in [*parts, []]], rechunk=False)
    values = numbers.to_list()
    assert order_of(numbers).tolist() == sorted(range(len(values)), key=values.__getitem__)


def test_a_row_that_is_not_there_is_not_taken() -> None:
    for column in (pl.Series([1, 2]), pl.Series([1, None])):
        with pytest.raises(IndexError):
            in_order(column, np.array([0, 2], np.uint32))


def test_numbers_that_occur() -> None:
    assert occurring(np.array([3, 1, 3], np.uint32), 5).tolist() == [False, True, False, True, False]
    with pytest.raises(IndexError):
        occurring(np.array([5], np.uint32), 5)
