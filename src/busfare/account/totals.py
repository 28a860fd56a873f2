"""What a trace adds up to: transfers, kernels, exposed time; by path, by size, by stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.account import _lanes
from busfare.account.intervals import Union
from busfare.account.lanes import Lanes, lanes_of
from busfare.trace import Trace
from busfare.trace.communication import is_communication as named_so
from busfare.trace.summed import summed_of

__all__ = [
    "CopyTotals",
    "GpuTotals",
    "Totals",
    "by_path",
    "is_communication",
    "is_transfer",
    "is_work",
    "kernel_union",
    "makespan_seconds",
    "of_gpu",
    "ordinals_of",
    "size_histogram",
    "streams",
    "top_copies",
    "top_kernels",
    "totals",
    "union_of",
    "unions_of_totals",
]

NS = 1e-9


def is_transfer() -> pl.Expr:
    """Copies and migrations."""
    return pl.col("kind").is_in(["copy", "migration"])


def is_work() -> pl.Expr:
    """Kernels that compute, and graph launches whose inside the trace hides."""
    return pl.col("kind").is_in(["kernel", "graph"])


def is_communication() -> pl.Expr:
    """Kernels that carry data between GPUs; of lanes only, as a table of operations calls them kernels."""
    return pl.col("kind") == "communication"


def seconds() -> pl.Expr:
    return ((pl.col("end_ns") - pl.col("start_ns")) * NS).alias("seconds")


def union_of(operations: pl.DataFrame) -> Union:
    """The time in which at least one of `operations` runs."""
    return Union.of(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())


def kernel_union(trace: Trace) -> Union:
    """The time in which some kernel runs, on any GPU."""
    return lanes_of(trace.operations).union(is_work())


@dataclass(frozen=True, slots=True)
class CopyTotals:
    """Sums over transfers. `exposed_seconds`: a transfer runs and no kernel that computes does."""

    count: int
    bytes: int
    seconds: float
    exposed_seconds: float


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """One GPU: sums of durations, and the unions that say what its time went to (seconds)."""

    device: int | None
    kernels: int
    kernel_seconds: float
    communication: int
    communication_seconds: float
    transfers: CopyTotals
    busy_seconds: float  # something runs
    kernel_busy_seconds: float  # a kernel that computes runs


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole run. `exposed_seconds` of `transfers` is of the whole run: no kernel computes on any GPU.

    `kernels` compute; those that carry data between GPUs are `communication`.
    """

    transfers: CopyTotals
    kernels: int
    kernel_seconds: float
    communication: int
    communication_seconds: float
    graph_work: int
    graph_seconds: float
    sets: int
    set_seconds: float
    makespan_seconds: float
    gpus: list[GpuTotals]

    @property
    def share_of_gpu_time(self) -> float:
        """Transfers' part of transfers and all kernels, by summed durations [A19 table I]; 0 if there is neither."""
        whole = self.transfers.seconds + self.kernel_seconds + self.communication_seconds + self.graph_seconds
        return self.transfers.seconds / whole if whole else 0.0


def totals(trace: Trace) -> Totals:
    """Totals of a trace."""
    lanes = lanes_of(trace.operations)
    kinds = {
        kind: (count, seconds_)
        for kind, count, seconds_ in lanes.groups.group_by(pl.col("kind").cast(pl.String))
        .agg(pl.col("count").sum(), pl.col("seconds").sum())
        .iter_rows()
    }
    none = (0, 0.0)
    ordinals = ordinals_of(lanes)
    lanes.lengths(*unions_of_totals(ordinals))
    return Totals(
        transfers=_copy_totals(lanes, pl.lit(True)),
        kernels=kinds.get("kernel", none)[0],
        kernel_seconds=kinds.get("kernel", none)[1],
        communication=kinds.get("communication", none)[0],
        communication_seconds=kinds.get("communication", none)[1],
        graph_work=kinds.get("graph", none)[0],
        graph_seconds=kinds.get("graph", none)[1],
        sets=kinds.get("set", none)[0],
        set_seconds=kinds.get("set", none)[1],
        makespan_seconds=makespan_seconds(trace),
        gpus=[_gpu_totals(device, lanes) for device in ordinals],
    )


