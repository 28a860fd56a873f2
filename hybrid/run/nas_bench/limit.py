"""What an iteration takes at least: the link both ways or the kernels in GPU memory, whichever is slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nas_bench.errors import UsageError

#: Extents of FT's grid, and points an axis of MG's [NPB 3.4].
FT = {
    "S": (64, 64, 64),
    "W": (128, 128, 32),
    "A": (256, 256, 128),
    "B": (512, 256, 256),
    "C": (512, 512, 512),
    "D": (2048, 1024, 1024),
    "E": (4096, 2048, 2048),
}
MG = {"S": 32, "W": 128, "A": 256, "B": 256, "C": 512, "D": 1024, "E": 2048}
CLASSES = tuple(FT)
COMPLEX_BYTES, DOUBLE_BYTES = 16, 8
#: Times that an FT iteration reads or writes the grid in GPU memory: evolve 2, the planes' transform 4 (two passes),
#: the lines' transform 2; and 2 more for the transpose where it passes inside that memory.
FT_PASSES, FT_TRANSPOSE_PASSES = 8, 2
#: Times that MG reads or writes the points of a level, a coarse grid's being an eighth: at the top level rprj3, interp
#: with resid (r in and out; the correction is not stored), interp with psinv (r, u in and out) and the iteration's last
#: resid; below it the same without u's reading and without that resid. However they were run: the limit is the problem's.
MG_TOP, MG_BELOW = 1.125 + 2.125 + 3.125 + 3, 1.125 + 2.125 + 2.125
#: Points of all levels below the top, over those of the top: 1/8 + 1/64 + …
MG_LEVELS_BELOW = 1 / 7
#: MG's kernels as `device_limits` names them: of every level that is cut among ranks, of the finest and of the coarser
#: ones; and of the levels from 16 points an axis on down, together.
MG_EVERY, MG_FINEST = ("mg_rprj3", "mg_correct_residual"), ("mg_correct_and_smooth", "mg_resid")
MG_COARSER, MG_REST, MG_REST_POINTS = ("mg_correct_and_smooth_replace",), "mg_solve_coarse_16", 16


@dataclass(frozen=True)
class Rates:
    """Bytes per second of the link each way while both are busy, and of copies inside GPU memory (reads and writes
    counted); where the figures are from; and what MG's kernels took alone, by the points an axis of their level and name.
    `at_once`: a number of GPUs and the rate each way of each of them, all copying at once.
    """

    duplex_bytes_per_s: float
    memory_bytes_per_s: float
    source: str
    mg_kernel_seconds: Mapping[tuple[int, str], float] = field(default_factory=dict)
    at_once: tuple[int, float] | None = None

    def of_link(self, gpus: int) -> float:
        """The rate of a GPU's link each way while so many GPUs copy."""
        return self.at_once[1] if self.at_once and self.at_once[0] == gpus else self.duplex_bytes_per_s

    def row(self) -> dict[str, Any]:
        return {
            "each_way_bytes_per_second": self.duplex_bytes_per_s,
            "memory_bytes_per_second": self.memory_bytes_per_s,
            "all_gpus": (
                {"gpus": self.at_once[0], "each_way_bytes_per_second": self.at_once[1]}
                if self.at_once
                else None
            ),
            "source": self.source,
        }

    def with_measured_link(self, link: Sequence[float], gpus: int) -> Rates:
        """The same with the link as it was just before and after a run of `gpus` GPUs (bytes per second each way): the
        mean.
        """
        source = f"{self.source}; the link just before and after the run"
        mean = sum(link) / len(link)
        if self.at_once and self.at_once[0] == gpus:
            return replace(self, at_once=(gpus, mean), source=source)
        return replace(self, duplex_bytes_per_s=mean, source=source)


def duplex_rate(limits: dict[str, Any], gpus: int = 1) -> float:
    """The best rate that both directions reached together in what `device_limits` measured, bytes per second each way: of
    one GPU's link alone; of each of `gpus` where so many copied at once.
    """
    at_once = _at_once(limits)
    if at_once and at_once[0] == gpus:
        return at_once[1]
    return max(float(row["each_way_together_bytes_per_second"]) for row in limits["both_directions"])


