"""Kernels on another GPU, against times that others and we measured: `python validation/kernels.py`.

LLM operators (Vidur: fp16, A40 and A100 to H100), fp32 operators over seven GPUs (NeuSight), both in the folder that
BUSFARE_SHARED names; the 17 programs of `validation/pairs/pairs.toml` and the eight of `torch_steps.py`, recorded on an H100
and an H200. Medians and 90th percentiles of the error in percent, beside kept times and times by the ratio of bandwidths or
peaks.

What was chosen on which: the constants of products (`cost/kernels/gemm.py`) on operators of six models on A40 and A100,
none of which is judged here; those of streams (`cost/kernels/move.py`) on these operators; those of unknown kernels, of
short streams, and of floors on the 17 programs and PyTorch's, so their errors are of data seen; those of counted kernels on
half of a set of programs that is not stored. On the 21 programs none was, but that short streams wait was found in JAX's.
The 19 third-party programs (of CuPy, JAX, makemore, nanoGPT) ran after all of that. `probed`: of operators by a section of
kernels made of data that is not judged; of programs by a probe of each GPU, of third-party ones right before they ran.
`counted`: those kernels of the 17 programs whose counters were read on the H100.
`--constants`: the medians with each constant that has no source halved and doubled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import polars as pl
from claims import Truth, goal, judge, table
from pairs.table import read_plan
from published import SHARED
from stored import machines, unpacked

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import BOUNDS, Evidence, move
from busfare.cost.kernels.price import ranges
from busfare.node import Kernels, Node, load_node
from busfare.node.arrays import FloatArray
from busfare.project.comparison import compare_kernels
from busfare.trace import read
from busfare.trace.tables import COUNTERS

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
#: What a probe measures: bytes of a large stream at least, and operations of products of 1024 and 8192 a side.
PROBED_BYTES, PROBED_FLOPS, PROBED_SIDE = 96 << 20, (2 * 1024**3, 2 * 8192**3), 256
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
    figures: str


def moved(
    name: str, group: str, frame: pl.DataFrame, nodes: tuple[Node, Node], kind: str, pipeline: str
) -> Case:
    """A case of `frame`: columns `s_a`, `s_b` and what Evidence has."""
    here, there = (limits_of(node) for node in nodes)
    columns = {c: frame[c].cast(pl.Float64).to_numpy() for c in frame.columns if c in EVIDENCE}
    evidence = Evidence([kind] * frame.height, [pipeline] * frame.height, columns)
    recorded, actual = (frame[c].to_numpy() for c in ("s_a", "s_b"))
    found = move(evidence, np.arange(frame.height), recorded, here, there)
    own, other = here.peak(pipeline) or np.nan, there.peak(pipeline) or np.nan
    low, high = ranges(found.seconds, recorded, found.bounds, here, there)
    return Case(
        name, group, BOUNDS[found.bounds[0]], recorded, actual, found.seconds, low, high,
        here.memory / there.memory, own / other, here.generation == there.generation,
        "datasheet" if here.rung == "class" else here.rung,
    )  # fmt: skip


def as_probed(gpu: str, known: pl.DataFrame, number_type: str) -> Node:
    """The node of a GPU with a section of kernels such as `probe` writes: from some of the data, in `known`, which is not
    judged. Columns: `s`, `bytes` of a stream, or `flops` of a product.
    """
    node, rates = load_node(GPUS[gpu]), {}
    for size in PROBED_FLOPS if "flops" in known.columns else ():
        square = pl.min_horizontal("m", "n", "k") >= PROBED_SIDE  # those of few rows are streams of weights
        near = known.filter(pl.col("flops").is_between(size / 2, size * 2), square)
        if near.height:
            side = round((size / 2) ** (1 / 3))
            rates[side] = float(near.select((pl.col("flops") / pl.col("s")).median()).item())
    gemm = [
        {"type": number_type, **dict.fromkeys("mnk", side), "seconds": 2 * side**3 / rate}
        for side, rate in rates.items()
    ]
    streams = {}
    if "bytes" in known.columns:
        large = known.filter(pl.col("bytes") >= PROBED_BYTES)
        streams = {"triad": large.select((pl.col("bytes") / pl.col("s")).median()).item()}
    return replace(node, kernels=(msgspec.convert({"memory_bytes_per_s": streams, "gemm": gemm}, Kernels),))


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
        "mlp_up_proj": (gates * wide, width),
        "attn_pre_proj": (query + 2 * kv, width),
        "attn_post_proj": (width, query),
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
    measured: dict[bool, pl.DataFrame] = {}  # of products, and of streams: those that are like a probe's
    for operator in (*products, *moves):
        known = rows.with_columns(
            s=pl.col(f"time_stats.{operator}.median") * 1e-3, element_bytes=pl.lit(2.0), batch=pl.lit(1.0), m=tokens,
            **({"n": products[operator][0], "k": products[operator][1]} if operator in products else {}),
        ).drop_nulls("s")  # fmt: skip
        if operator in moves:
            known = known.with_columns(bytes=2 * moves[operator]).drop("m")
        if operator in products:
            known = known.with_columns(flops=2 * pl.col("m") * pl.col("n") * pl.col("k"))
        if operator in ("add", "mlp_up_proj"):
            measured[operator in products] = known
        means = known.group_by(*keys, "gpu").agg(
            pl.col("s").median(), pl.col(*[c for c in EVIDENCE if c in known.columns]).first()
        )
        there = means.filter(gpu="h100").select(*keys, s_b="s")
        for gpu, rung in product(("a100", "a40"), ("", ", probed")):
            both = means.filter(gpu=gpu).rename({"s": "s_a"}).join(there, on=keys)
            kind = "gemm" if operator in products else "elementwise"
            title = f"{gpu.upper()} → H100, fp16 {'GEMM' if operator in products else 'memory-bound'}{rung}"
            for judged, other in (JUDGED, JUDGED[::-1]) if rung else ((None, None),):
                each, nodes = both, [load_node(GPUS[one]) for one in (gpu, "h100")]
                if other:
                    each = both.filter(model=judged)
                    section = measured[operator in products].filter(model=other)
                    nodes = [as_probed(one, section.filter(gpu=one), "fp16") for one in (gpu, "h100")]
                yield moved(title, f"{gpu} {operator}", each, (nodes[0], nodes[1]), kind, "fp16_tensor")


def fp32_operators() -> Iterator[Case]:
    """fp32 operators between all pairs of GPUs, those that take at least LEAST_S on both."""
    rows = pl.read_parquet(SHARED / NEUSIGHT).with_columns(s=pl.col("Latency") * 1e-3)
    streams = rows.filter(pl.col("OPName").is_in(list(ARRAYS))).with_columns(
        bytes=pl.col("OPName").replace_strict(ARRAYS) * 4.0 * pl.col("B") * pl.col("H")
    )
    products = rows.filter(pl.col("OPName").is_in(["bmm", "linear"])).select(
        "OPName", "Device", "s", batch="B", m="M", n="N", k="K", element_bytes=pl.lit(4.0),
        flops=2.0 * pl.col("B") * pl.col("M") * pl.col("N") * pl.col("K"),
    )  # fmt: skip
    for frame, keys, kind, title in (
        (streams, ["OPName", "B", "H"], "elementwise", "fp32 memory-bound, all pairs of seven GPUs"),
        (products, ["OPName", "batch", "m", "n", "k"], "gemm", "fp32 GEMM, all pairs of seven GPUs"),
    ):
        more = [c for c in (*EVIDENCE, "flops") if c in frame.columns and c not in keys]
        means = frame.group_by(*keys, "Device").agg(pl.col("s").median(), pl.col(more).first())
        there = means.select(*keys, s_b="s", Device_b="Device")
        pairs = means.rename({"s": "s_a"}).join(there, on=keys)
        large = pairs.filter(
            pl.col("Device") != pl.col("Device_b"), pl.min_horizontal("s_a", "s_b") >= LEAST_S
        )
        for (gpu, other), each in large.group_by("Device", "Device_b", maintain_order=True):
            some = each.sort(keys).gather_every(max(1, each.height // 1000))
            pair = [str(gpu), str(other)]
            nodes = [load_node(GPUS[one]) for one in pair]
            yield moved(title, f"{gpu} {other} {kind}", some, (nodes[0], nodes[1]), kind, "fp32")
            # Of what is left of two thirds, by what streams, or products of that operator, of one third took.
            third = pl.struct(*keys).hash(1) % 3 == 0
            for operator in some["OPName"].unique(maintain_order=True):
                like = [operator] if kind == "gemm" else ["add"]
                section = means.filter(third, pl.col("OPName").is_in(like))
                nodes = [as_probed(one, section.filter(Device=one), "fp32") for one in pair]
                rest = some.filter(~third, pl.col("OPName") == operator)
                if rest.height:
                    yield moved(
                        f"{title}, probed", f"{gpu} {other} {kind}", rest, (nodes[0], nodes[1]), kind, "fp32"
                    )


def recorded_programs() -> Iterator[Case]:
    """Kernels of the programs that were recorded on both GPUs, each way, by data sheets and by probed nodes; of those whose
    counters were read on the H100, by them too.
    """
    recorded, stored = {machine.gpu: machine for machine in machines("pairs")}, unpacked("kernels")
    others = unpacked("kernels-third-party")
    rungs = {
        "": {"h100": load_node("h100-sxm"), "h200": load_node("h200-sxm")},
        ", probed": {gpu: load_node(str(stored / gpu / "kernels.toml")) for gpu in ("h100", "h200")},
    }
    counters = pl.read_csv(stored / "h100" / "counters.csv", schema={"program": pl.String(), **COUNTERS})
    files = {
        "17 programs": {
            program: {gpu: recorded[gpu].recording(program, "before") for gpu in ("h100", "h200")}
            for program in read_plan("pairs.toml").programs
        },
        "8 PyTorch programs": {
            path.stem: {gpu: path.parents[1] / gpu / path.name for gpu in ("h100", "h200")}
            for path in sorted((stored / "h100").glob("*.json"))
        },
        "21 programs written later": dict(_written_later()),
        THIRD_PARTY: {
            path.stem: {gpu: others / gpu / path.name for gpu in ("h100", "h200")}
            for path in sorted((others / "h100").glob("*.bf"))
        },
    }
    probed_themselves = {gpu: load_node(str(others / gpu / "node.toml")) for gpu in ("h100", "h200")}
    for kind, program, paths in (
        (kind, *item) for kind, programs in files.items() for item in programs.items()
    ):
        traces = {gpu: read(path, launches=True) for gpu, path in paths.items()}
        counted = counters.filter(program=program).drop("program")
        for (rung, nodes), (here, there), seen in product(
            rungs.items(), (("h100", "h200"), ("h200", "h100")), (None, counted)
        ):
            if seen is not None and (seen.is_empty() or here == "h200"):
                continue
            if rung and kind.startswith("21"):  # their machines were probed before probes knew kernels
                continue
            nodes = probed_themselves if rung and kind == THIRD_PARTY else nodes
            trace = traces[here] if seen is None else replace(traces[here], counters=seen)
            found = compare_kernels(trace, traces[there], nodes[here], nodes[there])
            ratio = limits_of(nodes[here]).memory / limits_of(nodes[there]).memory
            title = f"{kind}, {here.upper()} → {there.upper()}{rung}{', counted' if seen is not None else ''}"
            for row in found.by_kernel if found else []:
                if seen is not None and row.rung != "counters":
                    continue
                times = [
                    np.array([seconds])
                    for seconds in (
                        row.recorded_seconds, row.actual_seconds, row.predicted_seconds, row.low_seconds, row.high_seconds,
                    )
                ]  # fmt: skip
                yield Case(
                    title, program, row.bound, *times, ratio, 1.0, True, "probed" if rung else "datasheet"
                )


def _written_later() -> Iterator[tuple[str, dict[str, Path]]]:
    """The recordings of `unseen.toml`'s programs on each H100 and each H200 that ran them; of some only those of threads."""
    h100s, h200s = ([one for one in machines("unseen") if one.gpu == gpu] for gpu in ("h100", "h200"))
    for *pair, program in product(h100s, h200s, read_plan("unseen.toml").programs):
        names = [next(filter(partial(one.has, program), ("before", "before-threads")), "") for one in pair]
        if all(names):  # it was run on both
            yield (
                " ".join([program, *(one.name for one in pair)]),
                {one.gpu: one.recording(program, name) for one, name in zip(pair, names, strict=True)},
            )