def unions_of_totals(ordinals: Sequence[int | None]) -> list[pl.Expr]:
    """Lanes of whose unions totals ask for the lengths: of all, and of each GPU."""
    of = [pl.lit(True), *(of_gpu(device) for device in ordinals)]
    return [gpu & part for gpu in of for part in (pl.lit(True), is_work(), is_transfer() | is_work())]


def ordinals_of(lanes: Lanes) -> list[int | None]:
    """The GPUs that have operations, None for those that the trace does not name last."""
    return lanes.groups["device"].unique().sort(nulls_last=True).to_list()


def makespan_seconds(trace: Trace) -> float:
    """From the start of the first operation or call to the end of the last; 0 if there is none."""
    tables = [frame for frame in (trace.operations, trace.calls) if frame.height]
    if not tables:
        return 0.0
    summed = summed_of(trace.operations)
    if summed is not None:
        return (summed.last_ns - min(int(summed.starts[0]), summed.calls.first_ns)) * NS
    first = min(int(frame["start_ns"].min()) for frame in tables)  # type: ignore[arg-type]
    last = max(int(frame["end_ns"].max()) for frame in tables)  # type: ignore[arg-type]
    return (last - first) * NS


def _copy_totals(lanes: Lanes, of: pl.Expr) -> CopyTotals:
    transfers = lanes.groups.filter(of & is_transfer())
    either, work = lanes.lengths(of & (is_transfer() | is_work()), of & is_work())
    return CopyTotals(
        count=int(transfers["count"].sum()),
        bytes=int(transfers["bytes"].sum()),
        seconds=float(transfers["seconds"].sum()),
        exposed_seconds=(either - work) * NS,
    )


def of_gpu(device: int | None) -> pl.Expr:
    """Operations of a GPU, or of those that the trace does not name."""
    return pl.col("device").eq_missing(device)


def _gpu_totals(device: int | None, lanes: Lanes) -> GpuTotals:
    its = of_gpu(device)
    busy, kernels_busy = lanes.lengths(its, its & is_work())
    work, carried = (
        lanes.groups.filter(its & part) for part in (pl.col("kind") == "kernel", is_communication())
    )
    return GpuTotals(
        device=device,
        kernels=int(work["count"].sum()),
        kernel_seconds=float(work["seconds"].sum()),
        communication=int(carried["count"].sum()),
        communication_seconds=float(carried["seconds"].sum()),
        transfers=_copy_totals(lanes, its),
        busy_seconds=busy * NS,
        kernel_busy_seconds=kernels_busy * NS,
    )


