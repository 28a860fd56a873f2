"""The ranks of a job as their traces hold them, and what each communicates: in rows, packed, in blocks that fit memory."""

import re
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.jobs.matching import MEMBERS, MESSAGES, OF_SEND, Group, Numbering, begun, joints, orders_of
from busfare.trace import Omission, Trace
from busfare.trace.columns import first_pairs
from busfare.trace.lanes import Union, is_communication, is_transfer, is_work
from busfare.trace.omissions import omission
from busfare.trace.tables import conform

T = TypeVar("T")
#: Of each communication kernel, how much computes beside it is known at so many moments, its start and end among them.
MOMENTS = 9
#: Columns of a rank's rows as its trace gives them: times by the clock of its file.
ROWS = {name: kind for name, kind in MEMBERS.items() if name not in ("rank", "clock")} | {
    "computing_ns": pl.Array(pl.Int64, MOMENTS),
    # What the rank itself does from its collective before, or its first record, to this: its CPU, without waits and messages
    # (null: launched by no recorded call), and its GPU.
    "host_ns": pl.Int64(),
    "gpu_ns": pl.Int64(),
    "first": pl.Boolean(),  # of the rank
}
PLACE = ["process", "device"]
#: Clocks that count from 1970, which no machine's uptime is, and how far those of two hosts are apart at most; and where
#: their ranks do the same collectives: ntpd stops where a clock is further off (`tinker panic`, 1000 s).
WALL_NS, CLOCKS_APART_NS, CLOCKS_WRONG_NS = 10**18, 10**9, 10**12
#: What a host is called at most.
LONGEST_NAME = 253
#: `rank0.json.gz`, `sampled_rank-12.json`, `rank_3/trace.sqlite`.
RANK_IN_NAME = re.compile(r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,9})(?!\d)", re.IGNORECASE)
#: What `torch.profiler.tensorboard_trace_handler` calls its files: HOST_PROCESS.TIME.pt.trace.json.
TORCH_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252})_\d+\.\d+\.pt\.trace\.json(?:\.gz)?$")
MOST_RANK = 1 << 31
#: Rows of a block, of which so many are packed together.
BLOCK_ROWS, TOGETHER_ROWS = 500_000, 20_000
#: What nobody asks of a row once it is numbered.
DROPPED = ("operation", "process", "device", "stream", "place")


class TraceRank(msgspec.Struct, frozen=True):
    """A rank as its trace has it: the work of one process on one GPU. Nanoseconds.

    `start_ns`: of its first record, by the clock of the file. `timed_by`: the host whose clock all of its recordings share;
    None where each has its own. `rank`: as a file of several processes says it. `world`: the number of ranks of its job.
    `orders`: as `orders_of` gives them.
    """

    process: int | None
    device: int | None
    start_ns: int
    makespan_ns: int
    kernels_ns: int
    communication_ns: int
    timed_by: str | None = None
    rank: int | None = None
    world: int | None = None
    orders: tuple[int, ...] = ()


class Rank(msgspec.Struct, frozen=True):
    """A rank of a job; `clock` numbers its file."""

    rank: int
    path: str
    host: str | None
    clock: int
    times: TraceRank


def ranks_of(trace: Trace) -> list[TraceRank]:
    """Each process and GPU of `trace` that computes or communicates, in order of GPU and process, then each other process
    that calls MPI; the first process and GPU where there is none.
    """
    timed_by = trace.host.get("hostname") or None if trace.format == "recorded" else None
    stated = re.findall(r"(\d+)=(\d+)", trace.host.get("ranks", ""))
    numbers = {int(process): int(rank) for process, rank in stated}
    world = int(trace.host.get("world_size", "0")[:10]) or None
    seconds = pl.col("seconds")
    busy = trace.lanes.groups.group_by(PLACE).agg(
        kernels=seconds.filter(is_work()).sum(), communication=seconds.filter(is_communication()).sum()
    )
    span = [pl.col("start_ns").min(), pl.col("end_ns").max()]
    places = trace.operations.group_by(PLACE).agg(span).join(busy, on=PLACE, nulls_equal=True)
    places = places.sort("device", "process", nulls_last=True)
    # A process that only copies to another's GPU is no rank there.
    working = places.filter(pl.col("kernels") + pl.col("communication") > 0)
    talking = trace.mpi_calls.group_by("process").agg(span).sort("process")
    talking = talking.join(working, on="process", how="anti", nulls_equal=True)
    named = trace.markers.group_by("process").agg(
        named=pl.col("start_ns").min()
    )  # MPI_Init, and ranges of the program
    talking = talking.join(named, on="process", how="left", nulls_equal=True, maintain_order="left")
    some = working if working.height + talking.height else places.head(1)
    ranks = pl.concat([some, talking], how="diagonal")
    of_host = [table.select("process", "start_ns", "end_ns") for table in (trace.calls, trace.mpi_calls)]
    called = pl.concat(of_host).group_by("process").agg(first=span[0], last=span[1])
    ranks = ranks.join(called, on="process", how="left", nulls_equal=True, maintain_order="left")
    last, first = pl.max_horizontal("end_ns", "last"), pl.min_horizontal("start_ns", "first")
    ranks = ranks.with_columns(
        pl.col("kernels", "communication").fill_null(0),
        begun=pl.min_horizontal("named", first),
        span=last - first,
    )
    orders = orders_of(trace.collectives)
    return [
        TraceRank(
            row["process"], row["device"], trace.origin_ns + row["begun"], row["span"],
            round(row["kernels"] * 1e9), round(row["communication"] * 1e9), timed_by, numbers.get(row["process"]),
            world, orders.get(row["process"], ()),
        )
        for row in ranks.iter_rows(named=True)
    ]  # fmt: skip


