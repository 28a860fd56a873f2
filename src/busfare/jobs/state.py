"""A job after changes, and what its collectives take: as recorded, by its own times, or by the links of a node."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.collectives import KINDS, Fabric, fit_collectives, price_collectives
from busfare.cost.kernels.classes import class_of
from busfare.errors import InputError
from busfare.jobs.matching import MESSAGES
from busfare.jobs.model import JobTimeline, Part, places_in, together
from busfare.jobs.stragglers import LATE, LATE_NS
from busfare.nodes import FloatArray, Node
from busfare.questions import ChangeName
from busfare.statements import Words, statement
from busfare.timeline import Played, Timeline, play
from busfare.timeline.edit import Applied, KernelTime
from busfare.timeline.model import Scope
from busfare.trace.lanes import Union

NS = 1e-9
#: Kernels are longer beside communication, and more runs beside longer kernels: it settles at once.
ROUNDS = 2
Times = NDArray[np.int64]
#: Kernels of these classes keep a multiprocessor to each of their blocks; others hardly notice (elementwise kernels and
#: reductions beside NCCL on two H100s: -4 to +4 %; results/jobs).
WHOLE = ("gemm", "convolution", "attention")
#: Nobody loses more than a second wave costs.
MOST = 0.5
#: A kernel beside communication for less than this part of its time tells nothing of it.
LEAST_OVERLAP = 0.2


@dataclass(frozen=True)
class Crowd:
    """Of each part's operations, in the rows of its trace's timeline: which ones communicate, what each loses of the time
    that it runs beside them (0 to 0.5), and how long that was in the recording, ns.
    """

    carries: list[NDArray[np.bool_]]
    loses: list[FloatArray]
    recorded: list[Times]

    @staticmethod
    def of(job: JobTimeline) -> "Crowd":
        members = job.members.filter(~pl.col("is_call"))
        carries, overlaps = [], []
        for number, part in enumerate(job.parts):
            carrying = np.zeros(part.timeline.operations.height, bool)
            carrying[members.filter(pl.col("part") == number)["node"].to_numpy()] = True
            starts, ends = (part.timeline.operations[name].to_numpy() for name in ("start_ns", "end_ns"))
            carries.append(carrying)
            overlaps.append(_overlap_ns(part.timeline, carrying, starts, ends))
        return Crowd(carries, _loses(job.parts, carries, overlaps), overlaps)

    def slower(self, parts: Sequence[Part], timelines: Sequence[Timeline], played: Played) -> list[Timeline]:
        """`timelines`, which ran as `played` says, with kernels as long as what now runs beside them makes them."""
        slower, first = [], 0
        for number, (part, run) in enumerate(zip(parts, timelines, strict=True)):
            last = first + run.operations.height
            starts, ends = (times[first:last] for times in (played.operation_start, played.operation_end))
            first = last
            place = places_in(run, part.timeline)  # what is new there has none
            carries, loses, before = (
                np.where(place >= 0, values[number][np.maximum(place, 0)], 0)
                for values in (self.carries, self.loses, self.recorded)
            )
            more = (_overlap_ns(run, carries.astype(bool), starts, ends) - before) * loses
            duration = np.maximum(run.columns["operation_duration"] + np.rint(more).astype(np.int64), 0)
            slower.append(run.with_columns(operation_duration=duration))
        return slower


def _overlap_ns(run: Timeline, carries: NDArray[np.bool_], starts: Times, ends: Times) -> Times:
    """How long each operation runs beside communication of its own GPU, ns; shape (operations,)."""
    overlap_ns = np.zeros(len(starts), np.int64)
    device = run.columns["stream_device"][run.columns["operation_stream"]]
    for number in np.unique(device[carries]):
        theirs, mine = carries & (device == number), ~carries & (device == number)
        overlap_ns[mine] = Union.of(starts[theirs], ends[theirs]).covered_within(starts[mine], ends[mine])
    return overlap_ns


def _loses(
    parts: Sequence[Part], carries: Sequence[NDArray[np.bool_]], overlaps: Sequence[Times]
) -> list[FloatArray]:
    """The part of its time beside communication that each operation loses; shape (operations,) for each part."""
    frames = []
    for number, (part, carrying, time) in enumerate(zip(parts, carries, overlaps, strict=True)):
        operations = part.timeline.operations
        multiprocessors = part.timeline.trace.devices["multiprocessors"].drop_nulls()
        grid = part.timeline.trace.launches.with_row_index("launch").select(
            pl.col("launch").cast(pl.UInt32),
            blocks=pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z"),
        )
        frame = operations.select(
            pl.col("name").cast(pl.String).fill_null(""),
            kernel=(pl.col("kind") == "kernel") & ~pl.Series(carrying),
            carries=pl.Series(carrying),
            ns=pl.col("end_ns") - pl.col("start_ns"),
            beside=pl.Series(time),
            part=pl.lit(number),
            multiprocessors=pl.lit(multiprocessors.first(), dtype=pl.Int64),
            launch=pl.col("launch") if "launch" in operations.columns else pl.lit(None, dtype=pl.UInt32),
        )
        frames.append(frame.join(grid, on="launch", how="left", maintain_order="left"))
    every = pl.concat(frames)
    alone, crowded = pl.col("beside") == 0, pl.col("beside") > LEAST_OVERLAP * pl.col("ns")
    # A kernel by name and blocks: on another rank the same may have more to do.
    alike = ["part", "name", "blocks"]
    usual = pl.col("ns").filter(alone & pl.col("kernel")).median().over(alike)
    every = every.with_columns(more=pl.when(crowded).then(pl.col("ns") - usual))
    crowded_ns = pl.col("beside").filter(pl.col("more").is_not_null())
    seen = pl.col("more").sum().over(alike) / crowded_ns.sum().over(alike)
    taken = pl.col("blocks").filter(pl.col("carries")).median().over("part")
    room = (pl.col("multiprocessors") - taken).clip(lower_bound=1)
    waves = (pl.col("blocks") / pl.col("multiprocessors")).ceil() / (pl.col("blocks") / room).ceil()
    whole = [name for name in every["name"].unique() if class_of(name) in WHOLE]
    by_blocks = pl.when(pl.col("name").is_in(whole)).then(1 - waves)
    seen_share = pl.when(seen.is_finite()).then(seen)
    loses = pl.when(pl.col("kernel")).then(pl.coalesce(seen_share, by_blocks)).fill_null(0.0).clip(0.0, MOST)
    every = every.select("part", loses=loses)
    return [every.filter(pl.col("part") == number)["loses"].to_numpy() for number in range(len(parts))]


@dataclass(frozen=True)
class JobState:
    """A job after changes: the timeline of each part, the transfer times of its members (ns), members that no longer
    communicate (`gone`), and whether kernels no longer wait for collectives (`overlapped`).
    """

    job: JobTimeline
    timelines: list[Timeline]
    transfer_ns: FloatArray
    gone: NDArray[np.bool_]
    overlapped: bool = False
    rests_on: list[Words] = field(default_factory=list)
    crowd: Crowd | None = None
    #: Rows that changes of a program touched, by part; the number and bytes of operations that changes of the job touched.
    scopes: dict[int, Scope] = field(default_factory=dict)
    of_job: tuple[int, int] = (0, 0)
    kernel_time: KernelTime = "seconds"

    @property
    def count(self) -> int:
        return self.of_job[0] + sum(len(scope.ids) for scope in self.scopes.values())

    @property
    def bytes(self) -> int:
        return self.of_job[1] + sum(int(scope.sizes.sum()) for scope in self.scopes.values())

    @staticmethod
    def of(job: JobTimeline) -> "JobState":
        timelines = [part.timeline for part in job.parts]
        gone = np.zeros(job.members.height, bool)
        return JobState(job, timelines, job.transfer_ns.astype(float), gone, crowd=Crowd.of(job))

    def play(self) -> Played:
        """The whole job, kernels as long as what communicates beside them makes them."""
        played = self._play(self.timelines)
        if self.count and self.crowd is not None:
            for _ in range(ROUNDS):
                played = self._play(self.crowd.slower(self.job.parts, self.timelines, played))
        return played

    def _play(self, timelines: list[Timeline]) -> Played:
        return play(together(self.job, timelines, self.transfer_ns, self.gone, self.overlapped))

    def touched(self, count: int, *rests_on: Words, bytes: int = 0) -> "JobState":
        conditions = list(dict.fromkeys([*self.rests_on, *(rests_on if count else ())]))
        return replace(self, of_job=(self.of_job[0] + count, self.of_job[1] + bytes), rests_on=conditions)

    def within(self, part: int, applied: Applied) -> "JobState":
        """The state with a change of a program also `applied` to a part."""
        scopes = self.scopes | {part: self.scopes.get(part, Scope()).joined(applied.scope)}
        conditions = dict.fromkeys([*self.rests_on, *(applied.rests_on if applied.count else ())])
        return replace(self, scopes=scopes, rests_on=list(conditions))


@dataclass(frozen=True)
class JobChange:
    """A change to a job: the field of `WhatIf` that asks for it, what it is called, and what it makes of the job."""

    kind: ChangeName
    title: Words
    apply: Callable[[JobState], JobState]
    node: Node | None = None


def priced_on(job: JobTimeline, fabric: Fabric) -> FloatArray:
    """What each member's transfer takes on `fabric`, s; not a number of kinds or sizes that are not known."""
    kinds, sizes = kinds_and_sizes(job)
    seconds = np.full(len(sizes), np.nan)
    some = np.array([kind in KINDS for kind in kinds]) & np.isfinite(sizes)
    if some.any():
        priced = price_collectives(fabric, [kinds[row] for row in np.flatnonzero(some)], sizes[some])
        seconds[some] = priced.seconds
    return seconds