def by_path(operations: pl.DataFrame) -> pl.DataFrame:
    """Transfers by direction and memory kinds, longest first.

    Columns: direction, source_memory, destination_memory, count, bytes, seconds, bytes_per_second (of those copies
    whose size and duration are known; null if there are none), migrations (how many of them the driver started).
    """
    grouped = (
        lanes_of(operations)
        .groups.filter(is_transfer())
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
    order = ["seconds", "count", "bytes"]
    return grouped.with_columns(pl.when(rate.is_finite()).then(rate)).sort(order, descending=True)


def size_histogram(operations: pl.DataFrame) -> pl.DataFrame:
    """Transfers by decade of size [A19 figure 1]: lower_bytes, upper_bytes (exclusive), count, seconds.

    Decades run without a gap from the smallest to the largest that occurs; the first one starts at 0. Transfers of
    unknown size are not in it.
    """
    lanes = lanes_of(operations)
    chosen = lanes.chosen(is_transfer()).view(np.uint8)
    counts, sums = _lanes.decades(lanes.lane_of, chosen, lanes.sizes, lanes.starts, lanes.ends, lanes.sized)
    present = np.flatnonzero(counts)
    shown = range(present[0], present[-1] + 1) if len(present) else range(0)
    kinds = {"lower_bytes": pl.Int64, "upper_bytes": pl.Int64, "count": pl.Int64, "seconds": pl.Float64}
    rows = [(0 if d == 0 else 10**d, 10 ** (d + 1), int(counts[d]), float(sums[d])) for d in map(int, shown)]
    return pl.DataFrame(rows, schema=kinds, orient="row")


def top_kernels(operations: pl.DataFrame, most: int) -> pl.DataFrame:
    """The kernels that take longest together: name, count, seconds, class (`compute` or `communication`)."""
    summed = summed_of(operations)
    found = _tallied(operations) if summed is None else [summed.names.with_columns(seconds=pl.col("ns") * NS)]
    if not found:
        kinds = {"name": pl.String, "count": pl.Int64, "seconds": pl.Float64, "class": pl.String}
        return pl.DataFrame(schema=kinds)
    return (
        pl.concat(found)
        .group_by(pl.col("name").cast(pl.String))
        .agg(pl.col("count").sum(), pl.col("seconds").sum())
        .sort("seconds", "count", "name", descending=[True, True, False])
        .head(most)
        .with_columns(
            pl.when(named_so(pl.col("name")))
            .then(pl.lit("communication"))
            .otherwise(pl.lit("compute"))
            .alias("class")
        )
    )


def _tallied(operations: pl.DataFrame) -> list[pl.DataFrame]:
    """Name, count, seconds of kernels of either class, and of graph launches."""
    lanes, names = lanes_of(operations), operations["name"]
    numbers = names.to_physical()
    least, most_number = numbers.min(), numbers.max()
    size = 0 if least is None else int(most_number) + 1  # type: ignore[arg-type]
    number_of = np.ascontiguousarray(
        (numbers.fill_null(size) if numbers.null_count() else numbers).to_numpy()
    )
    found = []
    for kinds in (["kernel", "communication"], ["graph"]):
        chosen = lanes.chosen(pl.col("kind").is_in(kinds))
        if chosen.any():
            first_rows, count, ns = _lanes.tally(
                number_of, lanes.lane_of, chosen.view(np.uint8), lanes.starts, lanes.ends, size + 1
            )
            present = np.flatnonzero(count)
            work = {"name": names[first_rows[present]], "count": count[present], "seconds": ns[present] * NS}
            found.append(pl.DataFrame(work))
    return found


def top_copies(operations: pl.DataFrame, most: int) -> pl.DataFrame:
    """The single longest transfers: start_ns, direction, source_memory, destination_memory, bytes, seconds, stream."""
    lanes = lanes_of(operations)
    # Those as long as the last one wanted, or longer, are few.
    rows = _lanes.longest(lanes.rows(is_transfer()), lanes.starts, lanes.ends, most)
    which = ("start_ns", "direction", "source_memory", "destination_memory", "bytes", "device", "stream")
    summed = summed_of(operations)
    columns = (*which, "end_ns")
    transfers = operations.select(columns)[rows] if summed is None else summed.rows(columns, rows)
    transfers = transfers.select(*which[:5], seconds(), *which[5:])
    return transfers.sort("seconds", descending=True, maintain_order=True).head(most)


def streams(operations: pl.DataFrame, most: int) -> pl.DataFrame:
    """The busiest streams: process, device, stream, kernels, communication, transfers, busy_seconds (sums of durations)."""
    count = pl.col("count")
    alike = (
        lanes_of(operations)
        .groups.group_by("process", "device", "stream")
        .agg(
            kernels=count.filter(is_work()).sum(),
            communication=count.filter(is_communication()).sum(),
            transfers=count.filter(is_transfer()).sum(),
            busy_seconds=pl.col("seconds").sum(),
        )
    )
    order = ["process", "device", "stream"]
    return alike.sort("busy_seconds", *order, descending=[True, False, False, False]).head(most)
