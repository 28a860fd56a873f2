"""The results of `project` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import polars as pl
from msgspec.structs import asdict

from busfare.cost import model_names
from busfare.cost.ranges import rung_of, seconds_between
from busfare.errors import InputError
from busfare.node import Node
from busfare.project import Comparison, Projection, compare
from busfare.report import results
from busfare.report.results import Compared, PathCompared, PathThere, Projected
from busfare.results import rows_of
from busfare.trace import Trace

__all__ = ["compared", "projection_result"]

Row = TypeVar("Row", PathThere, PathCompared)


def projection_result(projections: Sequence[Projection], guessed: bool = False) -> Projected:
    """The result of `project`: the first node's projection at the top, all of them under `projections`.

    `guessed`: where it was recorded is a guess, from the name of the GPU.
    """
    every = [_projection(p) for p in projections]
    return Projected(**asdict(every[0]), from_guessed_from_gpu_name=guessed, projections=every)


def _projection(p: Projection) -> results.Projection:
    return results.Projection(
        recorded_on=p.recorded_on,
        to=p.to,
        model=p.model,
        transfers=results.TransfersThere(
            recorded_seconds=p.recorded_seconds,
            predicted_seconds=p.predicted_seconds,
            **seconds_between(*p.transfers_between, p.rung),
            unpriced=p.unpriced,
        ),
        makespan=results.RunThere(
            recorded_seconds=p.recorded_makespan_seconds,
            replayed_seconds=p.replayed_makespan_seconds,
            predicted_seconds=p.predicted_makespan_seconds,
            **seconds_between(*p.makespan_between, p.rung),
            method=p.method,
        ),
        pageable_copies=p.staging,
        by_path=_paths(PathThere, p.by_path, p.rung),
    )


def _paths(row: type[Row], by_path: pl.DataFrame, rung: str | None) -> list[Row]:
    ranged = (r | seconds_between(r["low_seconds"], r["high_seconds"], rung) for r in by_path.to_dicts())
    return rows_of(row, ranged)


def compared(
    trace: Trace, actual: Trace, recorded_on: Node, to: Node, models: Sequence[str] | None = None
) -> Compared:
    """The result of `compare`: the best model's errors at the top, every model's under `models`, best first.

    Without `models`, every model that has a price for some copy. Raises InputError if there is none.
    """
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
    if not comparisons:
        raise InputError(refused[0])
    every = [_comparison(c) for c in sorted(comparisons, key=lambda c: c.wmape_percent)]
    return Compared(
        **asdict(every[0]),
        predicted=str(trace.path),
        actual=str(actual.path),
        recorded_on=recorded_on.name,
        to=to.name,
        models=every,
    )


def _comparison(c: Comparison) -> results.Comparison:
    kept = ("model", "wmape_percent", "inside_percent", "count", "unmatched", "unpriced")
    paths = _paths(PathCompared, c.by_path, rung_of(c.model))
    return results.Comparison(**{key: getattr(c, key) for key in kept}, by_path=paths)
