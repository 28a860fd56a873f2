"""The result of `what-if`: one dictionary for the terminal, the page and the JSON; and the predicted time line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from msgspec import to_builtins

from busfare.advise import amounts
from busfare.node import Node
from busfare.report.gains import said_of_cost
from busfare.report.ranges import outcome_range, said_of_ranges, with_range
from busfare.report.recording_cost import without_recorder
from busfare.report.tables import console, plain, table
from busfare.report.terminal import show_omissions
from busfare.timeline import Played, Timeline, critical_path_shares, play, timeline
from busfare.timeline.changes import Change, Outcome, Setting, WhatIf, what_if
from busfare.trace import Trace

__all__ = ["SCHEMA", "answer_what_if", "predicted_trace", "show_what_if"]

SCHEMA = "busfare.what-if/1"
NS = 1e-9


def answer_what_if(
    trace: Trace,
    changes: list[Change],
    setting: Setting,
    guessed: bool,
    unrecorded_seconds: float | None = None,
) -> tuple[dict[str, Any], WhatIf]:
    """What `changes` would make of `trace`; the dictionary's keys are documented in docs/json.md.

    With `unrecorded_seconds`, how long the run takes when it is not recorded, the recorder's cost is taken out first.
    """
    taken_apart = timeline(trace, setting.recorded_on)
    cost: dict[str, Any] | None = None
    if unrecorded_seconds is not None:
        taken_apart, cost = without_recorder(taken_apart, unrecorded_seconds)
    found = what_if(taken_apart, changes, setting)
    baseline = found.baseline
    node: Node | None = setting.recorded_on
    result = {
        "schema": SCHEMA,
        "trace": str(trace.path),
        "from": node.name if node else None,
        "from_guessed_from_gpu_name": guessed and node is not None,
        "model": setting.model,
        "baseline": {
            "recorded_seconds": taken_apart.recorded_ns * NS,
            "recording_cost": cost,
            "replayed_seconds": baseline.makespan_seconds,
            "range_seconds": _range(baseline),
            "critical_path": to_builtins(critical_path_shares(taken_apart)),
        },
        "changes": [
            _outcome(outcome, baseline) | outcome_range(outcome, baseline, [change], setting)
            for outcome, change in zip(found.alone, changes, strict=True)
        ],
        **_outcome(found.together, baseline),
        **outcome_range(found.together, baseline, changes, setting),
        "range_seconds": _range(found.together.played),
        "critical_path": to_builtins(critical_path_shares(found.together.played.timeline)),
        "omissions": [
            {"id": o.id, "count": o.count, "what": o.what} for o in [*trace.omissions, *taken_apart.omissions]
        ],
    }
    return result, found


def _outcome(outcome: Outcome, baseline: Played) -> dict[str, Any]:
    after, gain = outcome.played.makespan_seconds, outcome.gain_seconds(baseline)
    return {
        "title": outcome.title,
        "touched": outcome.count,
        "bytes": outcome.bytes,
        "predicted_seconds": after,
        "gain_seconds": gain,
        "gain_percent": 100 * gain / baseline.makespan_seconds if baseline.makespan_ns else 0.0,
        "speedup": baseline.makespan_seconds / after if after else None,
        "rests_on": outcome.rests_on,
    }


def _range(played: Played) -> list[float]:
    """From all unexplained waits gone to all of them kept, in seconds."""
    columns = played.timeline.columns
    if not columns["operation_extra"].any():
        return [played.makespan_seconds, played.makespan_seconds]
    least = play(played.timeline.with_columns(operation_extra=np.zeros_like(columns["operation_extra"])))
    both = sorted((least.makespan_seconds, played.makespan_seconds))
    return both


def predicted_trace(played: Played) -> Trace:
    """The run as predicted, as a trace that can be exported beside the recorded one."""
    taken_apart = played.timeline
    origin = taken_apart.origin_ns
    operations = taken_apart.operations.with_columns(
        start_ns=pl.Series(played.operation_start + origin),
        end_ns=pl.Series(played.operation_end + origin),
        stream=pl.coalesce(_new_streams(taken_apart), "stream"),
    ).drop("row", "call", "launched", "stream_number", strict=False)
    calls = taken_apart.calls.with_columns(
        start_ns=pl.Series(played.call_start + origin), end_ns=pl.Series(played.call_end + origin)
    ).drop("thread_number", strict=False)
    return replace(taken_apart.trace, operations=operations, calls=calls)


def _new_streams(taken_apart: Timeline) -> pl.Series:
    """Numbers for streams that the recording does not have, above all that it has; null for the others."""
    number = taken_apart.columns["operation_stream"].astype(np.int64)
    own = taken_apart.operations["stream_number"].to_numpy()
    most = int(taken_apart.operations["stream"].max() or 0) if taken_apart.operations.height else 0  # type: ignore[arg-type]
    return pl.Series(np.where(number != own, most + 1 + number, -1)).replace(-1, None)


def show_what_if(result: dict[str, Any]) -> None:
    """The table of gains in a terminal."""
    out = console()
    out.print(plain(result["trace"]), style="bold")
    baseline = result["baseline"]
    where = f"recorded on {result['from']}" if result["from"] else "recorded on a machine that is not known"
    if result["from_guessed_from_gpu_name"]:
        where += " (a guess from the GPU's name; set --from)"
    out.print(plain(where), style="dim")
    out.print()
    shown = table("run ", "touched", "whole run", "gain", "speed-up", title="Whole run, predicted by replay")
    shown.add_row("recorded", "", amounts.time(baseline["recorded_seconds"]), "", "")
    cost = baseline["recording_cost"]
    unchanged = "replayed without the recorder's cost" if cost else "replayed unchanged"
    shown.add_row(unchanged, "", amounts.time(baseline["replayed_seconds"]), "", "")
    rows = result["changes"] if len(result["changes"]) == 1 else [*result["changes"], result]
    for row in rows:
        shown.add_row(
            plain(f"{row['title']} (predicted)"),
            amounts.count(row["touched"]),
            with_range(row),
            f"{row['gain_percent']:+.1f} %",
            "–" if row["speedup"] is None else f"{row['speedup']:.3f}×",
        )
    out.print(shown)
    out.print(said_of_ranges(result), style="dim")
    if cost:
        out.print(plain(said_of_cost(cost)), style="dim")
    low, high = result["range_seconds"]
    if high - low > 0.005 * high:
        out.print(
            f"Waits that nothing in the trace explains are kept; without them, {amounts.time(low)}.",
            style="dim",
        )
    for row in result["changes"]:
        if not row["touched"]:
            out.print(plain(f"{row['title']}: nothing in this trace to change."), style="dim")
    conditions = result["rests_on"]
    if conditions:
        out.print()
        out.print("Holds if", style="bold")
        for text in conditions:
            out.print(plain(f"  · {text}"))
    out.print()
    parts = table("part of the critical path ", "recorded", "predicted")
    after = {part["part"]: part["seconds"] for part in result["critical_path"]}
    before = {part["part"]: part["seconds"] for part in baseline["critical_path"]}
    for name in dict.fromkeys([*before, *after]):
        parts.add_row(name, amounts.time(before.get(name, 0.0)), amounts.time(after.get(name, 0.0)))
    out.print(parts)
    show_omissions(out, result["omissions"])
