"""Bounded collections: exact while small; a fair sample, the same in any order, beyond."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from busfare.job.bounded import Least, Sampled


def filled(most: int, keys: list[str]) -> Sampled[int]:
    sample: Sampled[int] = Sampled(most, lambda a, b: a + b)
    for key in keys:
        sample.add(key, 1)
    return sample


@given(st.lists(st.integers(0, 40).map(str)), st.integers(1, 20), st.randoms(use_true_random=False))
def test_a_sample_is_the_same_in_any_order_and_grouping(
    keys: list[str], most: int, chance: random.Random
) -> None:
    expected = filled(most, keys)
    shuffled = chance.sample(keys, len(keys))
    cut = chance.randint(0, len(keys))
    merged = filled(most, shuffled[:cut])
    merged.merge(filled(most, shuffled[cut:]))
    assert list(merged.items()) == list(expected.items())
    assert merged.complete == expected.complete == (len(set(keys)) <= most)
    assert merged.count() == expected.count()


@given(st.lists(st.integers(0, 40).map(str)), st.integers(1, 20))
def test_what_is_kept_is_exact(keys: list[str], most: int) -> None:
    for key, count in filled(most, keys).items():
        assert count == keys.count(key)


def test_the_number_of_keys_is_estimated_beyond_the_bound() -> None:
    sample = filled(1024, [f"host{number}" for number in range(50_000)])
    assert not sample.complete
    assert len(list(sample.items())) == 1024
    assert abs(sample.count() - 50_000) < 5_000  # 1 / sqrt(1024) is 3 %


@given(st.lists(st.integers()), st.integers(1, 10))
def test_the_least_are_kept(values: list[int], most: int) -> None:
    least: Least[int] = Least(most, lambda value: value)
    for value in values:
        least.add(value)
    assert list(least) == sorted(values)[:most]
