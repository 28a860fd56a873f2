"""The results of `project` and `compare` as dictionaries, ready for JSON; keys in docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from busfare.cost import model_names
from busfare.cost.ranges import rung_of, seconds_between
from busfare.errors import InputError
from busfare.node import Node
from busfare.project import Comparison, Projection, compare
from busfare.trace import Trace

__all__ = ["compared", "projection_result"]


def projection_result(projections: Sequence[Projection], guessed: bool = False) -> dict[str, Any]:
    """The result of `project`: the first node's projection at the top, all of them under `projections`.

    `guessed`: where it was recorded is a guess, from the name of the GPU.
    """
    every = [_projection(p) for p in projections]
    return {
        "schema": "busfare.project/1",
        **every[0],
        "from_guessed_from_gpu_name": guessed,
        "projections": every,
    }


def _projection(p: Projection) -> dict[str, Any]:
    return {
        "from": p.recorded_on,
        "to": p.to,
        "model": p.model,
        "transfers": {
            "recorded_seconds": p.recorded_seconds,
            "predicted_seconds": p.predicted_seconds,
            **seconds_between(*p.transfers_between, p.rung),
            "unpriced": p.unpriced,
        },
        "makespan": {
            "recorded_seconds": p.recorded_makespan_seconds,
            "replayed_seconds": p.replayed_makespan_seconds,
            "predicted_seconds": p.predicted_makespan_seconds,
            **seconds_between(*p.makespan_between, p.rung),
            "method": p.method,
        },
        "pageable_copies": p.staging,
        "by_path": _paths(p.by_path, p.rung),
    }


def _paths(by_path: pl.DataFrame, rung: str | None) -> list[dict[str, Any]]:
    return [
        row | seconds_between(row["low_seconds"], row["high_seconds"], rung) for row in by_path.to_dicts()
    ]


def compared(
    trace: Trace, actual: Trace, recorded_on: Node, to: Node, models: Sequence[str] | None = None
) -> dict[str, Any]:
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
    where = {
        "predicted": str(trace.path),
        "actual": str(actual.path),
        "from": recorded_on.name,
        "to": to.name,
    }
    return {"schema": "busfare.compare/1", **where, **every[0], "models": every}


def _comparison(c: Comparison) -> dict[str, Any]:
    return {
        "model": c.model,
        "wmape_percent": c.wmape_percent,
        "inside_percent": c.inside_percent,
        "count": c.count,
        "unmatched": c.unmatched,
        "unpriced": c.unpriced,
        "by_path": _paths(c.by_path, rung_of(c.model)),
    }
