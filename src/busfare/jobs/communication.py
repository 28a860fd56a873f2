"""What a job's ranks spend in communication: who waits for whom, and what the transfers themselves take."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct, convert
from numpy.typing import NDArray

from busfare.cost.collectives import KINDS, bus_factor
from busfare.jobs.matching import MESSAGES, Clocks, align, match
from busfare.jobs.ranks import BLOCK_ROWS, MOMENTS, Rank, in_blocks, matched, ranked_rows
from busfare.jobs.stragglers import Straggler, late_joints, straggler, without_recording
from busfare.statements import statement
from busfare.trace import Omission
from busfare.trace.tables import SYMMETRIC

NS = 1e-9
#: Members of a collective that seem to end before the last of them starts were matched wrongly, beyond what clocks are off:
#: the ends of 64 collectives on eight V100s lay 1 to 7 µs apart [facebookresearch/param, DLRM].
APART_NS = 50_000
#: Of each of three blocks of a large job so many rows tell how its clocks go.
ALIGNED_ROWS = 100_000
MOST_LISTED, MOST_LATE = 200, 3
#: What a row of the report is of.
KEYS = ["communicator", "collective_kind", "members", "matched"]
LEFT_OUT = ("unmatched-communication", "absent-ranks", "unaligned-clocks")


class Left(Omission, frozen=True):
    """An omission; `traces` is None if the report itself leaves something out."""

    traces: int | None = None

    @classmethod
    def of_job(cls, id: str, count: int) -> "Left":
        """An omission of the report of a job, `count` times."""
        return cls(id, count, statement(f"omission.{id}", count=count))


class Last(Struct):
    """A rank that was the last to arrive, and how often."""

    rank: int
    count: int


class Collective(Struct, kw_only=True):
    """What the ranks of a communicator do together: sums over its ranks. `arrive`: until the last of them comes; `transfer`:
    from then on; both None of what no other trace has a part in. `bytes` as nccl-tests counts them, of one rank.
    """

    communicator: str
    kind: str | None
    ranks: int | None
    count: int
    bytes: int | None
    seconds: float
    arrive_seconds: float | None
    transfer_seconds: float | None
    last_rank: int | None
    last: list[Last]
    bus_bytes_per_second: float | None


class RankTimes(Struct, kw_only=True):
    """One rank; recording wait: its wait at its first collective because another's recording began later, excluded from
    waiting; awaited: the sum of what all others waited for it; exposed transfer: communication, after its wait, that no
    kernel of the rank overlaps.
    """

    rank: int
    path: str
    host: str | None
    makespan_seconds: float
    kernels_seconds: float
    communication_seconds: float
    waiting_seconds: float
    recording_wait_seconds: float
    awaited_seconds: float
    exposed_transfer_seconds: float


class Clock(Struct, kw_only=True):
    """What is added to the times of a rank's file, at the middle of the run; None where nothing ties it to others."""

    rank: int
    offset_ns: int
    drift_ppm: float
    uncertainty_ns: int | None


class Communication(Struct, kw_only=True):
    """Who of a job's ranks waits for whom, and what the transfers take."""

    collectives: list[Collective]
    ranks: list[RankTimes]
    straggler: Straggler | None
    clocks: list[Clock]
    left_out: list[Left]


