"""What a trace adds up to: transfers, kernels, exposed time; by path, size and stream; idle times. Nothing is predicted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from busfare.trace.columns import longest
from busfare.trace.lanes import Lanes, Union, is_communication, is_transfer, is_work
from busfare.trace.model import Trace
from busfare.trace.words import is_communication as named_so

NS = 1e-9
#: Bytes at which decades of sizes begin, but for the first.
DECADES = 10 ** np.arange(1, 19)
#: Transfers: what a GPU or the host copies within its memory is none.
BETWEEN_MEMORIES = is_transfer() & ~pl.col("direction").is_in(["d2d", "h2h"]).fill_null(False)


def union_of(operations: pl.DataFrame) -> Union:
    """The time in which at least one of `operations` runs."""
    return Union.of(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())


class Counted(Struct):
    """So many operations, and the sum of their durations."""

    count: int
    seconds: float


class Moved(Counted, kw_only=True):
    """Copies and migrations, but for copies within a GPU or the host; exposed: no kernel computes meanwhile."""

    bytes: int
    exposed_seconds: float


class MovedInAll(Moved, kw_only=True):
    """`share_of_gpu_time`: transfers' part of transfers and all kernels, by summed durations [A19 table I]; 0 if neither."""

    share_of_gpu_time: float


class Gpu(Struct, kw_only=True):
    """One GPU: sums of durations, and what its time went to: something runs, or nothing."""

    device: int | None
    kernels: Counted
    communication: Counted
    transfers: Moved
    busy_seconds: float
    idle_seconds: float


class Work(Struct, kw_only=True):
    """What GPUs did. `kernels` compute; those that carry data between GPUs are `communication`."""

    transfers: MovedInAll
    kernels: Counted
    communication: Counted
    graph_work: Counted
    sets: Counted


class Totals(Work, kw_only=True):
    """The whole run: transfers are exposed where no kernel computes on any GPU."""

    makespan_seconds: float
    gpus: list[Gpu]


def totals(trace: Trace) -> Totals:
    """Totals of a trace."""
    lanes, makespan = trace.lanes, trace.makespan_seconds
    find_lengths(trace, [])
    everything = pl.lit(True)
    moved = _moved(lanes, everything)
    kernels, communication, graph_work, sets = (
        _counted(lanes, pl.col("kind") == kind) for kind in ("kernel", "communication", "graph", "set")
    )
    whole = moved["seconds"] + kernels.seconds + communication.seconds + graph_work.seconds
    return Totals(
        transfers=MovedInAll(**moved, share_of_gpu_time=moved["seconds"] / whole if whole else 0.0),
        kernels=kernels,
        communication=communication,
        graph_work=graph_work,
        sets=sets,
        makespan_seconds=makespan,
        gpus=[_gpu(device, lanes, makespan) for device in _ordinals(lanes)],
    )


def _counted(lanes: Lanes, which: pl.Expr) -> Counted:
    some = lanes.groups.filter(which)
    return Counted(int(some["count"].sum()), float(some["seconds"].sum()))


def _ordinals(lanes: Lanes) -> list[int | None]:
    """The GPUs that have operations, None for those that the trace does not name last."""
    return lanes.groups["device"].unique().sort(nulls_last=True).to_list()


def _of_gpu(device: int | None) -> pl.Expr:
    """Operations of a GPU, or of those that the trace does not name."""
    return pl.col("device").eq_missing(device)


def find_lengths(trace: Trace, extra: Sequence[pl.Expr]) -> None:
    """Computes the lengths of all unions that totals need, and of `extra`, in one pass."""
    gpus = [_of_gpu(device) for device in _ordinals(trace.lanes)]
    parts = (pl.lit(True), is_work(), BETWEEN_MEMORIES | is_work())
    of_totals = [gpu & part for gpu in (pl.lit(True), *gpus) for part in parts]
    trace.lanes.lengths(*of_totals, *extra)


def _moved(lanes: Lanes, of: pl.Expr) -> dict[str, Any]:
    """What `Moved` has, of those lanes."""
    transfers = lanes.groups.filter(of & BETWEEN_MEMORIES)
    either, work = lanes.lengths(of & (BETWEEN_MEMORIES | is_work()), of & is_work())
    return {
        "count": int(transfers["count"].sum()),
        "bytes": int(transfers["bytes"].sum()),
        "seconds": float(transfers["seconds"].sum()),
        "exposed_seconds": (either - work) * NS,
    }


def _gpu(device: int | None, lanes: Lanes, makespan_seconds: float) -> Gpu:
    its = _of_gpu(device)
    busy = lanes.lengths(its)[0] * NS
    return Gpu(
        device=device,
        kernels=_counted(lanes, its & (pl.col("kind") == "kernel")),
        communication=_counted(lanes, its & is_communication()),
        transfers=Moved(**_moved(lanes, its)),
        busy_seconds=busy,
        idle_seconds=max(0.0, makespan_seconds - busy),
    )


