"""Predictions held against a trace recorded on the machine that they are for."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import asdict

from busfare.cost import model_names
from busfare.cost.ranges import rung_of
from busfare.errors import InputError
from busfare.node import Node
from busfare.project.kernels import compare_kernels
from busfare.project.projection import ENDS, NS, PATH, by_path, transfers_priced
from busfare.project.results import Compared, Comparison, PathCompared
from busfare.trace import Trace

__all__ = ["compare", "compared", "wmape_percent"]


def wmape_percent(recorded: pl.Expr, predicted: pl.Expr) -> pl.Expr:
    """100 · Σ|A−P| / ΣA [A19 §VI-C]."""
    return 100.0 * (recorded - predicted).abs().sum() / recorded.sum()


def compare(trace: Trace, actual: Trace, recorded_on: Node, to: Node, model: str) -> Comparison:
    """Prices the transfers of `trace` on node `to` and compares each with its own in `actual`, recorded there.

    The n-th copy of a direction, memory kinds and size in one run is matched with the n-th such copy of the other;
    what only one of the runs has is counted as unmatched. Raises InputError if nothing matches or has a price.
    """
    priced = _numbered(transfers_priced(trace, recorded_on, to, model))
    taken = _numbered(transfers_priced(actual, to, to, "envelope").drop(ENDS))
    keys = [*PATH, "bytes", "number"]
    both = priced.select(*keys, *ENDS).join(
        taken.select(*keys, "recorded_seconds"), on=keys, how="inner", nulls_equal=True
    )
    unmatched = priced.height + taken.height - 2 * both.height
    if both.is_empty():
        raise InputError(
            f"{actual.path}: none of its copies matches one of {trace.path} in direction, memory and size; "
            "compare two runs of the same program"
        )
    compared = both.drop_nulls("predicted_seconds")
    if compared.is_empty() or not compared["recorded_seconds"].sum():
        raise InputError(
            f"model {model!r} has no price for any copy of {trace.path}; choose another with --model"
        )
    error = wmape_percent(pl.col("recorded_seconds"), pl.col("predicted_seconds"))
    # A clock that counts nanoseconds tells no shorter times apart.
    within = pl.col("recorded_seconds").is_between(pl.col("low_seconds") - NS, pl.col("high_seconds") + NS)
    inside = (100.0 * within.mean()).alias("inside_percent")
    known = pl.when(error.is_finite()).then(error).alias("wmape_percent")
    return Comparison(
        model=model,
        wmape_percent=float(compared.select(error).item()),
        inside_percent=compared.select(inside).item(),
        count=compared.height,
        unmatched=unmatched,
        unpriced=both.height - compared.height,
        by_path=by_path(PathCompared, compared, rung_of(model), known, inside),
    )


def compared(
    trace: Trace, actual: Trace, recorded_on: Node, to: Node, models: Sequence[str] | None = None
) -> Compared:
    """The best model's errors at the top, every model's under `models`, best first; and those of kernels.

    Without `models`, every model that has a price for some copy. Raises InputError if there is none, and no kernel either.
    """
    kernels = compare_kernels(trace, actual, recorded_on, to)
    comparisons: list[Comparison] = []
    refused: list[str] = []
    for name in models or model_names():
        try:
            comparisons.append(compare(trace, actual, recorded_on, to, name))
        except InputError as error:
            if models:
                raise
            # Its text alone: a kept error holds this frame, and with it both traces, until the interpreter ends.
            refused.append(str(error))
    if not comparisons and not (kernels and kernels.count):
        raise InputError(refused[0])
    every = sorted(comparisons, key=lambda one: one.wmape_percent or 0.0)
    return Compared(
        **asdict(every[0] if every else Comparison(model="none")),
        predicted=str(trace.path),
        actual=str(actual.path),
        recorded_on=recorded_on.name,
        to=to.name,
        kernels=kernels,
        models=every,
    )


def _numbered(transfers: pl.DataFrame) -> pl.DataFrame:
    return transfers.sort("start_ns", maintain_order=True).with_columns(
        number=pl.int_range(pl.len()).over([*PATH, "bytes"])
    )
