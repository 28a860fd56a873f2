"""A trace recorded on node A, priced on node B: its copies by any cost model, and the whole run's time."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from busfare import account, cost
from busfare.cost.calibrated import how_staged
from busfare.errors import InputError
from busfare.node import Node
from busfare.replay import Timeline, play, timeline
from busfare.replay.changes import Setting, ToNode
from busfare.replay.host_pace import host_changes
from busfare.replay.options import kernel_changes
from busfare.trace import Trace

__all__ = ["Projection", "project", "transfers_priced"]

NS = 1e-9
PATH = ["direction", "source_memory", "destination_memory"]
MAKESPAN_METHOD = "replay: the run rebuilt with its dependencies, copies at their predicted times, "


@dataclass(frozen=True, slots=True)
class Projection:
    """What a run's transfers take on node B, by one model. Seconds.

    `by_path`: direction, source_memory, destination_memory, count, bytes, recorded_seconds, predicted_seconds.
    `unpriced` counts transfers that the model has no price for: their recorded time is kept. The replayed makespan
    is that of the run rebuilt unchanged: how well the replay knows it. `staging`: by what pageable copies change, in words;
    None where there are none, or the model is not `calibrated`.
    """

    recorded_on: str
    to: str
    model: str
    recorded_seconds: float
    predicted_seconds: float
    recorded_makespan_seconds: float
    replayed_makespan_seconds: float
    predicted_makespan_seconds: float
    method: str
    by_path: pl.DataFrame
    unpriced: int
    staging: str | None = None


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


def project(
    trace: Trace,
    recorded_on: Node,
    to: Node,
    model: str,
    kernels: tuple[str, ...] = (),
    host: str = "measured",
    rebuilt: Timeline | None = None,
) -> Projection:
    """Predicts copies and whole-run time of `trace` on node `to`; `kernels` are rules for kernel times.

    `host` is the rule for host times. `rebuilt` is the timeline of `trace`, where it was made before. Raises
    InputError for an unknown model or rule.
    """
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
    before = play(rebuilt or timeline(trace, recorded_on))
    rules = kernel_changes(kernels, recorded_on, to)
    pace = host_changes(host, recorded_on, to)
    changed = before.timeline
    setting = Setting(recorded_on, model)
    for change in (ToNode(to), *rules, *pace):
        changed = change.apply(changed, setting).timeline
    after = play(changed)
    return Projection(
        recorded_on=recorded_on.name,
        to=to.name,
        model=model,
        recorded_seconds=float(transfers["recorded_seconds"].sum()),
        predicted_seconds=float(transfers["predicted_seconds"].sum()),
        recorded_makespan_seconds=before.timeline.recorded_ns * NS,
        replayed_makespan_seconds=before.makespan_seconds,
        predicted_makespan_seconds=after.makespan_seconds,
        method=MAKESPAN_METHOD
        + (", ".join(rule.title for rule in pace) or "the host at its recorded times")
        + ", "
        + (", ".join(rule.title for rule in rules) or "kernels at their recorded times"),
        by_path=by_path,
        unpriced=unpriced,
        staging=_staging(by_path, recorded_on, to) if model == "calibrated" else None,
    )


def _staging(by_path: pl.DataFrame, recorded_on: Node, to: Node) -> str | None:
    """By what pageable copies change, each direction of them."""
    staged = by_path.filter(pl.any_horizontal(pl.col("source_memory", "destination_memory") == "pageable"))
    found = {how_staged(str(way), recorded_on, to) for way in staged["direction"].drop_nulls().unique()}
    return "; ".join(sorted(found)) or None
