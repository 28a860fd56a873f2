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
from busfare.measure.trial import NS, Run
from busfare.nodes import Node
from busfare.nodes.contention import published
from busfare.questions import Try as Question
from busfare.statements import Words, statement
from busfare.timeline.changes.pinning import Pinning, pinning_of, untouched
from busfare.timeline.model import pageable
from busfare.trace import Trace
from busfare.trace import read as read_trace

#: What each change is for `what-if`, and the findings that advise it.
CHANGES: dict[str, dict[str, Any]] = {"pin": {"pin": True}, "pin,async": {"pin": True, "async_": True}}
FINDINGS = {"pin": ("pageable-copies",), "pin,async": ("pageable-copies", "synchronous-copies")}
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
    wanted = question.change or tuple(CHANGES)
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
    fields = CHANGES.get(change)
    if fields is None:
        return Gain(None, reason=statement("try.setting")), None
    if not first.counts.get("pageable_copies"):
        return Gain(None, reason=statement("try.no-pageable")), statement("try.no-pageable")
    if not traces:
        return Gain(None, reason=statement("try.no-recording")), None
    try:
        predicted = predictions.what_if(recording, recorded_on=question.recorded_on, **fields)
    except BusfareError as error:
        return Gain(None, reason=str(error)), None
    if not predicted.touched:
        return Gain(None, reason=statement("try.not-in-recording")), None
    if predicted.gain_seconds is None:
        return Gain(None, reason=None if predicted.reason is UNSET else predicted.reason), None
    low, high = predicted.gain_range_seconds or [predicted.gain_seconds] * 2
    costs = [_costs(trace, question.recorded_on, change) for trace in traces]
    cost, least, most = (sum(cost[n] for cost in costs) for n in range(3))
    gain = Gain(predicted.gain_seconds - cost, low - most, high - least)
    run = predicted.baseline.recorded_seconds
    return gain, None if gain.high >= WORTH_TRYING * run else statement(
        "try.saves-little", seconds=max(gain.high, 0.0)
    )


def _costs(trace: Trace, recorded_on: Any, change: str) -> tuple[float, float, float]:
    """Seconds that registering memory and filling the library's buffers take in the run, between a low and a high end,
    beyond what `what-if --pin` counts: that allocates memory which is copied once.
    """
    node = recorded_on if isinstance(recorded_on, Node) else guess_node(trace)
    copies = trace.operations.filter((pl.col("kind") == "copy") & pl.col("direction").is_in(["h2d", "d2h"]))
    copies = copies.filter(pl.Series(pageable(copies)) & (pl.col("bytes") >= LEAST_PINNED))
    if not copies.height or "source_address" not in copies.columns:
        return 0.0, 0.0, 0.0
    ends = [0.0, 0.0, 0.0]
    h2d, touched = (copies["direction"] == "h2d").to_numpy(), ~untouched(copies)
    if (counted := pinning_of(copies, node)) is not None:
        again = Pinning.of(
            counted.once & touched, int(copies["bytes"].filter(counted.once & touched).sum()), node
        )
        ends = [-again.seconds, -again.low, -again.high]
    if "async" in change:
        alone = float((copies["end_ns"] - copies["start_ns"]).to_numpy()[h2d].sum()) * NS
        ends = [end + alone / share for end, share in zip(ends, (FILL_SPEEDUP, FILL_THREADS, 1), strict=True)]
        touched &= ~h2d
    host = pl.when(pl.col("direction") == "h2d").then("source_address").otherwise("destination_address")
    ranges = copies.filter(touched).group_by("process", address=host).agg(pl.max("bytes"), uses=pl.len())
    pinned = ranges.filter((pl.col("uses") > 1) | (pl.col("bytes") >= PINNED_AT_ONCE))
    bytes_, rates = int(pinned["bytes"].sum()), published("registering")
    took = (bytes_ / (rates.low * rates.high) ** 0.5, bytes_ / rates.high, bytes_ / rates.low)
    cost, least, most = (a + b for a, b in zip(ends, took, strict=True))
    return cost, least, most


def advice_for(
    change: str, recording: Path, predictions: Predictions, question: Question
) -> tuple[Words | None, list[CallSite]]:
    """What the report on the recording says of the change that gained most: what to write, and where."""
    try:
        report = predictions.report(recording, recorded_on=question.recorded_on)
    except BusfareError:
        return None, []
    for finding in report.findings:
        if finding.id in FINDINGS.get(change, ()):
            of = getattr(finding, "largest", finding)
            return of.change, of.call_sites
    return None, []
