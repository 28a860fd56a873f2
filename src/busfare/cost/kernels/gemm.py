"""The time of a product of matrices by its shape: tiles in waves over the multiprocessors, against the bytes moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from busfare.cost.kernels.classes import type_named
from busfare.cost.kernels.limits import Limits, pipeline_of
from busfare.nodes import FloatArray, Gemm

__all__ = ["gemm_seconds", "product_seconds"]

Tiles = tuple[tuple[int, int], ...]

#: Sides of a block's tile that libraries choose from, and into how many parts they cut the sum [NeuSight §4].
TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64),
    (32, 32), (128, 16), (16, 128), (64, 16), (16, 64),
)  # fmt: skip
SPLITS = (1, 2, 4, 8, 16)
LEAST_DEPTH = 128
#: Libraries may use one tile for all products of a batch (cuBLAS does, for fp32 on P4, P100 and A100). It is told from so
#: many measured ones, where their times scatter by less than this share with it (docs/lab/kernels.md).
LEAST_BATCHED = 4
ONE_TILE_SCATTER = 0.7
# The next three were chosen on fp16 operators of six models on A40 and A100: `python validation/kernels.py --constants`.

#: A tile of t × t loads 2/t elements for each product; one whose sides have this harmonic mean reaches half of the rate.
HALF_RATE_SIDE = 5.0
#: Compute and copies of a block overlap, but not wholly: the norm by which their times add.
NORM = 2.6
#: What a wave takes to begin and to end, in cycles: fetching the first tiles, writing the last.
EDGE_CYCLES = 4400.0
#: Logarithms of sides over which what products take beyond the model stays alike, and by how much (the logarithm) two of the
#: same sides differ still: chosen on fp16 operators of those models between A40 and A100.
ALIKE_SIDES = 3.0
APART = 0.1
#: Libraries' products of bf16 take what those of fp16 do, within 1 % on an H100 and an H200.
ALIKE_PIPELINES = {"bf16_tensor": "fp16_tensor"}


def gemm_seconds(
    sides: Sequence[FloatArray], peak: float, limits: Limits, tiles: Tiles = TILES
) -> FloatArray:
    """Seconds of products m × k by k × n at `peak` operations a second; shape (rows,).

    `sides`: how many of them a call makes, m, n, k and the bytes of an element, each of shape (rows,). Each by that of
    `tiles` with which it takes least.
    """
    batch, m, n, k, element_bytes = sides
    each = peak / limits.multiprocessors
    rows, columns = (np.array(tiles, np.float64).T)[:, :, None]
    side = rows * columns / (rows + columns)
    rate = each * side / (side + HALF_RATE_SIDE)
    blocks = batch * np.ceil(m / rows) * np.ceil(n / columns)
    compute = np.full(len(m), np.inf)
    for split in SPLITS:
        waves = np.ceil(blocks * split / limits.multiprocessors)
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
    """Seconds of products beyond what an empty kernel takes, shape (rows,): as modelled, and longer as measured ones are.

    None where the GPU's rate of `pipeline` is not known.
    """
    peak = limits.peak(pipeline)
    if not peak:
        return None
    tiles = _batched_tiles(pipeline, peak, limits)
    seconds = _modelled(sides, peak, limits, tiles)
    return seconds * _measured(sides, pipeline, peak, limits, tiles) - limits.least_s


def _modelled(sides: Sequence[FloatArray], peak: float, limits: Limits, batched: Tiles) -> FloatArray:
    """Seconds of products with their launch; `batched`: the tiles of those that are several."""
    seconds = gemm_seconds(sides, peak, limits)
    if batched is not TILES:
        seconds = np.where(sides[0] > 1, gemm_seconds(sides, peak, limits, batched), seconds)
    return limits.least_s + seconds


def _batched_tiles(pipeline: str, peak: float, limits: Limits) -> Tiles:
    """The tiles of which a library takes the best for products of a batch: all, or the one that measured ones tell."""
    products, sides, seconds = _products(pipeline, limits)
    some = np.array([one.batch > 1 for one in products], bool)
    if some.sum() < LEAST_BATCHED:
        return TILES
    sides = [column[some] for column in sides]

    def scatter(tiles: Tiles) -> float:
        modelled = limits.least_s + gemm_seconds(sides, peak, limits, tiles)
        return float(np.log(seconds[some] / modelled).std())

    one = min(((tile,) for tile in TILES), key=scatter)
    return one if scatter(one) < ONE_TILE_SCATTER * scatter(TILES) else TILES


def _products(pipeline: str, limits: Limits) -> tuple[list[Gemm], list[FloatArray], FloatArray]:
    """The measured products of a pipeline, their batch, m, n, k and bytes of an element, and seconds; shape (products,)."""
    pipeline = ALIKE_PIPELINES.get(pipeline, pipeline)
    products = [one for one in limits.products if pipeline_of(one.type) == pipeline]
    typed = [type_named(one.type, "gemm") for one in products]
    widths = [width for _, width in filter(None, typed)]
    rows = [
        (one.batch, one.m, one.n, one.k, width, one.seconds)
        for one, width in zip(products, widths, strict=True)
    ]
    *sides, seconds = np.array(rows, np.float64).reshape(-1, 6).T
    return products, sides, seconds


def _measured(
    sides: Sequence[FloatArray], pipeline: str, peak: float, limits: Limits, tiles: Tiles
) -> FloatArray | float:
    """How much longer than modelled products like those of `sides` took: as measured ones did in the mean, and beyond it as
    those of like sides (a Gaussian process of logarithms [Rasmussen and Williams, Gaussian Processes for ML, eq. 2.25]).
    """
    products, measured, seconds = _products(pipeline, limits)
    if not products:
        return 1.0
    modelled = _modelled(measured, peak, limits, tiles)
    longer = np.log(seconds / modelled)
    mean, varied = longer.mean(), max(float(longer.var()), 1e-6)
    own, other = np.log(measured[:4]).T, np.log(np.array(sides[:4])).T
    among = _alike(own, own) + APART**2 / varied * np.eye(len(products))
    return np.asarray(np.exp(mean + _alike(other, own) @ np.linalg.solve(among, longer - mean)))


def _alike(some: FloatArray, others: FloatArray) -> FloatArray:
    """How alike two products are by the distance of their sides' logarithms: 1 to 0, shape (some, others)."""
    squares = ((some[:, None] - others[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-squares / (2 * ALIKE_SIDES**2)))
