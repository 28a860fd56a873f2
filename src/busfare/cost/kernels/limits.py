"""What bounds kernels on a GPU: rates of its memory, caches and pipelines, as measured there or from its data sheet; and the
time of a product of matrices by its shape: tiles in waves over the multiprocessors, against the bytes moved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from busfare.cost.kernels.classes import type_named
from busfare.errors import InputError
from busfare.nodes import FloatArray, Gemm, Node, gpus
from busfare.nodes.component import Pass, Stream

#: Bytes that one multiprocessor takes from L2 in a cycle: the width of its port [CUDA C++ Best Practices Guide].
L2_PORT_BYTES = 64
#: What the largest dense products reach of a pipeline's peak, on every GPU alike (docs/kernels.md).
SHARE_OF_PEAK = 0.83
Tiles = tuple[tuple[int, int], ...]

#: Sides of a block's tile that libraries choose from, and into how many parts they cut the sum [NeuSight §4].
TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64),
    (32, 32), (128, 16), (16, 128), (64, 16), (16, 64),
)  # fmt: skip
SPLITS = (1, 2, 4, 8, 16)
#: Steps of a tile along the sum.
TILE_DEPTH = 32
#: Libraries may use one tile for all products of a batch (cuBLAS does, for fp32 on P4, P100 and A100). Measured ones show it
#: where their times scatter by less than this share with it (docs/lab/kernels.md).
SHARED_TILE_SCATTER = 0.7
#: A tile of t × t loads 2/t elements for each product; with sides of this harmonic mean it runs at half of the rate. Chosen,
#: as the next, on fp16 operators of six models on A40 and A100: `python validation/kernels.py --constants`.
HALF_RATE_SIDE = 5.0
#: What a wave takes to begin and to end, in cycles: fetching the first tiles, writing the last.
EDGE_CYCLES = 4400.0
#: The power p by which parts of a kernel overlap: their times add up as (Σ tᵢᵖ)^(1/p).
OVERLAP = 2.0
#: Logarithms of sides over which what products take beyond the model stays alike, and by how much (the logarithm) two of the
#: same sides differ still: chosen on fp16 operators of those models between A40 and A100.
ALIKE_SIDES = 3.0
APART = 0.1
#: Libraries' products of bf16 take what those of fp16 do, within 1 % on an H100 and an H200.
ALIKE_PIPELINES = {"bf16_tensor": "fp16_tensor"}


@dataclass(frozen=True)
class Limits:
    """A GPU's rates that kernels can reach: bytes and operations a second.

    `rung`: `probed` where the node's own kernels were measured, else `class`. `peaks` by pipeline (`fp16_tensor`).
    `memory_peak`: of the data sheet. `launch_s`: of an empty kernel; None where nobody measured it. `products`: of matrices,
    measured. `passes`: by class, the bytes and seconds of kernels that move each byte once, measured, by size.
    """

    rung: str
    vendor: str
    generation: str
    multiprocessors: float
    clock_hz: float
    memory: float
    memory_peak: float
    l2_bytes: float
    l2: float
    launch_s: float | None
    peaks: dict[str, float]
    products: tuple[Gemm, ...] = ()
    passes: dict[str, "Passes"] = field(default_factory=dict)

    @property
    def least_s(self) -> float:
        """What an empty kernel takes, or may where nobody measured it, s."""
        return self.launch_s or gpus.typical_launch_seconds()

    @property
    def threads(self) -> int:
        """The most threads that a multiprocessor holds [CUDA C++ Programming Guide, compute capabilities]."""
        return _THREADS.get(self.generation, 2048)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a multiprocessor [CUDA C++ Programming Guide, compute capabilities]."""
        return _SHARED_KIB.get(self.generation, 64) << 10

    @property
    def units(self) -> float:
        """What kernels without another limit go by: multiprocessors, clock, and half (its logarithm) of their threads, for
        some are bound by the instructions that they issue and some by the loads that they have in flight.
        """
        return self.multiprocessors * self.clock_hz * math.sqrt(self.threads)

    def peak(self, pipeline: str) -> float | None:
        """Operations a second of a pipeline; of one that the GPU lacks, of that which runs such numbers there."""
        plain = pipeline.removesuffix("_tensor")
        keys = [pipeline, plain]
        if pipeline == plain or f"{plain}_tensor" not in _SINCE:
            keys.append(f"{plain}_tensor")
        elif self.vendor == "nvidia" and float(self.generation or 0) < _SINCE[pipeline]:
            keys.append("fp32")
        return next((self.peaks[key] for key in keys if key in self.peaks), None)


_THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536}
_SHARED_KIB = {
    "6.0": 64, "6.1": 96, "7.0": 96, "7.5": 64, "8.0": 164, "8.6": 100, "8.7": 164, "8.9": 100, "9.0": 228, "10.0": 228,
    "12.0": 100, "3.5": 48, "3.7": 112, "5.2": 96,
}  # fmt: skip
#: Tensor pipelines and the first compute capability that has them; before it, fp32's does their work.
_SINCE = {"fp16_tensor": 7.0, "tf32_tensor": 8.0, "bf16_tensor": 8.0}


def limits_of(node: Node, measured: bool = True) -> Limits:
    """The limits of the first GPU of `node`; with `measured` False, of its data sheet whatever was measured. Raises
    InputError, which says what is missing, where they are not known.
    """
    gpu = node.gpu(0)
    # A node file need not repeat a data sheet: the table knows GPUs by the names that drivers give them.
    sheet = next(
        (row for row in gpus.gpus().values() if row.node == node.name), None
    ) or gpus.gpu_of_device_name(gpu.title, gpus.Recorded(multiprocessors=gpu.multiprocessors))
    probed = node.probed_kernels() if measured else None
    memory = gpu.memory_bandwidth_bytes_per_s or (sheet and sheet.memory_bandwidth_bytes_per_s)
    units = gpu.multiprocessors or (sheet and sheet.multiprocessors)
    clock = gpu.clock_hz or (sheet and (sheet.clock_hz or gpus.clock_by_peak(sheet)))
    capability = gpu.compute_capability or (sheet.compute_capability if sheet else "")
    needed = {"memory_bandwidth_bytes_per_s": memory, "multiprocessors": units, "clock_hz": clock}
    if not memory or not units or not clock:
        missing = [name for name, value in needed.items() if not value]
        like = sheet and gpus.machine_like(sheet)
        raise InputError(
            f"{node.name}: its GPU's {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; "
            f"{f'name a similar node instead, such as {like}, or ' * bool(like)}add them to project kernels"
        )
    peaks = {kind: SHARE_OF_PEAK * rate for kind, rate in (sheet.peaks if sheet else {}).items()}
    if not peaks and gpu.flops_per_s:
        peaks = {"fp32": SHARE_OF_PEAK * gpu.flops_per_s}
    name = sheet.name if sheet else ""
    share, l2, launch = gpus.measured_rates(name, capability)
    streamed = memory * share
    if probed is not None:
        streams = probed.memory_bytes_per_s
        kinds: tuple[Stream, ...] = ("triad", "copy", "write", "read")
        streamed = next((streams[kind] for kind in kinds if kind in streams), streamed)
        l2, launch = probed.l2_bytes_per_s or l2, probed.launch_s
        peaks |= {str(kind): rate for kind, rate in probed.flops_per_s.items()}
        for kind in {gemm.type for gemm in probed.gemm}:
            largest = max((gemm for gemm in probed.gemm if gemm.type == kind), key=lambda gemm: gemm.flops)
            peaks[pipeline_of(kind)] = largest.flops / largest.seconds / float(tile_share(*TILES[0]))
    return Limits(
        rung="probed" if probed is not None else "class",
        vendor="amd" if capability.startswith("gfx") else "nvidia",
        generation=capability,
        multiprocessors=float(units),
        clock_hz=float(clock),
        memory=streamed,
        memory_peak=float(memory),
        l2_bytes=float((sheet and sheet.l2_bytes) or 4 << 20),
        l2=l2 or L2_PORT_BYTES * units * clock / 2,
        launch_s=launch,
        peaks=peaks,
        products=probed.gemm if probed else (),
        passes=_passes(probed.passes) if probed else {},
    )


class Passes(NamedTuple):
    """What kernels of a class take by the bytes that they move, each once; shape (sizes,) both, rising."""

    sizes: FloatArray
    took: FloatArray

    def seconds(self, bytes_: FloatArray) -> FloatArray:
        """What so many bytes take: between sizes on a line; before the first as the first, beyond the last in proportion."""
        return np.asarray(np.interp(bytes_, self.sizes, self.took) * np.maximum(bytes_ / self.sizes[-1], 1))


