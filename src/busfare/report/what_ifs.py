"""The result of `what-if`, and the predicted time line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from busfare.cost.ranges import NOTHING_KNOWN, figures_of, gain_beside, seconds_between
from busfare.errors import InputError
from busfare.node import Node
from busfare.project.projection import run_between
from busfare.report.results import Baseline, Omission, Outcome, Part, RecordingCost, Step, WhatIf
from busfare.results import rows_of
from busfare.timeline import Played, Timeline, critical_path_shares, play, timeline
from busfare.timeline.changes import Change, Setting, apply_all
from busfare.timeline.prices import kernel_prices
from busfare.timeline.recording_cost import unrecorded
from busfare.trace import Trace

__all__ = ["answer_what_if", "outcome_keys", "predicted_trace", "without_recorder"]

NS = 1e-9


def without_recorder(run: Timeline, unrecorded_seconds: float) -> tuple[Timeline, RecordingCost]:
    """`run` as it is when it takes `unrecorded_seconds`, and what recording cost it."""
    bare = unrecorded(run, round(unrecorded_seconds / NS))
    taken = (bare.call_ns * NS, bare.timeline.closer_ns * NS, bare.pace, bare.makespan_ns * NS)
    return bare.timeline, RecordingCost(unrecorded_seconds, *taken)


def answer_what_if(
    trace: Trace,
    changes: list[Change],
    setting: Setting,
    guessed: bool,
    unrecorded_seconds: float | None = None,
) -> tuple[WhatIf, Played]:
    """What `changes` would make of `trace`, each alone and all, in the order given; and the run with all of them.

    With `unrecorded_seconds`, how long the run takes when it is not recorded, the recorder's cost is taken out first.
    Raises InputError where a change needs what the trace does not hold.
    """
    run, cost = timeline(trace, setting.recorded_on), None
    if unrecorded_seconds is not None:
        run, cost = without_recorder(run, unrecorded_seconds)
    baseline = play(run)
    alone = [_outcome(change.title, [change], baseline, setting) for change in changes]
    keys, played = alone[0] if len(alone) == 1 else _outcome("all together", changes, baseline, setting)
    result = WhatIf(
        trace=str(trace.path),
        recorded_on=setting.recorded_on.name if setting.recorded_on else None,
        from_guessed_from_gpu_name=guessed and setting.recorded_on is not None,
        model=setting.model,
        baseline=Baseline(
            recorded_seconds=run.recorded_ns * NS,
            recording_cost=cost,
            replayed_seconds=baseline.makespan_seconds,
            range_seconds=_range(baseline),
            critical_path=rows_of(Part, critical_path_shares(run)),
        ),
        changes=[Outcome(**of_one) for of_one, _ in alone],
        **keys,
        range_seconds=_range(played),
        critical_path=rows_of(Part, critical_path_shares(played.timeline)),
        omissions=rows_of(Omission, [*trace.omissions, *run.omissions]),
    )
    return result, played


def _outcome(
    title: str, changes: list[Change], baseline: Played, setting: Setting
) -> tuple[dict[str, Any], Played]:
    """The keys of an `Outcome`: what these changes make of the run; and that run."""
    applied = apply_all(baseline.timeline, changes, setting)
    played = play(applied.timeline)
    run, after = baseline.makespan_seconds, played.makespan_seconds
    ends: list[float] = []
    others = [change for change in changes if change.node is None and change.option != "--host"]
    if others:
        names = " ".join(change.option for change in others)
        low, high = gain_beside(run - after, run, names, figures_of(setting.recorded_on))
        ends += [run - high, run - low]
    for change in changes:
        if change.node is not None and setting.recorded_on is not None:
            ends += _between(change, played, baseline, setting, setting.recorded_on, change.node)
    if not applied.count:
        ends = [after]  # nothing is changed, so nothing is predicted
    counted = (applied.count, applied.bytes, applied.rests_on)
    least, most = (min(*ends, after), max(*ends, after)) if ends else (None, None)
    keys = outcome_keys(title, counted, (run, after), (least, most))
    if applied.steps:
        keys["steps"] = rows_of(Step, applied.steps)
    return keys, played


def outcome_keys(
    title: str,
    counted: tuple[int, int, list[str]],
    seconds: tuple[float, float],
    between: tuple[float | None, float | None],
) -> dict[str, Any]:
    """The keys of an `Outcome`. `counted`: operations or calls touched, their bytes, conditions; `seconds`: of the whole
    before and after; `between`: the range of the latter.
    """
    (touched, size, rests_on), (run, after) = counted, seconds
    keys = {
        "title": title,
        "touched": touched,
        "bytes": size,
        "predicted_seconds": after,
        "gain_seconds": run - after,
        "gain_percent": 100 * (run - after) / run if run else 0.0,
        "speedup": run / after if after else None,
        "rests_on": rests_on,
    }
    return keys | seconds_between(*between, "calibrated", NOTHING_KNOWN)


def _between(
    change: Change, played: Played, baseline: Played, setting: Setting, recorded_on: Node, to: Node
) -> tuple[float, ...]:
    """The range of a run on another node: that of its copies; that of its kernels as far as they make the run without any
    other change uncertain.
    """
    if change.option != "--kernels":
        return run_between(played, setting.model, recorded_on, to)
    try:
        prices = kernel_prices(baseline.timeline, recorded_on, to)
    except InputError:
        return ()
    alone = play(change.apply(baseline.timeline, setting).timeline)
    low, high = run_between(alone, setting.model, recorded_on, to, prices)
    scale = played.makespan_seconds / max(alone.makespan_seconds, NS)
    return low * scale, high * scale


def _range(played: Played) -> list[float]:
    """From all unexplained waits gone to all of them kept, in seconds."""
    extra = played.timeline.columns["operation_extra"]
    if not extra.any():
        return [played.makespan_seconds] * 2
    least = play(played.timeline.with_columns(operation_extra=np.zeros_like(extra)))
    return sorted((least.makespan_seconds, played.makespan_seconds))


def predicted_trace(played: Played) -> Trace:
    """The run as predicted, as a trace that can be exported beside the recorded one."""
    run = played.timeline
    operations = run.operations.with_columns(
        start_ns=pl.Series(played.operation_start + run.origin_ns),
        end_ns=pl.Series(played.operation_end + run.origin_ns),
        stream=pl.coalesce(_new_streams(run), "stream"),
    ).drop("row", "call", "launched", "stream_number", strict=False)
    calls = run.calls.with_columns(
        start_ns=pl.Series(played.call_start + run.origin_ns),
        end_ns=pl.Series(played.call_end + run.origin_ns),
    ).drop("thread_number", strict=False)
    return replace(run.trace, operations=operations, calls=calls)


def _new_streams(run: Timeline) -> pl.Series:
    """Numbers for streams that the recording does not have, above all that it has; null for the others."""
    number = run.columns["operation_stream"].astype(np.int64)
    own = run.operations["stream_number"].to_numpy()
    most = int(run.operations["stream"].max() or 0) if run.operations.height else 0  # type: ignore[arg-type]
    return pl.Series(np.where(number != own, most + 1 + number, -1)).replace(-1, None)
