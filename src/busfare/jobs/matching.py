"""Which rows of different ranks are the same collective or message: by communicator, place in its order, kind and bytes; and
the clocks of their traces aligned: all members of a collective end within microseconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.tables import COLLECTIVES, SYMMETRIC

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
#: A row a communication kernel or MPI call of a rank; `clock` numbers the files, as each has one.
MEMBERS = {"rank": pl.Int64(), "clock": pl.UInt32(), **COLLECTIVES}
#: What is matched in its own order: collectives of a communicator, or messages between two of its ranks one way.
GROUP = ["communicator", "members", "source", "target", "tag"]
#: What tells a rank's sends apart.
OF_SEND = ["rank", "communicator", "peer", "tag", "sequence"]
#: The two ends of a message.
MESSAGES = ("send", "receive")
#: So many rows earlier or later a rank's recording may begin than another's, where the trace does not number them.
MOST_SHIFT = 1000
#: Members of a symmetric collective end within microseconds of each other (jitter); over a recording clocks drift by some
#: ppm.
TOGETHER_NS = 1_000_000
JITTER_NS = 20_000
ROUNDS = 12
#: A drift counts where it moves times over the whole run by so many times their uncertainty, of at least so many ends.
CLEAR, ENOUGH = 3.0, 20
#: The standard deviation of normal errors over their median magnitude.
SPREAD = 1.4826


def match(members: pl.DataFrame) -> pl.DataFrame:
    """`members` (columns of MEMBERS) with `joint`, alike in all members of one collective or message and null where none
    matches, without the ends of sends that are in none; and with a `communicator` where the trace names none.
    """
    every, rows = Numbering([members]).of(members, 0)
    return joints(every, rows).select(*members.columns, "joint")


@dataclass
class Group:
    """What is matched in its own order, over all files: whether traces number all of its rows, its least and highest number,
    and of the rank with most rows (of several the first): how many, minus the rank, and its file.
    """

    number: int
    by_trace: bool = True
    least: int = 0
    highest: int = 0
    most: tuple[int, int, int] = (0, 0, 0)
    first: "InOrder | None" = None


class Numbering:
    """The number of each row among those of its group, alike in all ranks: as the trace numbers them, or by their order;
    where order alone will not do, that of the row of the rank with most rows that ends when it does.
    """

    def __init__(self, files: Sequence[pl.DataFrame]) -> None:
        """Of `files` (columns of MEMBERS, whole ranks in each), of which one at a time is asked for, twice at most."""
        self._groups = _groups(files)
        self.groups = sorted(self._groups.values(), key=lambda group: group.number)
        first_in = defaultdict(list)
        for group in self.groups:
            if not group.by_trace:
                first_in[group.most[2]].append(group)
        for file, some in first_in.items():
            wanted = {(group.number, -group.most[1]): group for group in some}
            for number, rank, in_order in _in_order(begun(self._with_groups(files[file]))):
                if (number, rank) in wanted:
                    wanted[number, rank].first = in_order
        self._members = 0

    def of(self, frame: pl.DataFrame, file: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of `file`, the next one, with `member`, `group` and `numbered`; and those that are no ends of sends, with
        `number` and `again`, too.
        """
        every = self._with_groups(frame).with_columns(member=pl.int_range(pl.len()) + self._members)
        self._members += every.height
        rows = numbered(begun(every))
        return every, rows.with_columns(number=pl.Series(self._numbers(rows, file), dtype=pl.Int64))

    def _with_groups(self, frame: pl.DataFrame) -> pl.DataFrame:
        every = grouped(frame)
        kinds = every.select(GROUP).unique(maintain_order=True)
        # None where all rows of one are ends.
        of_kinds = [self._groups.get(tuple(values)) for values in kinds.iter_rows()]
        kinds = kinds.with_columns(
            group=pl.Series([group.number if group else -1 for group in of_kinds], dtype=pl.Int64),
            numbered=pl.Series([group.by_trace if group else True for group in of_kinds], dtype=pl.Boolean),
        )
        return every.join(kinds, on=GROUP, how="left", nulls_equal=True, maintain_order="left")

    def _numbers(self, rows: pl.DataFrame, file: int) -> NDArray[np.int64]:
        """The number of each row of a file, shape (rows,): of one that is alone, one that no other has."""
        number = rows["number"].to_numpy().copy()
        member = rows["member"].to_numpy()
        for of, rank, in_order in _in_order(rows):
            group = self.groups[of]
            if group.first is None or group.most[1:] == (-rank, file):
                continue
            if (anew := in_order.as_in(group.first)) is not None:
                theirs, mine = anew
                number[in_order.row] = -1 - member[in_order.row]
                number[in_order.row[mine]] = theirs
        return number