def by_path(trace: Trace) -> pl.DataFrame:
    """Transfers by direction and memory kinds, longest first; equal ones by direction and memory, always in one order.

    Columns: direction, source_memory, destination_memory, count, bytes, seconds, bytes_per_second (of those copies
    whose size and duration are known; null if there are none), migrations (how many of them the driver started).
    """
    grouped = (
        trace.lanes.groups.filter(is_transfer())
        .group_by("direction", "source_memory", "destination_memory")
        .agg(
            count=pl.col("count").sum(),
            bytes=pl.col("bytes").sum(),
            seconds=pl.col("seconds").sum(),
            bytes_per_second=pl.col("rated_bytes").sum() / pl.col("rated_seconds").sum(),
            migrations=pl.col("count").filter(pl.col("kind") == "migration").sum(),
        )
    )
    rate = pl.col("bytes_per_second")
    order = ["seconds", "count", "bytes", "direction", "source_memory", "destination_memory"]
    rated = grouped.with_columns(pl.when(rate.is_finite()).then(rate))
    return rated.sort(order, descending=[name in order[:3] for name in order])


def size_histogram(trace: Trace) -> pl.DataFrame:
    """Transfers by decade of size [A19 figure 1]: lower_bytes, upper_bytes (exclusive), count, seconds.

    Decades run without a gap from the smallest to the largest that occurs; the first one starts at 0. Transfers of
    unknown size are not in it.
    """
    lanes = trace.lanes
    rows = lanes.rows(is_transfer(), least=0)
    decade = np.searchsorted(DECADES, lanes.sizes[rows], side="right")
    counts = np.bincount(decade)
    sums = np.bincount(decade, (lanes.ends[rows] - lanes.starts[rows]) * NS)
    present = np.flatnonzero(counts)
    shown = np.arange(present[0], present[-1] + 1) if len(present) else present
    return pl.DataFrame(
        {
            "lower_bytes": np.where(shown, 10**shown, 0),
            "upper_bytes": 10 ** (shown + 1),
            "count": counts[shown],
            "seconds": sums[shown],
        },
        schema_overrides={"seconds": pl.Float64},  # of no sizes numpy gives whole numbers
    )


def top_kernels(trace: Trace, most: int) -> pl.DataFrame:
    """The kernels that take longest together: name, count, seconds, class (`compute` or `communication`)."""
    lanes = trace.lanes
    rows = lanes.rows(is_work() | is_communication())
    kernels = trace.operations.select("name")[rows].with_columns(ns=lanes.ends[rows] - lanes.starts[rows])
    carries = pl.when(named_so(pl.col("name"))).then(pl.lit("communication"))
    return (
        kernels.group_by("name")
        .agg(count=pl.len().cast(pl.Int64), seconds=pl.col("ns").sum() * NS)
        .with_columns(pl.col("name").cast(pl.String))
        .sort("seconds", "count", "name", descending=[True, True, False])
        .head(most)
        .with_columns(carries.otherwise(pl.lit("compute")).alias("class"))
    )


def top_copies(trace: Trace, most: int) -> pl.DataFrame:
    """The single longest transfers: start_ns, direction, source_memory, destination_memory, bytes, seconds, stream."""
    lanes = trace.lanes
    rows = lanes.rows(is_transfer())
    rows = rows[longest(lanes.ends[rows] - lanes.starts[rows], most)]
    which = ("start_ns", "direction", "source_memory", "destination_memory", "bytes", "device", "stream")
    seconds = ((pl.col("end_ns") - pl.col("start_ns")) * NS).alias("seconds")
    transfers = trace.operations.select(*which, "end_ns")[rows].select(*which[:5], seconds, *which[5:])
    return transfers.sort("seconds", descending=True, maintain_order=True).head(most)


def streams(trace: Trace, most: int) -> pl.DataFrame:
    """The busiest streams: process, device, stream, kernels, communication, transfers, busy_seconds (sums of durations)."""
    count = pl.col("count")
    order = ["process", "device", "stream"]
    alike = trace.lanes.groups.group_by(order).agg(
        kernels=count.filter(is_work()).sum(),
        communication=count.filter(is_communication()).sum(),
        transfers=count.filter(BETWEEN_MEMORIES).sum(),
        busy_seconds=pl.col("seconds").sum(),
    )
    return alike.sort("busy_seconds", *order, descending=[True, False, False, False]).head(most)


class Gap(Struct):
    """A time in which a GPU ran nothing, and the API call that the host spent most of it in."""

    device: int | None
    start_seconds: float
    seconds: float
    longest_call: str | None
    longest_call_seconds: float


def idle_gaps(trace: Trace, most: int) -> list[Gap]:
    """The longest gaps between operations of a GPU, longest first."""
    gaps = [
        (end - start, start, device)
        for device in _ordinals(trace.lanes)
        for start, end in trace.lanes.longest_gaps(_of_gpu(device), most)
    ]
    gaps.sort(key=lambda gap: -gap[0])
    return [_explained(trace, device, start, length) for length, start, device in gaps[:most]]


def _explained(trace: Trace, device: int | None, start: int, length: int) -> Gap:
    end = start + length
    begun = int(trace.calls["start_ns"].search_sorted(end))
    calls = trace.calls.select("start_ns", "end_ns", "name")[:begun].filter(pl.col("end_ns") > start)
    if calls.is_empty():
        return Gap(device, start * NS, length * NS, None, 0.0)
    inside = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    spent = calls.group_by("name").agg(ns=inside.sum()).with_columns(pl.col("name").cast(pl.String))
    # Of those as long the first by name, and no name before any.
    name, ns = spent.sort("ns", "name", descending=[True, False]).row(0)
    return Gap(device, start * NS, length * NS, name, ns * NS)
