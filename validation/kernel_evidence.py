"""What recordings and counters tell of kernels, beside what is taken for true: tables of `python validation/kernels.py`."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import polars as pl
from claims import table
from stored import unpacked

from busfare.cost.kernels.limits import limits_of
from busfare.cost.kernels.price import SIDES
from busfare.node import load_node
from busfare.trace import read
from busfare.trace.tables import COUNTERS

QUARTERS = (0.25, 0.5, 0.75)


#: Kernels that take less than this tell little of the memory, s.
LEAST_STREAM_S = 4e-6


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
