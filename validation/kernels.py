"""Kernels on another GPU, against times that others and we measured: `python validation/kernels.py`.

Operators that others timed (`operators.py`); the 17 programs of `validation/pairs/pairs.toml` and the eight of
`torch_steps.py`, recorded on an H100 and an H200, and later ones. Medians and 90th percentiles of the error in percent,
beside kept times and times by the ratio of bandwidths or peaks.

What was chosen on which: the constants of products (`cost/kernels/limits.py`) on operators of six models on A40 and A100,
none of which is judged here; those of streams (`cost/kernels/move.py`) on these operators; those of unknown kernels and
of floors on the 17 programs and PyTorch's, so their errors are of data seen; those of counted kernels on half of a set of
programs that is not stored. On the 21 programs and the 19 third-party ones (of CuPy, JAX, makemore, nanoGPT) none was, but
that graphs hide floors was found in JAX's of the latter. The 29 of HeCBench, of every other that reads no file, ran after
that; they showed that the floor of kernels of unknown classes is to stay as it was. 15 more of it ran after all of that
(they showed that `hadamard` is not `adam`, and
`rowwiseMoments` and `graphExecution` that a name outside any namespace is none of a library's). That counted writes wait for
no threads, and the floors of counted kernels of unknown class, were found on the 29. After all of that 96 more of HeCBench
ran: 60 whose counters had been read on an H200, and as many as there was time for of the others, in an order by lot. Of what
moves kernels by the memory that is allocated nothing was chosen. 56 more, by lot of what was left, ran after all of this.
`probed`: by a probe of each GPU, of HeCBench and third-party ones within minutes of their runs. `counted`: those kernels
whose counters were read on the first GPU. `allocated`: by the memory that was allocated when they ran; of HeCBench's first
140 in a run on another H200. Without it, what is known of the memory is left out, as in traces of other profilers.
`--constants`: the medians with each constant that has no source halved and doubled.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
from claims import Truth, goal, judge, table
from operators import VIDUR, Case, fp32_operators, llm_operators
from pairs.table import read_plan
from published import SHARED
from stored import machines, unpacked

from busfare.answers.compare import compare_kernels
from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.price import RANGED, SIDES
from busfare.nodes import FloatArray, load_node
from busfare.trace import Trace, read
from busfare.trace.tables import COUNTERS


def recorded_programs() -> Iterator[Case]:
    """Kernels of the programs that were recorded on both GPUs, each way, by data sheets and by probed nodes; of those whose
    counters were read on the H100, by them too.
    """
    recorded, stored = {machine.gpu: machine for machine in machines("pairs")}, unpacked("kernels")
    third_party = {
        THIRD_PARTY: unpacked("kernels-third-party"),
        BENCHMARKS: unpacked("kernels-hecbench"),
        LATER_BENCHMARKS: unpacked("kernels-hecbench-later"),
        HELD_BENCHMARKS: unpacked("kernels-hecbench-held"),
        UNSEEN_BENCHMARKS: unpacked("kernels-hecbench-unseen"),
    }
    rungs = {
        "": {"h100": load_node("h100-sxm"), "h200": load_node("h200-sxm")},
        ", probed": {gpu: load_node(str(stored / gpu / "kernels.toml")) for gpu in ("h100", "h200")},
    }
    schema = {"program": pl.String, **COUNTERS}
    counters = {
        gpu: pl.concat(
            pl.read_csv(folder / gpu / "counters.csv", schema=schema, missing_columns="insert")
            for folder in (stored, third_party[BENCHMARKS], third_party[HELD_BENCHMARKS])
            if (folder / gpu / "counters.csv").is_file()
        )
        for gpu in ("h100", "h200")
    }
    allocated = pl.concat(
        pl.read_csv(path).cast(dict.fromkeys(SIDES, pl.Int32))
        for folder in (stored, *third_party.values())
        if (path := folder / "allocated.csv").is_file()
    )
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
        **{
            kind: {
                path.stem: {gpu: folder / gpu / path.name for gpu in ("h100", "h200")}
                for path in sorted((folder / "h100").glob("*.bf"))
            }
            for kind, folder in third_party.items()
        },
    }
    probed_themselves = {
        kind: {gpu: load_node(str(folder / gpu / "node.toml")) for gpu in ("h100", "h200")}
        for kind, folder in third_party.items()
    }
    for kind, program, paths in (
        (kind, *item) for kind, programs in files.items() for item in programs.items()
    ):
        traces = {gpu: read(path, launches=True) for gpu, path in paths.items()}
        of_program = allocated.filter(program=program)
        for (rung, nodes), (here, there), by in product(
            rungs.items(), (("h100", "h200"), ("h200", "h100")), ("", ", counted", ALLOCATED)
        ):
            if rung and kind.startswith("21"):  # their machines were probed before probes knew kernels
                continue
            nodes = probed_themselves.get(kind, nodes) if rung else nodes
            trace = _with_allocated(traces[here], of_program if by == ALLOCATED else None)
            if by == ", counted":
                trace = replace(trace, counters=counters[here].filter(program=program).drop("program"))
                if trace.counters.is_empty():
                    continue
            if by == ALLOCATED and trace.launches["allocated_bytes"].is_null().all():
                continue
            compared = compare_kernels(trace, traces[there], nodes[here], nodes[there])
            ratio = limits_of(nodes[here]).memory / limits_of(nodes[there]).memory
            title = f"{kind}, {here.upper()} → {there.upper()}{rung}{by}"
            for row in compared.by_kernel if compared else []:
                if by == ", counted" and row.rung != "counters":
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


def _with_allocated(trace: Trace, allocations: pl.DataFrame | None) -> Trace:
    """`trace` with what was allocated when its kernels ran, of the rows of `known` or else its own; without it for None."""
    launches = trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32))
    kernels = trace.operations.select("launch", name=pl.col("name").cast(pl.String)).drop_nulls("launch")
    launches = kernels.unique(maintain_order=True).join(
        launches, on="launch", how="left", maintain_order="left"
    )
    if allocations is None:
        launches = launches.with_columns(allocated_bytes=pl.lit(None, pl.Int64))
    else:
        attached = allocations.select("name", *SIDES, attached_bytes="allocated_bytes")
        launches = launches.join(attached, on=["name", *SIDES], how="left", maintain_order="left")
        launches = launches.with_columns(allocated_bytes=pl.coalesce("attached_bytes", "allocated_bytes"))
    launches = launches.with_row_index("of")
    operations = trace.operations.with_columns(text=pl.col("name").cast(pl.String)).join(
        launches.select("launch", "of", text="name"), on=["launch", "text"], how="left", maintain_order="left"
    )
    return replace(
        trace,
        operations=operations.with_columns(launch=pl.col("of").cast(pl.UInt32)).drop("of", "text"),
        launches=launches.select(trace.launches.columns),
    )


def _written_later() -> Iterator[tuple[str, dict[str, Path]]]:
    """The recordings of `unseen.toml`'s programs on each H100 and each H200 that ran them; of some only those of threads."""
    h100s, h200s = ([m for m in machines("unseen") if m.gpu == gpu] for gpu in ("h100", "h200"))
    for *pair, program in product(h100s, h200s, read_plan("unseen.toml").programs):
        names = [next(filter(partial(m.has, program), ("before", "before-threads")), "") for m in pair]
        if all(names):  # it was run on both
            yield (
                " ".join([program, *(m.name for m in pair)]),
                {m.gpu: m.recording(program, name) for m, name in zip(pair, names, strict=True)},
            )


