"""A trace recorded on node A, priced on node B: its copies by any cost model, and the whole run's time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import account, cost
from busfare.errors import InputError
from busfare.node import Node
from busfare.trace import Trace

__all__ = ["MAKESPAN_METHOD", "Projection", "project", "transfers_priced"]

Seconds = NDArray[np.float64]
NS = 1e-9
PATH = ["direction", "source_memory", "destination_memory"]
MAKESPAN_METHOD = (
    "exposed time scaled: what each copy keeps to itself grows or shrinks with the copy, "
    "kernels and the host keep their times"
)


@dataclass(frozen=True, slots=True)
class Projection:
    """What a run's transfers take on node B, by one model. Seconds.

    `by_path`: direction, source_memory, destination_memory, count, bytes, recorded_seconds, predicted_seconds.
    `unpriced` counts transfers that the model has no price for: their recorded time is kept.
    """

    recorded_on: str
    to: str
    model: str
    recorded_seconds: float
    predicted_seconds: float
    recorded_makespan_seconds: float
    predicted_makespan_seconds: float
    by_path: pl.DataFrame
    unpriced: int


def transfers_priced(trace: Trace, recorded_on: Node, to: Node, model: str) -> pl.DataFrame:
    """The transfers of `trace` with `recorded_seconds`, and `predicted_seconds` on `to` (null where `model` has none).

    Raises InputError for an unknown model.
    """
    transfers = trace.operations.filter(account.is_transfer())
    predicted = cost.model(model, recorded_on=recorded_on).seconds(transfers, to)
    return transfers.with_columns(
        recorded_seconds=(pl.col("end_ns") - pl.col("start_ns")) * NS,
        predicted_seconds=pl.Series(predicted).fill_nan(None),
    )


def project(trace: Trace, recorded_on: Node, to: Node, model: str) -> Projection:
    """Predicts copies and whole-run time of `trace` on node `to`. Raises InputError for an unknown model."""
    transfers = transfers_priced(trace, recorded_on, to, model)
    if transfers.is_empty():
        raise InputError(
            f"{trace.path}: no copies in this trace; there is nothing to project (see `busfare report`)"
        )
    unpriced = transfers["predicted_seconds"].null_count()
    transfers = transfers.with_columns(
        pl.coalesce("predicted_seconds", "recorded_seconds").alias("predicted_seconds")
    )
    by_path = (
        transfers.group_by(PATH)
        .agg(
            pl.len().alias("count"),
            pl.col("bytes").sum(),
            pl.col("recorded_seconds").sum(),
            pl.col("predicted_seconds").sum(),
        )
        .sort("recorded_seconds", "count", descending=True)
    )
    makespan = account.totals(trace).makespan_seconds
    return Projection(
        recorded_on=recorded_on.name,
        to=to.name,
        model=model,
        recorded_seconds=float(transfers["recorded_seconds"].sum()),
        predicted_seconds=float(transfers["predicted_seconds"].sum()),
        recorded_makespan_seconds=makespan,
        predicted_makespan_seconds=makespan + _exposed_change(trace, transfers),
        by_path=by_path,
        unpriced=unpriced,
    )


def _exposed_change(trace: Trace, transfers: pl.DataFrame) -> float:
    """By how much the run's exposed copy time changes, in seconds."""
    kernels = account.kernel_union(trace)
    starts, ends = transfers["start_ns"].to_numpy(), transfers["end_ns"].to_numpy()
    exposed = (ends - starts - kernels.covered_within(starts, ends)) * NS
    alone = float(exposed.sum())
    if alone <= 0:
        return 0.0
    recorded, predicted = transfers["recorded_seconds"].to_numpy(), transfers["predicted_seconds"].to_numpy()
    ratio = np.divide(predicted, recorded, out=np.ones_like(predicted), where=recorded > 0)
    # Copies that run beside each other share the time they keep from the kernels.
    shared = account.union_of(transfers).minus(kernels) * NS / alone
    return float((exposed * (ratio - 1.0)).sum()) * shared