def rows_of(trace: Trace) -> pl.DataFrame:
    """Columns of ROWS: the communication of all ranks of `trace`."""
    rows = trace.collectives
    if rows.is_empty():
        return pl.DataFrame(schema=ROWS)
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    moments = starts[:, None] + ((ends - starts)[:, None] * np.arange(MOMENTS)) // (MOMENTS - 1)
    computing = _busy(trace, rows, is_work(), moments)
    rows = _with_rank_work(trace, rows, computing[:, 0]).with_columns(
        pl.col("start_ns", "end_ns") + trace.origin_ns, computing_ns=computing - computing[:, :1]
    )
    return conform(rows, ROWS)


def _busy(trace: Trace, rows: pl.DataFrame, which: pl.Expr, moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """How long the GPU of each of `rows` did work of these lanes before each of its `moments`, ns; shape (rows, …)."""
    busy = np.zeros(moments.shape, np.int64)
    for (process, device), lane_rows in trace.operations[trace.lanes.rows(which)].group_by(PLACE):
        union = Union.of(lane_rows["start_ns"].to_numpy(), lane_rows["end_ns"].to_numpy())
        its = (rows["process"].eq_missing(process) & rows["device"].eq_missing(device)).to_numpy()
        busy[its] = union.covered_before(moments[its].ravel()).reshape(-1, *moments.shape[1:])
    return busy


def _with_rank_work(trace: Trace, rows: pl.DataFrame, computing: NDArray[np.int64]) -> pl.DataFrame:
    """`rows` with `host_ns` and `gpu_ns`; `computing`: how long kernels ran before each start, ns, shape (rows,)."""
    calls, rank = trace.calls, ["process", "of"]
    if trace.lanes.groups.select(is_transfer().any()).item():
        computing = _busy(trace, rows, is_work() | is_transfer(), rows["start_ns"].to_numpy())
    launches = trace.operations.select(
        "process", "correlation", operation=pl.int_range(pl.len(), dtype=pl.UInt32)
    )
    launches = rows.select("operation").join(launches, on="operation", how="left", maintain_order="left")
    called = pl.Series(first_pairs(calls, launches)).replace(-1, None)
    begun = pl.DataFrame(
        [(trace_rank.process, trace_rank.start_ns - trace.origin_ns) for trace_rank in ranks_of(trace)],
        {"process": pl.Int64, "begun": pl.Int64},
        orient="row",
    ).unique("process", keep="first")
    marked = pl.when(pl.col("marker").is_not_null())
    rows = rows.join(begun, on="process", how="left", nulls_equal=True, maintain_order="left").with_columns(
        of=pl.col("device").fill_null(pl.col("device").min().over("process")),
        busy=pl.Series(computing),
        begin=pl.coalesce(marked.then("start_ns"), calls["start_ns"].gather(called)),
        end=pl.coalesce(marked.then("end_ns"), calls["end_ns"].gather(called)),
    )
    since = pl.coalesce(pl.col("end").cum_max().shift(1).over(rank), "begun")
    rows = rows.with_columns(since=pl.min_horizontal(since, "begin"))
    waiting = np.zeros(rows.height, np.int64)
    for (process,), waits in calls.filter(pl.col("waits_for") != "none").group_by("process"):
        its = (rows["process"].eq_missing(process) & rows["begin"].is_not_null()).to_numpy()
        union = Union.of(waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy())
        spans = (rows[name].to_numpy()[its].astype(np.int64) for name in ("since", "begin"))
        waiting[its] = union.covered_within(*spans)
    worked = (pl.col("begin") - pl.col("since") - pl.col("waiting")).fill_null(0).cum_sum().over(rank)
    rows = rows.with_columns(waiting=waiting).with_columns(worked=worked)
    collective = ~pl.col("collective_kind").is_in(MESSAGES).fill_null(False)

    def from_last_collective(total: pl.Expr) -> pl.Expr:
        return total - pl.when(collective).then(total).forward_fill().shift(1).over(rank).fill_null(0)

    return rows.with_columns(
        host_ns=pl.when(pl.col("begin").is_not_null()).then(from_last_collective(pl.col("worked"))),
        gpu_ns=from_last_collective(pl.col("busy")),
        first=pl.int_range(pl.len()).over(rank) == 0,
    )


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


class Frames(Sequence[pl.DataFrame]):
    """So many frames, each made anew whenever it is read: they never lie in memory together."""

    def __init__(self, count: int, make: Callable[[int], pl.DataFrame]) -> None:
        self._numbers, self._make = range(count), make

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: Any) -> Any:
        return self._make(self._numbers[number])


