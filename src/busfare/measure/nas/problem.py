"""The sizes of NAS FT and MG, and the fewest bytes that an iteration moves over the link and in GPU memory."""

from __future__ import annotations

from typing import Literal

from busfare.errors import InputError

__all__ = ["CLASSES", "Benchmark", "kernel_bytes", "link_bytes", "mg_kernels", "points"]

Benchmark = Literal["ft", "mg"]

#: Extents of FT's grid, and points an axis of MG's [NPB 3.4].
_FT = {
    "S": (64, 64, 64), "W": (128, 128, 32), "A": (256, 256, 128), "B": (512, 256, 256), "C": (512, 512, 512),
    "D": (2048, 1024, 1024),
}  # fmt: skip
_MG = {"S": 32, "W": 128, "A": 256, "B": 256, "C": 512, "D": 1024}
CLASSES = tuple(_FT)

_COMPLEX_BYTES, _DOUBLE_BYTES = 16, 8
#: Times that an FT iteration reads or writes the grid in GPU memory: evolve 2, the planes' transform 4 (two passes),
#: the lines' transform 2; and 2 more for the transpose where it passes inside that memory.
_FT_PASSES, _FT_TRANSPOSE_PASSES = 8, 2
#: Times that MG reads or writes the points of a level, a coarse grid's being an eighth: at the top level rprj3, interp
#: with resid (r in and out; the correction is not stored), interp with psinv (r, u in and out) and the iteration's last
#: resid; below it the same without u's reading and without that resid. However they were run: the limit is the problem's.
_MG_TOP, _MG_BELOW = 1.125 + 2.125 + 3.125 + 3, 1.125 + 2.125 + 2.125
#: Points of all levels below the top, over those of the top: 1/8 + 1/64 + …
_MG_LEVELS_BELOW = 1 / 7


def points(benchmark: Benchmark, size: str) -> int:
    """Points of the finest grid. Raises InputError for a class that is not one of `CLASSES`."""
    if size not in _FT:
        raise InputError(f"--class {size[:20]!r}: give one of {', '.join(CLASSES)}")
    if benchmark == "mg":
        return _MG[size] ** 3
    x, y, z = _FT[size]
    return x * y * z


def link_bytes(benchmark: Benchmark, size: str, inside_gpu: bool) -> float:
    """Bytes that an iteration moves over the link each way, of the whole grid: FT's grid once where the transpose stays
    inside the GPU's memory, else twice; none of MG's, whose grids live there.
    """
    if benchmark == "mg":
        return 0.0
    return (1 if inside_gpu else 2) * _COMPLEX_BYTES * float(points(benchmark, size))


#: MG's kernels by the names under which `device_limits` times them: of every level that is cut among ranks, of the finest
#: and of the coarser ones; and of the levels from 16 points an axis on down, together.
_MG_EVERY, _MG_FINEST = ("mg_rprj3", "mg_correct_residual"), ("mg_correct_and_smooth", "mg_resid")
_MG_COARSER, _MG_REST = ("mg_correct_and_smooth_replace",), "mg_solve_coarse_16"
_MG_REST_POINTS = 16


def mg_kernels(size: str) -> list[tuple[int, str]]:
    """The kernels of an iteration of MG, each by the points an axis of its level and by name."""
    finest = _MG[size]
    if finest <= _MG_REST_POINTS:
        return [(_MG_REST_POINTS, _MG_REST)]
    kernels = [(finest, name) for name in (*_MG_EVERY, *_MG_FINEST)]
    level = finest // 2
    while level > _MG_REST_POINTS:
        kernels += [(level, name) for name in (*_MG_EVERY, *_MG_COARSER)]
        level //= 2
    return [*kernels, (_MG_REST_POINTS, _MG_REST)]


def kernel_bytes(benchmark: Benchmark, size: str, inside_gpu: bool) -> float:
    """The fewest bytes that an iteration's kernels read and write in GPU memory, every array once a kernel."""
    grid = float(points(benchmark, size))
    if benchmark == "mg":
        return _DOUBLE_BYTES * grid * (_MG_TOP + _MG_LEVELS_BELOW * _MG_BELOW)
    return _COMPLEX_BYTES * grid * (_FT_PASSES + (_FT_TRANSPOSE_PASSES if inside_gpu else 0))
