"""The result of `what-if`: on one run, or on a job, where a change to one rank or to communication affects all ranks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from busfare.advise.amounts import Predicted
from busfare.answers.project import MOST, MOSTLY_GRAPHS, keeps_graphs, run_between
from busfare.answers.units import variation
from busfare.cost.kernels.price import NOT_VALIDATED
from busfare.cost.ranges import (
    NO_HELD_OUT_DATA,
    UNCHANGED,
    figures_of,
    gain_between,
    gain_range,
    range_of,
    seconds_between,
)
from busfare.errors import InputError
from busfare.jobs.model import JobTimeline
from busfare.jobs.state import JobChange, JobState
from busfare.jobs.timeline import without_recorder as job_without_recorder
from busfare.nodes import Node
from busfare.statements import Words, statement
from busfare.timeline import PathPart, Played, Timeline, critical_path_shares, play, set_by, timeline
from busfare.timeline.changes import Applied, Change, Setting, apply_all
from busfare.timeline.changes.bounds import DURATIONS, Bounds, shortened_seconds
from busfare.timeline.changes.pinning import loading_seconds
from busfare.timeline.engine import MOST_SLOWDOWN, Unrecorded, unrecorded
from busfare.trace import Omission, Trace

NS = 1e-9
#: Jobs were measured on so many times as many ranks as were recorded, of one host.
MEASURED_MORE = 2
UNVALIDATED = statement("assumes.kernels-not-validated")
AnyChange = TypeVar("AnyChange", Change, JobChange)


class Outcome(Predicted, kw_only=True):
    """What a change makes of a run; `touched` and `bytes`: what it is about. `gain_range_seconds`: of the change alone; the
    range of the predicted time also has what two unchanged runs differ by.
    """

    title: Words
    touched: int
    bytes: int
    predicted_seconds: float | None  # type: ignore[assignment]  # None, with a `reason`, if unknown; or only two bounds
    gain_seconds: float | None
    gain_range_seconds: list[float] | None
    speedup: float | None
    rests_on: list[Words]


class RecordingCost(Struct):
    """What was taken out of a run for its recorder; see `what-if --unrecorded`."""

    unrecorded_seconds: float
    call_seconds: float
    gap_seconds: float
    host_slowdown: float
    replayed_seconds: float


class Baseline(Struct):
    recorded_seconds: float
    recording_cost: RecordingCost | None
    replayed_seconds: float
    critical_path: list[PathPart]


class RankOutcome(Struct):
    """A rank of a job; `replayed_seconds` is None of one that was not recorded, `predicted_seconds` of a run with bounds."""

    rank: int
    replayed_seconds: float | None
    predicted_seconds: float | None


class WhatIf(Outcome, tag_field="schema", tag="busfare.what-if/1", kw_only=True):
    """All changes together, and each alone."""

    trace: str
    recorded_on: str | None = field(name="from")
    from_guessed_from_gpu_name: bool
    model: str
    baseline: Baseline
    changes: list[Outcome]
    range_seconds: list[float]
    critical_path: list[PathPart]
    ranks: list[RankOutcome] | UnsetType = UNSET  # of a job
    omissions: list[Omission]


def without_recorder(run: Timeline, unrecorded_seconds: float) -> tuple[Timeline, RecordingCost]:
    """`run` as it is when it takes `unrecorded_seconds`, and what recording cost it. Raises InputError where that is longer
    by more than processes of one program differ.
    """
    if unrecorded_seconds > (1 + MOST_SLOWDOWN) * run.recorded_ns * NS:
        raise InputError(
            f"{run.trace.path}: `unrecorded` {unrecorded_seconds:g}s: longer than the recorded run "
            f"({run.recorded_ns * NS:.6g} s); give the time of what is recorded, or leave it out"
        )
    bare = unrecorded([run], round(unrecorded_seconds / NS))
    return bare.timelines[0], _cost(unrecorded_seconds, bare)


def _cost(unrecorded_seconds: float, bare: Unrecorded) -> RecordingCost:
    taken = (bare.call_ns * NS, bare.timelines[0].closer_ns * NS, bare.slowdown, bare.makespan_ns * NS)
    return RecordingCost(unrecorded_seconds, *taken)


def answer_what_if(
    trace: Trace,
    changes: list[Change],
    setting: Setting,
    guessed: bool,
    unrecorded_seconds: float | None = None,
) -> tuple[WhatIf, Timeline]:
    """What `changes` would make of `trace`, each alone and all, in the order given; and the run with all of them.

    With `unrecorded_seconds`, how long the run takes when it is not recorded, the recorder's cost is taken out first.
    Raises InputError where a change needs what the trace does not hold.
    """
    run, cost = timeline(trace, setting.recorded_on), None
    if unrecorded_seconds is not None:
        run, cost = without_recorder(run, unrecorded_seconds)
    baseline = _baseline(run.recorded_ns, cost, play(run, path=True))
    bounds = Bounds(run, baseline.replayed_seconds)

    def outcome(title: Words, some: Sequence[Change]) -> tuple[Outcome, Played]:
        applied, bound, shortened = apply_all(run, some, setting), None, None
        kinds, here = {change.kind for change in some}, all(change.node is None for change in some)
        if here and kinds <= {*DURATIONS}:
            bound = shortened = shortened_seconds(run, applied.timeline)
        elif here and kinds.isdisjoint(DURATIONS):
            bound = bounds.most(applied)
        played = play(applied.timeline, path=len(changes) == 1)
        seconds, ends = baseline.replayed_seconds, list[float]()
        gain = seconds - played.makespan_seconds
        gain = gain if bound is None else min(gain, bound)
        after = seconds - gain
        if any(change.node is None and change.kind != "host" for change in some):
            figures = figures_of(setting.recorded_on)
            touched = None if applied.touched is None else applied.touched.length() * NS
            ends += _after(after, seconds, figures, touched=touched)
        for change in some:
            if change.node is not None and setting.recorded_on is not None:
                ends += _between(change, played, run, setting, setting.recorded_on, change.node)
        less, more = applied.cost_error
        if "pin" in kinds:
            ends.append(max(0.0, min(*ends, after) - loading_seconds(trace) - less))
            ends.append(max(*ends, after) + more)
        elif more:
            ends.append(min(max(*ends, after) + more, max(after, seconds)))
        result = _ranged(title, applied, seconds, after, ends, shortened, trace)
        if here and kinds.isdisjoint(DURATIONS) and gain:
            result.gain_range_seconds = [*gain_between(gain, bound, applied.cost_error)]
        moves = any(map(keeps_graphs, changes)) and any(change.node is not None for change in some)
        opaque = run.opaque_share if moves else 0.0
        if opaque:
            result.rests_on = [*result.rests_on, statement("assumes.graphs-kept", share=opaque)]
        missing = next((left.what for left in trace.omissions if left.id == "no-gpu-records"), None)
        if missing is not None or opaque > MOST:
            result.predicted_seconds = result.gain_seconds = result.speedup = None
            result.low_seconds = result.high_seconds = result.gain_range_seconds = None
            result.reason = missing or MOSTLY_GRAPHS
        return result, played

    omissions = [*trace.omissions, *run.omissions]

    def after_earlier(earlier: Sequence[Change], change: Change) -> Applied:
        return change.apply(apply_all(run, earlier, setting).timeline, setting)

    result, played = _answered(
        str(trace.path), changes, outcome, after_earlier, baseline, setting, guessed, omissions
    )
    changed, seconds = played.timeline, played.makespan_seconds
    del played  # before another is played
    extra = changed.columns["operation_extra"]
    if extra.any():  # from all unexplained waits gone to all of them kept
        bare = play(changed.with_columns(operation_extra=np.zeros_like(extra)))
        result.range_seconds = sorted((bare.makespan_seconds, seconds))
    _keep_bounds(result, changes)
    return result, changed


def _baseline(recorded_ns: int, cost: RecordingCost | None, replayed: Played) -> Baseline:
    """Of a run or job that took `recorded_ns`; of its replay, which is large, no time stays."""
    return Baseline(recorded_ns * NS, cost, replayed.makespan_seconds, critical_path_shares(replayed))


def answer_job_what_if(
    job: JobTimeline,
    name: str,
    changes: Sequence[JobChange],
    setting: Setting,
    guessed: bool,
    unrecorded_seconds: float | None = None,
) -> WhatIf:
    """The runs of `job` after each of `changes` alone, and after all in this order, as in `answer_what_if`. Raises
    InputError if a change needs data that the traces lack.
    """
    cost = None
    if unrecorded_seconds is not None:
        job, bare = job_without_recorder(job, round(unrecorded_seconds / NS))
        cost = _cost(unrecorded_seconds, bare)
    unchanged = state = JobState.of(job)
    baseline = unchanged.play()

    def after(some: Sequence[JobChange], start: JobState = unchanged) -> JobState:
        return reduce(lambda state, change: change.apply(state), some, start)

    def outcome(title: Words, some: Sequence[JobChange]) -> tuple[Outcome, Played]:
        nonlocal state
        state = after(some)
        played = state.play() if state.count else baseline
        run, kinds = baseline.makespan_seconds, {change.kind for change in some}
        ends, reason = list[float](), NO_HELD_OUT_DATA
        if kinds - {"ranks"}:
            ends += _after(played.makespan_seconds, run, "datasheet", "job-change")
        if UNVALIDATED in state.rests_on:
            bounds = (after(some, replace(unchanged, kernel_time=end)) for end in ("low", "high"))
            ends += [bound.play().makespan_seconds for bound in bounds]
        # Overlap gains no more than communication on the critical path.
        if len(job.ranks) == 1 and kinds == {"overlap_collectives"}:
            parts = {part.part: part.seconds for part in critical_path_shares(baseline)}
            ends = [min(max(end, run - parts.get("communication", 0.0)), run) for end in ends]
        if "ranks" in kinds:
            most = MEASURED_MORE * len(unchanged.timelines)
            gpus, factors = len(setting.recorded_on.gpus()) if setting.recorded_on else 0, None
            # Gains of other changes are not known better among more ranks than these are themselves.
            if len(unchanged.timelines) < len(state.timelines) <= min(most, gpus):
                factors = range_of("more-ranks", set_by(critical_path_shares(played.timeline)), "datasheet")
            else:
                reason = statement("no-range.more-ranks", times=MEASURED_MORE)
            ends = [*ends, *(end * played.makespan_seconds for end in factors)] if factors else []
        return _ranged(title, state, run, played.makespan_seconds, ends, reason=reason), played

    of_parts = (o for part in job.parts for o in part.timeline.trace.omissions)
    omissions = (*job.left_out, *baseline.timeline.omissions, *of_parts)
    unique = list({(o.id, o.what): o for o in omissions}.values())
    before = _baseline(job.recorded_ns, cost, baseline)

    def after_earlier(earlier: Sequence[JobChange], change: JobChange) -> JobState:
        return change.apply(replace(after(earlier), scopes={}, of_job=(0, 0)))

    result, played = _answered(name, changes, outcome, after_earlier, before, setting, guessed, unique)
    first, then = _spans(unchanged, baseline), _spans(state, played)
    result.ranks = [RankOutcome(rank, first.get(rank), then[rank]) for rank in sorted(then)]
    _keep_bounds(result, changes)
    return result


def _keep_bounds(result: WhatIf, changes: Sequence[AnyChange]) -> None:
    """Takes out what lies between the two bounds that kernels have on the GPU of another vendor."""
    if UNVALIDATED not in result.rests_on:
        return
    rows = list[Outcome]([result])
    rows += [row for row, change in zip(result.changes, changes, strict=True) if change.node is not None]
    for row in rows:
        row.predicted_seconds = row.gain_seconds = row.speedup = None
        row.rung = NOT_VALIDATED
    result.critical_path = []
    result.range_seconds = [end for end in (result.low_seconds, result.high_seconds) if end is not None]
    for rank in result.ranks or ():
        rank.predicted_seconds = None


def _answered(
    name: str,
    changes: Sequence[AnyChange],
    outcome: Callable[[Words, Sequence[AnyChange]], tuple[Outcome, Played]],
    after_earlier: Callable[[Sequence[AnyChange], AnyChange], Applied | JobState],
    baseline: Baseline,
    setting: Setting,
    guessed: bool,
    omissions: list[Omission],
) -> tuple[WhatIf, Played]:
    """The result `outcome` of changes, and the run then. `after_earlier`: an earlier change may give this one work."""
    alone: list[Outcome] = []
    for change in changes:  # what is played is large: no two at once
        together, played = outcome(change.title, [change])
        if alone and not together.touched:
            added = after_earlier(changes[: len(alone)], change)
            together.touched, together.bytes = added.count, added.bytes
            together.rests_on = [statement("assumes.after-earlier")] * (added.count > 0) or together.rests_on
        alone.append(together)
    if len(alone) != 1:
        together, played = outcome(statement("change.all"), changes)
    shares = critical_path_shares(played)
    played = replace(played, path={})
    result = WhatIf(
        trace=name,
        recorded_on=setting.recorded_on.name if setting.recorded_on else None,
        from_guessed_from_gpu_name=guessed and setting.recorded_on is not None,
        model=setting.model,
        baseline=baseline,
        changes=alone,
        **asdict(together),
        range_seconds=[played.makespan_seconds] * 2,
        critical_path=shares,
        omissions=omissions,
    )
    return result, played


def _after(
    after: float, run: float, figures: str, what: str = "change", touched: float | None = None
) -> list[float]:
    """The range in seconds of a run that took `run`, and takes `after` with changes (`cost.ranges.gain_range`): at most the
    old time and at least the time without the operations `touched`, unless the prediction itself is outside.
    """
    gain = run - after
    low, high = gain_range(gain, run, figures, what, touched)
    least, most = min(gain, 0.0), max(gain, run if touched is None else touched)
    return [run - min(high, most), run - max(low, least)]


def _ranged(
    title: Words,
    changed: Applied | JobState,
    run: float,
    after: float,
    ends: Sequence[float],
    shortened: float | None = None,
    trace: Trace | None = None,
    reason: Words = NO_HELD_OUT_DATA,
) -> Outcome:
    """Of a run that took `run` before and takes `after` (s), or what lies between `ends` (none: not known). A change of
    durations gains at most what it `shortened`. If the change has no effect, the range has what units of `trace` differ by.
    """
    gain, least, most = run - after, None, None
    if ends or not changed.count:
        # No prediction is surer than an unchanged run.
        varies = variation(trace) if trace is not None and abs(gain) <= UNCHANGED * run else 0.0
        share = max(UNCHANGED, varies)
        least = min(*ends, after, max(0.0, after - share * run))
        most = max(*ends, after, after + share * run)
        if shortened is not None and changed.count:
            least = max(least, run - max(gain, shortened))
    return Outcome(
        title=title,
        touched=changed.count,
        bytes=changed.bytes,
        predicted_seconds=after,
        gain_seconds=gain,
        gain_range_seconds=None if least is None or most is None else [run - most, run - least],
        speedup=run / after if after else None,
        rests_on=changed.rests_on,
        **seconds_between(least, most, "calibrated", reason),
    )


def _between(
    change: Change, played: Played, before: Timeline, setting: Setting, recorded_on: Node, to: Node
) -> tuple[float, ...]:
    """The range of a run on another node: from its copies, and from its kernels as far as they alone make it uncertain."""
    if change.kind != "kernels":
        return run_between(played, setting.model, recorded_on, to)
    try:
        prices = setting.kernel_prices(before, to)
    except InputError:
        return ()
    alone = play(change.apply(before, setting).timeline)
    low, high = run_between(alone, setting.model, recorded_on, to, prices)
    scale = played.makespan_seconds / max(alone.makespan_seconds, NS)
    return low * scale, high * scale


def _spans(state: JobState, played: Played) -> dict[int, float]:
    """From the first thing that each rank does to the last, s."""
    spans: dict[int, float] = {}
    call = operation = 0
    for part, run in zip(state.job.parts, state.timelines, strict=True):
        calls = slice(call, call + len(run.columns["call_own"]))
        operations = slice(operation, operation + len(run.columns["operation_duration"]))
        call, operation = calls.stop, operations.stop
        starts = np.concatenate([played.call_start[calls], played.operation_start[operations]])
        ends = np.concatenate([played.call_end[calls], played.operation_end[operations]])
        spans |= dict.fromkeys(part.ranks, float(ends.max() - starts.min()) * NS)
    return spans
