"""The equation of state against published values, and its derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.measure.bench.kernel import KERNELS, density, derivatives, pressure, water_column


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
    assert reference is not None
    for values in reference(inputs, 0):
        np.testing.assert_array_equal(values, np.zeros(8))
    assert all((np.abs(values) > 0).all() for values in reference(inputs, 2))
