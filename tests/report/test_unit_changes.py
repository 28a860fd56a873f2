"""Whether units of two runs differ by more than units of one run do."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.answers.units import FEWEST, differ, sampled

RANDOM = np.random.default_rng(51)


@pytest.mark.parametrize("count", [FEWEST, 12, 40, 500])
def test_like_runs_rarely_differ_and_a_tenth_more_is_seen(count: int) -> None:
    runs = [sampled(RANDOM.normal(1.0, 0.02, count)) for _ in range(200)]
    pairs = [*zip(runs[::2], runs[1::2], strict=True)]
    assert sum(bool(differ(*pair)) for pair in pairs) <= 3
    assert sum(bool(differ(old, [1.1 * seconds for seconds in new])) for old, new in pairs) >= 95


def test_what_a_run_itself_drifts_by_is_no_change() -> None:
    drifting = sampled(np.linspace(1.0, 1.2, 100))
    assert differ(drifting, [1.05 * seconds for seconds in drifting]) is False
    assert differ(drifting, [1.3 * seconds for seconds in drifting]) is True


def test_a_hiccup_of_either_run_hides_nothing() -> None:
    steady = [1.0 + 0.001 * (n % 7) for n in range(40)]
    slower = [1.05 * seconds for seconds in steady]
    slower[3] = 50.0
    assert differ(steady, slower) is True
    assert differ(steady, [50.0, *steady[1:]]) is False


def test_too_few_are_not_judged_and_equal_ones_do_not_differ() -> None:
    assert differ([1.0] * (FEWEST - 1), [2.0] * 40) is None
    assert differ([1.0] * 40, [1.0] * 40) is False
    assert differ([1.0] * 40, [2.0] * 40) is True


def test_samples_are_medians_of_units_in_order() -> None:
    assert sampled([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]
    assert sampled(np.repeat(np.arange(40.0), 5)) == list(np.arange(40.0))