def joined(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> tuple[pl.DataFrame, Clocks, int]:
    """The members of all collectives: columns of MEMBERS, `joint`, and `last_ns`, when the last of the joint came; times
    by one clock, ns since the first, which is the third result. `rows[c]` (columns of ROWS) are those of the file of
    clock c.
    """
    members = pl.concat(list(ranked_rows(rows, ranks)))
    present = members["rank"].unique().to_list()
    if len(present) == 2:  # a message is to the peer
        peer = pl.lit(sum(present)) - pl.col("rank")
        message = pl.col("collective_kind").is_in(MESSAGES)
        members = members.with_columns(
            peer=pl.when(message).then(pl.coalesce("peer", peer.cast(pl.Int32))).otherwise("peer")
        )
    base = int(members["start_ns"].to_numpy().min()) if members.height else 0
    members = match(members.with_columns(pl.col("start_ns", "end_ns") - base))
    clocks = _aligned(members, len(rows), ranks)
    return _on_reference_clock(members, clocks), clocks, base


def _aligned(members: pl.DataFrame, files: int, ranks: Sequence[Rank]) -> Clocks:
    """The clocks of so many files; recordings of one host are by one clock."""
    timed_by = {rank.clock: rank.times.timed_by for rank in reversed(ranks)}
    first: dict[object, int] = {}
    numbers = [first.setdefault(timed_by.get(clock) or clock, clock) for clock in range(files)]
    shared = np.array(numbers, np.int64)
    by_clock = members.with_columns(pl.Series("clock", shared[members["clock"].to_numpy()], pl.UInt32))
    clocks = Clocks(*(values[shared] for values in align(by_clock, files)))
    if not shared.any():
        clocks.uncertainty[:] = 0.0
    return clocks


def _on_reference_clock(members: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """`members` by one clock, with `shift_ns` and `last_ns`; without the joints of which a member ends before another
    starts, but for messages, which need not be received while they are sent.
    """
    number, ends = members["clock"].to_numpy(), members["end_ns"].to_numpy()
    shift = pl.Series(np.rint(clocks.shift(number, ends)).astype(np.int64))
    members = members.with_columns(pl.col("start_ns", "end_ns") + shift, shift_ns=shift)
    off = pl.col("start_ns").max().over("joint") > pl.col("end_ns").min().over("joint") + APART_NS
    members = members.with_columns(pl.when(~(off & pl.col("collective_kind").is_in(SYMMETRIC))).then("joint"))
    came = pl.when(~pl.col("ended").fill_null(False)).then("start_ns")
    last = pl.min_horizontal(came.max().over("joint"), "end_ns")
    return members.with_columns(last_ns=pl.when(pl.col("joint").is_not_null()).then(last))


def communication(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> Communication:
    """What `ranks` wait for and transfer, by communicator and by rank. `rows` as of `joined`; each is asked for anew."""
    blocks, base = _blocks(rows, ranks)
    if blocks:
        clocks = _aligned(_sample(blocks), len(rows), ranks)
        parts: Iterable[pl.DataFrame] = (_on_reference_clock(matched(pieces), clocks) for pieces in blocks)
    else:
        members, clocks, base = joined(rows, ranks)
        parts = [members]
    clock = np.array([rank.clock for rank in ranks], np.int64)
    start = np.array([rank.times.start_ns for rank in ranks], np.int64) - base
    shift = np.rint(clocks.shift(clock, start)).astype(np.int64)
    sums = Sums(dict(zip([rank.rank for rank in ranks], (start + shift).tolist(), strict=True)))
    for part in parts:
        sums.add(part)
    untied = int(np.isnan(clocks.uncertainty).sum()) if len(rows) > 1 else 0
    counts = dict(zip(LEFT_OUT, (sums.lost, sums.absent, untied), strict=True))
    uncertainty = clocks.uncertainty if len(rows) > 1 else np.zeros(len(rows))
    ordered = sorted(ranks, key=lambda rank: rank.rank)
    return Communication(
        collectives=sums.collectives(),
        straggler=straggler(sums.late),
        ranks=[
            RankTimes(
                rank=rank.rank,
                path=rank.path,
                host=rank.host,
                makespan_seconds=rank.times.makespan_ns * NS,
                kernels_seconds=rank.times.kernels_ns * NS,
                communication_seconds=rank.times.communication_ns * NS,
                waiting_seconds=sums.waited[rank.rank] * NS,
                recording_wait_seconds=sums.recording[rank.rank] * NS,
                awaited_seconds=sums.awaited[rank.rank] * NS,
                exposed_transfer_seconds=sums.exposed[rank.rank] * NS,
            )
            for rank in ordered
        ],
        clocks=[
            Clock(
                rank=rank.rank,
                offset_ns=round(float(clocks.offset[rank.clock])),
                drift_ppm=float(clocks.drift[rank.clock]) * 1e6,
                uncertainty_ns=None if np.isnan(off := uncertainty[rank.clock]) else round(float(off)),
            )
            for rank in ordered
        ],
        left_out=[Left.of_job(id, count) for id, count in counts.items() if count],
    )


def _sample(blocks: Sequence[Sequence[bytes]]) -> pl.DataFrame:
    """Members that clocks are aligned by: some joints of the first block, of one in the middle and of the last."""
    some, first = [], 0
    for at in sorted({0, len(blocks) // 2, len(blocks) - 1}):
        members = (
            matched(blocks[at]).select("clock", "collective_kind", "end_ns", "joint").drop_nulls("joint")
        )
        every = -(-members.height // ALIGNED_ROWS)
        members = members.filter(pl.col("joint") % every == 0).with_columns(pl.col("joint") + first)
        first = int(members["joint"].to_numpy().max(initial=first)) + 1
        some.append(members)
    return pl.concat(some)


def _blocks(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank]) -> tuple[list[list[bytes]], int]:
    """The rows of all files in blocks, and when their times begin, where they are too many to be held at once; none where
    they are not, or where a call waits for several messages: those may be in different blocks.
    """
    height, base = 0, None
    for frame in rows:
        calls = frame["marker"].drop_nulls()
        if calls.n_unique() < len(calls):
            return [], 0
        if frame.height:
            height += frame.height
            start = int(frame["start_ns"].to_numpy().min())
            base = start if base is None else min(base, start)
    if height <= BLOCK_ROWS or base is None:
        return [], 0
    return in_blocks(ranked_rows(rows, ranks, base), -(-height // BLOCK_ROWS)), base


class Sums:
    """Sums over all members; a joint is added at once. `begun`: starts of the ranks' recordings, ns, members' clock."""

    def __init__(self, begun: Mapping[int, int]) -> None:
        self.lost = self.absent = 0
        self._begun = begun
        self.late: list[pl.DataFrame] = []
        self.waited: Counter[int] = Counter()
        self.recording: Counter[int] = Counter()
        self.exposed: Counter[int] = Counter()
        self.awaited: Counter[int] = Counter()
        self._kinds: list[pl.DataFrame] = []
        self._last: list[pl.DataFrame] = []

    def add(self, members: pl.DataFrame) -> None:
        """Takes in `members`, as of `joined`."""
        wait = pl.max_horizontal(pl.lit(0), pl.col("last_ns") - pl.col("start_ns"))
        # Of messages that one call waits for, the last to come has its time.
        call = ["clock", pl.coalesce("marker", -1 - pl.int_range(pl.len()))]
        came = pl.coalesce("last_ns", pl.col("start_ns") - 1)
        counts = came.rank("ordinal", descending=True).over(call) == 1
        of_joint = pl.col("joint").is_not_null()
        transfer = pl.col("end_ns") - pl.max_horizontal("start_ns", "last_ns")
        if members["marker"].null_count() == members.height:
            counts = pl.lit(True)
        members = members.with_columns(
            wait=pl.when(of_joint & counts).then(wait).otherwise(0),
            transfer=pl.when(of_joint).then(pl.when(counts).then(transfer).otherwise(0)),
            time=pl.when(counts).then(pl.col("end_ns") - pl.col("start_ns")).otherwise(0),
            is_last=of_joint & (pl.col("start_ns") == pl.col("last_ns")),
            exposed=pl.when(counts).then(pl.Series(_exposed(members))).otherwise(0),
        )
        members = without_recording(members, self._begun)
        of_ranks = members.group_by("rank").agg(pl.col("wait", "recording", "exposed").sum())
        for rank, *sums in of_ranks.iter_rows():
            for counter, value in zip((self.waited, self.recording, self.exposed), sums, strict=True):
                counter[rank] += value
        self.lost += members["joint"].null_count()
        present = pl.col("rank").n_unique().over("joint")
        message = pl.col("collective_kind").is_in(MESSAGES).fill_null(False)
        joint = members.drop_nulls("joint").with_columns(
            lacks=(pl.col("group_size") > present).fill_null(False) & ~message
        )
        self.absent += joint.filter("lacks")["joint"].n_unique()
        # A rank without a trace may be the late one.
        self.late.append(late_joints(joint.filter(~pl.col("lacks")).drop("lacks")))
        joints = _joints(members)
        of_last = joints.drop_nulls("last").group_by("last").agg(pl.col("wait").sum())
        self.awaited.update(dict(of_last.iter_rows()))
        priced = pl.col("carried").is_not_null() & (pl.col("longest") > 0)
        self._kinds.append(
            joints.group_by(KEYS, maintain_order=True).agg(
                pl.len().cast(pl.Int64).alias("count"), pl.col("ranks").max(), pl.col("bytes").sum(), pl.col("wait").sum(),
                pl.col("transfer").sum(), pl.col("time").sum(),
                sized=pl.col("bytes").is_not_null().all(),
                carried=pl.col("carried").filter(priced).sum(),
                longest=pl.col("longest").filter(priced).sum(),
            )
        )  # fmt: skip
        late = joints.drop_nulls("last").group_by(*KEYS, "last", maintain_order=True)
        self._last.append(late.agg(pl.len().cast(pl.Int64).alias("often")))

    def collectives(self) -> list[Collective]:
        """A row a communicator, kind and group size, those with most time first."""
        rows = pl.concat(self._kinds).group_by(KEYS, maintain_order=True).agg(
            pl.col("ranks").max(), pl.col("sized").all(),
            pl.col("count", "bytes", "wait", "transfer", "time", "carried", "longest").sum(),
        ).sort("time", *KEYS, descending=[True, *[False] * len(KEYS)])  # fmt: skip
        late = pl.concat(self._last).group_by(*KEYS, "last").agg(count=pl.col("often").sum())
        late = late.sort("count", "last", descending=[True, False]).group_by(KEYS, maintain_order=True).agg(
            last=pl.struct("count", rank="last").head(MOST_LATE)
        )  # fmt: skip
        rows = rows.head(MOST_LISTED).join(late, on=KEYS, how="left", nulls_equal=True, maintain_order="left")
        seen, rate = pl.when("matched"), pl.col("carried") / pl.col("longest") / NS
        rows = rows.select(
            "communicator", "count", seen.then("ranks").alias("ranks"), pl.when("sized").then("bytes").alias("bytes"),
            pl.col("last").fill_null([]), kind=pl.col("collective_kind").cast(pl.String), seconds=pl.col("time") * NS,
            arrive_seconds=seen.then(pl.col("wait") * NS), transfer_seconds=seen.then(pl.col("transfer") * NS),
            last_rank=pl.col("last").list.first().struct.field("rank"),
            bus_bytes_per_second=pl.when(pl.col("matched") & (rate > 0) & rate.is_finite()).then(rate),
        )  # fmt: skip
        return convert(rows.to_dicts(), list[Collective])


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


def _joints(members: pl.DataFrame) -> pl.DataFrame:
    """A row a joint, and a member that is of none: what it carries, and who waited and came last."""
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
    return joints.join(
        sorts.with_columns(factor=pl.Series(factors, dtype=pl.Float64)),
        on=["collective_kind", "size"], how="left", nulls_equal=True, maintain_order="left",
    ).with_columns(carried=pl.col("factor") * pl.col("bytes"))  # fmt: skip
