"""Operators that others timed on several GPUs, moved from each to the others: cases of `validation/kernels.py`.

LLM operators (Vidur: fp16, A40 and A100 to H100) and fp32 operators over seven GPUs (NeuSight), both in the folder that
BUSFARE_SHARED names. `probed`: by a section of kernels such as a probe writes, made of data that is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import msgspec
import numpy as np
import polars as pl
from published import SHARED

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS, Evidence, move, tensor_products
from busfare.cost.kernels.price import product_model, ranges
from busfare.measure.kernels import GEMMS, PASS_BYTES, PASSES
from busfare.nodes import FloatArray, Kernels, Node, load_node

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
#: Operators whose bytes are a probe's within this (the logarithm) stand for its pass: their times are in whole microseconds.
NEAR = 0.2


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
    figures: str


def moved(
    name: str, group: str, frame: pl.DataFrame, nodes: tuple[Node, Node], kind: str, pipeline: str
) -> Case:
    """A case of `frame`: columns `s_a`, `s_b` and what Evidence has."""
    here, there = (limits_of(node) for node in nodes)
    columns = {c: frame[c].cast(pl.Float64).to_numpy() for c in frame.columns if c in EVIDENCE}
    evidence = Evidence([kind] * frame.height, [pipeline] * frame.height, columns)
    recorded, actual = (frame[c].to_numpy() for c in ("s_a", "s_b"))
    prediction = move(evidence, np.arange(frame.height), recorded, here, there)
    here_peak, there_peak = here.peak(pipeline) or np.nan, there.peak(pipeline) or np.nan
    products = tensor_products(evidence, here, there)
    low, high = ranges(prediction, recorded, here, there, evidence)
    bound = product_model(here, there) if products.any() else BOUNDS[prediction.bounds[0]]
    return Case(
        name, group, bound, recorded, actual, prediction.seconds, low, high,
        here.memory / there.memory, here_peak / there_peak, here.generation == there.generation,
        "datasheet" if here.rung == "class" else here.rung,
    )  # fmt: skip


def as_probed(gpu: str, measured: pl.DataFrame, number_type: str) -> Node:
    """The node of a GPU with a section of kernels such as `probe` writes: from some of the data, in `known`, which is not
    judged. Columns: `s`, and `bytes` and the `pass` of a class, or `batch`, `m`, `n`, `k` of products. Of each that a probe
    measures the nearest that is there.
    """
    node = load_node(GPUS[gpu])
    products: list[dict[str, object]] = []
    passes = []
    if "m" in measured.columns:
        there = np.log(measured.select("batch", "m", "n", "k").to_numpy())
        far = ((there[:, None] - np.log(GEMMS[number_type])[None]) ** 2).sum(-1)
        nearest = set(far.argmin(0)[far.min(0) < (2 * np.log(2)) ** 2].tolist())
        near = measured[sorted(nearest)].select(
            pl.col("batch", "m", "n", "k").round().cast(pl.Int64), seconds="s"
        )
        products = near.with_columns(type=pl.lit(number_type)).to_dicts()
    else:
        for kind, arrays in PASSES.items():
            of_kind = measured.filter(pl.col("pass") == kind)
            for size in PASS_BYTES if of_kind.height else ():
                near = of_kind.filter((pl.col("bytes") / (arrays * size)).log().abs() < NEAR)
                if near.height:
                    bytes_, seconds = near.select(pl.col("bytes", "s").mean()).row(0)
                    passes.append({"kind": kind, "bytes": round(bytes_), "seconds": seconds})
    return replace(node, kernels=(msgspec.convert({"passes": passes, "gemm": products}, Kernels),))


EVIDENCE = ("bytes", "batch", "m", "n", "k", "element_bytes")
#: Of operators that move each byte once the class that their kernels' names say, as passes of which a probe measures some.
CLASSES = {
    "add": "elementwise", "input_layernorm": "norm", "post_attention_layernorm": "norm", "mlp_act": "activation",
    "emb": "gather", "attn_rope": "activation", "ln": "norm", "softmax": "softmax",
}  # fmt: skip
#: Of which of them a section of kernels is made; those of the others are only judged.
IN_SECTION = ("add", "input_layernorm", "mlp_act", "emb", "ln", "softmax")


def llm_operators() -> Iterator[Case]:
    """fp16 operators of the judged models, from A40 and A100 to the H100."""
    rows = pl.read_parquet(SHARED / VIDUR).filter(pl.col("model").is_in(JUDGED))
    tokens, ways = pl.col("num_tokens"), pl.col("num_tensor_parallel_workers")
    width, wide = pl.col("n_embd"), pl.col("n_expanded_embd") // ways
    query = width // ways
    kv = (pl.col("n_kv_head") * width / pl.col("n_head") / ways).ceil()
    gates = pl.col("use_gated_mlp").cast(pl.Int64) + 1
    products = {
        "mlp_up_proj": (gates * wide, width), "attn_pre_proj": (query + 2 * kv, width),
        "attn_post_proj": (width, query), "mlp_down_proj": (width, wide),
    }  # fmt: skip
    moves = {
        "add": 3 * tokens * width, "input_layernorm": 2 * tokens * width,
        "post_attention_layernorm": 2 * tokens * width, "mlp_act": 3 * tokens * wide,
        "emb": 2 * tokens * width, "attn_rope": 2 * tokens * (query + kv),
    }  # fmt: skip
    keys = ["model", "num_tokens", "num_tensor_parallel_workers"]
    frames = {}
    for operator in (*products, *moves):
        measured = rows.with_columns(
            s=pl.col(f"time_stats.{operator}.median") * 1e-3, element_bytes=pl.lit(2.0), batch=pl.lit(1.0), m=tokens,
            **({"n": products[operator][0], "k": products[operator][1]} if operator in products else {}),
        ).drop_nulls("s")  # fmt: skip
        if operator in moves:
            measured = measured.with_columns(bytes=2 * moves[operator]).drop("m")
            measured = measured.with_columns(pl.lit(CLASSES[operator]).alias("pass"))
        frames[operator] = measured.group_by(*keys, "gpu", maintain_order=True).agg(
            pl.col("s").median(), pl.col(*[c for c in (*EVIDENCE, "pass") if c in measured.columns]).first()
        )
    sections = {
        "GEMM": pl.concat([frames[name] for name in products], how="diagonal_relaxed"),
        "memory-bound": pl.concat(
            [frames[name] for name in moves if name in IN_SECTION], how="diagonal_relaxed"
        ),
    }
    for operator, means in frames.items():
        there = means.filter(gpu="h100").select(*keys, s_b="s")
        for gpu, rung in product(("a100", "a40"), ("", ", probed")):
            pairs = means.filter(gpu=gpu).rename({"s": "s_a"}).join(there, on=keys)
            kind = "gemm" if operator in products else CLASSES[operator]
            what = "GEMM" if operator in products else "memory-bound"
            title = f"{gpu.upper()} → H100, fp16 {what}{rung}"
            for judged, measured_with in (JUDGED, JUDGED[::-1]) if rung else ((None, None),):
                moved_rows, nodes = pairs, [load_node(GPUS[name]) for name in (gpu, "h100")]
                if measured_with:
                    moved_rows = pairs.filter(model=judged)
                    section = sections[what].filter(model=measured_with)
                    nodes = [as_probed(name, section.filter(gpu=name), "fp16") for name in (gpu, "h100")]
                yield moved(title, f"{gpu} {operator}", moved_rows, (nodes[0], nodes[1]), kind, "fp16_tensor")


def fp32_operators() -> Iterator[Case]:
    """fp32 operators between all pairs of GPUs, those that take at least LEAST_S on both."""
    rows = pl.read_parquet(SHARED / NEUSIGHT).with_columns(s=pl.col("Latency") * 1e-3)
    streams = rows.filter(pl.col("OPName").is_in(list(ARRAYS))).with_columns(
        bytes=pl.col("OPName").replace_strict(ARRAYS) * 4.0 * pl.col("B") * pl.col("H"),
        **{"pass": pl.col("OPName").replace_strict(CLASSES, default="elementwise")},
    )
    products = rows.filter(pl.col("OPName").is_in(["bmm", "linear"])).select(
        "OPName", "Device", "s", batch="B", m="M", n="K", k="N", element_bytes=pl.lit(4.0), **{"pass": pl.lit("gemm")}
    )  # fmt: skip
    for frame, keys, title in (
        (streams, ["OPName", "B", "H"], "fp32 memory-bound, all pairs of seven GPUs"),
        (products, ["OPName", "batch", "m", "n", "k"], "fp32 GEMM, all pairs of seven GPUs"),
    ):
        more = [c for c in (*EVIDENCE, "pass") if c in frame.columns and c not in keys]
        means = frame.group_by(*keys, "Device", maintain_order=True).agg(
            pl.col("s").median(), pl.col(more).first()
        )
        there = means.select(*keys, s_b="s", Device_b="Device")
        pairs = means.rename({"s": "s_a"}).join(there, on=keys)
        large = pairs.filter(
            pl.col("Device") != pl.col("Device_b"), pl.min_horizontal("s_a", "s_b") >= LEAST_S
        )
        for (gpu, target), moved_rows in large.group_by("Device", "Device_b", maintain_order=True):
            some = moved_rows.sort(keys, maintain_order=True).gather_every(max(1, moved_rows.height // 1000))
            pair = [str(gpu), str(target)]
            # Of what is left of two thirds, by what some of one third took.
            third = pl.struct(*keys).hash(1) % 3 == 0
            measured = means.filter(third, pl.col("OPName").is_in([*IN_SECTION, "bmm", "linear"]))
            probed = [as_probed(name, measured.filter(Device=name), "fp32") for name in pair]
            for rung, part, nodes in (
                ("", some, [load_node(GPUS[name]) for name in pair]),
                (", probed", some.filter(~third), probed),
            ):
                for (kind,), rest in part.group_by("pass", maintain_order=True):
                    yield moved(
                        f"{title}{rung}", f"{gpu} {target} {kind}", rest, (nodes[0], nodes[1]), str(kind),
                        "fp32",
                    )  # fmt: skip
