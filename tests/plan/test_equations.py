"""The closed forms against numbers worked out by hand, and against each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.planning.strategies import (
    Cut,
    best_streams,
    eq1,
    eq2,
    eq3,
    eq4,
    eq5_shared,
    eq6,
    explicit,
    hybrid,
)


def eq5(cut: Cut) -> np.ndarray:
    """[W14 eq 5] as published: one G each direction throughout."""
    into = cut.all_in + cut.chunk_kernel + cut.last_out
    out = cut.first_in + cut.chunk_kernel + cut.all_out
    return np.maximum(np.maximum(into, cut.first_in + cut.kernel + cut.last_out), out)


EQUATIONS = {1: eq1, 2: eq2, 3: eq3, 4: eq4, 5: eq5_shared}
seconds = st.floats(1e-7, 10)
gaps = st.floats(1e-8, 1e-4)


def cut(streams=4.0, h2d=8.0, kernel=2.0, d2h=4.0, latency=(0.5, 0.25), gap=(0.1, 0.2)) -> Cut:
    terms = (streams, h2d, kernel, d2h, *latency, *gap)
    return Cut(*(np.asarray(term, dtype=np.float64) for term in terms))


def test_explicit_is_the_sum_of_its_parts() -> None:
    assert float(explicit(cut(1.0))) == pytest.approx(0.5 + 8 + 2 + 0.25 + 4)


@pytest.mark.parametrize(
    ("equation", "by_hand"),
    [
        (1, 0.5 + 8 / 4 + 2 + 0.25 + 4 + 3 * 0.2),
        (2, 0.5 + 8 + 3 * 0.1 + 2 / 4 + 0.25 + 4 + 3 * 0.2),
        (3, 0.5 + 8 / 4 + 2 + 0.25 + 4 / 4),
        (4, 0.5 + 8 + 3 * 0.1 + 0.25 + 4 + 3 * 0.2),
        (5, 0.5 + 8 + 3 * 0.1 + 2 / 4 + 0.25 + 4 / 4),
    ],
)
def test_equations_by_hand(equation: int, by_hand: float) -> None:
    assert float(EQUATIONS[equation](cut())) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("equation", "work", "by_hand"),
    [
        (4, (8.0, 20.0, 4.0), 0.5 + 8 + 0.3 + 20 / 4 + 0.25 + 4 / 4),
        (4, (4.0, 20.0, 8.0), 0.5 + 4 / 4 + 20 / 4 + 0.25 + 8 + 0.6),
        (5, (8.0, 40.0, 4.0), 0.5 + 8 / 4 + 40 + 0.25 + 4 / 4),
        (5, (4.0, 2.0, 8.0), 0.5 + 4 / 4 + 2 / 4 + 0.25 + 8 + 0.6),
    ],
)
def test_limits_of_equations_4_and_5(equation: int, work: tuple[float, float, float], by_hand: float) -> None:
    assert float(EQUATIONS[equation](cut(4.0, *work))) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("work", "longest"), [((9.0, 2.0, 4.0), 9), ((1.0, 7.0, 4.0), 7), ((1.0, 2.0, 5.0), 5)]
)
def test_equation_6_is_the_longest_of_three(work: tuple[float, float, float], longest: float) -> None:
    assert float(eq6(cut(1.0, *work))) == pytest.approx(0.75 + longest)


@pytest.mark.parametrize(
    ("latency_out", "longer"),
    [
        # In 8 s alone; out 6 s beside the other, of which the last chunk of two is not shared.
        (0.0, 0.2 * min(6 / 2, 1.25 * 3.5)),
        # Half a second of the copies in is left when the first byte goes out; then none.
        (3.0, 0.2 * 1.25 * 0.5),
        (3.75, 0.0),
    ],
)
def test_equation_5_slows_only_what_overlaps(latency_out: float, longer: float) -> None:
    work = cut(2.0, 8.0, 1.0, 4.0, latency=(0.0, latency_out), gap=(0.0, 0.0))
    slowed = eq5_shared(work._replace(h2d_slowdown=1.25, d2h_slowdown=1.5))
    assert float(slowed) == pytest.approx(8 + longer + 0.5 + latency_out + 2)


@pytest.mark.parametrize(
    ("h2d", "d2h", "by_hand"),
    [
        (9.0, 9.0, 9 * 1.2),
        # A third of the way out: the way in waits by the square of it, the way out carries requests in proportion.
        (9.0, 3.0, 9 * (1 + 0.2 / 9)),
        (3.0, 9.0, 9 * (1 + 0.2 / 3)),
        (0.0, 9.0, 9.0),
    ],
)
def test_mapped_kernels_slow_with_load_in_opposite_direction(h2d: float, d2h: float, by_hand: float) -> None:
    work = cut(1.0, h2d, 0.0, d2h, latency=(0.0, 0.0))
    assert float(eq6(work._replace(h2d_slowdown=1.2, d2h_slowdown=1.2))) == pytest.approx(by_hand)


def test_a_hybrids_copies_go_on_alone_where_writes_held_them() -> None:
    # Four chunks: copies of 2 s, kernels that write for 1, beside which copies are four times as slow.
    work = cut(4.0, 8.0, 0.5, 4.0, latency=(0.0, 0.0), gap=(0.0, 0.0))._replace(h2d_slowdown=4.0)
    assert float(hybrid(work)) == pytest.approx(2 + 3 * (1 + 2 - 1 / 4) + 1)
    assert float(hybrid(work._replace(kernel=np.asarray(80.0)))) == pytest.approx(2 + 3 * 20 + 20)


@given(seconds, seconds, seconds, gaps)
def test_a_single_stream_is_explicit_by_equations(h2d: float, kernel: float, d2h: float, gap: float) -> None:
    uncut = cut(1.0, h2d, kernel, d2h, gap=(gap, gap))
    for equation in EQUATIONS.values():
        assert float(equation(uncut)) == pytest.approx(float(explicit(uncut)))


@given(seconds, seconds, seconds, st.integers(1, 300), st.floats(1, 4), st.floats(1, 4))
def test_sharing_costs_no_more_than_being_slowed_throughout(
    h2d: float, kernel: float, d2h: float, streams: int, slow_in: float, slow_out: float
) -> None:
    alone = cut(float(streams), h2d, kernel, d2h)
    slowed = cut(float(streams), h2d * slow_in, kernel, d2h * slow_out)
    slowed = slowed._replace(h2d_gap=alone.h2d_gap * slow_in, d2h_gap=alone.d2h_gap * slow_out)
    shared = float(eq5_shared(alone._replace(h2d_slowdown=slow_in, d2h_slowdown=slow_out)))
    assert float(eq5(alone)) * (1 - 1e-12) <= shared <= float(eq5(slowed)) * (1 + 1e-12)


def brute_force(equation: int, work: Cut, most: int = 100_000) -> int:
    numbers = np.arange(1.0, most)
    return int(np.argmin(EQUATIONS[equation](work._replace(streams=numbers)))) + 1


@settings(deadline=None, max_examples=60)
@given(seconds, seconds, seconds, st.floats(1e-6, 1e-4), st.sampled_from([1, 2]))
def test_the_best_number_of_eq_1_and_2_is_that_of_brute_force(
    h2d: float, kernel: float, d2h: float, gap: float, equation: int
) -> None:
    work = cut(1.0, h2d, kernel, d2h, gap=(gap, gap))
    number = float(best_streams(equation, work))
    least = brute_force(equation, work)
    assert abs(least - number) <= 1 or EQUATIONS[equation](
        work._replace(streams=np.asarray(round(number)))
    ) == pytest.approx(float(EQUATIONS[equation](work._replace(streams=np.asarray(float(least))))), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-2, 1), st.floats(0.01, 0.9), st.floats(0.2, 0.95), st.floats(1e-7, 1e-5), st.booleans())
def test_equation_4_falls_until_its_number_and_rises_after_it(
    longest: float, kernel: float, ratio: float, gap: float, into: bool
) -> None:
    sides = (longest, longest * ratio) if into else (longest * ratio, longest)
    # Without latencies, as the condition in [W14 §VI] has none.
    work = cut(1.0, sides[0], longest * kernel, sides[1], latency=(0.0, 0.0), gap=(gap, gap))
    number = float(best_streams(4, work))
    least = brute_force(4, work, 20_000)
    assert abs(least - number) <= 1


def test_no_number_follows_where_more_streams_cost_nothing() -> None:
    free = cut(gap=(0.0, 0.0))
    assert all(np.isnan(best_streams(equation, free)) for equation in (1, 2, 4, 5))
    assert np.isnan(best_streams(3, cut()))