def original_of(
    seen: dict[tuple[TraceRank, ...], list[tuple[int | None, T]]],
    rank: int | None,
    held: Sequence[TraceRank],
    trace: T,
) -> T:
    """The trace in `seen` that `trace` is a copy of: same content and rank, or same communication if a rank is not stated.
    Otherwise adds and returns `trace`.
    """
    alike = seen.setdefault(tuple(held), [])
    communicates = any(of.communication_ns for of in held)
    for stated, original in alike if held else ():
        if communicates if rank is None or stated is None else rank == stated:
            return original
    alike.append((rank, trace))
    return trace


def copies_left_out(paths: Sequence[str]) -> Omission:
    """The omission for copies of other files at `paths`, at least one."""
    return omission("copied-traces", len(paths), copies=len(paths), path=min(paths))


Placed = tuple[str, int | None, str | None, list[TraceRank]]


def separate_runs(traces: Sequence[Placed]) -> list[int]:
    """The places of `traces`, as in `numbered`, that are of another run than an earlier trace: of a job of another size; or
    recorded after the end of all earlier ones by the same clock, or after that of one of the same rank, host and GPUs, or
    of the same process and GPU; or that differ from an earlier one of the same rank of a job of stated size.
    """
    spans = {
        clock: (min(of.start_ns for of in held), max(of.start_ns + of.makespan_ns for of in held))
        for clock, (*_, held) in enumerate(traces)
        if held
    }
    contents = {(rank, tuple(held)) for _, rank, _, held in traces}
    once = len({rank for rank, _ in contents}) == len(contents)
    last_end: dict[object, int] = {}
    world: int | None = None
    orders: set[int] = set()  # of the first run
    first: dict[object, list[TraceRank]] = {}
    later = []
    for clock in sorted(spans, key=lambda place: spans[place][0]):
        (_, rank, host, held), (start, end) = traces[clock], spans[clock]
        slack_ns: dict[object, int] = {
            (rank, host, of.process, of.device): 0 for of in held if of.process is not None
        }
        if rank is not None or host is not None:
            slack_ns[rank, host, *sorted({-1 if of.device is None else of.device for of in held})] = 0
        member = once and rank is not None and rank < (held[0].world or MOST_RANK)
        its_orders = {order for of in held for order in of.orders if member}
        if of_clock := "wall" if start >= WALL_NS else held[0].timed_by:
            slack_ns[of_clock] = CLOCKS_WRONG_NS if orders & its_orders else CLOCKS_APART_NS
        world = world or held[0].world
        ended = any(start > last_end.get(key, start) + slack for key, slack in slack_ns.items())
        again = world and rank is not None and first.get((rank, host), held) != held
        if ended or again or held[0].world not in (None, world):
            later.append(clock)
        else:
            last_end |= {key: max(end, last_end.get(key, end)) for key in slack_ns}
            orders |= its_orders
            first[rank, host] = held
    return sorted(later)


def numbered(traces: Sequence[Placed]) -> list[Rank]:
    """The ranks of `traces`, each given by its path, stated rank and host, and content. Copies and later runs have none. A
    process has the rank that its trace states. Processes without a stated rank, or with a duplicate, get unused numbers.
    """
    seen: dict[tuple[TraceRank, ...], list[tuple[int | None, int]]] = {}
    # Among copies, keep the shortest path with a stated rank.
    clocks = sorted(range(len(traces)), key=lambda c: (traces[c][1] is None, len(traces[c][0]), c))
    kept = sorted(c for c in clocks if original_of(seen, traces[c][1], traces[c][3], c) == c)
    later = {kept[place] for place in separate_runs([traces[clock] for clock in kept])}
    kept = [clock for clock in kept if clock not in later]
    first: dict[int, tuple[int, int]] = {}
    for clock in kept:
        _, rank, _, held = traces[clock]
        for place, times in enumerate(held):
            stated = rank if times.rank is None and len(held) == 1 else times.rank
            if stated is not None:
                first.setdefault(stated, (clock, place))
    claimed = {place: rank for rank, place in first.items()}
    free = (number for number in count() if number not in first)
    return [
        Rank(claimed[at] if (at := (clock, place)) in claimed else next(free), path, host, clock, times)
        for clock, (path, _, host, held) in ((clock, traces[clock]) for clock in kept)
        for place, times in enumerate(held)
    ]