def _passes(measured: Sequence[Pass]) -> dict[str, Passes]:
    """Of each class that was measured at several sizes."""
    result = {}
    for kind in dict.fromkeys(row.kind for row in measured):
        points = sorted((row.bytes, row.seconds) for row in measured if row.kind == kind)
        sizes, seconds = np.array(points, np.float64).T
        if len(points) > 1:
            # More bytes take no less: midway between the least and the most that rises.
            most, least = np.maximum.accumulate(seconds), np.minimum.accumulate(seconds[::-1])[::-1]
            result[str(kind)] = Passes(sizes, (most + least) / 2)
    return result


def pipeline_of(kind: str) -> str:
    """The pipeline on which libraries multiply matrices of numbers of that type."""
    return kind if kind in ("fp32", "fp64") else f"{kind}_tensor"


def tile_share(rows: ArrayLike, columns: ArrayLike) -> FloatArray:
    """The share of a pipeline's rate that tiles of so many rows and columns reach: t / (t + 5), t = r·c / (r + c)."""
    side = np.multiply(rows, columns) / np.add(rows, columns)
    return np.asarray(side / (side + HALF_RATE_SIDE))


def gemm_seconds(
    sides: Sequence[FloatArray], peak: float, limits: Limits, tiles: Tiles = TILES
) -> FloatArray:
    """Seconds of products m × k by k × n at `peak` operations a second; shape (rows,). `sides`: how many of them a call
    makes, m, n, k and the bytes of an element, each of shape (rows,). Each by that of `tiles` with which it takes least.
    """
    batch, m, n, k, element_bytes = sides
    unit_peak = peak / limits.multiprocessors
    rows, columns = (np.array(tiles, np.float64).T)[:, :, None]
    rate = unit_peak * tile_share(rows, columns)
    blocks = batch * np.ceil(m / rows) * np.ceil(n / columns)
    compute = np.full(len(m), np.inf)
    for split in SPLITS:
        waves = np.ceil(blocks * split / limits.multiprocessors)
        depth = np.ceil(k / split / TILE_DEPTH) * TILE_DEPTH
        seconds = (waves * 2.0 * rows * columns * depth / rate).min(axis=0)
        if split > 1:
            # Partial sums are written and read again in 4 bytes.
            seconds += 4.0 * batch * m * n * split / limits.memory
            seconds = np.where(k >= split * TILE_DEPTH, seconds, np.inf)
        compute = np.minimum(compute, seconds)
    moved = batch * (m * n + m * k + n * k) * element_bytes / limits.memory
    together: FloatArray = (compute**OVERLAP + moved**OVERLAP) ** (1 / OVERLAP)
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
    some = np.array([product.batch > 1 for product in products], bool)
    if some.sum() < 2:
        return TILES
    sides = [column[some] for column in sides]

    def scatter(tiles: Tiles) -> float:
        modelled = limits.least_s + gemm_seconds(sides, peak, limits, tiles)
        return float(np.log(seconds[some] / modelled).std())

    shared_tile = min(((tile,) for tile in TILES), key=scatter)
    return shared_tile if scatter(shared_tile) < SHARED_TILE_SCATTER * scatter(TILES) else TILES


def _products(pipeline: str, limits: Limits) -> tuple[list[Gemm], list[FloatArray], FloatArray]:
    """The measured products of a pipeline, their batch, m, n, k and bytes of an element, and seconds; shape (products,)."""
    pipeline = ALIKE_PIPELINES.get(pipeline, pipeline)
    products = [product for product in limits.products if pipeline_of(product.type) == pipeline]
    typed = [type_named(product.type, "gemm") for product in products]
    widths = [width for _, width in filter(None, typed)]
    rows = [
        (product.batch, product.m, product.n, product.k, width, product.seconds)
        for product, width in zip(products, widths, strict=True)
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
    sampled, wanted = np.log(measured[:4]).T, np.log(np.array(sides[:4])).T
    among = _alike(sampled, sampled) + APART**2 / varied * np.eye(len(products))
    return np.asarray(np.exp(mean + _alike(wanted, sampled) @ np.linalg.solve(among, longer - mean)))


def _alike(left: FloatArray, right: FloatArray) -> FloatArray:
    """How alike two products are by the distance of their sides' logarithms: 1 to 0, shape (some, others)."""
    squares = ((left[:, None] - right[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-squares / (2 * ALIKE_SIDES**2)))
