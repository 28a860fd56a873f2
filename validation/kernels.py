"""Kernels on another GPU, against times that others and we measured: `python validation/kernels.py`.

LLM operators (Vidur: fp16, A40 and A100 to H100), fp32 operators over seven GPUs (NeuSight), both in the folder that
BUSFARE_SHARED names; the 17 programs of `validation/pairs/pairs.toml` and the eight of `torch_steps.py`, recorded on an H100
and an H200. Medians and 90th percentiles of the error in percent, beside kept times and times by the ratio of bandwidths or
peaks.

What was chosen on which: the constants of products (`cost/kernels/gemm.py`) on operators of six models on A40 and A100, none
of which is judged here; those of streams and of unknown kernels (`cost/kernels/move.py`) on these operators and on the 17
programs, so their errors are of data seen; those of the eight PyTorch programs are not.
`--constants`: the medians with each constant that has no source halved and doubled. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from unittest.mock import patch

import numpy as np
import polars as pl
from pairs.table import read_plan
from published import SHARED
from stored import machines, unpacked
from truths import Truth

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS, Evidence, move
from busfare.cost.kernels.price import ranges
from busfare.node import load_node
from busfare.node.arrays import FloatArray
from busfare.project.kernels import compare_kernels
from busfare.trace import read

VIDUR, NEUSIGHT = "data/kernels/vidur-operators.parquet", "data/kernels/neusight-collect.parquet"
#: As the data names GPUs, and the nodes that they are.
GPUS = {
    "a40": "a40", "a100": "a100-sxm4-80gb", "h100": "h100-sxm",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb", "Tesla P100-PCIE-16GB": "p100-pcie-16gb", "Tesla P4": "p4",
    "Tesla V100-PCIE-32GB": "v100-pcie", "Tesla T4": "t4", "AMD Instinct MI100": "mi100", "AMD Instinct MI210": "mi210",
}  # fmt: skip
#: Models of whose operators nothing was used to choose a constant.
JUDGED = ("Qwen/Qwen-72B", "meta-llama/Llama-2-7b-hf")
#: Arrays that an element-wise operator reads and writes.
ARRAYS = {
    **dict.fromkeys(("add", "div", "mul", "pow"), 3),
    **dict.fromkeys(("addu", "divu", "mulu", "powu", "relu", "gelu", "tanh", "softmax", "ln"), 2),
}
#: Times below it are mostly what their timers and launches took, s.
LEAST_S = 1e-4


@dataclass
class Case:
    """Kernels of one kind moved from a GPU to another; seconds, shape (rows,)."""

    name: str
    group: str
    bound: str
    recorded: FloatArray
    actual: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray
    bandwidth: float
    peak: float
    alike: bool


def moved(
    name: str, group: str, frame: pl.DataFrame, gpus: tuple[str, str], kind: str, pipeline: str
) -> Case:
    """A case of `frame`: columns `s_a`, `s_b` and what Evidence has."""
    here, there = (limits_of(load_node(GPUS[gpu])) for gpu in gpus)
    columns = {c: frame[c].cast(pl.Float64).to_numpy() for c in frame.columns if c in EVIDENCE}
    evidence = Evidence([kind] * frame.height, [pipeline] * frame.height, columns)
    recorded, actual = (frame[c].to_numpy() for c in ("s_a", "s_b"))
    found = move(evidence, np.arange(frame.height), recorded, here, there)
    own, other = here.peak(pipeline) or np.nan, there.peak(pipeline) or np.nan
    low, high = ranges(found.seconds, recorded, found.bounds, here, there)
    return Case(
        name, group, BOUNDS[found.bounds[0]], recorded, actual, found.seconds, low, high,
        here.memory / there.memory, own / other, here.generation == there.generation,
    )  # fmt: skip


EVIDENCE = ("bytes", "batch", "m", "n", "k", "element_bytes")


def llm_operators() -> Iterator[Case]:
    """fp16 operators of the judged models, from A40 and A100 to the H100."""
    rows = pl.read_parquet(SHARED / VIDUR).filter(pl.col("model").is_in(JUDGED))
    tokens, ways = pl.col("num_tokens"), pl.col("num_tensor_parallel_workers")
    width, wide = pl.col("n_embd"), pl.col("n_expanded_embd") // ways
    query = width // ways
    kv = (pl.col("n_kv_head") * width / pl.col("n_head") / ways).ceil()
    gates = pl.col("use_gated_mlp").cast(pl.Int64) + 1
    products = {
        "attn_pre_proj": (query + 2 * kv, width),
        "attn_post_proj": (width, query),
        "mlp_up_proj": (gates * wide, width),
        "mlp_down_proj": (width, wide),
    }
    moves = {
        "add": 3 * tokens * width,
        "input_layernorm": 2 * tokens * width,
        "post_attention_layernorm": 2 * tokens * width,
        "mlp_act": 3 * tokens * wide,
        "emb": 2 * tokens * width,
        "attn_rope": 2 * tokens * (query + kv),
    }
    keys = ["model", "num_tokens", "num_tensor_parallel_workers"]
    for operator in (*products, *moves):
        known = rows.with_columns(
            s=pl.col(f"time_stats.{operator}.median") * 1e-3, element_bytes=pl.lit(2.0), batch=pl.lit(1.0), m=tokens,
            **({"n": products[operator][0], "k": products[operator][1]} if operator in products else {}),
        ).drop_nulls("s")  # fmt: skip
        if operator in moves:
            known = known.with_columns(bytes=2 * moves[operator]).drop("m")
        means = known.group_by(*keys, "gpu").agg(
            pl.col("s").median(), pl.col(*[c for c in EVIDENCE if c in known.columns]).first()
        )
        there = means.filter(gpu="h100").select(*keys, s_b="s")
        for gpu in ("a100", "a40"):
            both = means.filter(gpu=gpu).rename({"s": "s_a"}).join(there, on=keys)
            kind = "gemm" if operator in products else "elementwise"
            title = f"{gpu.upper()} → H100, fp16 {'GEMM' if operator in products else 'memory-bound'}"
            yield moved(title, f"{gpu} {operator}", both, (gpu, "h100"), kind, "fp16_tensor")


def fp32_operators() -> Iterator[Case]:
    """fp32 operators between all pairs of GPUs, those that take at least LEAST_S on both."""
    rows = pl.read_parquet(SHARED / NEUSIGHT).with_columns(s=pl.col("Latency") * 1e-3)
    streams = rows.filter(pl.col("OPName").is_in(list(ARRAYS))).with_columns(
        bytes=pl.col("OPName").replace_strict(ARRAYS) * 4.0 * pl.col("B") * pl.col("H")
    )
    products = rows.filter(pl.col("OPName").is_in(["bmm", "linear"])).select(
        "OPName", "Device", "s", batch="B", m="M", n="N", k="K", element_bytes=pl.lit(4.0)
    )
    for frame, keys, kind, title in (
        (streams, ["OPName", "B", "H"], "elementwise", "fp32 memory-bound, all pairs of seven GPUs"),
        (products, ["OPName", "batch", "m", "n", "k"], "gemm", "fp32 GEMM, all pairs of seven GPUs"),
    ):
        more = [c for c in EVIDENCE if c in frame.columns and c not in keys]
        means = frame.group_by(*keys, "Device").agg(pl.col("s").median(), pl.col(more).first())
        there = means.select(*keys, s_b="s", Device_b="Device")
        pairs = means.rename({"s": "s_a"}).join(there, on=keys)
        large = pairs.filter(
            pl.col("Device") != pl.col("Device_b"), pl.min_horizontal("s_a", "s_b") >= LEAST_S
        )
        for (gpu, other), each in large.group_by("Device", "Device_b", maintain_order=True):
            some = each.sort(keys).gather_every(max(1, each.height // 1000))
            yield moved(title, f"{gpu} {other} {kind}", some, (str(gpu), str(other)), kind, "fp32")


def recorded_programs() -> Iterator[Case]:
    """Kernels of the programs that were recorded on both GPUs, each way."""
    recorded = {machine.gpu: machine for machine in machines("pairs")}
    nodes = {"h100": load_node("h100-sxm"), "h200": load_node("h200-sxm")}
    files = {
        "17 programs": {
            program: {gpu: recorded[gpu].recording(program, "before") for gpu in nodes}
            for program in read_plan("pairs.toml").programs
        },
        "8 PyTorch programs": {
            path.stem: {gpu: path.parents[1] / gpu / path.name for gpu in nodes}
            for path in sorted((unpacked("kernels") / "h100").glob("*.json"))
        },
    }
    for kind, program, paths in (
        (kind, *item) for kind, programs in files.items() for item in programs.items()
    ):
        traces = {gpu: read(path, launches=True) for gpu, path in paths.items()}
        for here, there in (("h100", "h200"), ("h200", "h100")):
            found = compare_kernels(traces[here], traces[there], nodes[here], nodes[there])
            for row in found.by_kernel if found else []:
                times = [
                    np.array([seconds])
                    for seconds in (
                        row.recorded_seconds, row.actual_seconds, row.predicted_seconds, row.low_seconds, row.high_seconds,
                    )
                ]  # fmt: skip
                ratio = limits_of(nodes[here]).memory / limits_of(nodes[there]).memory
                title = f"{kind}, {here.upper()} → {there.upper()}"
                yield Case(title, program, row.bound, *times, ratio, 1.0, True)


#: What is judged: the most percent that the median and the 90th percentile may be, where there is a goal.
GOALS = {
    "A100 → H100, fp16 GEMM": (12, None),
    "A40 → H100, fp16 GEMM": (12, None),
    "A100 → H100, fp16 memory-bound": (10, None),
    "A40 → H100, fp16 memory-bound": (10, None),
    "fp32 memory-bound, all pairs of seven GPUs": (8, None),
    "fp32 GEMM, all pairs of seven GPUs": (25, None),
    "17 programs, H100 → H200": (4, 15),
    "17 programs, H200 → H100": (4, 15),
    "8 PyTorch programs, H100 → H200": (4, 15),
    "8 PyTorch programs, H200 → H100": (4, 15),
}


def cases() -> Iterator[Case]:
    """Of all data at hand."""
    if (SHARED / VIDUR).is_file():
        yield from llm_operators()
        yield from fp32_operators()
    else:
        print(f"not judged, for {SHARED / VIDUR} is not there: operators of others; set BUSFARE_SHARED")
    yield from recorded_programs()


def truths() -> Iterator[Truth]:
    """For the ranges: between GPUs of one generation, on which the same code runs, and between others."""
    for case in cases():
        if case.bound not in ("memory", "compute", "counted"):  # whose ranges are not from data
            continue
        what = "kernel-alike" if case.alike else "kernel"
        for predicted, actual in zip(case.predicted.tolist(), case.actual.tolist(), strict=True):
            yield Truth("datasheet", case.bound, what, 0, case.group, predicted, actual)


#: Constants of the models without a source, by module.
CONSTANTS = {
    "gemm": ("HALF_RATE_SIDE", "NORM", "EDGE_CYCLES"),
    "move": (
        "LATENCY_S", "CARRIED_ELSEWHERE", "MOST_RESIDUAL", "DENSE_SHARE", "UNKNOWN_SHARE", "STREAM_SHARE", "LEAST_WORK",
        "L2_TIMES", "THREADS_NEEDED", "THREADS_A_CYCLE", "OVERLAP",
    ),
}  # fmt: skip


def constants() -> None:
    """The median error of each row with a constant as it is, halved and doubled."""
    print("constant: median error in %, of " + ", ".join(GOALS))
    print(f"{'as they are':24} {_medians()}")
    for module, names in CONSTANTS.items():
        for name in names:
            path = f"busfare.cost.kernels.{module}"
            value = getattr(import_module(path), name)
            for factor in (0.5, 2.0):
                with patch(f"{path}.{name}", value * factor):
                    print(f"{name:18} × {factor:3} {_medians()}", flush=True)


def _medians() -> str:
    found: dict[str, list[FloatArray]] = {}
    for case in cases():
        found.setdefault(case.name, []).append(np.abs(case.predicted / case.actual - 1))
    return " ".join(
        f"{100 * float(np.nanmedian(np.concatenate(found[name]))):5.1f}" for name in GOALS if name in found
    )


def main() -> int:
    if "--constants" in sys.argv:
        constants()
        return 0
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.name, []).append(case)
    met = True
    print(
        "median / 90th percentile of the error in %: predicted | kept | bandwidth | peak | inside the 80 % range"
    )
    for name, each in found.items():
        actual = np.concatenate([case.actual for case in each])
        columns: list[tuple[str, Callable[[Case], FloatArray]]] = [
            ("", lambda case: case.predicted),
            ("kept", lambda case: case.recorded),
            ("bandwidth", lambda case: case.recorded * case.bandwidth),
            ("peak", lambda case: case.recorded * case.peak),
        ]
        errors = [
            100 * np.abs(np.concatenate([price(case) for case in each]) / actual - 1) for _, price in columns
        ]
        figures = [(float(np.nanmedian(error)), float(np.nanpercentile(error, 90))) for error in errors]
        low, high = (np.concatenate([getattr(case, end) for case in each]) for end in ("low", "high"))
        inside = 100 * float(np.mean((actual >= low) & (actual <= high)))
        goal = GOALS[name]
        good = all(most is None or value <= most for value, most in zip(figures[0], goal, strict=True))
        met &= good
        shown = " | ".join(f"{one:5.1f} / {most:5.1f}" for one, most in figures)
        verdict = "met" if good else "MISSED"
        print(
            f"{name:44} {len(actual):6}: {shown} | {inside:3.0f} % | goal {goal[0]} / {goal[1] or '–'}: {verdict}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
