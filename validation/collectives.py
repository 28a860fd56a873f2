"""Collectives against published times: `python validation/collectives.py`; files of the folder that BUSFARE_SHARED names.

vTrain's all-reduces (nccl-tests, 2 to 8 A100), Vidur's all-reduces and sends (A100 and A40, least of its repeats), Azure's
bus bandwidth (A100; H100 and H200 with NVLS), by NCCL's model from the node alone; H100 without NVLS at 1 GiB. Two
constants (`cost/collectives.py`) were chosen on vTrain's tables of 5 to 8 GPUs, marked `seen`, on Azure's of H100 and
H200, and on 4 and 8 H100; the other tables were seen before the form was settled. Then lines fitted to every other size of a
table, judged on the rest. Medians and 90th percentiles of the error in percent.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
from claims import Truth, goal, judge, table
from published import SHARED
from stored import read_table

from busfare.cost.collectives import Fabric, bus_factor, fit_collectives, held_with, price_collectives
from busfare.nodes import FloatArray, load_node
from busfare.nodes.file import decode

MIB, GIB = 2**20, 2**30
#: Percent: medians of NCCL's model and of fitted lines from 1 MiB to 1 GiB, and H100s at 1 GiB.
MODELLED, FITTED, H100 = 6.0, 2.0, 8.0
#: GB/s on the bus at 1 GiB, NVLS off, by GPUs (NVIDIA and users of nccl-tests).
H100_BUS = {2: 329, 4: 355, 8: 361}
#: Sizes of a table that are judged.
EVEN = 60
#: Four PCIe boards of which two and two are bridged, as Vidur's machines are.
BRIDGED = """name = "bridged"
component = [
  {{ kind = "memory", name = "memory0" }}, {{ kind = "cpu", name = "cpu0", title = "AMD EPYC" }},
  {{ kind = "gpu", name = "gpu[0-3]", compute_capability = "{0}" }},
]
link = [
  {{ kind = "memory", between = ["memory0", "cpu0"] }},
  {{ kind = "pcie", between = ["cpu0", "gpu[0-3]"], generation = 4, lanes = 16 }},
  {{ kind = "nvlink", between = ["gpu0", "gpu1"], generation = 3, links = {1} }},
  {{ kind = "nvlink", between = ["gpu2", "gpu3"], generation = 3, links = {1} }},
]
"""


@dataclass
class Table:
    """Times of one collective, ranks and machine; bytes and seconds, shape (sizes,)."""

    name: str
    kind: str
    fabric: Fabric
    sizes: FloatArray
    seconds: FloatArray
    seen: bool = False

    @property
    def modelled(self) -> FloatArray:
        return price_collectives(self.fabric, [self.kind] * len(self.sizes), self.sizes).seconds

    def rows(self, least: float = 0, most: float = np.inf, even: bool = True) -> np.ndarray:
        """Places of the sizes from `least` to `most`; even: so many, evenly in their logarithms."""
        inside = np.flatnonzero((self.sizes >= least) & (self.sizes <= most))
        if not even or len(inside) <= EVEN:
            return inside
        wanted = np.geomspace(self.sizes[inside[0]], self.sizes[inside[-1]], EVEN)
        return np.unique(inside[np.abs(np.log(self.sizes[inside])[:, None] - np.log(wanted)).argmin(0)])


@cache
def tables() -> list[Table]:
    return [*_vtrain(), *_vidur(), *_azure(), *_probed()]


def _probed() -> Iterator[Table]:
    fabric = Fabric.of(load_node("h100-sxm"), 2, nvls=False)
    for run, probed in read_table("collectives").items():
        for kind, points in probed["seconds"].items():
            sizes, seconds = np.array(points).T
            yield Table(f"probe 2 H100, {run}, {kind}", kind, fabric, sizes, seconds, run == "first")


def _vtrain() -> Iterator[Table]:
    for ranks in range(2, 9):
        path = SHARED / f"data/kernels/vtrain-a100_AR_GPU{ranks}_1M_1024M_LUT.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [line.split(",") for line in file.read().split("\n")[1:] if line]
        fabric = Fabric.of(load_node("dgx-a100"), ranks)
        sizes, taken = np.array([[float(row[0]), float(row[3]) * 1e-9] for row in lines]).T
        yield Table(f"vTrain {ranks} A100", "all_reduce", fabric, sizes, taken, ranks >= 5)


def _vidur() -> Iterator[Table]:
    nodes = {"a100_dgx": load_node("dgx-a100")}
    nodes |= {
        f"{gpu}_pairwise_nvlink": decode(BRIDGED.format(*what), gpu)
        for gpu, what in {"a100": ("8.0", 12), "a40": ("8.6", 4)}.items()
    }
    for path in sorted((SHARED / "data/kernels").glob("vidur-*_*-*.parquet")):
        machine, kind = path.stem.removeprefix("vidur-").split("-")
        least = pl.col(f"time_stats.{kind}.min")
        rows = (
            pl.read_parquet(path).group_by("num_workers", "devices_per_node", "size").agg(least.min() * 1e-3)
        )
        for (ranks, per_node), points in rows.sort("size").group_by("num_workers", "devices_per_node"):
            gpu, wiring = machine.split("_", 1)[0].upper(), machine.split("_")[1]
            named = f"Vidur {ranks} {gpu}, {ranks // per_node} × {wiring}, {kind}"
            fabric = Fabric.of(nodes[machine], ranks, ranks // per_node)
            what = "send_receive" if kind == "send_recv" else kind
            columns = (points[c].to_numpy().astype(float) for c in ("size", least.meta.output_name()))
            yield Table(named, what, fabric, *columns)


def _azure() -> Iterator[Table]:
    for file, node in (("A100_v4", "dgx-a100"), ("H100_v5", "h100-sxm"), ("H200_v5", "h200-sxm")):
        text = (SHARED / f"data/kernels/azure/ND_{file}.md").read_text("utf-8")
        lines = re.findall(r"\| (\d+)([KMG]) +\| +([\d.]+) +\|", text.partition("## NCCL")[2])
        # It writes powers of two in thousands: 132K, 33M.
        octaves = [round(np.log2(float(n) * 2 ** {"K": 10, "M": 20, "G": 30}[unit])) for n, unit, _ in lines]
        sizes = 2.0 ** np.array(octaves)
        bus = np.array([float(rate) * 1e9 for *_, rate in lines])
        fabric = Fabric.of(load_node(node), 8, nvls=not node.endswith("a100"))
        yield Table(
            f"Azure 8 {file[:4]}", "all_reduce", fabric, sizes, sizes * bus_factor("all_reduce", 8) / bus
        )


def off(predicted: FloatArray, actual: FloatArray) -> tuple[float, float]:
    errors = 100 * np.abs(predicted / actual - 1)
    return float(np.median(errors)), float(np.quantile(errors, 0.9))


def truths() -> Iterator[Truth]:
    """For the ranges, by table: NCCL's model, and lines fitted to the other sizes."""
    for measured in tables():
        rows = measured.rows()
        what = held_with(measured.fabric, measured.kind)
        for size, predicted, actual in zip(
            measured.sizes[rows], measured.modelled[rows], measured.seconds[rows], strict=True
        ):
            yield Truth("datasheet", "nccl", what, int(size), measured.name, predicted, actual)
        if len(measured.sizes) > EVEN:
            fitted = fit_collectives(measured.sizes[::2], measured.seconds[::2])
            for size, actual in zip(measured.sizes[1::2][::9], measured.seconds[1::2][::9], strict=True):
                predicted = float(fitted(np.array([size]))[0])
                yield Truth("probed", "fitted", "collective", int(size), measured.name, predicted, actual)