def _groups(files: Iterable[pl.DataFrame]) -> dict[tuple[object, ...], Group]:
    """By values of GROUP."""
    groups: dict[tuple[object, ...], Group] = {}
    for file, frame in enumerate(files):
        seen = begun(grouped(frame)).group_by(*GROUP, "rank", maintain_order=True).agg(
            pl.len().alias("count"), pl.col("sequence").is_not_null().all().alias("by_trace"),
            pl.col("sequence").min().alias("least"), pl.col("sequence").max().alias("highest"),
        )  # fmt: skip
        for *of, rank, rows, by_trace, least, highest in seen.iter_rows():
            group = groups.setdefault(tuple(of), Group(len(groups), least=least or 0))
            group.by_trace &= by_trace
            group.least = min(group.least, least or 0)
            group.highest = max(group.highest, highest or 0)
            group.most = max(group.most, (rows, -rank, file))
    for group in groups.values():
        if not group.by_trace:
            group.least, group.highest = 0, group.most[0]
    return groups


def grouped(members: pl.DataFrame) -> pl.DataFrame:
    """Rows of whole ranks with `source` and `target` of messages, and a `communicator` each."""
    kind, this_rank = pl.col("collective_kind"), pl.coalesce("place", "rank")
    # Libraries give each communicator a stream: its first use stands for the name.
    used = pl.col("start_ns").min().over("rank", "stream").rank("dense").over("rank")
    return members.with_columns(
        communicator=pl.coalesce("communicator", pl.format("unnamed {}", used)),
        source=pl.when(kind == "send").then(this_rank).when(kind == "receive").then("peer").cast(pl.Int64),
        target=pl.when(kind == "receive").then(this_rank).when(kind == "send").then("peer").cast(pl.Int64),
    )


def begun(every: pl.DataFrame) -> pl.DataFrame:
    """Those that are no end of a send, each rank's in their order."""
    return every.filter(~pl.col("ended").fill_null(False)).sort("rank", "start_ns", maintain_order=True)


def orders_of(rows: pl.DataFrame) -> dict[int | None, tuple[int, ...]]:
    """By process of `rows` (columns of COLLECTIVES), a checksum of each communicator's order, alike in all members."""
    some = rows.filter(~pl.col("collective_kind").is_in(MESSAGES)).sort("start_ns", maintain_order=True)
    communicators = some.group_by("process", "communicator", "group_size", maintain_order=True)
    in_order = communicators.agg("collective_kind", "bytes", "sequence").rows_by_key("process")
    return {process: tuple(crc32(repr(row).encode()) for row in its) for process, its in in_order.items()}


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of whole ranks, with `group` and `numbered` by the trace or their order; `again` orders those of one number."""
    by_trace, place = pl.col("numbered"), pl.int_range(pl.len())
    return rows.with_columns(
        number=pl.when(by_trace).then("sequence").otherwise(place.over("rank", "group")),
        again=pl.when(by_trace).then(place.over("rank", "group", "sequence")).otherwise(0),
    )


def joints(every: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`rows`, with group, number and again, and those of `every` that end their sends, with `joint`, by `member`."""
    kind = pl.col("collective_kind")
    rows = rows.with_columns(joint=pl.struct("group", "number", "again").rank("dense").cast(pl.Int64) - 1)
    ranks = pl.col("rank").n_unique().over("joint")
    alike = (kind.drop_nulls().n_unique().over("joint") <= 1) | pl.col("source").is_not_null()
    complete = pl.col("group_size").is_null() | (ranks <= pl.col("group_size"))
    # Of a call that begins or ends a request no range says which message it is of.
    identified = pl.col("marker").is_null() | kind.is_not_null()
    joined = identified & (ranks > 1) & (ranks == pl.len().over("joint")) & alike & complete
    rows = rows.with_columns(pl.when(joined).then("joint"))
    # The end of a send belongs to its message.
    sent = rows.filter(kind == "send").drop_nulls(["joint", "sequence"]).select(*OF_SEND, "joint")
    ended = every.filter(pl.col("ended").fill_null(False))
    ends = ended.join(sent, on=OF_SEND, how="left", nulls_equal=True).drop_nulls("joint")
    return pl.concat([rows, ends], how="diagonal").sort("member")


