"""The result of `what-if` on a job: what a change to one rank, or to what the ranks do together, makes of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from busfare.cost.ranges import figures_of, gain_beside
from busfare.job.changes import JOB_OPTIONS
from busfare.job.state import JobChange, JobState
from busfare.job.timeline import JobTimeline
from busfare.node import Node
from busfare.report.results import Baseline, Omission, Outcome, Part, RankOutcome, WhatIf
from busfare.report.what_ifs import outcome_keys
from busfare.results import rows_of
from busfare.timeline import Played, critical_path_shares

NS = 1e-9


def answer_job_what_if(
    job: JobTimeline,
    name: str,
    changes: Sequence[JobChange],
    recorded_on: Node | None,
    guessed: bool,
    model: str,
) -> WhatIf:
    """What `changes` make of `job`, each alone and all in the order given. Raises InputError where one needs what the traces
    do not hold.
    """
    unchanged = JobState.of(job)
    baseline = unchanged.play()
    alone = [_outcome(change.title, [change], unchanged, baseline, recorded_on) for change in changes]
    outcome, state, played = (
        alone[0] if len(alone) == 1 else _outcome("all together", changes, unchanged, baseline, recorded_on)
    )
    omissions = [
        *baseline.timeline.omissions,
        *(o for part in job.parts for o in part.timeline.trace.omissions),
    ]
    unique = {(o.id, o.what): o for o in omissions}
    return WhatIf(
        trace=name,
        recorded_on=recorded_on.name if recorded_on else None,
        from_guessed_from_gpu_name=guessed and recorded_on is not None,
        model=model,
        baseline=Baseline(
            recorded_seconds=job.recorded_ns * NS,
            recording_cost=None,
            replayed_seconds=baseline.makespan_seconds,
            range_seconds=[baseline.makespan_seconds] * 2,
            critical_path=rows_of(Part, critical_path_shares(baseline.timeline)),
        ),
        changes=[Outcome(**one) for one, _, _ in alone],
        **outcome,
        range_seconds=[played.makespan_seconds] * 2,
        critical_path=rows_of(Part, critical_path_shares(played.timeline)),
        ranks=_ranks(unchanged, baseline, state, played),
        omissions=rows_of(Omission, list(unique.values())),
    )


def _outcome(
    title: str, changes: Sequence[JobChange], unchanged: JobState, baseline: Played, recorded_on: Node | None
) -> tuple[dict[str, Any], JobState, Played]:
    """The keys of an `Outcome`, the job after the changes, and that job played."""
    state = unchanged
    for change in changes:
        state = change.apply(state)
    played = state.play() if state.count else baseline
    run, after = baseline.makespan_seconds, played.makespan_seconds
    least: float | None = after
    most: float | None = after
    names = {change.options[0] for change in changes}
    if state.count and names.isdisjoint(option.name for option in JOB_OPTIONS):
        low, high = gain_beside(run - after, run, _names(changes), figures_of(recorded_on))
        least, most = min(run - high, after), max(run - low, after)
    elif state.count:  # no job's change was measured yet
        least = most = None
    counted = (state.count, state.bytes, state.rests_on)
    return outcome_keys(title, counted, (run, after), (least, most)), state, played


def _names(changes: Sequence[JobChange]) -> str:
    return " ".join(change.options[0] for change in changes)


def _ranks(before: JobState, baseline: Played, after: JobState, played: Played) -> list[RankOutcome]:
    """How long each rank runs, as replayed and as predicted."""
    first, then = _spans(before, baseline), _spans(after, played)
    return [RankOutcome(rank, first.get(rank), then[rank]) for rank in sorted(then)]


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
