"""Which changes `try` makes from outside may help a recorded program, what they gain, and what to write in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from msgspec import UNSET, Struct

from busfare.advise import guess_node
from busfare.advise.finding import CallSite
from busfare.answers.what_if import WhatIf
from busfare.errors import BusfareError
from busfare.jobs.parts import trace_paths
from busfare.measure.trial import Run
from busfare.nodes import Node
from busfare.nodes.contention import published
from busfare.questions import Try as Question
from busfare.statements import Words, statement
from busfare.timeline.changes.pinning import pinning_of
from busfare.timeline.model import pageable
from busfare.trace import Trace
from busfare.trace import read as read_trace

#: What each change is for `what-if`, and the finding that advises it.
CHANGES: dict[str, dict[str, Any]] = {"pin": {"pin": True}, "pin,async": {"pin": True, "async_": True}}
FINDINGS = {
    "pin": ("pageable-copies",),
    "pin,async": ("pageable-copies", "synchronous-copies"),
    "batch": ("small-copies",),
}
#: Copies below this size are sent together where nothing else is asked for, bytes.
BATCHED_BELOW = 64 << 10
#: A change is tried if it may save at least this share of the run.
WORTH_TRYING = 0.01
#: The library pins ranges of this size for their first copy, others for their second; smaller ones it leaves, bytes.
PINNED_AT_ONCE, LEAST_PINNED = 16 << 20, 16 << 10
#: Threads that fill the library's buffers at most; twice as fast as one of them where nobody measured it.
FILL_THREADS, FILL_SPEEDUP = 4, 2


class Refused(Struct):
    """A change that was not tried."""

    change: str
    reason: Words


class Advice(Struct):
    """What to write in the program for the change that gained most."""

    change: str
    text: Words
    call_sites: list[CallSite]


class Predictions(NamedTuple):
    """How the gains of changes are predicted: by a trace or the folder of several, and the options of a change."""

    what_if: Callable[..., WhatIf]
    report: Callable[..., Any]


class Gain(NamedTuple):
    """Seconds that a change saves, with the ends of its interval; None with the reason why it is unknown."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    reason: Words | None = None


def chosen_changes(
    question: Question, recording: Path, predictions: Predictions, first: Run
) -> tuple[dict[str, Gain], list[Refused], list[Words]]:
    """The changes to try with their predicted gains, those that are refused, and remarks on the recording."""
    remarks, traces = list[Words](), list[Trace]()
    try:
        traces = [read_trace(path) for path in trace_paths(recording)]
    except BusfareError as error:
        remarks.append(statement("try.not-recorded", why=str(error)))
    wanted = question.change or ("pin", "pin,async", f"batch={BATCHED_BELOW}")
    gains, refused = dict[str, Gain](), list[Refused]()
    for change in dict.fromkeys(wanted):
        gain, why = _gain(change, question, recording, traces, predictions, first)
        if why is not None and not question.change:
            refused.append(Refused(change, why))
        else:
            gains[change] = gain
    return gains, refused, remarks


def _gain(
    change: str,
    question: Question,
    recording: Path,
    traces: Sequence[Trace],
    predictions: Predictions,
    first: Run,
) -> tuple[Gain, Words | None]:
    """The gain of a change, and why it is not worth a try; None where it is."""
    name, _, value = change.partition("=")
    fields = {"batch_below": int(value)} if name == "batch" else CHANGES.get(change)
    if fields is None:
        return Gain(None, reason=statement("try.setting")), None
    if name != "batch" and not first.counts.get("pageable_copies"):
        return Gain(None, reason=statement("try.no-pageable")), statement("try.no-pageable")
    if not traces:
        return Gain(None, reason=statement("try.no-recording")), None
    try:
        predicted = predictions.what_if(recording, recorded_on=question.recorded_on, **fields)
    except BusfareError as error:
        return Gain(None, reason=str(error)), None
    if not predicted.touched:
        return Gain(0.0), statement(f"try.nothing-{'batch' if name == 'batch' else 'pin'}")
    if predicted.gain_seconds is None:
        return Gain(None, reason=None if predicted.reason is UNSET else predicted.reason), None
    low, high = predicted.gain_range_seconds or [predicted.gain_seconds] * 2
    costs = [_costs(trace, question.recorded_on, change) for trace in traces if name != "batch"]
    cost, least, most = (sum(cost[n] for cost in costs) for n in range(3))
    gain = Gain(predicted.gain_seconds - cost, low - most, high - least)
    run = predicted.baseline.recorded_seconds
    return gain, None if gain.high >= WORTH_TRYING * run else statement(
        "try.saves-little", seconds=max(gain.high, 0.0)
    )


def _costs(trace: Trace, recorded_on: Any, change: str) -> tuple[float, float, float]:
    """Seconds that pinning and the buffers of the library take in the run, between a low and a high end."""
    node = recorded_on if isinstance(recorded_on, Node) else guess_node(trace)
    copies = trace.operations.filter((pl.col("kind") == "copy") & pl.col("direction").is_in(["h2d", "d2h"]))
    copies = copies.filter(pl.Series(pageable(copies)) & (pl.col("bytes") >= LEAST_PINNED))
    if not copies.height:
        return 0.0, 0.0, 0.0
    h2d = (copies["direction"] == "h2d").to_numpy()
    filled = (0.0, 0.0, 0.0)
    if "async" in change:
        alone = float((copies["end_ns"] - copies["start_ns"]).to_numpy()[h2d].sum()) * 1e-9
        filled = alone / FILL_SPEEDUP, alone / FILL_THREADS, alone
        copies = copies.filter(pl.Series(~h2d))
    counted = pinning_of(copies, node) if copies.height else None
    if "source_address" not in copies.columns or (counted and counted.once.all()):
        return filled
    host = pl.when(pl.col("direction") == "h2d").then("source_address").otherwise("destination_address")
    ranges = copies.group_by("process", address=host).agg(pl.max("bytes"), uses=pl.len())
    pinned = ranges.filter((pl.col("uses") > 1) | (pl.col("bytes") >= PINNED_AT_ONCE))
    bytes_, cost = int(pinned["bytes"].sum()), node.call_cost("register") if node else None
    if cost is not None:
        took = [pinned.height * cost.call_s + bytes_ * (cost.call_per_byte_s or 0.0)] * 3
    else:
        rates = published("registering")
        low, high = bytes_ / rates.high, bytes_ / rates.low
        took = [(low * high) ** 0.5, low, high]
    seconds, least, most = (a + b for a, b in zip(took, filled, strict=True))
    return seconds, least, most


def advice_for(change: str, recording: Path, predictions: Predictions, question: Question) -> Advice | None:
    """What the report on the recording says of the change that gained most."""
    try:
        report = predictions.report(recording, recorded_on=question.recorded_on)
    except BusfareError:
        return None
    ids = FINDINGS.get(change.partition("=")[0], ())
    for finding in report.findings:
        of = getattr(finding, "largest", finding)
        if finding.id in ids:
            return Advice(change, of.change, of.call_sites)
    return None