def kinds_and_sizes(job: JobTimeline) -> tuple[list[str], FloatArray]:
    kinds = job.members["collective_kind"].cast(pl.String).fill_null("").to_list()
    sizes = job.members.select(pl.col("bytes").max().over("joint")).to_series().cast(pl.Float64)
    kinds = ["send_receive" if kind in MESSAGES else kind for kind in kinds]
    return kinds, sizes.fill_null(np.nan).to_numpy()


def transfer_model(job: JobTimeline, node: Node | None) -> Callable[[str, FloatArray], FloatArray]:
    """Seconds of collectives of a kind and sizes: by a line through those of the job, in the shape of the node's links where
    its sizes do not tell latency from bandwidth.
    """
    kinds, sizes = kinds_and_sizes(job)
    fabric = None
    with suppress(InputError):
        fabric = None if node is None else Fabric.of(node, job.size)

    @cache
    def fitted(kind: str) -> Callable[[FloatArray], FloatArray]:
        rows = np.flatnonzero((np.array(kinds) == kind) & np.isfinite(sizes) & (job.transfer_ns > 0))

        def model(some: FloatArray) -> FloatArray:
            if fabric is None or kind not in KINDS:
                return some.astype(float)  # by its bytes alone
            return price_collectives(fabric, [kind] * len(some), some).seconds

        if not len(rows):
            return model
        return fit_collectives(sizes[rows], np.asarray(job.transfer_ns[rows] * NS), model)

    return lambda kind, wanted: fitted(kind)(wanted)


