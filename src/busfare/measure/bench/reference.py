"""What every version on a GPU is held against: inputs, and results in float64 on the CPU, level by level on all processors;
and the two kernels that W14 judges its models on.

Equation of state: McDougall, Wright, Jackett and Feistel, *Accurate and computationally efficient algorithms for
potential temperature and density of seawater*, J. Atmos. Oceanic Technol. 20 (2003) 730–741: the one that
POP uses by default. Temperatures in °C (potential), salinities practical, pressures in decibars, densities in kg/m³.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from busfare.node.arrays import FloatArray

if TYPE_CHECKING:
    from busfare.measure.bench.program import Work

#: Metres per second squared.
GRAVITY = 9.806
#: A result may differ from the reference by this share of itself, and of the largest value of its array: a GPU
#: contracts products and sums, the reference does not.
RELATIVE, OF_LARGEST = 1e-10, 1e-12
#: Elements computed at once: what fits a processor's cache, and is long against a call of Python's.
BLOCK = 1 << 16


def pressure(levels: FloatArray) -> FloatArray:
    """Pressure (decibars) at levels 0, 1, …: layers of growing thickness, 5400 m deep after 42 of them."""
    return 5.0 + 15.0 * levels + 2.85 * (levels * levels)


def _fraction(t: FloatArray, s: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of the density."""
    root, t2 = np.sqrt(s), t * t
    above = (
        9.99843699e2 + p * (1.04004591e-2 + p * -3.24041825e-8)
        + t * (7.35212840 + t * (-5.45928211e-2 + p * (1.03970529e-7 + p * -1.23869360e-11) + t * 3.98476704e-4))
        + s * (2.96938239 + p * 5.18761880e-6 + t * -7.23268813e-3 + s * 2.12382341e-3)
    )  # fmt: skip
    below = (
        1.0 + p * 5.30848875e-6
        + t * (7.28606739e-3 + p**3 * -1.27934137e-17
               + t * (-4.60835542e-5 + t * (3.68390573e-7 + p**2 * -3.03175128e-16 + t * 1.80809186e-10)))
        + s * (2.14691708e-3 + t * (-9.27062484e-6 + t2 * -1.78343643e-10)
               + root * (4.76534122e-6 + t2 * 1.63410736e-9))
    )  # fmt: skip
    return above, below


def density(t: FloatArray, s: FloatArray, p: FloatArray) -> FloatArray:
    """In-situ density of sea water; the arrays broadcast."""
    above, below = _fraction(t, s, p)
    return above / below


def derivatives(t: FloatArray, s: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The density, and its derivatives over temperature (kg/m³/K) and over salinity (kg/m³)."""
    above, below = _fraction(t, s, p)
    rho = above / below
    root, t2 = np.sqrt(s), t * t
    above_t = (
        7.35212840 + t * (2 * (-5.45928211e-2 + p * (1.03970529e-7 + p * -1.23869360e-11)) + t * (3 * 3.98476704e-4))
        + s * -7.23268813e-3
    )  # fmt: skip
    above_s = 2.96938239 + p * 5.18761880e-6 + t * -7.23268813e-3 + s * (2 * 2.12382341e-3)
    below_t = (
        7.28606739e-3 + p**3 * -1.27934137e-17
        + t * (2 * -4.60835542e-5 + t * (3 * (3.68390573e-7 + p**2 * -3.03175128e-16) + t * (4 * 1.80809186e-10)))
        + s * (-9.27062484e-6 + t2 * (3 * -1.78343643e-10) + root * t * (2 * 1.63410736e-9))
    )  # fmt: skip
    below_s = (
        2.14691708e-3 + t * (-9.27062484e-6 + t2 * -1.78343643e-10)
        + 1.5 * root * (4.76534122e-6 + t2 * 1.63410736e-9)
    )  # fmt: skip
    return rho, (above_t - rho * below_t) / below, (above_s - rho * below_s) / below


def buoyancy(own: FloatArray, displaced: FloatArray) -> FloatArray:
    """Buoyancy difference (m/s²) of displaced water of one density within water of another."""
    return GRAVITY * (1.0 - displaced / own)


def water_column(level: int, into: Sequence[FloatArray], seed: int) -> None:
    """Temperature, and salinity where `into` has a second array, of one level: warm and fresh above, cold and salt
    below, different everywhere.
    """
    drawn = np.random.default_rng((seed, level))
    depth = level / 41.0
    for array, least, width in zip(
        into, (26.0 * np.exp(-4.0 * depth) + 1.0, 34.0 + 0.8 * depth), (2.0, 0.5), strict=False
    ):
        drawn.random(out=array)
        array *= width
        array += least


def _by_level(work: Work, of_level: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        list(threads.map(of_level, range(work.levels)))


def fill(work: Work, inputs: Sequence[FloatArray]) -> None:
    """Sea water in all inputs: temperatures in the even ones, salinities in the odd ones."""
    grids = [array.reshape(work.levels, work.level) for array in inputs]

    def of_level(k: int) -> None:
        for pair in range(0, len(grids), 2):
            # Drawn in place: a gigabyte of short-lived arrays would cost more than the numbers in it.
            water_column(k, [grid[k] for grid in grids[pair : pair + 2]], pair)

    _by_level(work, of_level)


def expected(work: Work, inputs: Sequence[FloatArray]) -> list[FloatArray]:
    """What every version must give: the reference in float64, on the CPU. Raises ValueError for a kernel without one."""
    if work.kernel.reference is None:
        raise ValueError(f"{work.kernel.name} has no reference")
    reference = work.kernel.reference
    grids = [array.reshape(work.levels, work.level) for array in inputs]
    made = [np.empty((work.levels, work.level)) for _ in range(work.kernel.outputs)]

    def of_level(k: int) -> None:
        # Places of a level depend on the same places of others alone.
        for start in range(0, work.level, BLOCK):
            part = slice(start, start + BLOCK)
            for grid, values in zip(made, reference([g[:, part] for g in grids], k), strict=True):
                grid[k, part] = values

    _by_level(work, of_level)
    return [grid.reshape(-1) for grid in made]


def slacks(arrays: Sequence[FloatArray]) -> list[float]:
    """What an element may differ by, array by array, besides RELATIVE of itself."""
    return [OF_LARGEST * max(float(array.max()), -float(array.min())) for array in arrays]
