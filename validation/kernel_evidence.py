"""What recordings and counters tell of kernels, beside what is taken for true: tables of `python validation/kernels.py`."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import polars as pl
from claims import table
from stored import unpacked

from busfare.cost.kernels.arguments import array_bytes
from busfare.cost.kernels.classes import MEMORY, class_of, is_own_code
from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.move import ARRAYS_TAKE, BOUNDS, ELEMENTS, ELEMENTS_TAKE, STREAM_BYTES
from busfare.cost.kernels.price import SIDES, price_kernels
from busfare.node import load_node
from busfare.trace import Trace, read
from busfare.trace.tables import COUNTERS

#: By how long kernels ran on the H100, s; and what is told of each.
LENGTHS_S = ((0.0, 1.5e-6), (1.5e-6, 2.5e-6), (2.5e-6, 4e-6), (4e-6, 8e-6))
QUARTERS = (0.25, 0.5, 0.75)


def floors() -> None:
    """How much longer kernels ran on the H100 than on the H200, medians by their length and by what launched them."""
    folder, frames = unpacked("kernels-third-party"), []
    for path in sorted((folder / "h100").glob("*.bf")):
        here, there = (_lengths(read(folder / gpu / path.name, launches=True)) for gpu in ("h100", "h200"))
        frames.append(here.join(there, on=["name", "in_graph", *SIDES], suffix="_there"))
    found = pl.concat(frames).with_columns(more=pl.col("s") - pl.col("s_there"))
    rows = [
        ("graph" if graph else "stream", least * 1e6, most * 1e6, part.height, *(part["more"].quantile(q) for q in QUARTERS))
        for graph, (least, most) in product((False, True), LENGTHS_S)
        if (part := found.filter(pl.col("in_graph") == graph, pl.col("s").is_between(least, most))).height
    ]  # fmt: skip
    rows = [(*row[:4], *(1e6 * value for value in row[4:])) for row in rows]
    table(
        "launched by|from, µs:.1f|to:.1f|kernels:d|longer by, µs, a quarter below:.2f|median:.2f|a quarter above:.2f",
        rows,
    )


def _lengths(trace: Trace) -> pl.DataFrame:
    """The median length of each kernel by its name, launch and whether a graph launched it, s."""
    kernels = trace.operations.filter(pl.col("kind") == "kernel").join(
        trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32)), on="launch"
    )
    by = [pl.col("name").cast(pl.String), pl.col("graph_node").is_not_null().alias("in_graph"), *SIDES]
    return kernels.group_by(by, maintain_order=True).agg(
        s=1e-9 * (pl.col("end_ns") - pl.col("start_ns")).median()
    )


#: Kernels that take less than this tell little of the memory, s.
LEAST_STREAM_S = 4e-6


def streams() -> None:
    """What was counted of kernels on an H200, by what their arguments tell: the share of the memory's rate, and how far
    their prices on an H100 without counters are from those with them.
    """
    stored = pl.read_csv(
        unpacked("kernels-hecbench-held") / "h200" / "counters.csv", schema={"program": pl.String, **COUNTERS}
    )
    here, there = load_node("h200-sxm"), load_node("h100-sxm")
    limits, frames = limits_of(here), []
    for (_,), counted in stored.group_by("program", maintain_order=True):
        counted = counted.unique(["name", *SIDES], keep="first", maintain_order=True)
        operations = counted.select(
            "name", kind=pl.lit("kernel"), start_ns=pl.lit(0), end_ns=pl.col("seconds") * 1e9, launch=pl.row_index()
        )  # fmt: skip
        launches = counted.select(*SIDES, "registers", "shared_bytes")
        told, known = (price_kernels(operations, launches, here, there, by) for by in (None, counted))
        frames.append(counted.with_columns(told=told.seconds, known=known.seconds, bound=told.bounds))
    found = pl.concat(frames).filter(
        pl.col("seconds") > LEAST_STREAM_S, pl.col("bound") != BOUNDS.index("compute")
    )
    threads = found.select(pl.fold(1.0, lambda left, right: left * right, SIDES)).to_series()
    each = (found["seconds"] * limits.memory / threads).to_numpy()
    arrays = np.array([array_bytes(name) for name in found["name"]])
    element, several = (
        np.logical_or.reduce(
            [(count * arrays > least * each) & (count * arrays < most * each) for count in counts]
        )
        for counts, (least, most) in (((1.0,), ARRAYS_TAKE), (ELEMENTS, ELEMENTS_TAKE))
    )
    stream = (each > STREAM_BYTES[0]) & (each < STREAM_BYTES[1])
    tells = np.select(
        [element, ~stream, np.isnan(arrays), several],
        ["an element of each array", "too little or too much", "arrays not known", "several of each"],
        "another number of each",
    )
    moved = pl.col("dram_read_bytes") + pl.col("dram_write_bytes")
    share, off = moved / pl.col("seconds") / limits.memory, 100 * (pl.col("told") / pl.col("known") - 1).abs()
    quarters = [share.quantile(q).alias(f"share {q}") for q in QUARTERS]
    words = [class_of(name) in MEMORY and is_own_code(name) for name in found["name"]]
    rows = [
        row
        for frame, by in ((found, tells), (found.filter(words), ["words that anybody may use"] * sum(words)))
        for row in frame.group_by(pl.Series("tells", by))
        .agg(pl.len(), pl.col("program").n_unique(), *quarters, half=off.median(), most=off.quantile(0.9))
        .sort("tells")
        .rows()
    ]
    table(
        "a thread moves|kernels:d|programs:d|of the memory's rate, a quarter below:.2f|median:.2f|a quarter above:.2f"
        "|% from the price by counters, median:.1f|90th:.1f",
        rows,
    )


#: Parts of the time that the memory would take for what arguments reach; and of L2, that this is as large as.
SHARES, L2_SIZES = (0.1, 1.1), (0.0, 0.4, 0.6, 0.8, 1.2, np.inf)


def reached() -> None:
    """Bytes counted in DRAM over those that arguments reach, of kernels of HeCBench by how much that is beside L2."""
    frames = []
    for archive, gpu in product(("kernels", "kernels-hecbench", "kernels-hecbench-held"), ("h100", "h200")):
        path, limits = unpacked(archive) / gpu / "counters.csv", limits_of(load_node(f"{gpu}-sxm"))
        if path.is_file():
            told = pl.read_csv(path.parents[1] / "arguments.csv")
            counted = pl.read_csv(path, schema={"program": pl.String, **COUNTERS})
            by = ["program", "name", *SIDES]
            counted = counted.unique(by, keep="first", maintain_order=True).join(told, on=by)
            share = pl.col("argument_bytes") / pl.col("seconds") / limits.memory
            frames.append(counted.with_columns(share=share, of_l2=pl.col("argument_bytes") / limits.l2_bytes))
    found = pl.concat(frames).filter(
        pl.col("seconds") > LEAST_STREAM_S, pl.col("share").is_between(*SHARES)
    )  # fmt: skip
    moved = (pl.col("dram_read_bytes") + pl.col("dram_write_bytes")) / pl.col("argument_bytes")
    rows = [
        (least, most, part.height, part["program"].n_unique(), *part.select(
            moved.quantile(q).alias(str(q)) for q in (0.1, *QUARTERS, 0.9)).row(0))
        for least, most in pairwise(L2_SIZES)
        if (part := found.filter(pl.col("of_l2") >= least, pl.col("of_l2") < most)).height
    ]  # fmt: skip
    table(
        "of L2:g|to:g|kernels:d|programs:d|DRAM over arguments, a tenth below:.2f|a quarter:.2f|median:.2f"
        "|a quarter above:.2f|a tenth:.2f",
        rows,
    )
    spread()


#: By how much longer a tenth of a kernel's launches takes than a tenth: from, to.
LONGER = (1.0, 1.3, 2.0, np.inf)


def spread() -> None:
    """Kernels of the last 56 of HeCBench's programs, each GPU's, by how far the times of their launches lie apart."""
    of, took = ["name", *SIDES], pl.col("end_ns") - pl.col("start_ns")
    apart = []
    for path in sorted(unpacked("kernels-hecbench-unseen").glob("*/*.bf")):
        trace = read(path, launches=True)
        launches = trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32))
        kernels = trace.operations.filter(kind="kernel").join(launches, on="launch")
        apart += kernels.group_by(of).agg(took.max() / took.min())["end_ns"].to_list()
    rows = [(a, b, sum(a <= one < b for one in apart)) for a, b in pairwise(LONGER)]
    table("launches apart by a factor of:g|to:g|kernels:d", rows)
