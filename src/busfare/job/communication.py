"""What a job's ranks spend in communication: who waits for whom, and what the transfers themselves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from itertools import count

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.job.clocks import Clocks, align
from busfare.job.matching import MEMBERS, match
from busfare.job.results import Clock, Collective, Communication, Last, Left, RankTimes
from busfare.trace import Trace
from busfare.trace.lanes import Union
from busfare.trace.tables import SYMMETRIC
from busfare.trace.words import CLASSES, kind_codes

NS = 1e-9
#: Of each communication kernel, how much computes beside it is known at so many moments, its start and end among them.
MOMENTS = 9
#: Columns of a rank's rows as its trace gives them: times by the clock of its file.
ROWS = {name: kind for name, kind in MEMBERS.items() if name not in ("rank", "clock")} | {
    "computing_ns": pl.Array(pl.Int64, MOMENTS)
}
#: Members of a collective that seem to end before the last of them starts were matched wrongly, beyond what clocks are off.
APART_NS = 50_000
#: What nccl-tests multiplies the rate of n ranks by: the traffic of the busiest link [nccl-tests: doc/PERFORMANCE.md].
BUS = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
}  # times (n - 1) / n; 1 of all others
MOST_LISTED, MOST_LATE = 200, 3
MESSAGES = ("send", "receive")
LEFT_OUT = {
    "unmatched-communication": "communication kernels and MPI calls that match none of another rank here: not in the "
    "collectives, and not known to wait",
    "absent-ranks": "collectives whose group has ranks that no trace here is of: their waiting is a lower bound",
    "unaligned-clocks": "traces that no collective ties to others: their clocks are taken as they are",
}


class TraceRank(msgspec.Struct, frozen=True):
    """A rank as its trace has it: the work of one process on one GPU. Nanoseconds."""

    process: int | None
    device: int | None
    makespan_ns: int
    kernels_ns: int
    communication_ns: int


class Rank(msgspec.Struct, frozen=True):
    """A rank of a job; `clock` numbers its file."""

    rank: int
    path: str
    host: str | None
    clock: int
    times: TraceRank


def ranks_of(trace: Trace) -> list[TraceRank]:
    """Each process and GPU of `trace` that computes or communicates, in order of GPU and process."""
    if trace.sums is not None:
        return []
    codes = pl.Series(kind_codes(trace.operations))
    length = pl.col("end_ns") - pl.col("start_ns")
    kernel, carrier = (
        CLASSES.categories.to_list().index("kernel"),
        CLASSES.categories.to_list().index("communication"),
    )
    own = trace.operations.with_columns(class_=codes).group_by("process", "device").agg(
        start=pl.col("start_ns").min(),
        end=pl.col("end_ns").max(),
        kernels=length.filter(pl.col("class_") == kernel).sum(),
        communication=length.filter(pl.col("class_") == carrier).sum(),
    )  # fmt: skip
    own = own.filter(pl.col("device").is_null() | (pl.col("device") >= 0)).sort("device", "process")
    calls = trace.calls.group_by("process").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
    own = own.join(calls, on="process", how="left", nulls_equal=True, maintain_order="left")
    own = own.with_columns(start=pl.min_horizontal("start", "first"), end=pl.max_horizontal("end", "last"))
    # Work of one process that happens to touch another's GPU (peer copies) makes no rank of its own.
    working = own.filter((pl.col("kernels") > 0) | (pl.col("communication") > 0))
    return [
        TraceRank(
            row["process"], row["device"], row["end"] - row["start"], row["kernels"], row["communication"]
        )
        for row in (working if working.height else own.head(1)).iter_rows(named=True)
    ]


def rows_of(trace: Trace) -> pl.DataFrame:
    """Columns of ROWS: the communication of all ranks of `trace`."""
    rows = trace.collectives
    if rows.is_empty():
        return pl.DataFrame(schema=ROWS)
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    moments = starts[:, None] + ((ends - starts)[:, None] * np.arange(MOMENTS)) // (MOMENTS - 1)
    computing = np.zeros(moments.shape, np.int64)
    work = trace.operations.filter(
        pl.Series(np.isin(kind_codes(trace.operations), [0, len(CLASSES.categories) - 2]))
    )
    for (process, device), own in work.group_by("process", "device"):
        union = Union.of(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        its = (rows["process"].eq_missing(process) & rows["device"].eq_missing(device)).to_numpy()
        computing[its] = union.covered_before(moments[its].ravel()).reshape(-1, MOMENTS)
    computing -= computing[:, :1]
    rows = rows.with_columns(pl.col("start_ns", "end_ns") + trace.origin_ns, computing_ns=computing)
    return rows.cast(ROWS)  # type: ignore[arg-type]


def packed(rows: pl.DataFrame) -> bytes:
    """`rows` as Arrow IPC, compressed; nothing of none."""
    if rows.is_empty():
        return b""
    file = BytesIO()
    rows.write_ipc(file, compression="zstd")
    return file.getvalue()


def unpacked(text: bytes) -> pl.DataFrame:
    """The rows that were `packed`."""
    return pl.read_ipc(BytesIO(text)) if text else pl.DataFrame(schema=ROWS)


def numbered(traces: Sequence[tuple[str, int | None, str | None, list[TraceRank]]]) -> list[Rank]:
    """The ranks of `traces`: each a path, the rank and the host that it says it is of, and what it holds.

    A trace of one process has the rank that it says; all others, and those that say the same, get the numbers that are left.
    """
    own = {
        clock: rank for clock, (_, rank, _, held) in enumerate(traces) if rank is not None and len(held) == 1
    }
    first = {rank: clock for clock, rank in reversed(own.items())}
    free = (number for number in count() if number not in first)
    return [
        Rank(
            rank if (rank := own.get(clock)) is not None and first[rank] == clock else next(free),
            path,
            host,
            clock,
            times,
        )
        for clock, (path, _, host, held) in enumerate(traces)
        for times in held
    ]


def joined(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> tuple[pl.DataFrame, Clocks, int]:
    """The members of all collectives: columns of MEMBERS, `joint`, and `last_ns`, when the last of the joint came; times
    by one clock, ns since the first, which is the third result. `rows[c]` (columns of ROWS) are those of the file of
    clock c.
    """
    of_rank = pl.DataFrame(
        [(one.clock, one.times.process, one.times.device, one.rank) for one in ranks],
        schema={"clock": pl.UInt32, "process": pl.Int64, "device": pl.Int32, "rank": pl.Int64}, orient="row",
    )  # fmt: skip
    frames = [frame.with_columns(clock=pl.lit(clock, pl.UInt32)) for clock, frame in enumerate(rows)]
    members = pl.concat(frames)
    of_process = of_rank.unique(["clock", "process"], keep="first", maintain_order=True).select(
        "clock", "process", only="rank"
    )
    members = _beside(members, of_rank, ["clock", "process", "device"])
    members = _beside(members, of_process, ["clock", "process"])
    members = members.with_columns(rank=pl.coalesce("rank", "only")).drop("only").drop_nulls("rank")
    base = int(members["start_ns"].min() or 0)  # type: ignore[arg-type]
    members = members.with_columns(pl.col("start_ns", "end_ns") - base)
    members = match(members)
    clocks = align(members, len(rows))
    number, ends = members["clock"].to_numpy(), members["end_ns"].to_numpy()
    shift = pl.Series(np.rint(clocks.shift(number, ends)).astype(np.int64))
    members = members.with_columns(pl.col("start_ns", "end_ns") + shift, shift_ns=shift)
    return _sound(members), clocks, base


def _beside(rows: pl.DataFrame, others: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return rows.join(others, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _sound(members: pl.DataFrame) -> pl.DataFrame:
    """Without the joints of which a member ends before another starts; but for messages, which need not be received while
    they are sent.
    """
    off = pl.col("start_ns").max().over("joint") > pl.col("end_ns").min().over("joint") + APART_NS
    members = members.with_columns(pl.when(~(off & pl.col("collective_kind").is_in(SYMMETRIC))).then("joint"))
    last = pl.min_horizontal(pl.col("start_ns").max().over("joint"), "end_ns")
    return members.with_columns(last_ns=pl.when(pl.col("joint").is_not_null()).then(last))


def communication(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> Communication:
    """What `ranks` wait for and transfer, by communicator and by rank."""
    members, clocks, _ = joined(rows, ranks)
    wait = pl.max_horizontal(pl.lit(0), pl.col("last_ns") - pl.col("start_ns"))
    of_joint = pl.col("joint").is_not_null()
    members = members.with_columns(
        wait=pl.when(of_joint).then(wait).otherwise(0),
        transfer=pl.when(of_joint).then(pl.col("end_ns") - pl.max_horizontal("start_ns", "last_ns")),
        is_last=of_joint & (pl.col("start_ns") == pl.col("last_ns")),
    )
    members = members.with_columns(exposed=pl.Series(_exposed(members)))
    by_rank = members.group_by("rank").agg(pl.col("wait").sum(), pl.col("exposed").sum())
    sums = {rank: (wait, exposed) for rank, wait, exposed in by_rank.iter_rows()}
    lost = members["joint"].null_count()
    present = pl.col("rank").n_unique().over("joint")
    absent = members.drop_nulls("joint").filter(pl.col("group_size") > present)["joint"].n_unique()
    untied = int(np.isnan(clocks.uncertainty).sum()) if len(rows) > 1 else 0
    counts = dict(zip(LEFT_OUT, (lost, absent, untied), strict=True))
    return Communication(
        collectives=_collectives(members),
        ranks=[
            RankTimes(
                rank=one.rank,
                path=one.path,
                host=one.host,
                makespan_seconds=one.times.makespan_ns * NS,
                kernels_seconds=one.times.kernels_ns * NS,
                communication_seconds=one.times.communication_ns * NS,
                waiting_seconds=sums.get(one.rank, (0, 0))[0] * NS,
                exposed_transfer_seconds=sums.get(one.rank, (0, 0))[1] * NS,
            )
            for one in sorted(ranks, key=lambda one: one.rank)
        ],
        clocks=[
            Clock(
                rank=one.rank,
                offset_ns=round(float(clocks.offset[one.clock])),
                drift_ppm=float(clocks.drift[one.clock]) * 1e6,
                uncertainty_ns=_whole(clocks.uncertainty[one.clock]) if len(rows) > 1 else 0,
            )
            for one in sorted(ranks, key=lambda one: one.rank)
        ],
        left_out=[Left(id, count, None, LEFT_OUT[id]) for id, count in counts.items() if count],
    )


def _whole(number: float) -> int | None:
    return None if np.isnan(number) else round(float(number))


def _exposed(members: pl.DataFrame) -> NDArray[np.int64]:
    """Of each member's transfer (all of its time where nothing matches it), what no kernel computes beside; ns."""
    computing = members["computing_ns"].to_numpy().astype(np.float64)
    start, end = members["start_ns"].to_numpy(), members["end_ns"].to_numpy()
    begin = np.clip(members["last_ns"].fill_null(members["start_ns"]).to_numpy(), start, end)
    place = (begin - start) / np.maximum(end - start, 1) * (MOMENTS - 1)
    low = np.minimum(place.astype(np.int64), MOMENTS - 2)
    rows = np.arange(len(start))
    before = computing[rows, low] + (place - low) * (computing[rows, low + 1] - computing[rows, low])
    exposed = np.rint(np.maximum(end - begin - (computing[:, -1] - before), 0))
    return np.asarray(exposed, np.int64)


