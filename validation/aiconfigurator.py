"""Products and collectives on GPUs that nothing was fitted to: `python validation/aiconfigurator.py`.

bf16 products of three inference stacks, and NCCL, as timed in aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0): 400 shapes,
by lot of those that every stack has of A100, H100 and L40S, and all operations and sizes in fp16. The whole data:
`pip download --no-deps aiconfigurator-core==0.12.0`, unzipped; `--extract FOLDER` makes `results/aiconfigurator.tar.xz`.

A100, H100 and L40S are for the ranges (`truths`): products between them and, for GPUs of one generation, what a stack takes
beside another on one GPU; collectives by the constants of their generation, and by those of the other as if nobody had timed
theirs. The other systems are judged. They were looked at once, when the ranges stood.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import polars as pl
from claims import Truth, goal, judge, table
from operators import Case, moved
from stored import RESULTS, pack, unpacked

from busfare.cost.collectives import Fabric, held_with, price_collectives
from busfare.cost.ranges import LONG_COPY_BYTES
from busfare.nodes import FloatArray, load_node

#: The nodes of the systems, and as which generation NCCL's kernels were timed on those with NVLink.
FOR_RANGES = {"a100_sxm": "a100-sxm4-80gb", "h100_sxm": "h100-sxm", "l40s": "l40s"}
JUDGED = {
    "h200_sxm": "h200-sxm", "b200_sxm": "dgx-b200", "gb200": "gb200", "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}  # fmt: skip
NODES = FOR_RANGES | JUDGED
#: Of the same GPU, or of one with less memory, as NVLinks join it.
JOINED = NODES | {"a100_sxm": "dgx-a100"}
TIMED_AS = {"a100_sxm": 1, "h100_sxm": 2}
STACKS = ("sglang", "trtllm", "vllm")
SHAPES, SIDES = 400, ["m", "n", "k"]
#: Percent of times that 80 % ranges should hold.
GOAL = (75.0, 92.0)
HEAD = b"# From aiconfigurator-core 0.12.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES, Apache-2.0\n"
#: Seconds measured, predicted, low and high: shape (times,).
Judged = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def stored(name: str) -> pl.DataFrame:
    """A table of the extract; times in µs."""
    return pl.read_csv(unpacked("aiconfigurator") / "times" / name, comment_prefix="#")


def products(here: str, there: str, stack: str, peer: str = "") -> tuple[Case, list[int]] | None:
    """Products moved from a system and stack to another, and their k; None where those were not measured."""
    times = stored("products.csv").with_columns(s=pl.col("us") * 1e-6)
    ends = [times.filter(system=here, stack=stack), times.filter(system=there, stack=peer or stack)]
    frame = ends[0].join(ends[1].select(*SIDES, s_b="s"), on=SIDES).rename({"s": "s_a"})
    frame = frame.with_columns(batch=pl.lit(1.0), element_bytes=pl.lit(2.0))
    nodes = load_node(NODES[here]), load_node(NODES[there])
    if frame.is_empty():
        return None
    return moved(f"{here} → {there}", stack, frame, nodes, "gemm", "bf16_tensor"), frame["k"].to_list()


def sweeps(system: str, timed_as: int | None = None) -> Iterator[tuple[str, str, FloatArray, Judged]]:
    """Of each operation: its name, what its range is of, bytes, and times; `timed_as`: by another generation's constants."""
    node, rows = load_node(JOINED[system]), stored("collectives.csv").filter(system=system)
    newer = float(node.gpu(0).compute_capability or 0) >= 9
    for (kind, ranks, version), part in rows.group_by("kind", "ranks", "version", maintain_order=True):
        if int(str(ranks)) <= len(node.gpus()):
            fabric = Fabric.of(node, int(str(ranks)), nvls=newer or None)
            fabric = replace(fabric, timed_as=timed_as or fabric.timed_as)
            sizes = part["bytes"].to_numpy().astype(float)
            p = price_collectives(fabric, [str(kind)] * len(sizes), sizes)
            times = part["us"].to_numpy() * 1e-6, p.seconds, p.low_seconds, p.high_seconds
            yield (
                f"{system}, {ranks} GPUs, {kind}, NCCL {version}",
                held_with(fabric, str(kind)),
                sizes,
                times,
            )


