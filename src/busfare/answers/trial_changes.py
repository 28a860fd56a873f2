"""The changes of `try` that may help a recorded program, their predicted gains, and how to make them in its source."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from msgspec import UNSET, Struct

from busfare.advise import guess_node
from busfare.advise.finding import CallSite
from busfare.answers.what_if import WhatIf
from busfare.cost.ranges import gain_between
from busfare.errors import BusfareError, InputError
from busfare.measure.trial import NS, Run
from busfare.nodes.contention import published
from busfare.questions import Try as Question
from busfare.statements import Statement, Words, statement
from busfare.timeline.changes.pinning import Pinning, pinning_of, untouched
from busfare.timeline.model import pageable
from busfare.trace import Trace
from busfare.trace import read as read_trace

#: The options of each change for `what-if`, and the findings that recommend it.
CHANGES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pin": ({"pin": True}, ("pageable-copies",)),
    "pin,async": ({"pin": True, "async_": True}, ("pageable-copies", "synchronous-copies")),
    "prefetch": ({"prefetch": True}, ("managed-migrations",)),
}
#: A change is tried if it may save at least this share of the run.
WORTH_TRYING = 0.01
#: A run that counts the copies that pinning would change, but changes nothing.
DRY = "dry,pin"
#: Size of the ring of `pin,async`, bytes; maximum number of threads that fill it; their assumed speedup over one thread.
RING, FILL_THREADS, FILL_SPEEDUP = 64 << 20, 4, 2


class Refused(Struct):
    """A change that was not tried."""

    change: str
    reason: Words


class Predictions(NamedTuple):
    """Functions that predict the gain of a change, and that report findings, from a trace or a folder of traces."""

    what_if: Callable[..., WhatIf]
    report: Callable[..., Any]


class Gain(NamedTuple):
    """Seconds that a change saves, with the ends of the interval; None if unknown, with the reason."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    reason: Words | None = None


def chosen_changes(
    question: Question, recording: Path, predictions: Predictions, first: Run, fault: str = ""
) -> tuple[dict[str, Gain], list[Refused], list[Words]]:
    """The changes to try with their predicted gains, the changes not to try, and remarks on the recording. `fault`: how the
    program failed with the recorder.
    """
    traces, remarks = _recorded(recording, first, fault)
    wanted = question.change or tuple(CHANGES)
    gains, refused = dict[str, Gain](), list[Refused]()
    for change in dict.fromkeys(wanted):
        gain, why = _gain(change, question, recording, traces, predictions, first)
        if why is not None and not question.change:
            refused.append(Refused(change, why))
        else:
            gains[change] = gain
    return gains, refused, remarks


def _recorded(recording: Path, first: Run, fault: str) -> tuple[list[Trace], list[Words]]:
    """The traces of a recording, none if it cannot be used, and remarks on it."""
    if fault:
        return [], [statement("try.recorder-fails", how=fault)]
    try:
        files = sorted(recording.iterdir()) if recording.is_dir() else [recording]
        if not files:
            raise InputError("the recorder wrote nothing")
        traces = [read_trace(path) for path in files]
    except BusfareError as error:
        silent, why = first.cuda_seconds is None, _cause(error, recording)
        return [], [statement("try.no-calls") if silent else statement("try.not-recorded", why=why)]
    # Launchers such as mpirun may use CUDA, too, but run no GPU operations.
    traces = [trace for trace in traces if trace.operations.height] or traces
    every = (omission for trace in traces for omission in trace.omissions)
    failed = next((omission.what for omission in every if omission.id == "failed-calls"), None)
    return traces, [statement("try.calls-fail", **failed.figures)] if isinstance(failed, Statement) else []


def _gain(
    change: str,
    question: Question,
    recording: Path,
    traces: Sequence[Trace],
    predictions: Predictions,
    first: Run,
) -> tuple[Gain, Words | None]:
    """The gain of a change, and why it is not worth trying (None if it is)."""
    if change not in CHANGES:
        return Gain(None, reason=statement("try.setting")), None
    if change != "prefetch" and not first.counts.get("pageable_copies"):
        return Gain(None, reason=statement("try.no-pageable")), statement("try.no-pageable")
    if not traces:
        why = statement("try.no-migrations" if first.cuda_seconds is None else "try.no-recording")
        return Gain(None, reason=why), why if change == "prefetch" else None
    try:
        predicted = _predicted(change, question, recording, traces, predictions)
    except BusfareError as error:
        return Gain(None, reason=_cause(error, recording)), None
    if not predicted.touched:
        why = statement("try.no-migrations" if change == "prefetch" else "try.not-in-recording")
        return Gain(None, reason=why), why if change == "prefetch" else None
    if predicted.gain_seconds is None:
        return Gain(None, reason=None if predicted.reason is UNSET else predicted.reason), None
    # Processes run in parallel: use the mean cost per process.
    pinned_bytes = first.counts["pinned_bytes"] / len(traces)
    costs = [_costs(trace, question.recorded_on, change, pinned_bytes) for trace in traces]
    allocating, cost, least, most = (sum(part) / len(traces) for part in zip(*costs, strict=True))
    gain = (predicted.gain_seconds + allocating) * _share(change, traces, first)
    low, high = gain_between(gain, math.inf)
    row = Gain(gain - cost, low - most, high - least)
    worth = row.high >= WORTH_TRYING * predicted.baseline.recorded_seconds
    return row, None if worth else statement("try.saves-little", seconds=max(row.high, 0.0))


