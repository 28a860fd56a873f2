"""The fit: known parameters come back, and doubtful points do not bend it."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.measure.fit import fit
from busfare.measure.middle import interval, median, middle, spread
from busfare.measure.plan import fitted_bytes
from busfare.node.measured import piecewise

SIZES = np.array(fitted_bytes(1 << 30), np.float64)


def test_one_line_needs_one_piece() -> None:
    found = fit(SIZES, 5e-6 + SIZES * 2e-11)
    assert len(found.pieces) == 1
    assert found.pieces[0].latency_overhead_s == pytest.approx(5e-6)
    assert found.pieces[0].gap_per_byte_s == pytest.approx(2e-11)


def test_a_knee_is_found_where_it_is() -> None:
    seconds = np.where(SIZES <= 65536, 4e-6 + SIZES * 9e-11, 9e-6 + SIZES * 2e-11)
    pieces = fit(SIZES, seconds).pieces
    assert len(pieces) == 2
    assert 65536 <= (pieces[0].up_to_bytes or 0) < 98304
    assert pieces[1].gap_per_byte_s == pytest.approx(2e-11)


@pytest.mark.parametrize(("left", "end"), [(1.0, 256), (1.2, 65536)])
def test_lines_that_do_not_meet_end_half_way_or_where_there_is_a_jump(left: float, end: int) -> None:
    # They would meet at 200 KB, beyond the next size; a fifth more is a jump, which comes right after 64 KiB.
    seconds = np.where(SIZES <= 65536, left * (4e-6 + SIZES * 2e-11), 3.8e-6 + SIZES * 2.1e-11)
    pieces = fit(SIZES, seconds, near=1e-5).pieces
    ends = [p.up_to_bytes or 0 for p in pieces[:-1]]
    middle_ = int((65536 * 98304) ** 0.5)
    assert (middle_ if left == 1.0 else end) in ends


def test_a_curve_that_does_not_jump_rises_along_a_line_where_it_is_steep() -> None:
    """A fifth more from 64 to 96 KiB: what lies between takes no more than a part of it."""
    seconds = np.where(SIZES <= 65536, 4e-6 + SIZES * 2e-11, 1.2 * (4e-6 + SIZES * 2e-11))
    jumps, rises = fit(SIZES, seconds, near=1e-5), fit(SIZES, seconds, near=1e-5, steady_from=4096)
    at = np.array([65536.0, 70000.0, 81920.0, 98304.0, 1e6])
    plain = 4e-6 + at * 2e-11
    assert piecewise(jumps.pieces, at) / plain == pytest.approx([1.0, 1.2, 1.2, 1.2, 1.2], rel=1e-3)
    found = piecewise(rises.pieces, at) / plain
    assert found[[0, 3, 4]] == pytest.approx([1.0, 1.2, 1.2], rel=1e-3)
    assert 1.02 < found[1] < 1.06 and 1.08 < found[2] < 1.12
    # Below the size from which on it is steady, a jump stays one.
    assert fit(SIZES, seconds, near=1e-5, steady_from=1 << 20).pieces == jumps.pieces


def test_no_piece_has_a_negative_parameter() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        pieces = fit(SIZES, random.uniform(1e-6, 1e-3, len(SIZES))).pieces
        assert all((p.latency_overhead_s or 0) >= 0 and p.gap_per_byte_s > 0 for p in pieces)
        ends = [p.up_to_bytes for p in pieces[:-1]]
        assert ends == sorted(set(ends))
        assert pieces[-1].up_to_bytes is None


def test_a_point_in_doubt_does_not_bend_the_line() -> None:
    seconds = 5e-6 + SIZES * 2e-11
    doubt = np.zeros_like(SIZES)
    seconds[30] *= 2
    doubt[30] = 1.0
    guess = fit(SIZES, seconds, doubt=doubt).pieces
    assert guess[-1].gap_per_byte_s == pytest.approx(2e-11, rel=1e-3)


def test_nothing_cannot_be_fitted() -> None:
    with pytest.raises(ValueError):
        fit(np.array([]), np.array([]))


def test_the_middle_is_deaf_to_late_samples_and_smoother_than_the_median() -> None:
    assert middle([1.0, 1.0, 50.0]) == 1.0
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert 1.0 < middle([1.0] * 5 + [1.032] * 5) < 1.032
    with pytest.raises(ValueError):
        middle([])


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        low, high = interval(random.exponential(1.0, 31).tolist())
        held += low <= np.log(2) <= high
    assert held / 400 >= 0.93
    assert spread([1.0]) == float("inf")
