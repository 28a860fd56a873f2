"""Rows looked up in another table, against looking at each."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace.row_lookup import occurs, places

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


@settings(deadline=None)
@given(st.lists(pair, max_size=90), st.lists(pair, max_size=30))
def test_which_pairs_occur(
    have: list[tuple[int | None, int | None]], rows: list[tuple[int | None, int | None]]
) -> None:
    schema = {"process": pl.Int64, "correlation": pl.Int64}
    low = -(1 << 63)  # stands for null

    def plain(p: tuple[int | None, int | None]) -> tuple[int, int]:
        return (low if p[0] is None else p[0], low if p[1] is None else p[1])

    frames = [pl.DataFrame(part, schema=schema, orient="row") for part in (have, rows)]
    known = {plain(p) for p in have}
    assert occurs(*frames).tolist() == [plain(p) in known for p in rows]