def place_of(trace: Trace, path: Path) -> tuple[int | None, str | None]:
    """Rank and host from what the trace itself says; from the names of file and folder as a last resort."""
    host = trace.host.get("hostname") or next(iter(TORCH_NAME.findall(path.name)), None)
    text = trace.host.get("rank", "")
    # A trace of several processes has no one rank: the launcher's environment was recorded, not theirs.
    alone = text.isascii() and text.isdigit() and trace.operations["process"].drop_nulls().n_unique() <= 1
    names = (path.name, path.parent.name)
    texts = [text] if alone else [number for name in names for number in RANK_IN_NAME.findall(name)]
    rank = int(texts[0][:20]) if texts else MOST_RANK
    return rank if rank < MOST_RANK else None, host[:LONGEST_NAME] if host else None


def ranked_rows(rows: Sequence[pl.DataFrame], ranks: Sequence[Rank], base_ns: int = 0) -> Frames:
    """The rows of each file with `clock` and `rank`, without those of no rank; times as they are, from `base_ns` on."""
    of_file: list[list[Rank]] = [[] for _ in rows]
    for rank in ranks:
        of_file[rank.clock].append(rank)

    def of(clock: int) -> pl.DataFrame:
        of_rank = pl.DataFrame(
            [(rank.times.process, rank.times.device, rank.rank) for rank in of_file[clock]],
            schema={"process": pl.Int32, "device": pl.Int32, "rank": pl.Int64}, orient="row",
        )  # fmt: skip
        of_process = of_rank.unique("process", keep="first", maintain_order=True).select(
            "process", only="rank"
        )
        members = rows[clock].with_columns(
            pl.col("start_ns", "end_ns") - base_ns, clock=pl.lit(clock, pl.UInt32)
        )
        for named, keys in ((of_rank, ["process", "device"]), (of_process, ["process"])):
            members = members.join(named, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return members.with_columns(rank=pl.coalesce("rank", "only")).drop("only").drop_nulls("rank")

    return Frames(len(rows), of)


def in_blocks(files: Sequence[pl.DataFrame], count: int) -> list[list[bytes]]:
    """The rows of `files` (columns of MEMBERS and others, whole ranks in each file) in so many blocks, packed in pieces, as
    `matched` takes them. A file at a time is asked for, three times.
    """
    numbering = Numbering(files)
    pieces: list[list[bytes]] = [[] for _ in range(count)]
    waiting: list[list[pl.DataFrame]] = [[] for _ in range(count)]
    for file, frame in enumerate(files):
        every, rows = numbering.of(frame, file)
        for block, some_rows in _cut(every, rows, numbering.groups, count):
            waiting[block].append(some_rows.drop(DROPPED))
            if sum(piece.height for piece in waiting[block]) >= TOGETHER_ROWS:
                pieces[block].append(packed(pl.concat(waiting[block])))
                waiting[block].clear()
    for done, left in zip(pieces, waiting, strict=True):
        done += [packed(pl.concat(left))] if left else []
    return pieces


def matched(pieces: Sequence[bytes]) -> pl.DataFrame:
    """The rows of a block with `joint`, as `match` gives it."""
    every = pl.concat([unpacked(piece) for piece in pieces]).sort("member")
    rows = begun(every)
    return joints(every, rows).drop("group", "numbered", "number", "again", "member", "source", "target")


def _cut(
    every: pl.DataFrame, rows: pl.DataFrame, groups: Sequence[Group], count: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of a file by block, each with what ends its sends."""
    of = rows["group"].to_numpy()
    least = np.array([group.least for group in groups])[of]
    span = np.array([group.highest for group in groups])[of] - least + 1
    number = rows["number"].to_numpy()
    block = np.where(number < 0, -number % count, (number - least) * count // span)
    rows = rows.with_columns(block=pl.Series(np.clip(block, 0, count - 1)))
    sent = rows.filter(pl.col("collective_kind") == "send").drop_nulls("sequence")
    ended = every.filter(pl.col("ended").fill_null(False))
    ended = ended.join(
        sent.select(*OF_SEND, "block").unique(OF_SEND, maintain_order=True, keep="first"),
        on=OF_SEND, how="inner", nulls_equal=True, maintain_order="left",
    )  # fmt: skip
    in_block = pl.concat([rows, ended], how="diagonal").sort("member")
    for (block_of,), block_rows in in_block.group_by("block", maintain_order=True):
        yield int(block_of), block_rows.drop("block")