def _cause(error: BusfareError, recording: Path) -> str:
    """`error` without the temporary path of the recording and without advice on it."""
    return re.sub(rf"^{re.escape(str(recording))}.*?: |;.*", "", str(error))


def _predicted(
    change: str, question: Question, recording: Path, traces: Sequence[Trace], predictions: Predictions
) -> WhatIf:
    """Predicts all processes as a job or, if they exchange no messages, the process that gains least."""
    options = {"recorded_on": question.recorded_on, **CHANGES[change][0]}
    try:
        return predictions.what_if(recording if len(traces) > 1 else traces[0].path, **options)
    except BusfareError:
        if len(traces) == 1:
            raise
        alone = [predictions.what_if(trace.path, **options) for trace in traces]
        return min(alone, key=lambda outcome: outcome.gain_seconds or 0.0)


def _share(change: str, traces: Sequence[Trace], first: Run) -> float:
    """The share of the gain that the library can achieve. `pin`: the bytes that it would change; `prefetch`: migrations
    to the GPU; `pin,async`: all, because it also changes copies of buffers allocated for a single copy.
    """
    if change == "pin":
        return min(1.0, first.counts["changed_bytes"] / first.counts["pageable_bytes"])
    moves = [trace.operations.filter(pl.col("kind") == "migration") for trace in traces]
    if change != "prefetch" or not (whole := sum(int(move["bytes"].sum()) for move in moves)):
        return 1.0
    return sum(int(move["bytes"].filter(move["direction"] == "h2d").sum()) for move in moves) / whole


class _Costs(NamedTuple):
    """Seconds. `allocating`: cost of pinned allocations in `what-if --pin`, which the library avoids; `library`: cost of the
    library itself, with the ends of its interval.
    """

    allocating: float = 0.0
    library: float = 0.0
    low: float = 0.0
    high: float = 0.0


def _costs(trace: Trace, recorded_on: Any, change: str, pinned_bytes: float) -> _Costs:
    """Costs for a process in which the library registers `pinned_bytes` and, for `pin,async`, fills its buffers."""
    if change == "prefetch":
        return _Costs()
    node = recorded_on or guess_node(trace)
    copies = trace.operations.filter((pl.col("kind") == "copy") & pl.col("direction").is_in(["h2d", "d2h"]))
    copies = copies.filter(pl.Series(pageable(copies)))
    if not copies.height:
        return _Costs()
    allocating, counted = 0.0, pinning_of(copies, node)
    if counted is not None:
        touched = counted.once & ~untouched(copies)
        allocating = Pinning.of(touched, int(copies["bytes"].filter(touched).sum()), node).seconds
    filling, sizes = (0.0, 0.0, 0.0), copies["bytes"].to_numpy()
    if "async" in change:
        h2d = (copies["direction"] == "h2d").to_numpy()
        alone = float((copies["end_ns"] - copies["start_ns"]).to_numpy()[h2d].sum()) * NS
        ring = Pinning.of(h2d, min(RING, int(sizes[h2d].sum())), node)
        filling = alone / FILL_SPEEDUP + ring.seconds, alone / FILL_THREADS + ring.low, alone + ring.high
        pinned_bytes *= float(sizes[~h2d].sum()) / max(int(sizes.sum()), 1)
    rates = published("registering")
    typical = (rates.low * rates.high) ** 0.5
    registering = (pinned_bytes / rate for rate in (typical, rates.high, rates.low))
    return _Costs(allocating, *(a + b for a, b in zip(filling, registering, strict=True)))


def advice_for(
    change: str, recording: Path, predictions: Predictions, question: Question
) -> tuple[Words | None, list[CallSite]]:
    """The advice of the recording's report on the best change: how to make it in the source, and where."""
    try:
        report = predictions.report(recording, recorded_on=question.recorded_on)
    except BusfareError:
        return None, []
    for finding in report.findings:
        if change in CHANGES and finding.id in CHANGES[change][1]:
            of = getattr(finding, "largest", finding)
            return of.change, of.call_sites
    return None, []
