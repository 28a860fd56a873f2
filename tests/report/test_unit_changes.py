"""Whether units of two runs differ by more than units of one run do."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from busfare.answers.units import FEWEST, Difference, batched, differences

RANDOM = np.random.default_rng(51)


def differ(before: ArrayLike, after: ArrayLike) -> Difference | None:
    """The first statistic that differs, or the median."""
    every = differences(batched(before), batched(after))
    return next((row for row in every if row.real), every[1] if every else None)


def is_real(before: ArrayLike, after: ArrayLike) -> bool:
    judged = differ(before, after)
    return judged.real


@pytest.mark.parametrize(("count", "more"), [(FEWEST, 1.15), (12, 1.1), (40, 1.05), (500, 1.02)])
def test_like_runs_rarely_differ_and_a_change_that_shows_is_seen(count: int, more: float) -> None:
    runs = [RANDOM.normal(1.0, 0.02, count) for _ in range(200)]
    pairs = [*zip(runs[::2], runs[1::2], strict=True)]
    assert sum(is_real(*pair) for pair in pairs) <= 3
    assert sum(is_real(old, more * new) for old, new in pairs) >= 90


def test_a_slowdown_of_every_fourth_unit_moves_the_mean() -> None:
    steady = RANDOM.normal(1.0, 0.02, 80)
    slower = steady * np.where(np.arange(80) % 4 == 3, 1.6, 1.0)
    judged = differ(steady, slower)
    assert judged is not None and judged.real and judged.figure == "mean"
    assert judged.after / judged.before == pytest.approx(1.15, abs=0.02)


def test_what_the_rest_of_the_machine_disturbs_still_shows_in_the_fastest_tenth() -> None:
    disturbed = np.where(RANDOM.random(400) < 0.6, RANDOM.uniform(1.0, 3.0, 400), 1.0)
    first, second = disturbed[:200], 1.1 * disturbed[200:]
    judged = differ(first, second)
    assert judged is not None and judged.real and judged.figure == "low"
    assert judged.after / judged.before == pytest.approx(1.1, abs=0.01)


def test_what_a_run_itself_drifts_by_is_no_change() -> None:
    drifting = np.linspace(1.0, 1.2, 100)
    assert is_real(drifting, 1.05 * drifting) is False
    assert is_real(drifting, 1.5 * drifting) is True


def test_a_hiccup_of_either_run_hides_nothing() -> None:
    steady = np.array([1.0 + 0.001 * (n % 7) for n in range(40)])
    slower = 1.05 * steady
    slower[3] = 50.0
    assert is_real(steady, slower) is True
    assert is_real(steady, [50.0, *steady[1:]]) is False


def test_the_median_of_few_units_is_exact_and_hiccups_hide_no_change() -> None:
    before, after = (RANDOM.normal(seconds, 0.01, 12) for seconds in (1.0, 1.15))
    before[2], after[7] = 3.0, 3.4
    (median,) = (row for row in differences(batched(before), batched(after)) if row.figure == "median")
    assert (median.before, median.after) == (np.median(before), np.median(after))
    assert median.real and 0.1 < median.growth < median.after - median.before
    (few,) = (row for row in differences(batched(before[:5]), batched(after[:5])) if row.figure == "median")
    assert not few.real and few.growth < 0  # five units against five may differ so by chance


def test_units_that_resemble_those_before_show_less() -> None:
    waves = 1 + 0.02 * np.sin(np.arange(24) / 4)
    scattered = RANDOM.permutation(waves)
    least = [differences(batched(run), batched(run))[1].least for run in (scattered, waves)]
    assert 0 < 1.5 * least[0] < least[1]


def test_too_few_are_not_judged_and_equal_ones_do_not_differ() -> None:
    assert differ([1.0] * (FEWEST - 1), [2.0] * 40) is None
    assert is_real([1.0] * 40, [1.0] * 40) is False
    assert is_real([1.0] * 40, [2.0] * 40) is True


def test_the_printed_least_change_of_a_statistic_is_that_of_this_statistic() -> None:
    before, noise = RANDOM.normal(1.0, 0.08, 60), RANDOM.normal(1.0, 0.08, 60)
    for row in differences(batched(before), batched(noise)):
        assert not row.real
        for least, real in ((1.001, True), (0.999, False)):
            moved = noise + (row.before - row.after) + least * row.least
            (again,) = (r for r in differences(batched(before), batched(moved)) if r.figure == row.figure)
            assert again.real is real


def test_a_step_of_the_clock_is_no_change() -> None:
    ticks = batched(np.full(40, 100e-9))
    for later, real in ((1e-9, False), (3e-9, True)):
        judged = differences(ticks, batched(np.full(40, 100e-9 + later)), unseen=2e-9)
        assert judged and {row.real for row in judged} == {real}


def test_parts_of_a_unit_are_judged_more_strictly_than_the_unit() -> None:
    runs = [batched(RANDOM.normal(1.0, 0.02, 60)) for _ in range(2)]
    unit, part = (differences(*runs, of_unit=of_unit) for of_unit in (True, False))
    assert [row.figure for row in unit] == ["mean", "median", "low", "high"]
    assert [row.figure for row in part] == ["mean", "median", "low"]
    assert all(wide.least > narrow.least for narrow, wide in zip(unit, part, strict=False))


def test_batches_hold_units_in_order() -> None:
    assert batched([3.0, 1.0, 2.0]).median_seconds == [3.0, 1.0, 2.0]
    batches = batched(np.arange(50.0))
    assert batches.mean_seconds == batches.median_seconds == [4.5, 14.5, 24.5, 34.5, 44.5]
    assert batches.low_seconds == pytest.approx([0.9, 10.9, 20.9, 30.9, 40.9])


def test_like_windows_whose_units_depend_on_those_before_rarely_differ() -> None:
    """A rank test, which takes each unit for a sample of its own, finds a change in a tenth of these pairs."""
    units, noise = np.zeros((300, 60)), RANDOM.normal(0.0, 0.02, (300, 60))
    for n in range(1, 60):
        units[:, n] = 0.8 * units[:, n - 1] + noise[:, n]
    assert sum(is_real(1 + window[:30], 1 + window[30:]) for window in units) <= 12