THIRD_PARTY = "19 third-party programs"
BENCHMARKS, LATER_BENCHMARKS = "29 programs of HeCBench", "15 more of HeCBench"
HELD_BENCHMARKS, UNSEEN_BENCHMARKS = "96 more of HeCBench", "56 more of HeCBench"
#: The end of the name of a row by what is allocated.
ALLOCATED = ", allocated"
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
    f"{BENCHMARKS}, H100 → H200": (4, 15),
    f"{BENCHMARKS}, H200 → H100": (4, 15),
    f"{LATER_BENCHMARKS}, H100 → H200": (4, 15),
    f"{LATER_BENCHMARKS}, H200 → H100": (4, 15),
    f"{HELD_BENCHMARKS}, H100 → H200": (4, 15),
    f"{HELD_BENCHMARKS}, H200 → H100": (4, 15),
    f"{UNSEEN_BENCHMARKS}, H100 → H200": (4, 15),
    f"{UNSEEN_BENCHMARKS}, H200 → H100": (4, 15),
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
    f"{BENCHMARKS}, H100 → H200, counted": (2.5, 7),
    f"{BENCHMARKS}, H100 → H200, probed, counted": (2.5, 7),
    f"{HELD_BENCHMARKS}, H100 → H200, counted": (2.5, 7),
    f"{HELD_BENCHMARKS}, H200 → H100, counted": (2.5, 7),
    f"{HELD_BENCHMARKS}, H100 → H200, probed, counted": (2.5, 7),
    f"{HELD_BENCHMARKS}, H200 → H100, probed, counted": (2.5, 7),
}
GOALS |= {
    f"{name}{ALLOCATED}": goal
    for name, goal in GOALS.items()
    if re.match("17|21|.*HeCBench", name) and not name.endswith("counted")
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
        if case.bound not in RANGED and not case.bound.startswith("product"):
            continue
        what = "kernel-alike" if case.alike else "kernel"
        for predicted, actual in zip(case.predicted.tolist(), case.actual.tolist(), strict=True):
            yield Truth(case.figures, case.bound, what, 0, case.group, predicted, actual)


#: Constants of the models without a source, and the modules that use them.
CONSTANTS = {
    **dict.fromkeys(
        ("HALF_RATE_SIDE", "EDGE_CYCLES", "SHARED_TILE_SCATTER", "ALIKE_SIDES", "APART"), ("limits",)
    ),
    "OVERLAP": ("limits", "move"),
    **dict.fromkeys(
        ("HALF", "STREAM_BYTES", "FLOOR_HIDDEN_S", "THREADS_NEEDED", "THREADS_A_CYCLE"), ("move",)
    ),
}


def constants() -> None:
    """The median error of each row with a constant as it is, halved and doubled."""
    print("constant: median error in %, of " + ", ".join(GOALS))
    print(f"{'as they are':24} {_medians()}")
    for name, modules in CONSTANTS.items():
        value = getattr(import_module(f"busfare.cost.kernels.{modules[0]}"), name)
        for factor in (0.5, 2.0):
            with ExitStack() as patches:
                for module in modules:
                    patches.enter_context(patch(f"busfare.cost.kernels.{module}.{name}", value * factor))
                print(f"{name:18} × {factor:3} {_medians()}", flush=True)


def _medians() -> str:
    by_row: dict[str, list[FloatArray]] = {}
    for case in cases():
        by_row.setdefault(case.name, []).append(np.abs(case.predicted / case.actual - 1))
    return " ".join(
        f"{100 * float(np.nanmedian(np.concatenate(by_row[name]))):5.1f}" for name in GOALS if name in by_row
    )


def main() -> None:
    if "--constants" in sys.argv:
        constants()
        sys.exit()
    by_row: dict[str, list[Case]] = {}
    for case in cases():
        by_row.setdefault(case.name, []).append(case)
    prices: list[Callable[[Case], FloatArray]] = [
        lambda case: case.predicted,
        lambda case: case.recorded,
        lambda case: case.recorded * case.bandwidth,
        lambda case: case.recorded * case.peak,
    ]
    rows, missed = [], 0
    for name, of_row in by_row.items():
        actual = np.concatenate([case.actual for case in of_row])
        figures: list[float] = []
        for price in prices:
            errors = 100 * np.abs(np.concatenate([price(case) for case in of_row]) / actual - 1)
            figures += np.nanpercentile(errors, (50, 90)).tolist()
        low, high = (np.concatenate([getattr(case, end) for case in of_row]) for end in ("low", "high"))
        inside = 100 * float(np.mean((actual >= low) & (actual <= high)))
        good = all(most is None or value <= most for value, most in zip(figures, GOALS[name], strict=False))
        missed += not good
        rows.append((name, len(actual), *figures, inside, *GOALS[name], "met" if good else "MISSED"))
    errors = "|".join(f"{what}:.1f|90th:.1f" for what in ("predicted", "kept", "bandwidth", "peak"))
    table(f"median and 90th percentile, % off|kernels:d|{errors}|% in range:.0f|goal:g|90th:g|", rows)
    goal("rows that miss their goal", missed, most=0, form="d")


if __name__ == "__main__":
    judge(main)
