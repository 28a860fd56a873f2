"""What to do about a job: each advice with what the whole job gains, by all of its ranks replayed together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from busfare.advise.findings import findings, guess_node, rebuilt
from busfare.cost.ranges import gain_beside, seconds_between
from busfare.errors import InputError
from busfare.jobs.changes import bucket, on_ranks, overlap
from busfare.jobs.deciding import deciding
from busfare.jobs.model import JobTimeline
from busfare.jobs.parts import MOST_OPERATIONS, MOST_TRACES, SOME_OPERATIONS
from busfare.jobs.reduce import over_traces
from busfare.jobs.results import JobFinding, JobReport, LargestFinding, Left, Ranked
from busfare.jobs.state import JobChange, JobState
from busfare.jobs.stragglers import no_stragglers
from busfare.jobs.timeline import job_timeline
from busfare.nodes import Node
from busfare.results import ranged
from busfare.statements import Words, statement
from busfare.timeline.changes import OPTIONS, Change, Setting
from busfare.trace import Trace, read

__all__ = ["job_findings", "of_whole_job"]

#: What saves less of the job than this is no advice.
WORTH = 0.01
#: What many all-reduces are joined to: the size of a bucket of PyTorch's DistributedDataParallel.
BUCKET_BYTES = 25_000_000
#: All-reduces are small below this: their latency on NVLink is then more than a tenth of their time.
SMALL_BYTES = 1 << 20
#: Findings about what ranks do together.
TOGETHER = ("straggling-rank", "exposed-collectives", "small-all-reduces")


def of_whole_job(result: JobReport, recorded_on: Node | None) -> tuple[JobReport, JobTimeline | None]:
    """`result` with findings of the whole job, and the job, where its ranks can be replayed together; else as it is."""
    paths = [Path(path) for path in sorted({one.path for one in result.ranks})]
    counts = (result.kernels, result.communication, result.transfers, result.sets, result.graph_work)
    operations = sum(one.count for one in counts)
    if all(row.arrive_seconds is None for row in result.collectives):
        return result, None
    some = None
    if len(paths) > MOST_TRACES or operations > MOST_OPERATIONS:
        own = {one.largest.rank for one in result.findings if one.largest.rank is not None}
        each = operations // len(paths)
        some = deciding(result, min(MOST_TRACES, SOME_OPERATIONS // max(each, 1)), own)
        paths = [*some.paths]
        if each * len(paths) > MOST_OPERATIONS:
            return result, None
    try:
        traces = [read(path, launches=True) for path in paths]
        node = recorded_on or guess_node(traces[0])
        job = job_timeline(traces, node, paths, some)
        of_ranks = result.findings
        files = result.traces
        if files.read + files.failed + files.others > MOST_TRACES:  # then none was replayed where it was read
            of_ranks = _replayed_alone(result, traces, paths, node)
        findings = job_findings(job, result, of_ranks, node)
    except (InputError, OSError):  # not as it was a moment ago, or nothing of it plays
        return result, None
    left = [Left(some.left_out.id, some.left_out.count, None, some.left_out.what)] if some else []
    return replace(
        result, findings=findings, gains_of_whole_job=True, omissions=[*left, *result.omissions]
    ), job


def _replayed_alone(
    result: JobReport, traces: Sequence[Trace], paths: Sequence[Path], node: Node | None
) -> list[JobFinding]:
    """Findings in `traces` of a job of many, which was read without replays, each priced by the replay of its own trace."""
    ranked = {one.path: Ranked(path=one.path, rank=one.rank, host=one.host) for one in result.ranks}
    anew = over_traces(
        (ranked[str(path)], ranged(finding, trace.makespan_seconds, node))
        for trace, path in zip(traces, paths, strict=True)
        for finding in findings(trace, node, partial(rebuilt, trace, node))
    )
    counted = {one.id: one.traces for one in result.findings}
    known = [replace(one, traces=max(one.traces, counted.get(one.id, 0))) for one in anew]
    ids = {one.id for one in anew}
    return [*known, *(one for one in result.findings if one.traces_by_replay and one.id not in ids)]


def job_findings(
    job: JobTimeline, report: JobReport, findings: Sequence[JobFinding], recorded_on: Node | None
) -> list[JobFinding]:
    """`findings` of single ranks with what the whole job gains by them, and those of what ranks do together; most first.
    `report`: of all ranks, of which `job` may have some.

    What is not worth a hundredth of the job is left out. A finding that no replay prices keeps what it says.
    """
    unchanged = JobState.of(job)
    before = unchanged.play().makespan_seconds
    setting = Setting(recorded_on)
    found = []
    for finding in findings:
        changes = _changes(finding.largest.what_if)
        if not changes or not finding.largest.by_replay:
            found.append(finding)
            continue
        ranks = [r.rank for r in job.ranks if r.path == finding.largest.path] if finding.traces == 1 else None
        job_changes = [on_ranks(change, setting, ranks) for change in changes]
        options = [
            *finding.largest.what_if,
            *(word for rank in ranks or () for word in ("--rank", str(rank))),
        ]
        priced = _priced(unchanged, before, job_changes)
        if priced is not None:
            gain, keys, rests_on = priced
            largest = replace(finding.largest, what_if=options, rests_on=rests_on)
            found.append(replace(finding, predicted_gain_seconds=gain, **keys, largest=largest))
    found += _together(unchanged, before, report, recorded_on)
    return sorted(found, key=lambda finding: -finding.predicted_gain_seconds)


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
    names = " ".join(change.option for change in changes)
    low, high = gain_beside(gain, before, names, "datasheet", "job-change")
    return gain, seconds_between(max(0.0, low), high, "calibrated"), state.rests_on


def _changes(options: Sequence[str]) -> list[Change]:
    """The changes to a program that these words of `what-if` ask for; none where one of them is not known."""
    known = {option.name: option for option in OPTIONS}
    values: dict[str, object] = {}
    key = ""
    for word in options:
        if not word.startswith("--") and key:
            values[key] = word
        elif word in known:
            key = known[word].key
            values[key] = True if known[word].metavar is None else ""
        else:
            return []
    try:
        return [change for option in OPTIONS for change in option.changes(values)]
    except InputError:
        return []


def _together(unchanged: JobState, before: float, report: JobReport, node: Node | None) -> list[JobFinding]:
    """What the ranks do together, where changing it gains something."""
    members = unchanged.job.members.drop_nulls("joint")
    found = []
    for id, change, evidence, rank in (
        ("straggling-rank", no_stragglers(), *_late(report)),
        ("exposed-collectives", overlap(), _exposed(members), None),
        ("small-all-reduces", bucket(BUCKET_BYTES, node), _small(members), None),
    ):
        if not evidence:
            continue
        options = [change.option, *(["25MB"] if id == "small-all-reduces" else [])]
        priced = _priced(unchanged, before, [change])
        if priced is None:
            continue
        gain, keys, rests_on = priced
        ranks = unchanged.job.ranks
        own = next((one for one in ranks if one.rank == rank), ranks[0])
        found.append(
            JobFinding(
                id=id,
                title=statement(f"{id}.title"),
                traces=len({one.path for one in report.ranks}),
                predicted_gain_seconds=gain,
                **keys,
                traces_without_gain=0,
                traces_by_replay=len({one.path for one in ranks}),
                overlaps_with=[],
                largest=LargestFinding(
                    path=own.path,
                    rank=own.rank,
                    host=own.host,
                    evidence=evidence,
                    change=statement(f"{id}.change"),
                    predicted_gain_seconds=gain,
                    **{key: value for key, value in keys.items() if key != "reason"},
                    by_replay=True,
                    rests_on=rests_on,
                    what_if=options,
                ),
            )
        )
    return found


def _late(report: JobReport) -> tuple[Words | None, int | None]:
    """For whom the others wait most, and how often it comes last."""
    late = max(report.ranks, key=lambda one: one.awaited_seconds)
    if not late.awaited_seconds:
        return None, None
    matched = [row for row in report.collectives if row.arrive_seconds is not None]
    often = sum(last.count for row in matched for last in row.last if last.rank == late.rank)
    figures = {"last": often, "of": sum(row.count for row in matched), "seconds": late.awaited_seconds}
    return statement("straggling-rank.evidence", rank=late.rank, **figures), late.rank


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
    if len(sizes) < 2 or float(np.median(sizes.to_numpy())) >= SMALL_BYTES * 8:
        return None
    median = float(np.median(sizes.to_numpy()))
    return statement("small-all-reduces.evidence", count=len(sizes), bytes=median)
