"""A job without stragglers: no rank takes longer for its own part, from one collective to the next, than the median does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.jobs.beside import Crowd
from busfare.jobs.model import JobTimeline
from busfare.jobs.state import JobChange, JobState
from busfare.nodes.arrays import FloatArray
from busfare.statements import statement
from busfare.timeline import Timeline

__all__ = ["no_stragglers"]

#: Who takes this much longer than the median, and more than time stamps are off, is late.
LATE, LATE_NS = 1.02, 5_000


def no_stragglers() -> JobChange:
    """Nobody takes longer from one collective to the next than the median of those who meet there; of an even number the
    lower of the two in the middle.

    Where all ranks launch as many collectives, work and host time of a late rank that lie between two launches of them take
    as long as on the median rank. Elsewhere all that it does between two collectives is shortened alike.
    """

    def apply(state: JobState) -> JobState:
        changed = _as_on_median(state) or _shortened(state)
        timelines, count = changed
        return replace(state, timelines=timelines).touched(count, statement("assumes.as-the-median"))

    return JobChange("--no-stragglers", statement("change.no-stragglers"), apply)


def _as_on_median(state: JobState) -> tuple[list[Timeline], int] | None:
    """Timelines with late ranks' operations and calls as quick as the median rank's, and how many stretches that changes;
    None where the ranks do not launch as many collectives.
    """
    job, crowd = state.job, state.crowd
    known = all(run is part.timeline for run, part in zip(state.timelines, job.parts, strict=True))
    carried = {int(own.sum()) for own in crowd.carries} if crowd is not None and known else set()
    if crowd is None or len(carried) != 1 or 0 in carried:
        return None
    # A collective ends its stretch.
    stretch = [np.asarray(np.cumsum(own) - own, np.int64) for own in crowd.carries]
    count = int(crowd.carries[0].sum()) + 1
    hosts = [_before_launches(run) for run in state.timelines]
    gpu = [_alone(crowd, number, run) for number, run in enumerate(state.timelines)]
    on_gpu, late_gpu = _ratios(stretch, gpu, count, job.stands_for)
    on_host, late_host = _ratios(stretch, [own for own, _ in hosts], count, job.stands_for)
    timelines = []
    for number, run in enumerate(state.timelines):
        own = stretch[number]
        less = np.where(crowd.carries[number], 0.0, gpu[number] * (1 - on_gpu[number][own]))
        of_call = np.append(on_host[number][own], 1.0)[hosts[number][1]]
        shorter = {
            f"call_{name}": np.rint(run.columns[f"call_{name}"] * of_call).astype(np.int64)
            for name in ("gap", "own")
        }
        duration = np.rint(run.columns["operation_duration"] - less).astype(np.int64)
        timelines.append(run.with_columns(operation_duration=np.maximum(duration, 0), **shorter))
    return timelines, late_gpu + late_host


def _ratios(
    stretch: Sequence[NDArray[np.int64]], values: Sequence[FloatArray], count: int, stands_for: FloatArray
) -> tuple[FloatArray, int]:
    """By what each rank's stretches are shortened to be as long as the median's, shape (ranks, count); how many are. Each
    counts for as many as it `stands_for`.
    """
    sums = np.array([np.bincount(at, own, count) for at, own in zip(stretch, values, strict=True)])
    order = np.argsort(sums, axis=0)
    below = np.cumsum(stands_for[order], axis=0)
    middle = np.argmax(below >= below[-1] / 2, axis=0)
    usual = np.take_along_axis(sums, np.take_along_axis(order, middle[None], 0), 0)[0]
    late = sums > np.maximum(LATE * usual, usual + LATE_NS)
    return np.where(late, usual / np.maximum(sums, 1.0), 1.0), int(late.sum())


def _alone(crowd: Crowd, number: int, run: Timeline) -> FloatArray:
    """What each operation takes with nothing beside it, ns; of those that communicate nothing. Shape (operations,)."""
    lost = crowd.loses[number] * crowd.recorded[number]
    return np.where(crowd.carries[number], 0.0, run.columns["operation_duration"] - lost)


def _before_launches(run: Timeline) -> tuple[FloatArray, NDArray[np.int64]]:
    """What the thread of each operation's call does since its launch before, up to and with this one, ns, shape
    (operations,), 0 for further ones of a call; and of each call the operation up to which it counts, -1 for none.
    """
    columns = run.columns
    launched = np.flatnonzero(columns["operation_launched"] != 0)
    calls, first = np.unique(columns["operation_call"][launched], return_index=True)
    number = np.full(len(columns["call_own"]), -1)
    number[calls] = launched[first]
    thread = columns["call_thread"]
    up_to = np.full(len(number), -1)
    for one in np.unique(thread):
        mine = np.flatnonzero(thread == one)
        launches = np.flatnonzero(number[mine] >= 0)
        following = np.searchsorted(launches, np.arange(len(mine)))
        inside = following < len(launches)
        up_to[mine[inside]] = number[mine[launches[following[inside]]]]
    own = (columns["call_gap"] + columns["call_own"]).astype(float)
    known = up_to >= 0
    return np.asarray(np.bincount(up_to[known], own[known], len(columns["operation_call"])), float), up_to


def _shortened(state: JobState) -> tuple[list[Timeline], int]:
    """The same by what times alone tell."""
    job = state.job
    rows = job.members.with_row_index("member").drop_nulls("joint").sort("rank", "start_ns")
    since = pl.col("end_ns").shift(1).over("rank", "communicator")
    rows = rows.with_columns(since=since).drop_nulls("since")
    rows = rows.with_columns(own=(pl.col("start_ns") - pl.col("since")).clip(lower_bound=1))
    rows = rows.with_columns(stands_for=pl.Series(job.stands_for[rows["part"].to_numpy()])).sort("own")
    below = pl.col("stands_for").cum_sum().over("joint")
    half = below >= pl.col("stands_for").sum().over("joint") / 2
    rows = rows.with_columns(half=half)
    rows = rows.with_columns(usual=pl.col("own").filter(pl.col("half")).min().over("joint"))
    late = rows.filter((pl.col("own") > pl.col("usual")) & (pl.col("joint").len().over("joint") > 1))
    timelines = list(state.timelines)
    for number, run in enumerate(timelines):
        own = late.filter(pl.col("part") == number)
        if own.height:
            begin = (own["since"] - own["shift_ns"]).to_numpy()
            end = (own["start_ns"] - own["shift_ns"]).to_numpy()
            pace = (own["usual"] / own["own"]).to_numpy()
            timelines[number] = _paced(run, job, number, begin, end, pace)
    return timelines, late.height


def _paced(
    run: Timeline,
    job: JobTimeline,
    number: int,
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    pace: FloatArray,
) -> Timeline:
    """A part with everything between each `begin` and `end` (ns, by the clock of its file, since what members count from)
    taking so much of its time.
    """
    order = np.argsort(begin)
    begin, end, pace = begin[order], end[order], pace[order]
    base = job.bases_ns[number]

    def factor(times: NDArray[np.int64]) -> FloatArray:
        at = np.searchsorted(begin, times + base, side="right") - 1
        inside = (at >= 0) & (times + base < end[np.maximum(at, 0)])
        return np.where(inside, pace[np.maximum(at, 0)], 1.0)

    started, called = (frame["start_ns"].to_numpy() for frame in (run.operations, run.calls))
    own, calls = factor(started), factor(called)
    columns = run.columns
    slower = {f"operation_{name}": own for name in ("duration", "launch_lag", "order_lag", "extra")}
    slower |= {f"call_{name}": calls for name in ("gap", "own", "wait_lag")}
    return run.with_columns(
        **{name: np.rint(columns[name] * by).astype(np.int64) for name, by in slower.items()}
    )
