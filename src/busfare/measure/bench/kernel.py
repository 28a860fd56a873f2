"""The kernels that strategies are judged on, and the grids that they work on: arrays, what an element reads, and the same in
float64 on the CPU, level by level on all processors, which every version on a GPU is held against. Their sources are in
`cuda/bench.cu`.

Equation of state: McDougall, Wright, Jackett and Feistel, *Accurate and computationally efficient algorithms for
potential temperature and density of seawater*, J. Atmos. Oceanic Technol. 20 (2003) 730–741: the one that
POP uses by default. Temperatures in °C (potential), salinities practical, pressures in decibars, densities in kg/m³.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from busfare.nodes import FloatArray

#: Metres per second squared.
GRAVITY = 9.806
#: A result may differ from the reference by this share of itself, and of the largest value of its array: a GPU
#: contracts products and sums, the reference does not.
RELATIVE, OF_LARGEST = 1e-10, 1e-12
#: Elements computed at once: what fits a processor's cache, and is long against a call of Python's.
BLOCK = 1 << 16
ELEMENT_BYTES = 8
#: Chunks within a level start at multiples of so many elements: 256 bytes, as allocators give.
ALIGNED = 32
#: The most streams that are tried; and the most chunks that the queue of one stream takes while it is held.
MOST_STREAMS, MOST_IN_ORDER = 256, 128


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


def water_column(level: int, into: Sequence[FloatArray], seed: int) -> None:
    """Temperature, and salinity in a second array, of a level: warm and fresh above, cold and salt below, all different."""
    drawn = np.random.default_rng((seed, level))
    depth = level / 41.0
    ranges = ((26.0 * np.exp(-4.0 * depth) + 1.0, 2.0), (34.0 + 0.8 * depth, 0.5))
    for array, (least, width) in zip(into, ranges, strict=False):
        drawn.random(out=array)
        array *= width
        array += least


#: What of the inputs an element needs besides its own place: the level above, or the uppermost level.
Reach = Literal["above", "surface"]
#: Given the inputs of all levels and the number of one level: its outputs.
Reference = Callable[[Sequence[FloatArray], int], list[FloatArray]]


@dataclass(frozen=True)
class Kernel:
    """A kernel on arrays of doubles. `function` is its name in `cuda/bench.cu`.

    `accesses_in`: how often an input element crosses the link where it stays in mapped memory. `flops` and `work`
    are of one element; `work` is what the source knows as WORK.
    """

    name: str
    title: str
    function: str
    inputs: int
    outputs: int
    flops: float
    reference: Reference
    reaches: tuple[Reach, ...] = ()
    accesses_in: float = 1.0
    work: int = 1


def _state(inputs: Sequence[FloatArray], k: int) -> list[FloatArray]:
    t, s = (array[k] for array in inputs)
    return list(derivatives(t, s, pressure(np.asarray(float(k)))))


def _buoydiff(inputs: Sequence[FloatArray], k: int) -> list[FloatArray]:
    """Buoyancy differences (m/s²) of water of the uppermost level, and of the level above, within that of level `k`."""
    p = pressure(np.asarray(float(k)))
    in_place, surface, above = (density(inputs[0][j], inputs[1][j], p) for j in (k, 0, max(k - 1, 0)))
    return [GRAVITY * (1.0 - displaced / in_place) for displaced in (surface, above)]


def _computing(name: str, title: str, work: int) -> Kernel:
    # x ← 0.999 x + 0.0005 has a closed form, which does not take `work` passes.
    kept = 0.999**work
    return Kernel(
        name, title, "compute", 1, 1, 2.0 * work, lambda i, k: [i[0][k] * kept + 0.5 * (1.0 - kept)], work=work,
    )  # fmt: skip


#: By name, the two of W14 first.
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("state", "density of sea water and its two derivatives", "state", 2, 3, 90.0, _state),
        Kernel(
            "buoydiff", "buoyancy differences of levels 1, k-1 and k", "buoydiff", 2, 2, 150.0, _buoydiff,
            ("above", "surface"), 3.0,
        ),
        Kernel("scale", "a product", "scale", 1, 1, 1.0, lambda i, k: [1.5 * i[0][k]]),
        _computing("compute-balanced", "2000 multiply-adds an element", 2000),
        _computing("compute-heavy", "8000 multiply-adds an element", 8000),
        Kernel(
            "reread", "each element read three times", "reread", 1, 1, 3.0, lambda i, k: [3.0 * i[0][k]],
            accesses_in=3.0, work=3,
        ),
        Kernel(
            "gather", "three arrays in, one out", "gather", 3, 1, 4.0,
            lambda i, k: [i[0][k] + 2.0 * i[1][k] + 3.0 * i[2][k]],
        ),
        Kernel(
            "spread", "one array in, three out", "spread", 1, 3, 3.0,
            lambda i, k: [i[0][k] + 1.0, 2.0 * i[0][k], i[0][k] * i[0][k]],
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """`kernel` on `levels` of `level` elements each."""

    kernel: Kernel
    levels: int
    level: int

    @property
    def name(self) -> str:
        return f"{self.kernel.name} {self.levels}×{self.level}"

    @property
    def elements(self) -> int:
        return self.levels * self.level

    @property
    def whole(self) -> range:
        return range(0, self.elements)

    @property
    def array_bytes(self) -> int:
        return self.elements * ELEMENT_BYTES

    @property
    def h2d_bytes(self) -> int:
        return self.kernel.inputs * self.array_bytes

    @property
    def d2h_bytes(self) -> int:
        return self.kernel.outputs * self.array_bytes

    @property
    def most_chunks(self) -> int:
        """Into how many chunks it can be cut."""
        return max(self.levels, self.elements // ALIGNED)

    @property
    def most_streams(self) -> int:
        """Into how many chunks it is cut at most: those that read others are copied in order, through one stream."""
        return min(MOST_IN_ORDER if self.kernel.reaches else MOST_STREAMS, self.most_chunks)

    def cut(self, chunks: int) -> list[range]:
        """The elements in so many equal parts, to 256 bytes: 35 parts of 42 whole levels would be as long as 21. Raises
        ValueError for less than one chunk or more than there can be.
        """
        if not 1 <= chunks <= self.most_chunks:
            raise ValueError(f"{chunks} chunks of {self.name}")
        unit = self.level if self.levels % chunks == 0 else ALIGNED
        units = -(-self.elements // unit)
        edges = [min(self.elements, unit * (units * n // chunks)) for n in range(chunks + 1)]
        return [range(a, b) for a, b in pairwise(edges)]

    def inputs_of(self, part: range) -> list[range]:
        """What of each input array a launch on `part` reads."""
        needed = [part]
        if "above" in self.kernel.reaches and part.stop > self.level:
            needed.append(range(max(0, part.start - self.level), part.stop - self.level))
        if "surface" in self.kernel.reaches:
            start = part.start % self.level
            if len(part) >= self.level:
                needed.append(range(0, self.level))
            elif start + len(part) <= self.level:
                needed.append(range(start, start + len(part)))
            else:
                needed += [range(start, self.level), range(0, start + len(part) - self.level)]
        return needed

    def chunks_of(self, part: range, cut: list[range]) -> list[int]:
        """The chunks of `cut` that hold what a launch on `part` reads, in order."""
        starts, needed = [span.start for span in cut], self.inputs_of(part)
        ends = [(bisect_right(starts, s.start) - 1, bisect_right(starts, s.stop - 1)) for s in needed]
        return sorted({chunk for first, end in ends for chunk in range(first, end)})


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
    """What every version must give: the reference in float64, on the CPU."""
    grids = [array.reshape(work.levels, work.level) for array in inputs]
    made = [np.empty((work.levels, work.level)) for _ in range(work.kernel.outputs)]

    def of_level(k: int) -> None:
        # Places of a level depend on the same places of others alone.
        for start in range(0, work.level, BLOCK):
            part = slice(start, start + BLOCK)
            for grid, values in zip(made, work.kernel.reference([g[:, part] for g in grids], k), strict=True):
                grid[k, part] = values

    _by_level(work, of_level)
    return [grid.reshape(-1) for grid in made]


def slacks(arrays: Sequence[FloatArray]) -> list[float]:
    """What an element may differ by, array by array, besides RELATIVE of itself."""
    return [OF_LARGEST * max(float(array.max()), -float(array.min())) for array in arrays]