def main() -> None:
    rows, missed = [], 0
    for measured in tables():
        predicted = measured.modelled
        parts = [measured.rows(), measured.rows(MIB, GIB), measured.rows(MIB, GIB, even=False)]
        shown = [off(predicted[places], measured.seconds[places]) for places in parts]
        fitted = fit_collectives(measured.sizes[::2], measured.seconds[::2])(measured.sizes)
        odd = parts[2][parts[2] % 2 == 1]
        shown.append(off(fitted[odd], measured.seconds[odd]))
        good = not measured.name.startswith("vTrain") or (shown[2][0] <= MODELLED and shown[3][0] <= FITTED)
        missed += not good
        remark = " ".join(["seen"] * measured.seen + ["MISSED"] * (not good))
        rows.append((measured.name, *(figure for errors in shown for figure in errors), remark))
    parts = ("all sizes, evenly in octaves", "1 MiB to 1 GiB so", "as the table has them", "fitted, so")
    table("median, 90th % off|" + "|".join(f"{part}:.1f|:.1f" for part in parts) + "|", rows)
    goal(
        f"vTrain's tables of a median over {MODELLED:g} %, or fitted over {FITTED:g} %", missed, most=0,
        form="d",
    )  # fmt: skip
    swept = [measured for measured in tables() if measured.name.startswith("probe")]
    worst = max(off(e.modelled[e.rows(MIB, GIB)], e.seconds[e.rows(MIB, GIB)])[0] for e in swept)
    goal("two H100s, NVLS off, 1 MiB to 1 GiB, median % off of the worst collective", worst, most=H100)
    for ranks, published in H100_BUS.items():
        fabric = Fabric.of(load_node("h100-sxm"), ranks)
        priced = price_collectives(fabric, ["all_reduce"], np.array([float(GIB)]))
        bus = priced.bus_bytes_per_second[0] / 1e9
        what = f"{ranks} H100, NVLS off, 1 GiB: {bus:.0f} GB/s of {published}, % off"
        goal(what, 100 * (bus / published - 1), least=-H100, most=H100, form="+.1f")


if __name__ == "__main__":
    judge(main)