def _at_once(limits: dict[str, Any]) -> tuple[int, float] | None:
    row = limits.get("all_at_once")
    return (int(row["gpus"]), float(row["each_way_together_bytes_per_second"])) if row else None


def rates_of_limits(limits: dict[str, Any], source: str) -> Rates:
    """The rates in what `device_limits` measured. Raises UsageError where it is no such result."""
    try:
        memory = float(limits["device_copy_bytes_per_second"])
        alone = {
            # The levels below are one kernel whatever the grid that it was timed beside.
            (MG_REST_POINTS if row["name"] == MG_REST else int(table[3:]), str(row["name"])): float(
                row["seconds"]
            )
            for table, rows in limits.items()
            if table.startswith("mg_")
            for row in rows
        }
        rates = Rates(duplex_rate(limits), memory, source, alone, _at_once(limits))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{source}: no result of device_limits ({type(error).__name__}: {error}); run it again"
        ) from None
    if not (rates.duplex_bytes_per_s > 0 and memory > 0 and (rates.at_once is None or rates.at_once[1] > 0)):
        raise UsageError(f"{source}: a rate of 0; run device_limits again")
    return rates


def points(benchmark: str, size: str) -> int:
    """Points of the finest grid. Raises UsageError for a class that is not one of CLASSES."""
    if size not in FT:
        raise UsageError(f"--class {size[:20]!r}: give one of {', '.join(CLASSES)}")
    if benchmark == "mg":
        return int(MG[size] ** 3)
    x, y, z = FT[size]
    return x * y * z


def link_bytes(benchmark: str, size: str, inside_gpu: bool) -> float:
    """Bytes that an iteration moves over the link each way: FT's grid once where the transpose stays inside the GPU's
    memory, else twice; none of MG's, whose grids live there.
    """
    return 0.0 if benchmark == "mg" else (1 if inside_gpu else 2) * COMPLEX_BYTES * points(benchmark, size)


def kernel_bytes(benchmark: str, size: str, inside_gpu: bool) -> float:
    """The fewest bytes that an iteration's kernels read and write in GPU memory, every array once a kernel."""
    grid = points(benchmark, size)
    if benchmark == "mg":
        return DOUBLE_BYTES * grid * (MG_TOP + MG_LEVELS_BELOW * MG_BELOW)
    return COMPLEX_BYTES * grid * (FT_PASSES + (FT_TRANSPOSE_PASSES if inside_gpu else 0))


def mg_kernels(size: str) -> list[tuple[int, str]]:
    """The kernels of an iteration of MG, each by the points an axis of its level and by name."""
    kernels, level = [], MG[size]
    while level > MG_REST_POINTS:
        kernels_of_level = MG_FINEST if level == MG[size] else MG_COARSER
        kernels += [(level, name) for name in (*MG_EVERY, *kernels_of_level)]
        level //= 2
    return [*kernels, (MG_REST_POINTS, MG_REST)]


def limit_of(benchmark: str, size: str, rates: Rates, gpus: int, inside_gpu: bool) -> dict[str, Any]:
    """The predicted limit of an iteration spread evenly over `gpus` GPUs, each on a link of its own: as fast as while all of
    them copy, where that was measured.

    `predicted_seconds` takes the kernels by the bytes that they move at least; `predicted_alone_seconds` by what each
    took when it was measured alone (None: not measured, or FT, whose limit is the link).
    """
    link = link_bytes(benchmark, size, inside_gpu) / rates.of_link(gpus) / gpus
    kernels = kernel_bytes(benchmark, size, inside_gpu) / rates.memory_bytes_per_s / gpus
    wanted = mg_kernels(size) if benchmark == "mg" else []
    alone = None
    if wanted and all(kernel in rates.mg_kernel_seconds for kernel in wanted):
        alone = max(link, sum(rates.mg_kernel_seconds[kernel] for kernel in wanted) / gpus)
    return {
        "predicted_seconds": max(link, kernels),
        "by": "link" if link >= kernels else "kernels",
        "predicted_link_seconds": link,
        "predicted_kernel_seconds": kernels,
        "predicted_alone_seconds": alone,
    }