def _collectives(members: pl.DataFrame) -> list[Collective]:
    """A row a communicator, kind and group size, those with most time first."""
    matched = pl.col("joint").is_not_null()
    kind = pl.col("collective_kind").replace(dict.fromkeys(MESSAGES, "send_receive"))
    alone = -1 - pl.int_range(pl.len())
    joints = members.with_columns(kind, joint=pl.when(matched).then("joint").otherwise(alone)).group_by(
        "communicator", "members", "collective_kind", "joint", maintain_order=True
    ).agg(
        matched=(pl.col("joint") >= 0).all(),
        ranks=pl.col("rank").n_unique(),
        size=pl.col("group_size").max(),
        bytes=pl.col("bytes").max(),
        wait=pl.col("wait").sum(),
        transfer=pl.col("transfer").sum(),
        longest=pl.col("transfer").max(),
        time=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        last=pl.col("rank").filter(pl.col("is_last")).first(),
    )  # fmt: skip
    n = pl.max_horizontal("ranks", "size").cast(pl.Float64)
    factor = pl.lit(1.0)
    for name, times in BUS.items():
        factor = pl.when(pl.col("collective_kind") == name).then(times * (n - 1) / n).otherwise(factor)
    joints = joints.with_columns(carried=factor * pl.col("bytes"))
    keys = ["communicator", "collective_kind", "members", "matched"]
    known = pl.col("carried").is_not_null() & (pl.col("longest") > 0)
    rows = joints.group_by(keys, maintain_order=True).agg(
        pl.len().alias("count"), pl.col("ranks").max(), pl.col("bytes").sum(), pl.col("wait").sum(),
        pl.col("transfer").sum(), pl.col("time").sum(),
        sized=pl.col("bytes").is_not_null().all(),
        rate=pl.col("carried").filter(known).sum() / pl.col("longest").filter(known).sum() / NS,
        last=pl.col("last").drop_nulls(),
    ).sort("time", *keys, descending=[True, *[False] * len(keys)])  # fmt: skip
    listed = []
    for row in rows.head(MOST_LISTED).iter_rows(named=True):
        often = sorted(Counter(row["last"]).items(), key=lambda one: (-one[1], one[0]))
        late = [Last(*one) for one in often[:MOST_LATE]]
        seen = row["matched"]
        listed.append(
            Collective(
                communicator=row["communicator"],
                kind=row["collective_kind"],
                ranks=row["ranks"] if seen else None,
                count=row["count"],
                bytes=row["bytes"] if row["sized"] else None,
                seconds=row["time"] * NS,
                arrive_seconds=row["wait"] * NS if seen else None,
                transfer_seconds=row["transfer"] * NS if seen else None,
                last_rank=late[0].rank if late else None,
                last=late,
                bus_bytes_per_second=row["rate"]
                if seen and row["rate"] and np.isfinite(row["rate"])
                else None,
            )
        )
    return listed
