"""Kernels and programs of strategies: the equation of state against published values, and its derivatives against
differences; how the work is cut, in which streams what goes, and what waits for what. That programs compute the right
result in every order that is allowed is in test_cuda.py.
"""

import numpy as np
import pytest

from busfare.measure.bench import program
from busfare.measure.bench.kernel import KERNELS, Work, density, derivatives, pressure, water_column


def number(value: float) -> np.ndarray:
    return np.asarray(value, np.float64)


@pytest.mark.parametrize(
    ("salinity", "temperature", "decibars", "published"),
    [
        (35, 25, 2000, 1031.654229),
        (20, 20, 1000, 1017.726743),
        (40, 12, 8000, 1062.928258),
        (35, 20, 2000, 1033.213387),
    ],
)
def test_density_has_its_published_check_values(
    salinity: float, temperature: float, decibars: float, published: float
) -> None:
    """McDougall et al. 2003, and POP's own."""
    assert density(number(temperature), number(salinity), number(decibars)) == pytest.approx(
        published, abs=5e-7
    )


@pytest.mark.parametrize("level", [0, 10, 41])
def test_derivatives_are_those_of_the_density(level: int) -> None:
    t, s = np.empty((2, 100))
    water_column(level, (t, s), 1)
    p = pressure(number(level))
    rho, over_t, over_s = derivatives(t, s, p)
    step = 1e-4
    np.testing.assert_array_equal(rho, density(t, s, p))
    np.testing.assert_allclose(
        over_t, (density(t + step, s, p) - density(t - step, s, p)) / (2 * step), rtol=2e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        over_s, (density(t, s + step, p) - density(t, s - step, p)) / (2 * step), rtol=2e-6
    )


def test_the_surface_has_no_buoyancy_against_itself() -> None:
    inputs = list(np.empty((2, 3, 8)))
    for k in range(3):
        water_column(k, [array[k] for array in inputs], 3)
    reference = KERNELS["buoydiff"].reference
    for values in reference(inputs, 0):
        np.testing.assert_array_equal(values, np.zeros(8))
    assert all((np.abs(values) > 0).all() for values in reference(inputs, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 11, 13, 24, 48, 64, 256])
def test_chunks_cover_the_work_once(count: int) -> None:
    work = Work(KERNELS["scale"], 42, 4096)
    cut = work.cut(count)
    assert len(cut) == count
    assert [span.start for span in cut] == [0, *(span.stop for span in cut[:-1])]
    assert cut[-1].stop == work.elements
    sizes = [len(span) for span in cut]
    assert max(sizes) - min(sizes) <= 32
    if 42 % count == 0:
        assert all(span.start % work.level == 0 for span in cut)


def test_a_part_within_a_level_reads_three_places() -> None:
    work = Work(KERNELS["buoydiff"], 4, 128)
    assert work.inputs_of(range(256, 288)) == [range(256, 288), range(128, 160), range(0, 32)]
    # Across the end of a level the surface is read at its end and at its start.
    assert work.inputs_of(range(224, 288)) == [range(224, 288), range(96, 160), range(96, 128), range(0, 32)]
    assert work.inputs_of(range(0, 64)) == [range(0, 64), range(0, 64)]


def test_copies_of_shared_chunks_go_through_a_single_stream_in_order() -> None:
    made = program.streams(Work(KERNELS["buoydiff"], 6, 160), 6)
    into = [op for op in made.operations if op.kind == "h2d"]
    assert {op.stream for op in into} == {0}
    assert [op.part.start for op in into] == sorted(op.part.start for op in into)
    kernels = [op for op in made.operations if op.kind == "kernel"]
    # The second array of the chunk itself is the last of what a kernel reads.
    assert [op.after for op in kernels] == [(2 * chunk + 1,) for chunk in range(6)]
    assert made.streams == 7
    alone = program.streams(Work(KERNELS["state"], 6, 160), 6)
    assert {op.stream for op in alone.operations if op.kind == "h2d"} == set(range(6))
    assert not any(op.after for op in alone.operations)


def test_what_waits_for_the_first_stream_is_led_by_it() -> None:
    plain, reaching = Work(KERNELS["scale"], 6, 160), Work(KERNELS["buoydiff"], 6, 160)
    assert program.explicit(plain).led and program.three_streams(plain, 3).led
    # All copies in are in the first stream, and every kernel waits for one of them.
    assert program.streams(reaching, 3).led and program.streams(reaching, 3, "hybrid").led
    assert not program.streams(plain, 3).led
    assert not program.link_alone(plain).led


def test_three_streams_are_a_stream_per_engine_depth_first() -> None:
    made = program.three_streams(Work(KERNELS["state"], 4, 64), 4)
    assert [op.kind for op in made.operations[:6]] == ["h2d", "h2d", "kernel", "d2h", "d2h", "d2h"]
    assert {op.kind: op.stream for op in made.operations} == {"h2d": 0, "kernel": 1, "d2h": 2}
