"""Unions of intervals, against counting nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from busfare.trace.lanes import Union

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def union(pairs: list[tuple[int, int]]) -> Union:
    starts, ends = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    return Union.of(starts, ends)


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, end in pairs for t in range(start, end)}


@given(intervals)
def test_the_length_of_a_union_counts_each_instant_once(pairs: list[tuple[int, int]]) -> None:
    assert union(pairs).length() == len(ticks(pairs))


@given(intervals, intervals)
def test_minus_is_what_only_the_first_covers(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert union(a).minus(union(b)) == len(ticks(a) - ticks(b))


@given(intervals, intervals)
def test_covered_within_counts_inside_each_interval(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    if not b:
        return
    starts, ends = (np.array([p[i] for p in b], np.int64) for i in (0, 1))
    expected = [len(ticks(a) & ticks([pair])) for pair in b]
    assert union(a).covered_within(starts, ends).tolist() == expected


def test_gaps_lie_between_merged_intervals() -> None:
    starts, ends = union([(30, 40), (0, 10), (5, 20), (50, 60)]).gaps()
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(20, 30), (40, 50)]


def test_a_union_of_nothing_covers_nothing() -> None:
    assert union([]).length() == 0
    assert union([]).covered_before(np.array([5], np.int64)).tolist() == [0]
    assert union([(0, 4)]).minus(union([])) == 4
