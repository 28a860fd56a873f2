"""What a job's ranks spend in communication: who waits for whom, and what the transfers themselves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.collectives import KINDS, bus_factor
from busfare.job.clocks import Clocks, align
from busfare.job.matching import MESSAGES, match
from busfare.job.ranks import MOMENTS, Rank
from busfare.job.results import Clock, Collective, Communication, Last, Left, RankTimes
from busfare.trace.tables import SYMMETRIC

NS = 1e-9
#: Members of a collective that seem to end before the last of them starts were matched wrongly, beyond what clocks are off:
#: the ends of 64 collectives on eight V100s lay 1 to 7 µs apart [facebookresearch/param, DLRM].
APART_NS = 50_000
MOST_LISTED, MOST_LATE = 200, 3
LEFT_OUT = {
    "unmatched-communication": "communication kernels and MPI calls that match none of another rank here: not in the "
    "collectives, and not known to wait",
    "absent-ranks": "collectives whose group has ranks that no trace here is of: their waiting is a lower bound",
    "unaligned-clocks": "traces that no collective ties to others: their clocks are taken as they are",
}


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
    if len(numbers := members["rank"].unique()) == 2:  # a message is to the other one
        other = pl.when(pl.col("rank") == numbers[0]).then(numbers[1]).otherwise(numbers[0]).cast(pl.Int32)
        message = pl.col("collective_kind").is_in(MESSAGES)
        members = members.with_columns(
            peer=pl.when(message).then(pl.coalesce("peer", other)).otherwise("peer")
        )
    base = int(members["start_ns"].to_numpy().min()) if members.height else 0
    members = members.with_columns(pl.col("start_ns", "end_ns") - base)
    members = match(members)
    # Recordings of one host are by one clock.
    timed_by = {one.clock: one.times.timed_by for one in reversed(ranks)}
    names = [timed_by.get(clock) or clock for clock in range(len(rows))]
    shared = np.array([names.index(name) for name in names], np.int64)
    by_clock = members.with_columns(pl.Series("clock", shared[members["clock"].to_numpy()], pl.UInt32))
    clocks = Clocks(*(values[shared] for values in align(by_clock, len(rows))))
    if not shared.any():
        clocks.uncertainty[:] = 0.0
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
    came = pl.when(~pl.col("ended").fill_null(False)).then("start_ns")
    last = pl.min_horizontal(came.max().over("joint"), "end_ns")
    return members.with_columns(last_ns=pl.when(pl.col("joint").is_not_null()).then(last))


def communication(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> Communication:
    """What `ranks` wait for and transfer, by communicator and by rank."""
    members, clocks, _ = joined(rows, ranks)
    wait = pl.max_horizontal(pl.lit(0), pl.col("last_ns") - pl.col("start_ns"))
    # Of messages that one call waits for, the last to come has its time.
    call = ["clock", pl.coalesce("marker", -1 - pl.int_range(pl.len()))]
    came = pl.coalesce("last_ns", pl.col("start_ns") - 1)
    own = came.rank("ordinal", descending=True).over(call) == 1
    of_joint = pl.col("joint").is_not_null()
    transfer = pl.col("end_ns") - pl.max_horizontal("start_ns", "last_ns")
    members = members.with_columns(
        wait=pl.when(of_joint & own).then(wait).otherwise(0),
        transfer=pl.when(of_joint).then(pl.when(own).then(transfer).otherwise(0)),
        time=pl.when(own).then(pl.col("end_ns") - pl.col("start_ns")).otherwise(0),
        is_last=of_joint & (pl.col("start_ns") == pl.col("last_ns")),
        exposed=pl.when(own).then(pl.Series(_exposed(members))).otherwise(0),
    )
    by_rank = members.group_by("rank").agg(pl.col("wait").sum(), pl.col("exposed").sum())
    sums = {rank: (wait, exposed) for rank, wait, exposed in by_rank.iter_rows()}
    lost = members["joint"].null_count()
    present = pl.col("rank").n_unique().over("joint")
    absent = (
        members.drop_nulls("joint")
        .filter(
            (pl.col("group_size") > present) & ~pl.col("collective_kind").is_in(MESSAGES).fill_null(False)
        )["joint"]
        .n_unique()
    )
    untied = int(np.isnan(clocks.uncertainty).sum()) if len(rows) > 1 else 0
    counts = dict(zip(LEFT_OUT, (lost, absent, untied), strict=True))
    ordered = sorted(ranks, key=lambda one: one.rank)
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
            for one in ordered
        ],
        clocks=[
            Clock(
                rank=one.rank,
                offset_ns=round(float(clocks.offset[one.clock])),
                drift_ppm=float(clocks.drift[one.clock]) * 1e6,
                uncertainty_ns=_whole(clocks.uncertainty[one.clock]) if len(rows) > 1 else 0,
            )
            for one in ordered
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
        time=pl.col("time").sum(),
        last=pl.col("rank").filter(pl.col("is_last")).first(),
    )  # fmt: skip
    joints = joints.with_columns(size=pl.max_horizontal("ranks", "size"))
    sorts = joints.select("collective_kind", "size").unique()
    factors = [
        bus_factor(kind, size) if kind in KINDS and size > 1 else 1.0 for kind, size in sorts.iter_rows()
    ]
    joints = joints.join(
        sorts.with_columns(factor=pl.Series(factors, dtype=pl.Float64)),
        on=["collective_kind", "size"], how="left", nulls_equal=True, maintain_order="left",
    ).with_columns(carried=pl.col("factor") * pl.col("bytes"))  # fmt: skip
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
