"""Kernels on another node: what is predicted of each class, and how far it is from a run recorded there."""

from __future__ import annotations

import numpy as np
import polars as pl

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
    frame = pl.DataFrame(
        {
            "kind": prices.kinds,
            "bound": prices.bounds,
            "recorded": prices.recorded,
            **{
                name: np.where(known, value, prices.recorded)
                for name, value in (("predicted", prices.seconds), ("low", prices.low), ("high", prices.high))
            },
        }
    )
    sums = frame.group_by("kind", "bound").agg(pl.len(), pl.all().exclude("kind", "bound").sum())
    return [
        KernelClassThere(
            kind=CLASSES[row["kind"]],
            bound=BOUNDS[row["bound"]],
            count=row["len"],
            recorded_seconds=row["recorded"],
            predicted_seconds=row["predicted"],
            low_seconds=None if BOUNDS[row["bound"]] == "none" else row["low"],
            high_seconds=None if BOUNDS[row["bound"]] == "none" else row["high"],
            rung=prices.rung_of(row["bound"]),
            factor=row["predicted"] / row["recorded"] if row["recorded"] else None,
            why=WHY[BOUNDS[row["bound"]]],
        )
        for row in sums.sort("recorded", descending=True).to_dicts()
    ]


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
        predicted=prices.seconds, bound=prices.bounds, low=prices.low, high=prices.high,
        rung=pl.Series([prices.rung_of(int(bound)) for bound in prices.bounds], dtype=pl.String),
    )  # fmt: skip
    ours, theirs = _summed(priced.filter(pl.col("predicted").is_not_nan())), _summed(_named(actual, there))
    both = ours.join(theirs.select("key", actual="recorded", kernels_there="kernels"), on="key")
    if both.is_empty():
        return KernelsCompared(
            count=0, wmape_percent=None, median_percent=None, inside_percent=None,
            unmatched=prices.rows.size + there.rows.size, by_kernel=[],
        )  # fmt: skip
    error = (pl.col("predicted") - pl.col("actual")).abs()
    inside = pl.col("actual").is_between(pl.col("low") - 1e-9, pl.col("high") + 1e-9)
    figures = both.select(
        wmape=100 * (error * pl.col("launches")).sum() / (pl.col("actual") * pl.col("launches")).sum(),
        median=100 * (error / pl.col("actual")).median(),
        inside=100 * inside.mean(),
        count=pl.col("launches").sum(),
    ).to_dicts()[0]
    matched = both.select(pl.sum("kernels") + pl.sum("kernels_there")).item()
    rows = both.sort(pl.col("recorded") * pl.col("launches"), descending=True).to_dicts()
    return KernelsCompared(
        count=figures["count"],
        wmape_percent=figures["wmape"],
        median_percent=figures["median"],
        inside_percent=figures["inside"],
        unmatched=prices.rows.size + there.rows.size - matched,
        by_kernel=[
            KernelCompared(
                name=row["name"],
                kind=CLASSES[row["kind"]],
                bound=BOUNDS[row["bound"]],
                rung=row["rung"],
                recorded_seconds=row["recorded"],
                predicted_seconds=row["predicted"],
                low_seconds=row["low"],
                high_seconds=row["high"],
                actual_seconds=row["actual"],
                count=row["launches"],
            )
            for row in rows
        ],
    )  # fmt: skip


def _named(trace: Trace, prices: KernelPrices) -> pl.DataFrame:
    """The kernels with what they are matched by: `key`, and `part`, the kernel's own name and launch."""
    columns = ["name", *(["launch"] if "launch" in trace.operations.columns else [])]
    kernels = (
        trace.operations[prices.rows]
        .select(columns)
        .with_columns(recorded=prices.recorded, kind=prices.kinds)
    )
    if "launch" in columns and not trace.launches.is_empty():
        launches = trace.launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32))
        kernels = kernels.join(launches, on="launch", how="left", maintain_order="left")
    name = pl.col("name").cast(pl.String).fill_null("")
    sizes = [side for side in SIDES if side in kernels.columns]
    part = pl.concat_str(name, *(pl.col(size).cast(pl.String).fill_null("") for size in sizes), separator=" ")
    key = part
    if "operator" in kernels.columns:
        operator = pl.concat_str(
            "operator", pl.col("shapes").fill_null(""), pl.col("types").fill_null(""), separator=" "
        )
        key = pl.coalesce(operator, part)
        name = pl.coalesce("operator", name)
    return kernels.select("recorded", "kind", key=key, part=part, name=name)


def _summed(kernels: pl.DataFrame) -> pl.DataFrame:
    """By key: seconds a launch, where the kernel of an operator that is launched most says how often that was."""
    seconds = [name for name in ("recorded", "predicted", "low", "high") if name in kernels.columns]
    first = [name for name in ("name", "kind", "bound", "rung") if name in kernels.columns]
    parts = kernels.group_by("key", "part").agg(
        pl.len().alias("count"), pl.col(seconds).sum(), pl.col(first).first()
    )
    by_key = parts.sort("recorded", descending=True).group_by("key").agg(
        launches=pl.col("count").max(), kernels=pl.col("count").sum(), **{name: pl.col(name).sum() for name in seconds},
        **{name: pl.col(name).first() for name in first},
    )  # fmt: skip
    a_launch = [(pl.col(name) / pl.col("launches")).alias(name) for name in seconds]
    return by_key.with_columns(*a_launch)