def _in_order(rows: pl.DataFrame) -> Iterator[tuple[int, int, "InOrder"]]:
    """Group and rank of what traces do not number, with those rows in their order."""
    message_kind = pl.col("collective_kind").replace(dict.fromkeys(MESSAGES, "send_receive"))
    some = rows.with_columns(row=pl.int_range(pl.len())).filter(~pl.col("numbered"))
    lists = some.group_by("group", "rank", maintain_order=True).agg(
        "row", "end_ns", kinds=message_kind.to_physical(), bytes=pl.col("bytes").fill_null(-1),
        symmetric=message_kind.is_in(SYMMETRIC).all(),
    )  # fmt: skip
    for at in range(lists.height):
        kinds = lists["kinds"][at].cast(pl.Int64).fill_null(-1).to_numpy()
        row, sizes, end_ns = (lists[name][at].to_numpy() for name in ("row", "bytes", "end_ns"))
        in_order = InOrder(row, kinds, sizes, end_ns, lists["symmetric"][at])
        yield lists["group"][at], lists["rank"][at], in_order


class InOrder(NamedTuple):
    """A rank's rows of a group, in their order: kind and bytes (-1: unknown), and end; shapes (rows,)."""

    row: NDArray[np.int64]
    kinds: NDArray[np.int64]
    bytes: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    symmetric: bool

    def as_in(self, first: "InOrder") -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Rows of `first`, and of this that end with them; None where both are alike in their order.

        Order alone will not do where ranks differ in kinds or count, or where what ends together does not: recordings
        begin at another collective, or leave some out.
        """
        if len(self.row) == len(first.row) and ((self.kinds == first.kinds) & (self.kinds >= 0)).all():
            apart = first.end_ns - self.end_ns
            if not self.symmetric or np.median(np.abs(apart - np.median(apart))) <= TOGETHER_NS:
                return None
        return _ending_together(first, self)


def _ending_together(first: InOrder, second: InOrder) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of `first` and `second`, of one kind and size, that end together up to a clock offset, that of most rows."""
    places = np.arange(-MOST_SHIFT, MOST_SHIFT + 1)
    least = min(len(first.row), len(second.row))
    places = places[np.abs(places) < max(len(first.row), least)]
    theirs = np.arange(len(second.row))[:, None] + places
    mine = np.broadcast_to(np.arange(len(second.row))[:, None], theirs.shape)
    inside = (theirs >= 0) & (theirs < len(first.row))
    theirs, mine = theirs[inside], mine[inside]
    alike = (first.kinds[theirs] == second.kinds[mine]) & (first.bytes[theirs] == second.bytes[mine])
    theirs, mine = theirs[alike], mine[alike]
    if len(theirs) == 0:
        return theirs, mine
    apart = first.end_ns[theirs] - second.end_ns[mine]
    order = np.argsort(apart, kind="stable")
    within = np.searchsorted(apart[order], apart[order] + JITTER_NS, side="right")
    begin = int(np.argmax(within - np.arange(len(order))))
    usual = np.median(apart[order[begin : within[begin]]])
    # Of several that would do, those that are nearest to it.
    off = np.abs(apart - usual)
    order = np.argsort(off, kind="stable")
    order = order[off[order] <= TOGETHER_NS]
    for rows in (mine, theirs):
        order = order[np.sort(np.unique(rows[order], return_index=True)[1])]
    return theirs[order], mine[order]


class Clocks(NamedTuple):
    """What is added to the times of each clock: offset + drift · (time - middle), ns; shapes (clocks,). `uncertainty`: the
    standard deviation of one time, ns; not a number where nothing ties a clock to the others.
    """

    offset: Numbers
    drift: Numbers
    middle: Numbers
    uncertainty: Numbers

    def shift(self, clock: Rows, times: Rows) -> Numbers:
        """What is added to `times` (ns) of each `clock`; shape (times,)."""
        return self.offset[clock] + self.drift[clock] * (times - self.middle[clock])