THIRD_PARTY = "19 third-party programs"
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
    "21 programs written later, H100 → H200": (4, 15),
    "21 programs written later, H200 → H100": (4, 15),
    f"{THIRD_PARTY}, H100 → H200": (4, 15),
    f"{THIRD_PARTY}, H200 → H100": (4, 15),
}
GOALS |= {f"{name}, probed": goal for name, goal in GOALS.items() if not name.startswith("21")} | {
    "A100 → H100, fp16 GEMM, probed": (9, None),
    "A40 → H100, fp16 GEMM, probed": (9, None),
    "A100 → H100, fp16 memory-bound, probed": (6, None),
    "A40 → H100, fp16 memory-bound, probed": (6, None),
    "fp32 memory-bound, all pairs of seven GPUs, probed": (4, None),
    "fp32 GEMM, all pairs of seven GPUs, probed": (12, None),
    "17 programs, H100 → H200, counted": (2.5, 7),
    "17 programs, H100 → H200, probed, counted": (2.5, 7),
}


def cases() -> Iterator[Case]:
    """Of all data at hand."""
    if (SHARED / VIDUR).is_file():
        yield from (*llm_operators(), *fp32_operators())
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
            yield Truth(case.figures, case.bound, what, 0, case.group, predicted, actual)


#: Constants of the models without a source, by module.
CONSTANTS = {
    "gemm": ("HALF_RATE_SIDE", "NORM", "EDGE_CYCLES"),
    "move": (
        "LATENCY_S", "CARRIED_ELSEWHERE", "MOST_RESIDUAL", "DENSE_SHARE", "STREAM_SHARE", "LEAST_WORK",
        "FLOOR_SHOWN", "RAMP_S", "L2_TIMES", "L2_REACHED", "THREADS_NEEDED", "THREADS_A_CYCLE", "OVERLAP",
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


def main() -> None:
    if "--constants" in sys.argv:
        constants()
        sys.exit()
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.name, []).append(case)
    prices: list[Callable[[Case], FloatArray]] = [
        lambda case: case.predicted,
        lambda case: case.recorded,
        lambda case: case.recorded * case.bandwidth,
        lambda case: case.recorded * case.peak,
    ]
    rows, missed = [], 0
    for name, each in found.items():
        actual = np.concatenate([case.actual for case in each])
        figures: list[float] = []
        for price in prices:
            errors = 100 * np.abs(np.concatenate([price(case) for case in each]) / actual - 1)
            figures += np.nanpercentile(errors, (50, 90)).tolist()
        low, high = (np.concatenate([getattr(case, end) for case in each]) for end in ("low", "high"))
        inside = 100 * float(np.mean((actual >= low) & (actual <= high)))
        good = all(most is None or value <= most for value, most in zip(figures, GOALS[name], strict=False))
        missed += not good
        rows.append((name, len(actual), *figures, inside, *GOALS[name], "met" if good else "MISSED"))
    errors = "|".join(f"{what}:.1f|90th:.1f" for what in ("predicted", "kept", "bandwidth", "peak"))
    table(f"median and 90th percentile, % off|kernels:d|{errors}|% in range:.0f|goal:g|90th:g|", rows)
    goal("rows that miss their goal", missed, most=0, form="d")


if __name__ == "__main__":
    judge(main)
