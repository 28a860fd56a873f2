"""What to do about a job: each advice with what the whole job gains, by all of its ranks replayed together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import asdict, replace

from busfare.advise.amounts import Ranged
from busfare.advise.by_replay import CANDIDATES
from busfare.advise.finding import Advised, ranged
from busfare.advise.search import findings, guess_node, rebuilt
from busfare.cost.ranges import gain_range, seconds_between
from busfare.errors import InputError
from busfare.jobs.changes import bucket, on_ranks, overlap
from busfare.jobs.communication import RankTimes
from busfare.jobs.model import JobTimeline
from busfare.jobs.partial import Advice
from busfare.jobs.reduce import Best, Called, Ranked, join
from busfare.jobs.state import JobChange, JobState, no_stragglers
from busfare.jobs.stragglers import Straggler
from busfare.nodes import Node
from busfare.questions import WhatIf
from busfare.statements import Words, statement
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace

#: What saves less of the job than this is no advice.
WORTH = 0.01
#: What many all-reduces are joined to: the size of a bucket of PyTorch's DistributedDataParallel.
BUCKET_BYTES = 25_000_000
#: All-reduces are small below this: their latency on NVLink is then more than a tenth of their time.
SMALL_BYTES = 1 << 20
#: By the words of `what-if`, as findings of single ranks have them, what advice asks.
CHANGE_OF = {change.option_words(): change for candidates in CANDIDATES.values() for change in candidates}
#: Findings about what ranks do together.
TOGETHER = ("straggling-rank", "exposed-collectives", "small-all-reduces")


class LargestFinding(Advised, Called, kw_only=True):
    """The trace that gains most, and what it gains."""

    path: str
    rank: int | None
    host: str | None


class JobFinding(Ranged, kw_only=True):
    """A finding over all traces that have it. Ranks run side by side: gains are never summed; the job's is the largest."""

    id: str
    title: Words
    traces: int
    predicted_gain_seconds: float
    traces_by_replay: int
    overlaps_with: list[str]
    largest: LargestFinding


def advised(trace: Trace, node: Node | None, replay: bool) -> tuple[Node | None, list[Advice]]:
    """The node that `trace` was recorded on, guessed where none is named, and its findings, priced by replay or bounded."""
    node = node or guess_node(trace)
    of_trace = findings(trace, node, partial(rebuilt, trace, node) if replay else None)
    rows = [ranged(finding) for finding in of_trace]
    return node, [
        Advice(row.id, row.predicted_gain_seconds, row.by_replay, msgspec.json.encode(row)) for row in rows
    ]


def listed(findings: Iterable[Best]) -> list[JobFinding]:
    """Findings of single traces as those of all these traces, largest gain first."""
    merged = []
    for best in sorted(findings, key=lambda best: (best.order[0], -best.traces, best.value.id)):
        keys = msgspec.json.decode(best.value.finding)
        more = {"traces": best.traces, "traces_by_replay": best.replayed}
        merged.append(msgspec.convert(keys | more | {"largest": keys | asdict(best.rank)}, JobFinding))
    return merged


def replayed_alone(
    of_job: Sequence[JobFinding],
    ranks: Sequence[RankTimes],
    traces: Sequence[Trace],
    paths: Sequence[Path],
    node: Node | None,
) -> list[JobFinding]:
    """Findings in `traces` of a job of many, which was read without replays, each priced by the replay of its own trace."""
    ranked = {rank.path: Ranked(path=rank.path, rank=rank.rank, host=rank.host) for rank in ranks}
    best: dict[str, Best] = {}
    for trace, path in zip(traces, paths, strict=True):
        for advice in advised(trace, node, replay=True)[1]:
            join(best, advice.id, Best.of(advice, ranked[str(path)]))
    anew = listed(best.values())
    counted = {finding.id: finding.traces for finding in of_job}
    replayed = [replace(finding, traces=max(finding.traces, counted.get(finding.id, 0))) for finding in anew]
    ids = {finding.id for finding in anew}
    return [*replayed, *(finding for finding in of_job if finding.traces_by_replay and finding.id not in ids)]