def align(members: pl.DataFrame, clocks: int) -> Clocks:
    """So many clocks brought to the one that is tied to most collectives. `members`: clock, joint (null: of none),
    collective_kind, and end_ns since a moment that is the same by all clocks.
    """
    offset, drift, middle, uncertainty = (np.zeros(clocks) for _ in range(4))
    aligned = Clocks(offset, drift, middle, uncertainty)
    uncertainty[:] = np.nan
    # Who sends, or begins a broadcast, may be done long before the others.
    tied = members.drop_nulls("joint").filter(pl.col("collective_kind").is_in(SYMMETRIC))
    tied = tied.filter(pl.col("clock").n_unique().over("joint") > 1)
    if tied.is_empty():
        return aligned
    clock, joint = tied["clock"].to_numpy().astype(np.int64), tied["joint"].rank("dense").to_numpy() - 1
    joint, end = joint.astype(np.int64), tied["end_ns"].to_numpy()
    middle[:] = np.nan_to_num(_medians(end, clock, clocks))
    reference = int(np.bincount(clock).argmax())
    tied_clocks = np.zeros(clocks, bool)
    tied_clocks[reference] = True
    for _ in range(clocks):  # outwards from the reference
        away = _residuals(aligned, clock, joint, end, tied_clocks[clock])
        median = _medians(away, clock, clocks)
        new = ~tied_clocks & np.isfinite(median)
        if not new.any():
            break
        offset[new] += median[new]
        tied_clocks |= new
    some = tied_clocks[clock]
    clock, joint, end = clock[some], joint[some], end[some]
    every = np.ones(len(end), bool)
    count = np.bincount(clock, minlength=clocks)
    for round in range(ROUNDS):
        away = _residuals(aligned, clock, joint, end, every)
        offset[tied_clocks] += _medians(away, clock, clocks)[tied_clocks]
        if round >= ROUNDS // 2:
            away = _residuals(aligned, clock, joint, end, every)
            slope, span = _slopes(away, clock, end, clocks)
            straight = np.abs(away - slope[clock] * (end - middle[clock]))
            noise = SPREAD * _medians(straight, clock, clocks)
            clear = tied_clocks & (count >= ENOUGH) & (np.abs(slope) * span > CLEAR * noise)
            drift[clear] += slope[clear]
    # All are moved back by as much as the reference was.
    back = offset[reference] + drift[reference] * (middle + offset - middle[reference])
    offset -= np.where(tied_clocks, back, 0.0)
    drift -= np.where(tied_clocks, drift[reference], 0.0)
    away = _residuals(aligned, clock, joint, end, every)
    uncertainty[tied_clocks] = SPREAD * _medians(np.abs(away), clock, clocks)[tied_clocks]
    return aligned


def _residuals(aligned: Clocks, clock: Rows, joint: Rows, end: Rows, by: NDArray[np.bool_]) -> Numbers:
    """How much later each joint ends than each of its members, by the median of those members that count (`by`)."""
    times = end + aligned.shift(clock, end)
    joints = int(joint.max()) + 1
    return _medians(times[by], joint[by], joints)[joint] - times


def _medians(values: Numbers, groups: Rows, count: int) -> Numbers:
    """The median of each group, not a number of none; shape (count,). Values that are no numbers do not count."""
    usable = pl.DataFrame({"group": groups, "value": values}).filter(pl.col("value").is_finite())
    middle = usable.group_by("group").agg(pl.col("value").median())
    medians = np.full(count, np.nan)
    medians[middle["group"].to_numpy()] = middle["value"].to_numpy()
    return medians


def _slopes(away: Numbers, clock: Rows, end: Rows, count: int) -> tuple[Numbers, Numbers]:
    """How `away` grows with time in each clock, between the medians of the first and the last third; and the time of all."""
    order = np.lexsort((end, clock))
    sizes = np.bincount(clock, minlength=count)
    place = np.arange(len(end)) - (np.cumsum(sizes) - sizes)[clock[order]]
    third = np.minimum(3 * place // np.maximum(sizes[clock[order]], 1), 2)
    values = []
    for part in (0, 2):
        rows = order[third == part]
        values += [
            _medians(away[rows], clock[rows], count),
            _medians(end[rows].astype(float), clock[rows], count),
        ]
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (values[2] - values[0]) / (values[3] - values[1])
        return np.nan_to_num(slope, posinf=0.0, neginf=0.0), np.nan_to_num(1.5 * (values[3] - values[1]))
