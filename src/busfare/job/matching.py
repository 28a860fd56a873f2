"""Which rows of different ranks are one collective or message: by communicator, place in its order, kind and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.tables import COLLECTIVES, SYMMETRIC

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


def match(members: pl.DataFrame) -> pl.DataFrame:
    """`members` (columns of MEMBERS) with `joint`, alike in all members of one collective or message and null where none
    matches, without the ends of sends that are in none; and with a `communicator` where the trace names none.
    """
    every = grouped(members).with_row_index("member")
    rows = begun(every).with_columns(group=pl.struct(GROUP).rank("dense").cast(pl.Int64))
    rows = rows.with_columns(numbered=pl.col("sequence").is_not_null().all().over("group"))
    rows = numbered(rows)
    rows = rows.with_columns(number=pl.Series(_by_time(rows)))
    return joints(every, rows).select(*members.columns, "joint")


def grouped(members: pl.DataFrame) -> pl.DataFrame:
    """Rows of whole ranks with `source` and `target` of messages, and a `communicator` each."""
    kind, own = pl.col("collective_kind"), pl.coalesce("place", "rank")
    # Libraries give each communicator a stream: its first use stands for the name.
    used = pl.col("start_ns").min().over("rank", "stream").rank("dense").over("rank")
    return members.with_columns(
        communicator=pl.coalesce("communicator", pl.format("unnamed {}", used)),
        source=pl.when(kind == "send").then(own).when(kind == "receive").then("peer").cast(pl.Int64),
        target=pl.when(kind == "receive").then(own).when(kind == "send").then("peer").cast(pl.Int64),
    )


def begun(every: pl.DataFrame) -> pl.DataFrame:
    """Those that are no end of a send, each rank's in their order."""
    return every.filter(~pl.col("ended").fill_null(False)).sort("rank", "start_ns", maintain_order=True)


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of whole ranks, with `group` and `numbered`, as the trace numbers them or by their order; `again` tells several
    of one number apart by their order.
    """
    by_trace, place = pl.col("numbered"), pl.int_range(pl.len())
    return rows.with_columns(
        number=pl.when(by_trace).then("sequence").otherwise(place.over("rank", "group")),
        again=pl.when(by_trace).then(place.over("rank", "group", "sequence")).otherwise(0),
    )


def joints(every: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`rows`, with group, number and again, and those of `every` that end one of their sends, with `joint`; in the order of
    `member`.
    """
    kind = pl.col("collective_kind")
    rows = rows.with_columns(joint=pl.struct("group", "number", "again").rank("dense").cast(pl.Int64) - 1)
    ranks = pl.col("rank").n_unique().over("joint")
    alike = (kind.drop_nulls().n_unique().over("joint") <= 1) | pl.col("source").is_not_null()
    complete = pl.col("group_size").is_null() | (ranks <= pl.col("group_size"))
    # Of a call that begins or ends a request no range says which message it is of.
    known = pl.col("marker").is_null() | kind.is_not_null()
    joined = known & (ranks > 1) & (ranks == pl.len().over("joint")) & alike & complete
    rows = rows.with_columns(pl.when(joined).then("joint"))
    # The end of a send belongs to its message.
    sent = rows.filter(kind == "send").drop_nulls(["joint", "sequence"]).select(*OF_SEND, "joint")
    ended = every.filter(pl.col("ended").fill_null(False))
    ends = ended.join(sent, on=OF_SEND, how="left", nulls_equal=True).drop_nulls("joint")
    return pl.concat([rows, ends], how="diagonal").sort("member")


def _by_time(rows: pl.DataFrame) -> NDArray[np.int64]:
    """The `number` of each row; where the trace does not number them, and order alone will not do, that of the row of the
    rank with most rows that ends when it does. Shape (rows,).
    """
    number = rows["number"].to_numpy().copy()
    some = by_order(rows.with_columns(row=pl.int_range(pl.len())))
    for _, ranks in some.group_by("group", maintain_order=True):
        ranks = ranks.sort(pl.col("row").list.len().cast(pl.Int64).neg(), "rank")
        first, *others = (InOrder.of(row) for row in _rows_of(ranks))
        for own in others:
            if (anew := own.as_in(first)) is not None:
                theirs, mine = anew
                number[own.row] = -1 - own.row  # alone
                number[own.row[mine]] = number[first.row[theirs]]
    return number


def by_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of whole ranks that the trace does not number, by group and rank: columns of InOrder."""
    both_ends = pl.col("collective_kind").replace(dict.fromkeys(MESSAGES, "send_receive"))
    return rows.filter(~pl.col("numbered")).group_by("group", "rank", maintain_order=True).agg(
        "row", "end_ns", kinds=both_ends.to_physical(), bytes=pl.col("bytes").fill_null(-1),
        symmetric=both_ends.is_in(SYMMETRIC).all(),
    )  # fmt: skip


class InOrder(NamedTuple):
    """A rank's rows of a group, in their order: kind and bytes (-1: unknown), and end; shapes (rows,)."""

    row: NDArray[np.int64]
    kinds: NDArray[np.int64]
    bytes: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    symmetric: bool

    @classmethod
    def of(cls, lists: dict[str, Any]) -> InOrder:
        kinds = lists["kinds"].cast(pl.Int64).fill_null(-1).to_numpy()
        return cls(
            lists["row"].to_numpy(),
            kinds,
            lists["bytes"].to_numpy(),
            lists["end_ns"].to_numpy(),
            lists["symmetric"],
        )

    def as_in(self, first: InOrder) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Rows of `first`, and of this that end with them; None where both are alike in their order.

        Order alone will not do where ranks differ in kinds or count, or where what ends together does not: recordings
        begin at another collective, or leave some out.
        """
        in_order = len(self.row) == len(first.row) and bool(
            ((self.kinds == first.kinds) & (self.kinds >= 0)).all()
        )
        if in_order and (not self.symmetric or _spread(first.end_ns - self.end_ns) <= TOGETHER_NS):
            return None
        return _ending_together(first, self)


def _rows_of(ranks: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return ({name: ranks[name][at] for name in ranks.columns} for at in range(ranks.height))


def _spread(values: NDArray[np.int64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _ending_together(first: InOrder, own: InOrder) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of `first` and of `own`, of one kind and size, that end together by clocks that are some time apart.

    That is the time by which most of them do.
    """
    places = np.arange(-MOST_SHIFT, MOST_SHIFT + 1)
    least = min(len(first.row), len(own.row))
    places = places[np.abs(places) < max(len(first.row), least)]
    theirs = np.arange(len(own.row))[:, None] + places
    mine = np.broadcast_to(np.arange(len(own.row))[:, None], theirs.shape)
    inside = (theirs >= 0) & (theirs < len(first.row))
    theirs, mine = theirs[inside], mine[inside]
    alike = (first.kinds[theirs] == own.kinds[mine]) & (first.bytes[theirs] == own.bytes[mine])
    theirs, mine = theirs[alike], mine[alike]
    if len(theirs) == 0:
        return theirs, mine
    apart = first.end_ns[theirs] - own.end_ns[mine]
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