def job_findings(
    job: JobTimeline,
    of_all: Sequence[RankTimes],
    straggler: Straggler | None,
    findings: Sequence[JobFinding],
    recorded_on: Node | None,
) -> list[JobFinding]:
    """`findings` of single ranks with what the whole job gains by them, and those of what ranks do together; most first.
    `of_all`: times of all ranks, of which `job` may have some.

    What is not worth a hundredth of the job is left out. A finding that no replay prices keeps what it says.
    """
    unchanged = JobState.of(job)
    before = unchanged.play().makespan_seconds
    setting = Setting(recorded_on)
    priced_findings = []
    for finding in findings:
        question = CHANGE_OF.get(tuple(finding.largest.what_if))
        if question is None or not finding.largest.by_replay:
            priced_findings.append(finding)
            continue
        ranks = [r.rank for r in job.ranks if r.path == finding.largest.path] if finding.traces == 1 else None
        job_changes = [on_ranks(change, setting, ranks) for change in changes_of(question, None)]
        options = [*changed(question, rank=tuple(ranks or ())).option_words()]
        priced = _priced(unchanged, before, job_changes)
        if priced is not None:
            gain, keys, rests_on = priced
            largest = replace(finding.largest, what_if=options, rests_on=rests_on)
            priced_findings.append(replace(finding, predicted_gain_seconds=gain, **keys, largest=largest))
    priced_findings += _together(unchanged, before, of_all, straggler, recorded_on)
    return sorted(priced_findings, key=lambda finding: -finding.predicted_gain_seconds)


def _priced(
    unchanged: JobState, before: float, changes: Sequence[JobChange]
) -> tuple[float, dict[str, Any], list[Words]] | None:
    """What the job gains by `changes`, its range as keys, and what must hold; None where that is not worth a word."""
    state = unchanged
    try:
        for change in changes:
            state = change.apply(state)
        gain = before - state.play().makespan_seconds if state.count else 0.0
    except InputError:
        return None
    if gain < WORTH * before:
        return None
    low, high = gain_range(gain, before, "datasheet", "job-change")
    return gain, seconds_between(max(0.0, low), high, "calibrated"), state.rests_on


def _together(
    unchanged: JobState,
    before: float,
    of_all: Sequence[RankTimes],
    straggler: Straggler | None,
    node: Node | None,
) -> list[JobFinding]:
    """What the ranks do together, where changing it gains something."""
    members = unchanged.job.members.drop_nulls("joint")
    late, waited = None, sum(rank.waiting_seconds for rank in of_all)
    if straggler is not None and straggler.causes_most(waited):
        late = statement("straggling-rank.evidence", **asdict(straggler))
    made = []
    for id, change, question, evidence, rank in (
        ("straggling-rank", no_stragglers(), WhatIf(no_stragglers=True), late, straggler and straggler.rank),
        ("exposed-collectives", overlap(), WhatIf(overlap_collectives=True), _exposed(members), None),
        ("small-all-reduces", bucket(BUCKET_BYTES, node), WhatIf(bucket=BUCKET_BYTES), _small(members), None),
    ):
        if not evidence:
            continue
        priced = _priced(unchanged, before, [change])
        if priced is None:
            continue
        gain, keys, rests_on = priced
        ranks = unchanged.job.ranks
        late_rank = next((held for held in ranks if held.rank == rank), ranks[0])
        made.append(
            JobFinding(
                id=id,
                title=statement(f"{id}.title"),
                traces=len({rank.path for rank in of_all}),
                predicted_gain_seconds=gain,
                **keys,
                traces_by_replay=len({rank.path for rank in ranks}),
                overlaps_with=[],
                largest=LargestFinding(
                    path=late_rank.path,
                    rank=late_rank.rank,
                    host=late_rank.host,
                    evidence=evidence,
                    change=statement(f"{id}.change"),
                    predicted_gain_seconds=gain,
                    **{key: value for key, value in keys.items() if key != "reason"},
                    by_replay=True,
                    rests_on=rests_on,
                    what_if=[*question.option_words()],
                ),
            )
        )
    return made


def _exposed(members: pl.DataFrame) -> Words | None:
    transfer = members.select(
        (pl.col("end_ns") - pl.max_horizontal("start_ns", "last_ns")).clip(lower_bound=0)
    )
    total = int(transfer.to_series().sum())
    return statement("exposed-collectives.evidence", seconds=total * 1e-9) if total else None


def _small(members: pl.DataFrame) -> Words | None:
    sizes = (
        members.filter(pl.col("collective_kind") == "all_reduce").drop_nulls("bytes").unique("joint")["bytes"]
    )
    median = float(np.median(sizes.to_numpy())) if len(sizes) > 1 else np.inf
    if median >= SMALL_BYTES * 8:
        return None
    return statement("small-all-reduces.evidence", count=len(sizes), bytes=median)
