"""Which rows of different ranks are one collective or message: by communicator, place in its order, kind and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    kind, own = pl.col("collective_kind"), pl.coalesce("place", "rank")
    # Libraries give each communicator a stream: its first use stands for the name.
    used = pl.col("start_ns").min().over("rank", "stream").rank("dense").over("rank")
    every = members.with_row_index("member")
    ended = pl.col("ended").fill_null(False)
    rows = every.filter(~ended).with_columns(
        communicator=pl.coalesce("communicator", pl.format("unnamed {}", used)),
        source=pl.when(kind == "send").then(own).when(kind == "receive").then("peer").cast(pl.Int64),
        target=pl.when(kind == "receive").then(own).when(kind == "send").then("peer").cast(pl.Int64),
    )
    rows = rows.sort("rank", "start_ns", maintain_order=True).with_columns(
        group=pl.struct(GROUP).rank("dense").cast(pl.Int64)
    )
    numbered = pl.col("sequence").is_not_null().all().over("group")
    place = pl.int_range(pl.len())
    rows = rows.with_columns(
        number=pl.when(numbered).then("sequence").otherwise(place.over("rank", "group")),
        # Several kernels of one number are told apart by their order.
        again=pl.when(numbered).then(place.over("rank", "group", "sequence")).otherwise(0),
        numbered=numbered,
    )
    rows = rows.with_columns(number=pl.Series(_by_time(rows)))
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
    ends = every.filter(ended).join(sent, on=OF_SEND, how="left", nulls_equal=True).drop_nulls("joint")
    both = pl.concat([rows, ends], how="diagonal")
    return both.sort("member").select(*members.columns, "joint")


def _by_time(rows: pl.DataFrame) -> NDArray[np.int64]:
    """The `number` of each row; where the trace does not number them, and order alone will not do, that of the row of the
    rank with most rows that ends when it does. Shape (rows,).

    Order alone will not do where ranks differ in kinds or count, or where what ends together does not: recordings begin
    at another collective, or leave some out.
    """
    number = rows["number"].to_numpy().copy()
    both_ends = pl.col("collective_kind").replace(dict.fromkeys(MESSAGES, "send_receive"))
    what = pl.struct("collective_kind", "bytes").rank("dense").cast(pl.Int64).alias("what")
    some = rows.with_columns(both_ends, row=pl.int_range(pl.len())).with_columns(what)
    some = some.filter(~pl.col("numbered"))
    of_rank = some.group_by("group", "rank", maintain_order=True).agg(
        "row", "what", "end_ns", kinds=pl.col("collective_kind").to_physical(),
        symmetric=pl.col("collective_kind").is_in(SYMMETRIC).all(),
    )  # fmt: skip
    for _, ranks in of_rank.group_by("group", maintain_order=True):
        ranks = ranks.sort(pl.col("row").list.len().cast(pl.Int64).neg(), "rank")
        first, *others = (
            {name: row[name].to_numpy() for name in ("row", "what", "kinds", "end_ns")}
            | {"symmetric": row["symmetric"]}
            for row in _rows_of(ranks)
        )
        for own in others:
            in_order = len(own["row"]) == len(first["row"]) and (own["kinds"] == first["kinds"]).all()
            if in_order and (not own["symmetric"] or _spread(first["end_ns"] - own["end_ns"]) <= TOGETHER_NS):
                continue
            number[own["row"]] = -1 - own["row"]  # alone
            theirs, mine = _ending_together(first, own)
            number[own["row"][mine]] = number[first["row"][theirs]]
    return number


def _rows_of(ranks: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return ({name: ranks[name][at] for name in ranks.columns} for at in range(ranks.height))


def _spread(values: NDArray[np.int64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _ending_together(
    first: dict[str, Any], own: dict[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of `first` and of `own`, of one kind and size, that end together by clocks that are some time apart.

    That is the time by which most of them do.
    """
    places = np.arange(-MOST_SHIFT, MOST_SHIFT + 1)
    least = min(len(first["row"]), len(own["row"]))
    places = places[np.abs(places) < max(len(first["row"]), least)]
    theirs = np.arange(len(own["row"]))[:, None] + places
    mine = np.broadcast_to(np.arange(len(own["row"]))[:, None], theirs.shape)
    inside = (theirs >= 0) & (theirs < len(first["row"]))
    theirs, mine = theirs[inside], mine[inside]
    alike = first["what"][theirs] == own["what"][mine]
    theirs, mine = theirs[alike], mine[alike]
    if len(theirs) == 0:
        return theirs, mine
    apart = first["end_ns"][theirs] - own["end_ns"][mine]
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