def truths() -> Iterator[Truth]:
    """For the ranges."""
    pairs = [(*pair, stack, "") for pair, stack in product(permutations(FOR_RANGES, 2), STACKS)]
    pairs += [(system, system, *stacks) for system, stacks in product(FOR_RANGES, permutations(STACKS, 2))]
    for here, there, stack, peer in pairs:
        case, depths = products(here, there, stack, peer) or (None, [])
        what = "kernel-alike" if peer else "kernel"
        for k, *times in zip(depths, case.predicted, case.actual, strict=True) if case else ():
            group = f"{here}, {stack} → {peer}" if peer else f"{here} → {there}, {stack}, k = {k}"
            yield Truth("datasheet", case.bound if case else "", what, 0, group, *map(float, times))
    for system, timed_as in product(TIMED_AS, TIMED_AS.values()):
        model = "nccl" if timed_as == TIMED_AS[system] else "nccl-untimed"
        for name, what, sizes, (actual, predicted, *_) in sweeps(system, timed_as):
            for size, *times in zip(sizes, predicted, actual, strict=True):
                if model == "nccl" or what == "collective":
                    group = f"aiconfigurator, {name}"
                    yield Truth("datasheet", model, what, int(size), group, *map(float, times))


def main() -> None:
    rows: list[tuple[object, ...]] = []
    inside: dict[str, list[float]] = {}

    def add(name: str, kind: str, judged: bool, times: Sequence[Judged]) -> None:
        actual, predicted, low, high = (np.concatenate(column) for column in zip(*times, strict=True))
        percent = 100 * float(np.mean((actual >= low) & (actual <= high)))
        off, ratio = 100 * np.median(np.abs(predicted / actual - 1)), np.median(actual / predicted)
        rows.append((name, kind, "held out" * judged, len(actual), float(off), float(ratio), percent))
        if judged:
            inside.setdefault(kind, []).append(percent)

    for here, there in permutations(NODES, 2):
        cases = [moves[0] for stack in STACKS if (moves := products(here, there, stack))]
        if cases and (here in FOR_RANGES or there in FOR_RANGES):
            kind = ("kernel-alike " if cases[0].alike else "") + cases[0].bound
            times = [(c.actual, c.predicted, c.low, c.high) for c in cases]
            add(f"{here} → {there}", kind, not {here, there} <= FOR_RANGES.keys(), times)
    for system in (name for name in NODES if len(load_node(JOINED[name]).gpus()) > 1):
        swept = list(sweeps(system))
        for what, long in product(("collective", "collective-send"), (False, True)):
            parts = [(sizes >= LONG_COPY_BYTES) == long for _, _, sizes, _ in swept]
            times = [
                tuple(column[part] for column in columns)  # type: ignore[misc]
                for (_, kind, _, columns), part in zip(swept, parts, strict=True)
                if kind == what
            ]
            if times:
                add(system, f"{what} {'from' if long else 'below'} 4 MiB", system in JUDGED, times)
    table("what|range||times:d|median % off:.1f|measured over predicted:.2f|% in range:.0f", rows)
    for kind, percents in sorted(inside.items()):
        goal(
            f"{kind}, held-out: % in range", float(np.mean(percents)), least=GOAL[0], most=GOAL[1], form=".0f"
        )


def extract(folder: Path) -> None:
    """Writes the archive from the files of the unzipped wheel."""
    data, measured, shapes = folder / "aiconfigurator_core/systems/data", [], None
    for system, stack in product(NODES, STACKS):
        for path in sorted(data.glob(f"{system}/gemm/{stack}/*/gemm_perf.parquet"))[:1]:
            times = (
                pl.read_parquet(path)
                .filter(gemm_dtype="bfloat16")
                .group_by(SIDES)
                .agg(us=pl.col("latency").median() * 1e3)
            )
            measured.append(
                times.select(pl.lit(system).alias("system"), pl.lit(stack).alias("stack"), *SIDES, "us")
            )
            if system in FOR_RANGES:
                shapes = times.select(SIDES) if shapes is None else shapes.join(times.select(SIDES), on=SIDES)
    assert shapes is not None
    shapes = shapes.sort(SIDES).sample(SHAPES, seed=20261129)
    swept = [
        pl.read_parquet(path).filter(nccl_dtype="half").select(
            pl.lit(system).alias("system"), pl.lit(path.parts[-2]).alias("version"),
            kind=pl.col("op_name").replace("alltoall", "all_to_all"), ranks="num_gpus", bytes=2 * pl.col("message_size"),
            us=pl.col("latency") * 1e3,
        )
        for system in NODES
        for path in sorted(data.glob(f"{system}/comm/nccl/*/nccl_perf.parquet"))
    ]  # fmt: skip
    tables = {"products": pl.concat(measured).join(shapes, on=SIDES), "collectives": pl.concat(swept)}
    files = {
        f"times/{name}.csv": HEAD
        + frame.with_columns(pl.col("us").round(3)).sort(pl.exclude("us")).write_csv().encode()
        for name, frame in tables.items()
    }
    pack(files, RESULTS / "aiconfigurator.tar.xz")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--extract"]:
        sys.exit(extract(Path(sys.argv[2])))
    judge(main)
