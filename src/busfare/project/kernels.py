"""Kernels on another node: what is predicted of each class, and how far it is from a run recorded there."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import convert

from busfare.cost.kernels.classes import CLASSES
from busfare.cost.kernels.move import BOUNDS
from busfare.cost.kernels.price import SIDES, KernelPrices, price_kernels
from busfare.errors import InputError
from busfare.node import Node
from busfare.project.results import KernelClassThere, KernelCompared, KernelsCompared
from busfare.trace import Trace

__all__ = ["compare_kernels", "kernel_classes"]

#: Why a time is what it is, by its bound.
WHY = {
    "between": "nothing in the trace tells what bounds them: between the memories' ratio and the multiprocessors'",
    "memory": "each byte is moved once: by memory and L2, and what is left by clock and threads",
    "compute": "by the pipelines' peaks, and where shapes are known by tiles in waves",
    "counted": "by the bytes that counters saw, and the rest by clock and threads",
    "none": "they wait for other GPUs: not predicted, the recorded time is kept",
}


def kernel_classes(prices: KernelPrices) -> list[KernelClassThere]:
    """A row for each class and bound, the longest first."""
    known = np.isfinite(prices.seconds)
    ends = {"predicted_seconds": prices.seconds, "low_seconds": prices.low, "high_seconds": prices.high}
    frame = pl.DataFrame(
        {"kind": prices.kinds, "place": prices.bounds, "recorded_seconds": prices.recorded}
        | {name: np.where(known, value, prices.recorded) for name, value in ends.items()}
    )
    sums = frame.group_by("kind", "place").agg(pl.len().alias("count"), pl.exclude("kind", "place").sum())
    found = []
    for row in sums.sort("recorded_seconds", descending=True).to_dicts():
        bound, recorded = BOUNDS[row["place"]], row["recorded_seconds"]
        row |= {
            "class": CLASSES[row["kind"]],
            "bound": bound,
            "why": WHY[bound],
            "rung": prices.rung_of(row["place"]),
        }
        row["factor"] = row["predicted_seconds"] / recorded if recorded else None
        if bound == "none":
            row |= {"low_seconds": None, "high_seconds": None}
        found.append(convert(row, KernelClassThere))
    return found


def compare_kernels(trace: Trace, actual: Trace, recorded_on: Node, to: Node) -> KernelsCompared | None:
    """The kernels of `trace`, priced on `to`, beside those of `actual`, recorded there: of an operator with the same inputs
    all its kernels together, else of the same name and launch. None where no price can be made.
    """
    try:
        prices = price_kernels(trace.operations, trace.launches, recorded_on, to, trace.counters)
        there = price_kernels(actual.operations, actual.launches, to, to)
    except InputError:
        return None
    priced = _named(trace, prices).with_columns(
        predicted_seconds=prices.seconds, low_seconds=prices.low, high_seconds=prices.high,
        bound=pl.Series([BOUNDS[bound] for bound in prices.bounds], dtype=pl.String),
        rung=pl.Series([prices.rung_of(int(bound)) for bound in prices.bounds], dtype=pl.String),
    )  # fmt: skip
    ours, theirs = (
        _summed(each)
        for each in (priced.filter(pl.col("predicted_seconds").is_not_nan()), _named(actual, there))
    )
    theirs = theirs.select("key", actual_seconds="recorded_seconds", kernels_there="kernels")
    both, unmatched = ours.join(theirs, on="key"), prices.rows.size + there.rows.size
    if both.is_empty():
        return KernelsCompared(unmatched=unmatched)
    recorded, launches = pl.col("actual_seconds"), pl.col("count")
    error = (pl.col("predicted_seconds") - recorded).abs()
    inside = recorded.is_between(pl.col("low_seconds") - 1e-9, pl.col("high_seconds") + 1e-9)
    figures = both.select(
        count=launches.sum(),
        wmape_percent=100 * (error * launches).sum() / (recorded * launches).sum(),
        median_percent=100 * (error / recorded).median(),
        inside_percent=100 * inside.mean(),
        unmatched=unmatched - pl.sum("kernels") - pl.sum("kernels_there"),
    ).to_dicts()[0]
    rows = both.sort(pl.col("recorded_seconds") * launches, descending=True).to_dicts()
    return KernelsCompared(**figures, by_kernel=convert(rows, list[KernelCompared]))


def _named(trace: Trace, prices: KernelPrices) -> pl.DataFrame:
    """The kernels with what they are matched by: `key`, and `part`, the kernel's own name and launch."""
    columns = [name for name in ("name", "launch") if name in trace.operations.columns]
    kernels = trace.operations[prices.rows].select(columns).with_columns(
        pl.Series("recorded_seconds", prices.recorded),
        pl.Series("class", [CLASSES[kind] for kind in prices.kinds], dtype=pl.String),
    )  # fmt: skip
    if "launch" in columns and not trace.launches.is_empty():
        launches = trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32))
        kernels = kernels.join(launches, on="launch", how="left", maintain_order="left")
    name = pl.col("name").cast(pl.String).fill_null("")
    sizes = [pl.col(side).cast(pl.String).fill_null("") for side in SIDES if side in kernels.columns]
    key = part = pl.concat_str(name, *sizes, separator=" ")
    if "operator" in kernels.columns:
        inputs = [pl.col(of).fill_null("") for of in ("shapes", "types")]
        key = pl.coalesce(pl.concat_str("operator", *inputs, separator=" "), part)
        name = pl.coalesce("operator", name)
    return kernels.select("recorded_seconds", "class", key=key, part=part, name=name)


def _summed(kernels: pl.DataFrame) -> pl.DataFrame:
    """By key: seconds a launch, where the kernel of an operator that is launched most says how often that was."""
    seconds = [name for name in kernels.columns if name.endswith("_seconds")]
    first = [name for name in kernels.columns if name not in ("key", "part", *seconds)]
    parts = kernels.group_by("key", "part").agg(
        pl.len().alias("count"), pl.col(seconds).sum(), pl.col(first).first()
    )
    by_key = parts.sort("recorded_seconds", descending=True).group_by("key")
    sums = by_key.agg(
        pl.col("count").max(), pl.col(seconds).sum(), pl.col(first).first(), kernels=pl.col("count").sum()
    )
    return sums.with_columns(pl.col(seconds) / pl.col("count"))
