"""What kernels lose while communication runs beside them on the same GPU: its blocks hold multiprocessors.

A kernel that gives every multiprocessor one block, as products of matrices do, then needs a second wave of blocks; one of
many short blocks loses little. Kernels that the recording shows both alone and beside communication say it themselves; of
others the blocks do, where the trace has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.kernels.classes import class_of
from busfare.jobs.model import JobTimeline, Part
from busfare.nodes.arrays import FloatArray
from busfare.timeline import Played, Timeline
from busfare.trace.lanes import Union

Times = NDArray[np.int64]
#: Kernels of these classes keep a multiprocessor to each of their blocks; others hardly notice (elementwise kernels and
#: reductions beside NCCL on two H100s: -4 to +4 %; results/jobs).
WHOLE = ("gemm", "convolution", "attention")
#: Nobody loses more than a second wave costs.
MOST = 0.5
#: A kernel beside communication for less than this part of its time tells nothing of it.
BESIDE = 0.2


@dataclass(frozen=True)
class Crowd:
    """Of each part's operations, in the rows of its trace's timeline: which ones communicate, what each loses of the time
    that it runs beside them (0 to 0.5), and how long that was in the recording, ns.
    """

    carries: list[NDArray[np.bool_]]
    loses: list[FloatArray]
    recorded: list[Times]

    @staticmethod
    def of(job: JobTimeline) -> Crowd:
        members = job.members.filter(~pl.col("is_call"))
        carries, beside = [], []
        for number, part in enumerate(job.parts):
            own = np.zeros(part.timeline.operations.height, bool)
            own[members.filter(pl.col("part") == number)["node"].to_numpy()] = True
            starts, ends = (part.timeline.operations[name].to_numpy() for name in ("start_ns", "end_ns"))
            carries.append(own)
            beside.append(_beside(part.timeline, own, starts, ends))
        return Crowd(carries, _loses(job.parts, carries, beside), beside)

    def slower(self, parts: Sequence[Part], timelines: Sequence[Timeline], played: Played) -> list[Timeline]:
        """`timelines`, which ran as `played` says, with kernels as long as what now runs beside them makes them."""
        slower, first = [], 0
        for number, (part, run) in enumerate(zip(parts, timelines, strict=True)):
            last = first + run.operations.height
            starts, ends = (times[first:last] for times in (played.operation_start, played.operation_end))
            first = last
            place = np.arange(run.operations.height)
            if run is not part.timeline:  # by the trace's rows; what is new there has none
                rows, now = (
                    frame.operations["row"].to_numpy().astype(np.int64) for frame in (part.timeline, run)
                )
                known = np.full(max(rows.max(initial=-1), now.max(initial=-1)) + 1, -1)
                known[rows] = np.arange(len(rows))
                place = known[now]
            carries, loses, before = (
                np.where(place >= 0, values[number][np.maximum(place, 0)], 0)
                for values in (self.carries, self.loses, self.recorded)
            )
            more = (_beside(run, carries.astype(bool), starts, ends) - before) * loses
            duration = np.maximum(run.columns["operation_duration"] + np.rint(more).astype(np.int64), 0)
            slower.append(run.with_columns(operation_duration=duration))
        return slower


def _beside(run: Timeline, carries: NDArray[np.bool_], starts: Times, ends: Times) -> Times:
    """How long each operation runs beside communication of its own GPU, ns; shape (operations,)."""
    found = np.zeros(len(starts), np.int64)
    device = run.columns["stream_device"][run.columns["operation_stream"]]
    for number in np.unique(device[carries]):
        theirs, mine = carries & (device == number), ~carries & (device == number)
        found[mine] = Union.of(starts[theirs], ends[theirs]).covered_within(starts[mine], ends[mine])
    return found


def _loses(
    parts: Sequence[Part], carries: Sequence[NDArray[np.bool_]], beside: Sequence[Times]
) -> list[FloatArray]:
    """The part of its time beside communication that each operation loses; shape (operations,) for each part."""
    frames = []
    for number, (part, own, time) in enumerate(zip(parts, carries, beside, strict=True)):
        operations = part.timeline.operations
        launches, shape = part.timeline.trace.launches, pl.lit(None, dtype=pl.Int64)
        frame = operations.select(
            pl.col("name").cast(pl.String).fill_null(""),
            kernel=(pl.col("kind") == "kernel") & ~pl.Series(own),
            carries=pl.Series(own),
            ns=pl.col("end_ns") - pl.col("start_ns"),
            beside=pl.Series(time),
            part=pl.lit(number),
            multiprocessors=pl.lit(_multiprocessors(part), dtype=pl.Int64),
            launch=pl.col("launch") if "launch" in operations.columns else pl.lit(None, dtype=pl.UInt32),
        )
        if launches.height:
            grid = launches.with_row_index("launch").select(
                "launch", blocks=pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
            )
            frame = frame.join(grid, on="launch", how="left", maintain_order="left")
        else:
            frame = frame.with_columns(blocks=shape)
        frames.append(frame)
    every = pl.concat(frames)
    alone, crowded = pl.col("beside") == 0, pl.col("beside") > BESIDE * pl.col("ns")
    # A kernel by name and blocks: on another rank the same may have more to do.
    alike = ["part", "name", "blocks"]
    usual = pl.col("ns").filter(alone & pl.col("kernel")).median().over(alike)
    every = every.with_columns(more=pl.when(crowded).then(pl.col("ns") - usual))
    seen = pl.col("more").sum().over(alike) / pl.col("beside").filter(
        pl.col("more").is_not_null()
    ).sum().over(alike)
    taken = pl.col("blocks").filter(pl.col("carries")).median().over("part")
    room = (pl.col("multiprocessors") - taken).clip(lower_bound=1)
    waves = (pl.col("blocks") / pl.col("multiprocessors")).ceil() / (pl.col("blocks") / room).ceil()
    whole = [name for name in every["name"].unique() if class_of(name) in WHOLE]
    by_blocks = pl.when(pl.col("name").is_in(whole)).then(1 - waves)
    known = pl.when(seen.is_finite()).then(seen)
    loses = pl.when(pl.col("kernel")).then(pl.coalesce(known, by_blocks)).fill_null(0.0).clip(0.0, MOST)
    every = every.select("part", loses=loses)
    return [every.filter(pl.col("part") == number)["loses"].to_numpy() for number in range(len(parts))]


def _multiprocessors(part: Part) -> int | None:
    known = part.timeline.trace.devices["multiprocessors"].drop_nulls()
    return int(known[0]) if len(known) else None