def no_stragglers() -> JobChange:
    """Nobody takes longer from one collective to the next than the median of those who meet there; of an even number the
    lower of the two in the middle.

    Where all ranks launch as many collectives, work and host time of a late rank that lie between two launches of them take
    as long as on the median rank. Elsewhere all that it does between two collectives is shortened alike.
    """

    def apply(state: JobState) -> "JobState":
        timelines, count = _as_on_median(state) or _shortened(state)
        return replace(state, timelines=timelines).touched(count, statement("assumes.as-the-median"))

    return JobChange("no_stragglers", statement("change.no-stragglers"), apply)


def _as_on_median(state: JobState) -> tuple[list[Timeline], int] | None:
    """Timelines with late ranks' operations and calls as quick as the median rank's, and how many stretches that changes;
    None where the ranks do not launch as many collectives.
    """
    job, crowd = state.job, state.crowd
    unchanged = all(run is part.timeline for run, part in zip(state.timelines, job.parts, strict=True))
    carried = {int(rows.sum()) for rows in crowd.carries} if crowd is not None and unchanged else set()
    if crowd is None or len(carried) != 1 or 0 in carried:
        return None
    # A collective ends its stretch.
    stretch = [np.asarray(np.cumsum(rows) - rows, np.int64) for rows in crowd.carries]
    count = int(crowd.carries[0].sum()) + 1
    hosts = [_before_launches(run) for run in state.timelines]
    # What each operation takes with nothing beside it, ns; 0 of those that communicate.
    gpu = [
        np.where(carries, 0.0, run.columns["operation_duration"] - loses * recorded)
        for carries, loses, recorded, run in zip(
            crowd.carries, crowd.loses, crowd.recorded, state.timelines, strict=True
        )
    ]
    on_gpu, late_gpu = _ratios(stretch, gpu, count, job.stands_for)
    on_host, late_host = _ratios(stretch, [host_ns for host_ns, _ in hosts], count, job.stands_for)
    timelines = []
    for number, run in enumerate(state.timelines):
        part_stretch = stretch[number]
        less = np.where(crowd.carries[number], 0.0, gpu[number] * (1 - on_gpu[number][part_stretch]))
        of_call = np.append(on_host[number][part_stretch], 1.0)[hosts[number][1]]
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
    """By what each rank's stretches shrink to the median, weighted by `stands_for`, shape (ranks, count); how many do."""
    sums = np.array([np.bincount(at, ns, count) for at, ns in zip(stretch, values, strict=True)])
    order = np.argsort(sums, axis=0)
    below = np.cumsum(stands_for[order], axis=0)
    middle = np.argmax(below >= below[-1] / 2, axis=0)
    usual = np.take_along_axis(sums, np.take_along_axis(order, middle[None], 0), 0)[0]
    late = sums > np.maximum(LATE * usual, usual + LATE_NS)
    return np.where(late, usual / np.maximum(sums, 1.0), 1.0), int(late.sum())


