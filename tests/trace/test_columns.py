"""Rows looked up in another table, against looking at each."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace.columns import first_pairs, longest, numbered, occurs, order_of, places

#: Dense, sparse, and at the ends of what fits.
number = st.one_of(
    st.integers(-5, 40), st.integers(0, 1 << 40), st.sampled_from([-(1 << 63), 1 - (1 << 63), (1 << 63) - 1])
)
wanted = st.lists(st.one_of(st.none(), number), max_size=30)


@settings(deadline=None)
@given(st.lists(number, unique=True, max_size=20), wanted)
def test_places_among_ids(ids: list[int], wanted: list[int | None]) -> None:
    rows = places(pl.Series(ids, dtype=pl.Int64), pl.Series(wanted, dtype=pl.Int64))
    assert rows.tolist() == [ids.index(w) if w in ids else len(ids) for w in wanted]


pair = st.tuples(st.one_of(st.none(), st.integers(0, 3), st.integers(0, 200)), st.one_of(st.none(), number))


Pairs = list[tuple[int | None, int | None]]


@settings(deadline=None)
@given(st.lists(pair, max_size=90), st.lists(pair, max_size=30))
def test_which_pairs_occur_and_the_first_row_of_a_pair(have: Pairs, rows: Pairs) -> None:
    low = -(1 << 63)  # stands for null

    def plain(pairs: Pairs) -> Pairs:
        return [(low if a is None else a, low if b is None else b) for a, b in pairs]

    schema = {"process": pl.Int32, "correlation": pl.Int64}
    frames = [pl.DataFrame(part, schema=schema, orient="row") for part in (have, rows)]
    assert occurs(*frames).tolist() == [p in plain(have) for p in plain(rows)]
    first = [
        plain(have).index(p) if p in plain(have) and row[1] is not None else -1
        for p, row in zip(plain(rows), rows, strict=True)
    ]
    assert first_pairs(*frames).tolist() == first


kinds = st.sampled_from([np.bool_, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])


@settings(deadline=None)
@given(st.lists(kinds, min_size=1, max_size=4), st.integers(0, 40), st.randoms())
def test_rows_alike_in_all_columns_share_a_number(of: list[type], rows: int, dice: random.Random) -> None:
    columns = []
    for kind in of:
        least, most = (0, 1) if kind is np.bool_ else (np.iinfo(kind).min, np.iinfo(kind).max)
        values = [dice.choice([least, most, int(most) // 2, int(most) // 2 + 1]) for _ in range(rows)]
        columns.append(np.array(values, kind))
    number_of, first = numbered(columns)
    alike = list(zip(*(column.tolist() for column in columns), strict=True))
    in_order = list(dict.fromkeys(alike))
    assert number_of.tolist() == [in_order.index(row) for row in alike]
    assert first.tolist() == [alike.index(row) for row in in_order]


@given(st.lists(st.integers(0, 9)), st.integers(0, 5))
def test_the_places_of_the_longest(lengths: list[int], most: int) -> None:
    least = sorted(lengths, reverse=True)[:most]
    expected = [at for at, length in enumerate(lengths) if least and length >= least[-1]]
    assert longest(np.array(lengths, np.int64), most).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5), st.booleans())
def test_the_order_of_parts(parts: list[list[int]], sort: bool) -> None:
    if sort:
        parts = [sorted(part) for part in parts]
    numbers = pl.concat([pl.Series(part, dtype=pl.Int64) for part in [*parts, []]], rechunk=False)
    values = numbers.to_list()
    assert order_of(numbers).tolist() == sorted(range(len(values)), key=values.__getitem__)


def test_the_order_of_many_numbers_that_are_alike() -> None:
    values = np.random.default_rng(1).integers(0, 300, 10_000)
    assert order_of(pl.Series(values)).tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("spread", [1, 1_000_003])
def test_the_first_rows_of_many_pairs_in_no_order(spread: int) -> None:
    drawn = np.random.default_rng(spread)
    have, wanted = (
        pl.DataFrame(
            {"process": drawn.integers(0, 3, rows), "correlation": drawn.integers(0, 9_000, rows) * spread}
        )
        for rows in (20_000, 10_000)
    )
    pairs = {pair: row for row, pair in reversed([*enumerate(have.rows())])}
    assert first_pairs(have, wanted).tolist() == [pairs.get(pair, -1) for pair in wanted.rows()]
