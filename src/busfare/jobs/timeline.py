"""All ranks of a job in one timeline: each rank's own, side by side, and collectives that begin when all have come."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.jobs.communication import RankTimes, joined
from busfare.jobs.model import JobTimeline, Part, Rows, calibrated, places_of, together
from busfare.jobs.parts import LEAST_RANKS, size_of
from busfare.jobs.ranks import Rank, copies_left_out, numbered, place_of, ranks_of, rows_of, separate_runs
from busfare.jobs.workers import free_memory
from busfare.nodes import Node
from busfare.timeline import play, timeline
from busfare.timeline.build import RANGE_CORRELATION, with_mpi_calls
from busfare.timeline.engine import Unrecorded, unrecorded
from busfare.trace import Omission, Trace
from busfare.trace.collectives import KIND
from busfare.trace.omissions import omission

#: What a call or an operation takes at most while a job is replayed: 636 in 49 ranks of benchmarks/large_job.py.
BYTES_A_ROW = 700
#: Of a job that does not fit, ranks of so many rows are replayed at most: 2.8 GB.
SOME_ROWS = 4_000_000
#: Of the ranks that are replayed, those that others wait for; the rest are spread over all others.
AWAITED = 1 / 3


@dataclass(frozen=True)
class Deciding:
    """Traces of some ranks, each with how many like it there are; `ranks`: the number of the rank that each is of, where it
    is of one alone; `size`: the ranks of the whole job; `left_out` says what is not there.
    """

    paths: dict[Path, float]
    ranks: dict[Path, int]
    size: int
    left_out: Omission


def rows_that_fit() -> int:
    """Rows of calls and operations that half of the free memory holds while they are replayed."""
    return free_memory() // 2 // BYTES_A_ROW


def ranks_that_fit(sample: Trace, paths: Sequence[Path]) -> int | None:
    """How many of the traces at `paths`, each of a rank, are replayed, by the rows of the `sample` among them; None: all."""
    whole = sum(map(size_of, paths)) / max(size_of(sample.path), 1)
    rows, most = int((sample.calls.height + sample.operations.height) * whole), rows_that_fit()
    return None if rows <= most else min(most, SOME_ROWS) * len(paths) // rows


def deciding(of_all: Sequence[RankTimes], count: int, named: Collection[int] = ()) -> Deciding:
    """About `count` traces of the job whose ranks are `of_all`: of the ranks `named`, of those that others wait for most,
    and of some spread over all others by the time that they do not wait.
    """
    ranks = pl.DataFrame([
        (of.path, of.rank, of.awaited_seconds, of.makespan_seconds - of.waiting_seconds, of.rank in named)
        for of in of_all
    ], ["path", "rank", "awaited", "busy", "named"], orient="row")  # fmt: skip
    files = ranks.group_by("path", maintain_order=True).agg(
        pl.col("rank").first(), pl.len(), pl.col("awaited").sum(), pl.col("busy").max(), pl.col("named").any()
    )
    count = min(max(count, LEAST_RANKS), files.height)
    most = pl.struct(-pl.col("awaited"), "path").rank("ordinal") <= round(count * AWAITED)
    files = files.with_columns(chosen=pl.col("named") | (most & (pl.col("awaited") > 0)))
    rest = files.filter(~pl.col("chosen")).sort("busy", "path")["path"].to_list()
    left = max(0, count - int(files["chosen"].sum()))
    spread = {rest[(2 * place + 1) * len(rest) // (2 * left)]: len(rest) / left for place in range(left)}
    some = files.filter(pl.col("chosen") | pl.col("path").is_in(list(spread)))
    share = float(some["awaited"].sum()) / whole if (whole := float(files["awaited"].sum())) else 1.0
    single = some.filter(pl.col("len") == 1)
    return Deciding(
        paths={Path(path): spread.get(path, 1.0) for path in some["path"]},
        ranks={Path(path): rank for path, rank in single.select("path", "rank").iter_rows()},
        size=len(of_all),
        left_out=omission("ranks-left-out", files.height - some.height, replayed=some.height, share=share),
    )


def job_timeline(
    traces: Sequence[Trace], node: Node | None, paths: Sequence[Path], some: Deciding | None = None
) -> JobTimeline:
    """The job that `traces` are of, recorded on `node`; or `some` of its ranks, or one alone, whose collectives take all
    of their recorded time. Raises InputError where nothing can be replayed, or no two of several ranks communicate.
    """
    ranks = ranks_of_all(traces, paths)
    if some is not None:
        numbers = [some.ranks.get(paths[rank.clock], rank.rank) for rank in ranks]
        ranks = [msgspec.structs.replace(rank, rank=n) for rank, n in zip(ranks, numbers, strict=True)]
    members, _, base = joined([rows_of(trace) for trace in traces], ranks)
    if len(ranks) == 1:  # each collective for itself: nothing says what of it is waiting
        alone = pl.int_range(pl.len())
        members = members.with_columns(joint=alone, last_ns="start_ns", collective_kind=pl.lit(None, KIND))
    if members["joint"].is_null().all():
        raise InputError(
            f"{paths[0]}: no collective or message of one rank matches another rank, and there is no job to replay; "
            "give the traces of all ranks of one run"
        )
    parts = parts_of(traces, ranks, node)
    ranks_by_number = {rank.rank: rank for rank in ranks}
    shift = dict(members.group_by("clock").agg(pl.col("shift_ns").median()).iter_rows())
    starts = np.array([
        traces[part.clock].origin_ns + part.timeline.origin_ns + int(shift.get(part.clock, 0)) for part in parts
    ], np.int64)  # fmt: skip
    starts -= starts.min()
    ends = starts + np.array([part.timeline.recorded_ns for part in parts], np.int64)
    _refuse_several_runs(parts, starts, ends, paths)
    recorded = int(ends.max())
    members = _placed(_relieved(members), parts)
    begin = pl.max_horizontal("start_ns", "last_ns", "relieved_ns")
    transfer = members.select(pl.max_horizontal(pl.lit(0), pl.col("end_ns") - begin)).to_series().to_numpy()
    bases = np.array([traces[part.clock].origin_ns - base for part in parts], np.int64)
    of_nccl = bool((~members["is_call"]).any())
    places = places_of(
        [(part.timeline, [ranks_by_number[rank] for rank in part.ranks]) for part in parts], node, of_nccl
    )
    size = len(ranks) if some is None else some.size
    stands_for = np.array([some.paths.get(paths[part.clock], 1.0) if some else 1.0 for part in parts])
    present = {rank.clock for rank in ranks}
    absent = [clock for clock in range(len(paths)) if clock not in present]
    copies = [str(paths[clock]) for clock in absent if traces[clock].operations.height]
    left_out = *([copies_left_out(copies)] if copies else []), *([some.left_out] if some else [])
    columns = members, transfer, starts, bases, recorded
    return _shared(JobTimeline(ranks, parts, *columns, size, stands_for, places, left_out=left_out))


def ranks_of_all(traces: Sequence[Trace], paths: Sequence[Path]) -> list[Rank]:
    """The ranks of a job, by what its traces and their paths say. Raises InputError where they are of several runs."""
    pairs = zip(traces, paths, strict=True)
    placed = [(str(path), *place_of(trace, path), ranks_of(trace)) for trace, path in pairs]
    if later := separate_runs(placed):
        first = next(path for place, path in enumerate(paths) if place not in later)
        raise InputError(
            f"{paths[later[0]]}: belongs to a different run than {first.name}: another trace of a rank, another number of "
            "ranks, or recorded later (or the clocks of their hosts differ); give the traces of all ranks of one run"
        )
    return numbered(placed)


def _refuse_several_runs(parts: Sequence[Part], starts: Rows, ends: Rows, paths: Sequence[Path]) -> None:
    """Raises InputError where parts lie further apart than any of them takes: those that a collective ties overlap."""
    order = np.argsort(starts, kind="stable")
    apart = starts[order[1:]] - np.maximum.accumulate(ends[order])[:-1]
    far = np.flatnonzero(apart > (ends - starts).max())
    if len(far):
        first, stray = (paths[parts[order[at]].clock] for at in (0, far[0] + 1))
        raise InputError(
            f"{stray}: belongs to a different run than {first.name}: they share no collective, and they were "
            "recorded at different times; give the traces of all ranks of one run"
        )


def _shared(job: JobTimeline) -> JobTimeline:
    """`job` with what its copies share, and copies as they are with that for themselves."""
    if job.places is None:
        return job
    sizes = [part.timeline.operations.height for part in job.parts]
    starts, ends = (
        np.concatenate([
            part.timeline.operations[name].to_numpy() - part.timeline.origin_ns + start
            for part, start in zip(job.parts, job.starts_ns, strict=True)
        ])
        for name in ("start_ns", "end_ns")
    )  # fmt: skip
    seen = calibrated(
        replace(together(job), node=job.parts[0].timeline.node), sizes, job.places, starts, ends
    )
    if seen is None:
        return job
    links, columns = seen
    part_columns = [np.split(column, np.cumsum(sizes)[:-1]) for column in columns.values()]
    parts = [
        replace(part, timeline=part.timeline.with_columns(**dict(zip(columns, of_part, strict=True))))
        for part, *of_part in zip(job.parts, *part_columns, strict=True)
    ]
    return replace(job, parts=parts, links=links)


def parts_of(traces: Sequence[Trace], ranks: Sequence[Rank], node: Node | None) -> list[Part]:
    """Each process of each trace, apart: its ranks share host threads."""
    processes: dict[tuple[int, int | None], list[int]] = {}
    for rank in ranks:
        processes.setdefault((rank.clock, rank.times.process), []).append(rank.rank)
    return [_part(traces[at[0]], *at, tuple(part_ranks), node) for at, part_ranks in processes.items()]


def _relieved(members: pl.DataFrame) -> pl.DataFrame:
    """`members` with the columns `relieved_by` and `relieved_ns`. A library buffers messages that nobody receives yet; when
    its buffers are full, the next send waits for a receiver of one before.
    """
    kind, this_rank = pl.col("collective_kind").cast(pl.String), pl.coalesce("place", "rank").cast(pl.Int64)
    rows = members.with_row_index("member")
    between = ["communicator", "source", "target"]
    peer = pl.col("peer").cast(pl.Int64)
    received = rows.filter(kind == "receive").drop_nulls("joint").select(
        "communicator", source=peer, target=this_rank, relieved_ns="start_ns", relieved_by="joint"
    )  # fmt: skip
    sent = rows.filter(kind == "send").select(
        "communicator", "member", "start_ns", "end_ns", source=this_rank, target=peer
    )
    # The last receiver that came before the end of each send.
    received = received.sort("relieved_ns").with_columns(end_ns="relieved_ns")
    relief = sent.sort("end_ns").join_asof(received, on="end_ns", by=between, check_sortedness=False)
    waited = relief.filter(pl.col("relieved_ns") > pl.col("start_ns"))
    waited = waited.select("member", "relieved_ns", "relieved_by")
    return rows.join(waited, on="member", how="left", maintain_order="left").drop("member")


def _part(trace: Trace, clock: int, process: int | None, ranks: tuple[int, ...], node: Node | None) -> Part:
    """The process of a trace, its MPI calls among its calls."""
    mine = pl.col("process").eq_missing(process)
    rows = np.arange(trace.operations.height)
    trace = with_mpi_calls(trace)
    if trace.operations["process"].n_unique() > 1 or trace.calls["process"].n_unique() > 1:
        rows = np.flatnonzero(trace.operations.select(mine).to_series().to_numpy())
        tables = ("operations", "calls", "events", "markers", "streams")
        trace = replace(trace, **{name: getattr(trace, name).filter(mine) for name in tables})
    run = timeline(trace, node, alone_there=False)
    return Part(clock, process, ranks, run, rows[run.operations["row"].to_numpy()])


def _placed(members: pl.DataFrame, parts: Sequence[Part]) -> pl.DataFrame:
    """`members` with `part`, `node` and `is_call`: where each is in the timelines; without those that are in none."""
    placed = []
    for key, is_call in (("operation", False), ("marker", True)):
        # Calls that are no range have numbers below 0.
        frames = [
            pl.DataFrame(
                {key: RANGE_CORRELATION - part.timeline.calls["correlation"] if is_call else part.rows}
            )
            .with_columns(
                clock=pl.lit(part.clock, pl.UInt32),
                part=pl.lit(number, pl.Int64),
                node=pl.int_range(pl.len()),
            )
            .filter(pl.col(key) >= 0)
            for number, part in enumerate(parts)
        ]
        places = pl.concat(frames).with_columns(pl.col(key).cast(pl.UInt32), is_call=pl.lit(is_call))
        placed.append(members.drop_nulls(key).join(places, on=["clock", key], maintain_order="left"))
    return pl.concat(placed)


def without_recorder(job: JobTimeline, target_ns: int) -> tuple[JobTimeline, Unrecorded]:
    """`job` as it is when it takes `target_ns`, and what recording cost its ranks, each call of all ranks the same."""
    runs = [part.timeline for part in job.parts]
    bare = unrecorded(runs, target_ns, lambda changed: play(together(job, changed)).makespan_ns)
    parts = [replace(part, timeline=run) for part, run in zip(job.parts, bare.timelines, strict=True)]
    return replace(job, parts=parts), bare