def _before_launches(run: Timeline) -> tuple[FloatArray, NDArray[np.int64]]:
    """What the thread of each operation's call does since its launch before, up to and with this one, ns, shape
    (operations,), 0 for further ones of a call; and of each call the operation up to which it counts, -1 for none.
    """
    columns = run.columns
    launched = np.flatnonzero(columns["operation_launched"] != 0)
    calls, first = np.unique(columns["operation_call"][launched], return_index=True)
    number = np.full(len(columns["call_own"]), -1)
    number[calls] = launched[first]
    launches = pl.DataFrame({"thread": columns["call_thread"], "number": number})
    following = pl.col("number").replace(-1, None).backward_fill().over("thread").fill_null(-1)
    up_to = launches.select(following).to_series().to_numpy()
    host_ns = (columns["call_gap"] + columns["call_own"]).astype(float)
    counted = up_to >= 0
    sums = np.bincount(up_to[counted], host_ns[counted], len(columns["operation_call"]))
    return np.asarray(sums, float), up_to


def _shortened(state: JobState) -> tuple[list[Timeline], int]:
    """The same by what times alone tell."""
    job = state.job
    rows = job.members.with_row_index("member").drop_nulls("joint").sort("rank", "start_ns")
    since = pl.col("end_ns").shift(1).over("rank", "communicator")
    rows = rows.with_columns(since=since).drop_nulls("since")
    rows = rows.with_columns(own=(pl.col("start_ns") - pl.col("since")).clip(lower_bound=1))
    rows = rows.with_columns(stands_for=pl.Series(job.stands_for[rows["part"].to_numpy()])).sort("own")
    below = pl.col("stands_for").cum_sum().over("joint")
    rows = rows.with_columns(half=below >= pl.col("stands_for").sum().over("joint") / 2)
    rows = rows.with_columns(usual=pl.col("own").filter(pl.col("half")).min().over("joint"))
    late = rows.filter((pl.col("own") > pl.col("usual")) & (pl.col("joint").len().over("joint") > 1))
    timelines = list(state.timelines)
    for number, run in enumerate(timelines):
        part_late = late.filter(pl.col("part") == number)
        if part_late.height:
            timelines[number] = _with_usual(run, part_late, int(job.bases_ns[number]))
    return timelines, late.height


def _with_usual(run: Timeline, late: pl.DataFrame, base_ns: int) -> Timeline:
    """A part with all that lies in a `late` stretch (`since` to `start_ns`, by the clock of members) shortened as that is;
    `base_ns`: what is added to times of the part's trace.
    """
    late = late.select(
        begin=pl.col("since") - pl.col("shift_ns"),
        end=pl.col("start_ns") - pl.col("shift_ns"),
        share=pl.col("usual") / pl.col("own"),
    ).sort("begin")
    begin, end, share = (late[name].to_numpy() for name in late.columns)

    def factor(times: NDArray[np.int64]) -> FloatArray:
        at = np.searchsorted(begin, times + base_ns, side="right") - 1
        inside = (at >= 0) & (times + base_ns < end[np.maximum(at, 0)])
        return np.where(inside, share[np.maximum(at, 0)], 1.0)

    started, called = (frame["start_ns"].to_numpy() for frame in (run.operations, run.calls))
    of_operations, calls = factor(started), factor(called)
    columns = run.columns
    slower = {f"operation_{name}": of_operations for name in ("duration", "launch_lag", "order_lag", "extra")}
    slower |= {f"call_{name}": calls for name in ("gap", "own", "wait_lag")}
    made = {name: np.rint(columns[name] * by).astype(np.int64) for name, by in slower.items()}
    return run.with_columns(**made)
