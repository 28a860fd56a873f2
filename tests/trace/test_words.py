"""Columns of words as masks, against looking at each row."""

from __future__ import annotations

import gc

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace.tables import DIRECTIONS, KINDS
from busfare.trace.words import NONE, _known, words_of

rows = st.lists(st.tuples(st.sampled_from(KINDS), st.one_of(st.none(), st.sampled_from(DIRECTIONS))))


@settings(deadline=None)
@given(rows, st.lists(st.sampled_from([*DIRECTIONS, "elsewhere"]), max_size=3))
def test_which_rows_have_one_of_some_words(rows: list[tuple[str, str | None]], wanted: list[str]) -> None:
    frame = pl.DataFrame(
        rows, schema={"kind": pl.Enum(KINDS), "direction": pl.Enum(DIRECTIONS)}, orient="row"
    )
    words = words_of(frame)
    assert words.among("direction", *wanted).tolist() == [way in wanted for _, way in rows]
    assert words.codes("kind").tolist() == [KINDS.index(kind) for kind, _ in rows]
    expected = [NONE if way is None else DIRECTIONS.index(way) for _, way in rows]
    assert words.codes("direction").tolist() == expected
    assert words_of(frame) is words


def test_words_go_with_their_table() -> None:
    frame = pl.DataFrame({"kind": ["copy"]}, schema={"kind": pl.Enum(KINDS)})
    assert words_of(frame).among("kind", "copy").tolist() == [True]
    number = id(frame)
    del frame
    gc.collect()
    assert number not in _known
