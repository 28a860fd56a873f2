"""Quantiles, extremes and the strip of ranks, against plain sorting."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busfare.job.spread import RELATIVE_ERROR, Rank, Spread
from busfare.job.strip import MOST_CELLS, Strip


def spread_of(values: list[int]) -> Spread:
    spread = Spread()
    for number, value in enumerate(values):
        spread.add(value, Rank(f"{number:05}"))
    return spread


@given(st.lists(st.integers(0, 1 << 60), min_size=1), st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0]))
def test_a_quantile_is_within_its_error_of_a_value(values: list[int], share: float) -> None:
    exact = sorted(values)[int(share * (len(values) - 1))]
    assert spread_of(values).quantile(share) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.001)


@given(st.lists(st.integers(0, 1 << 60), min_size=1))
def test_sum_least_and_most_are_exact(values: list[int]) -> None:
    spread = spread_of(values)
    assert spread.sum == sum(values)
    assert [value for value, _ in spread.most()] == sorted(values, reverse=True)[:16]
    assert [value for value, _ in spread.least()] == sorted(values)[:16]
    assert spread.above(-1) == len(values)


@given(st.lists(st.integers(1, 1 << 60), min_size=1), st.integers(1, 40))
def test_bars_hold_every_value_once(values: list[int], most: int) -> None:
    bars = list(spread_of(values).bars(most))
    assert len(bars) <= most
    assert sum(count for _, _, count in bars) == len(values)
    assert bars[0][0] <= min(values) * 1.0001
    assert bars[-1][1] >= max(values) * 0.9999


@given(st.lists(st.integers(0, 100_000), min_size=1), st.randoms(use_true_random=False))
def test_the_strip_is_the_same_in_any_order(ranks: list[int], chance: random.Random) -> None:
    def strip_of(ranks: list[int]) -> Strip:
        strip = Strip(1)
        for rank in ranks:
            strip.add(rank, [rank])
        return strip

    shuffled = chance.sample(ranks, len(ranks))
    cut = chance.randint(0, len(ranks))
    merged = strip_of(shuffled[:cut])
    merged.merge(strip_of(shuffled[cut:]))
    cells = merged.cells()
    assert cells == strip_of(ranks).cells()
    assert len(cells) <= MOST_CELLS
    assert sum(cell.count for cell in cells) == len(ranks)
    assert all(cell.first <= cell.most[0] <= cell.last for cell in cells)
    width = cells[0].last - cells[0].first + 1
    assert max(ranks) < MOST_CELLS or width == 1 << (max(ranks) // MOST_CELLS).bit_length()


def test_up_to_256_ranks_have_a_cell_each() -> None:
    strip = Strip(1)
    for rank in range(256):
        strip.add(rank, [1])
    assert [(cell.first, cell.last) for cell in strip.cells()] == [(rank, rank) for rank in range(256)]
