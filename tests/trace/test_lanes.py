"""Lanes against filtering and summing row by row, unions against counting nanosecond by nanosecond."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.trace import _columns, tables
from busfare.trace.lanes import LANE_KEYS, Lanes, Union
from busfare.trace.totals import union_of
from busfare.trace.words import NONE, Words, calls_named

operations = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(tables.KINDS),
            "direction": st.sampled_from([None, *tables.DIRECTIONS]),
            "device": st.sampled_from([None, 0, 1, -1]),
            "process": st.sampled_from([None, 7, (1 << 31) - 1]),
            "stream": st.sampled_from([None, 7, -(1 << 31)]),
            "start_ns": st.integers(0, 50),
            "length": st.integers(0, 9),
            "bytes": st.sampled_from([None, 0, 5, 1 << 40]),
        }
    ),
    max_size=40,
)


def table(rows: list[dict[str, object]]) -> pl.DataFrame:
    kinds = {**tables.OPERATIONS, "length": pl.Int64()}
    frame = pl.DataFrame(rows, schema={name: kinds[name] for name in (rows[0] if rows else {"start_ns": 0})})
    if "length" in frame.columns:
        frame = frame.with_columns(end_ns=pl.col("start_ns") + pl.col("length"))
    return tables.conform(frame, tables.OPERATIONS).sort("start_ns", maintain_order=True)


@settings(deadline=None)
@given(operations)
def test_sums_of_lanes_are_those_of_rows(rows: list[dict[str, object]]) -> None:
    frame = table(rows)
    lanes = Lanes.of(frame)
    rated = pl.col("bytes").is_not_null() & (pl.col("end_ns") > pl.col("start_ns"))
    expected = frame.group_by(LANE_KEYS).agg(
        count=pl.len(), ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), bytes=pl.col("bytes").sum(),
        rated_bytes=pl.col("bytes").filter(rated).sum(),
    )  # fmt: skip
    columns = [*LANE_KEYS, "count", "ns", "bytes", "rated_bytes"]
    sums = lanes.groups.with_columns(ns=(pl.col("seconds") * 1e9).round().cast(pl.Int64))
    assert sorted(sums.select(columns).rows(), key=repr) == sorted(expected.select(columns).rows(), key=repr)


@settings(deadline=None)
@given(operations, st.sampled_from(tables.KINDS))
def test_a_union_of_lanes_is_that_of_their_rows(rows: list[dict[str, object]], kind: str) -> None:
    frame = table(rows)
    expected = union_of(frame.filter(pl.col("kind") == kind))
    union = Lanes.of(frame).union(pl.col("kind") == kind)
    assert union.starts.tolist() == expected.starts.tolist()
    assert union.ends.tolist() == expected.ends.tolist()


@settings(deadline=None)
@given(operations)
def test_lengths_of_sets_of_lanes_are_those_of_their_rows(rows: list[dict[str, object]]) -> None:
    frame = table(rows)
    kernels, none = pl.col("kind") == "kernel", pl.col("device").is_null()
    sets = [pl.lit(True), kernels, kernels | none, none, pl.lit(False)]
    expected = [union_of(frame.filter(which.fill_null(False))).length() for which in sets]
    lanes = Lanes.of(frame)
    assert lanes.lengths(*sets) == expected
    assert lanes.lengths(kernels, none) == [expected[1], expected[3]]


@pytest.mark.parametrize("longest", [3, 1000, 1 << 40])
def test_lengths_of_many_rows_which_two_threads_share(longest: int) -> None:
    rows, drawn = 300_001, np.random.default_rng(longest)
    starts = np.sort(drawn.integers(0, 1_000_000, rows))
    lengths = drawn.integers(0, 3, rows)
    lengths[drawn.integers(0, rows, 5)] = longest  # some last from one thread's half into the other's
    lane_of, sets_of = drawn.integers(0, 3, rows).astype(np.uint32), np.array([1, 3, 4], np.uint64)
    counted = _columns.lengths(starts, starts + lengths, lane_of, sets_of, 4)
    assert counted is not None
    of = [np.isin(lane_of, lanes) for lanes in ([0, 1], [1], [2], [])]
    assert counted.tolist() == [Union.of(starts[at], (starts + lengths)[at]).length() for at in of]
    starts[rows // 2] = starts[rows // 2 - 1] - 1
    assert _columns.lengths(starts, starts + lengths, lane_of, sets_of, 4) is None


@settings(deadline=None)
@given(operations, st.integers(0, 6))
def test_longest_gaps_are_those_of_the_union(rows: list[dict[str, object]], most: int) -> None:
    lanes = Lanes.of(table(rows))
    which = pl.col("kind") != "copy"
    merged = lanes.union(which)
    starts, ends = merged.ends[:-1], merged.starts[1:]
    longest = np.argsort(starts - ends, kind="stable")[:most]
    assert lanes.longest_gaps(which, most) == [(int(starts[at]), int(ends[at])) for at in longest]


def test_more_lengths_than_a_pass_takes() -> None:
    frame = table([{"kind": "copy", "start_ns": at, "length": 1, "stream": at} for at in range(100)])
    assert Lanes.of(frame).lengths(*[pl.col("stream") < most for most in range(100)]) == list(range(100))


def test_many_lanes() -> None:
    rows = 5_000
    at = np.arange(rows)
    drawn = pl.DataFrame({"stream": at % 3000, "start_ns": at, "end_ns": at + 2})
    frame = tables.conform(drawn, tables.OPERATIONS)
    lanes = Lanes.of(frame, ("stream",))
    assert lanes.groups.height == 3000
    assert lanes.groups["count"].sum() == rows
    assert lanes.lane_of.tolist() == (at % 3000).tolist()


def test_calls_are_matched_by_their_names() -> None:
    names = ["cudaMemcpy", "cudaLaunchKernel", None, "cudaMemcpy", "cudaMemcpyAsync"]
    calls = tables.conform(
        pl.DataFrame({"name": names, "start_ns": range(5), "end_ns": range(5), "correlation": range(5)}),
        tables.CALLS,
    )
    assert calls_named(calls, "^cudaMemcpy$")["correlation"].to_list() == [0, 3]
    assert calls_named(calls, "hip").is_empty()


@settings(deadline=None)
@given(operations, st.integers(0, 6), st.integers(0, 6))
def test_rows_of_some_sizes(rows: list[dict[str, object]], least: int, most: int) -> None:
    frame = table(rows)
    copies = pl.col("kind") == "copy"
    expected = frame.with_row_index().filter(copies & pl.col("bytes").is_between(least, most))["index"]
    assert Lanes.of(frame).rows(copies, least, most).tolist() == expected.to_list()


@settings(deadline=None)
@given(operations, st.randoms())
def test_time_of_rows_that_no_kernel_covers(rows: list[dict[str, object]], dice: random.Random) -> None:
    frame = table(rows)
    picked = [row for row in range(frame.height) if dice.random() < 0.5]
    chosen = np.array(picked, np.uint32)

    def covered(part: pl.DataFrame) -> set[int]:
        return {ns for start, end in part.select("start_ns", "end_ns").rows() for ns in range(start, end)}

    kernels = frame.filter(pl.col("kind") == "kernel")
    expected = len(covered(frame[chosen]) - covered(kernels))
    assert Lanes.of(frame).uncovered_ns(chosen, pl.col("kind") == "kernel") == expected
    assert Lanes.of(frame).uncovered_ns(chosen[::-1].copy(), pl.col("kind") == "kernel") == expected


@settings(deadline=None)
@given(operations, st.lists(st.sampled_from([*tables.DIRECTIONS, "elsewhere"]), max_size=3))
def test_which_rows_have_any_of_some_words(rows: list[dict[str, object]], wanted: list[str]) -> None:
    frame = table(rows)
    words, directions = Words(frame), frame["direction"].cast(pl.String).to_list()
    assert words.among("direction", *wanted).tolist() == [direction in wanted for direction in directions]
    expected = [NONE if d is None else tables.DIRECTIONS.index(d) for d in directions]
    assert words.codes("direction").tolist() == expected


def test_operations_out_of_order_have_no_union() -> None:
    frame = table([{"kind": "copy", "start_ns": at, "length": 1} for at in range(3)]).reverse()
    with pytest.raises(ValueError, match="not in order"):
        Lanes.of(frame).union(pl.lit(True))


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def union(pairs: list[tuple[int, int]]) -> Union:
    starts, ends = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    return Union.of(starts, ends)


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, end in pairs for t in range(start, end)}


@given(intervals)
def test_the_length_of_a_union_counts_every_instant_once(pairs: list[tuple[int, int]]) -> None:
    assert union(pairs).length() == len(ticks(pairs))


@given(intervals, intervals)
def test_minus_is_what_only_the_first_covers(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert union(a).minus(union(b)) == len(ticks(a) - ticks(b))


@given(intervals, intervals)
def test_covered_within_counts_inside_intervals(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    if not b:
        return
    starts, ends = (np.array([p[i] for p in b], np.int64) for i in (0, 1))
    assert union(a).covered_within(starts, ends).tolist() == [len(ticks(a) & ticks([pair])) for pair in b]


def test_a_union_of_nothing_covers_nothing() -> None:
    assert union([]).length() == 0
    assert union([]).covered_before(np.array([5], np.int64)).tolist() == [0]
    assert union([(0, 4)]).minus(union([])) == 4
