"""The time of a product of matrices by its shape: tiles in waves over the multiprocessors, against the bytes moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from busfare.cost.kernels.limits import Limits, pipeline_of
from busfare.node.arrays import FloatArray

__all__ = ["gemm_seconds", "product_seconds"]

#: Sides of a block's tile that libraries choose from, and into how many parts they cut the sum [NeuSight §4].
TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64),
    (32, 32), (128, 16), (16, 128), (64, 16), (16, 64),
)  # fmt: skip
SPLITS = (1, 2, 4, 8, 16)
LEAST_DEPTH = 128
# The next three were chosen on fp16 operators of six models on A40 and A100: `python validation/kernels.py --constants`.

#: A tile of t × t loads 2/t elements for each product; one whose sides have this harmonic mean reaches half of the rate.
HALF_RATE_SIDE = 5.0
#: Compute and copies of a block overlap, but not wholly: the norm by which their times add.
NORM = 2.6
#: What a wave takes to begin and to end, in cycles: fetching the first tiles, writing the last.
EDGE_CYCLES = 4400.0


def gemm_seconds(sides: Sequence[FloatArray], peak: float, limits: Limits) -> FloatArray:
    """Seconds of products m × k by k × n at `peak` operations a second; shape (rows,).

    `sides`: how many of them a call makes, m, n, k and the bytes of an element, each of shape (rows,).
    """
    batch, m, n, k, element_bytes = sides
    each = peak / limits.multiprocessors
    rows, columns = (np.array(TILES, np.float64).T)[:, :, None]
    side = rows * columns / (rows + columns)
    rate = each * side / (side + HALF_RATE_SIDE)
    tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
    compute = np.full(len(m), np.inf)
    for split in SPLITS:
        waves = np.ceil(tiles * split / limits.multiprocessors)
        seconds = (waves * 2.0 * rows * columns * np.ceil(k / split / 32) * 32 / rate).min(axis=0)
        if split > 1:
            # Partial sums are written and read again in 4 bytes.
            seconds += 4.0 * batch * m * n * split / limits.memory
            seconds = np.where(k >= split * LEAST_DEPTH, seconds, np.inf)
        compute = np.minimum(compute, seconds)
    moved = batch * (m * n + m * k + n * k) * element_bytes / limits.memory
    together: FloatArray = (compute**NORM + moved**NORM) ** (1 / NORM)
    return together + EDGE_CYCLES / limits.clock_hz


def product_seconds(sides: Sequence[FloatArray], pipeline: str, limits: Limits) -> FloatArray | None:
    """Seconds of products as `gemm_seconds` has them, and as much longer as those measured on that GPU took; shape (rows,).

    None where the GPU's rate of `pipeline` is not known.
    """
    peak = limits.peak(pipeline)
    if not peak:
        return None
    return gemm_seconds(sides, peak, limits) * _measured(sides, pipeline, peak, limits)


def _measured(sides: Sequence[FloatArray], pipeline: str, peak: float, limits: Limits) -> FloatArray | float:
    """How much longer than modelled measured products took, by the operations of each product in `sides`."""
    found = {}
    for one in sorted(limits.products, key=lambda one: one.flops):
        if pipeline_of(one.type) == pipeline:
            like = [np.array([side], np.float64) for side in (1, one.m, one.n, one.k, sides[-1][0])]
            found[np.log(one.flops)] = np.log(one.seconds / gemm_seconds(like, peak, limits)[0])
    if not found:
        return 1.0
    batch, m, n, k, _ = sides
    return np.asarray(np.exp(np.interp(np.log(2 * batch * m * n * k), [*found], [*found.values()])))
