"""The fit: known parameters come back in the fewest pieces, and doubtful points do not bend it."""

import numpy as np
import pytest

from busfare.measure.cases import interquartile_mean, interval, read_record
from busfare.measure.profile import profile, residuals
from busfare.nodes.transfers import fit
from validation.stored import probe_raw

SIZES = np.array(sorted({1 << n for n in range(31)} | {3 << n for n in range(11, 24)}), np.float64)


def test_a_straight_line_needs_a_single_piece() -> None:
    fitted = fit(SIZES, 5e-6 + SIZES * 2e-11)
    assert fitted.up_to_bytes == ()
    assert fitted.latency_overhead_s == pytest.approx([5e-6])
    assert fitted.gap_per_byte_s == pytest.approx([2e-11])


def test_a_knee_is_located_where_it_is() -> None:
    fitted = fit(SIZES, np.where(SIZES <= 65536, 4e-6 + SIZES * 9e-11, 9e-6 + SIZES * 2e-11))
    assert len(fitted.up_to_bytes) == 1
    assert 65536 <= fitted.up_to_bytes[0] < 98304
    assert fitted.gap_per_byte_s == pytest.approx([9e-11, 2e-11])


def test_lines_that_do_not_meet_end_right_after_the_size_where_they_jump() -> None:
    seconds = np.where(SIZES <= 65536, 4e-6 + SIZES * 2e-11, 1.2 * (4e-6 + SIZES * 2e-11))
    assert fit(SIZES, seconds).up_to_bytes == (65536,)


@pytest.mark.parametrize("machine", ["h200-thirteenth", "h100-third", "h200-fourteenth"])
def test_pageable_copies_beyond_the_processors_cache_keep_a_separate_line_however_they_scatter(
    machine: str,
) -> None:
    """Recorded samples: few long copies fit a probe's time, and on a shared host they differ by half."""
    record = read_record(probe_raw(f"{machine}-run1"))
    rows = residuals(profile(record).curves, record)
    long = [r for r in rows if r.case.memory == "pageable" and r.case.bytes >= 32 << 20]
    assert len(long) == 6
    assert max(abs(r.percent) for r in long) < 20


def test_there_are_no_more_pieces_than_allowed_and_none_with_a_negative_parameter() -> None:
    random = np.random.default_rng(3)
    for most in (1, 2, 3, 3, 3):
        fitted = fit(SIZES, random.uniform(1e-6, 1e-3, len(SIZES)), most=most)
        pieces = len(fitted.up_to_bytes) + 1
        assert pieces == len(fitted.gap_per_byte_s) == len(fitted.latency_overhead_s) <= most
        assert min(fitted.latency_overhead_s) >= 0 and min(fitted.gap_per_byte_s) > 0
        assert list(fitted.up_to_bytes) == sorted(set(fitted.up_to_bytes))


def test_a_point_in_doubt_does_not_bend_the_line() -> None:
    seconds, doubt = 5e-6 + SIZES * 2e-11, np.zeros_like(SIZES)
    seconds[30] *= 2
    doubt[30] = 1.0
    assert fit(SIZES, seconds, doubt).gap_per_byte_s[-1] == pytest.approx(2e-11, rel=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_points_are_fitted_too(count: int) -> None:
    fitted = fit(SIZES[:count], 5e-6 + SIZES[:count] * 2e-11)
    assert len(fitted.gap_per_byte_s) == 1


def test_nothing_cannot_be_fitted() -> None:
    with pytest.raises(ValueError):
        fit(np.array([]), np.array([]))


def test_the_interquartile_mean_is_deaf_to_late_samples_and_smoother_than_the_median() -> None:
    assert interquartile_mean([1.0, 1.0, 50.0]) == 1.0
    assert 1.0 < interquartile_mean([1.0] * 5 + [1.032] * 5) < 1.032
    with pytest.raises(ValueError):
        interquartile_mean([])


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        low, high = interval(random.exponential(1.0, 31).tolist())
        held += low <= np.log(2) <= high
    assert held / 400 >= 0.93
