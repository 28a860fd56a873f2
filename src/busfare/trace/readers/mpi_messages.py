"""MPI calls as ranges with messages and collectives: what readers that see communicators, peers and requests share.

`noted`: a row a message, collective or request of a call, in the order of the program, numbered by `row`; columns process,
CALL, `call` (numbers the calls), `posted` (= row), `ended` (false), `kind`, `communicator`, OF_COMMUNICATOR, `bytes`,
`peer`, `tag`, `request`.
"""

from __future__ import annotations

import re

import polars as pl

from busfare.trace.collectives import kind_of
from busfare.trace.tables import (
    COLLECTIVE_KINDS,
    DESCRIBED,
    MARKERS,
    OPERATIONS_OF_COLLECTIVES,
    RANGES_OF_COLLECTIVES,
    conform,
)

#: Calls that end requests, that start prepared ones, and that post one.
ENDS, STARTS, PREPARES, POSTS = r"^MPI_(Wait|Test)", r"^MPI_Start(all)?$", r"_init$", r"^MPI_I[a-z]"
#: What moves bytes of a window, and what waits for it, but for the fence, which waits for all its ranks.
ONE_SIDED, FENCE = r"^MPI_((Put|Get|Accumulate|Rput|Rget|Raccumulate)$|Win_)", "MPI_Win_fence"
MESSAGES = ("send", "receive")
KIND = pl.Enum(COLLECTIVE_KINDS)
CALL = ["thread", "start_ns", "end_ns", "name"]
OF_COMMUNICATOR = ["called", "members", "place", "size"]


def kinds_of(names: pl.Series) -> pl.Expr:
    """The kind of each row by its `name`, one of `names`; `row` and `call` number the rows."""
    kinds = {
        name: kind_of(re.sub(r"^MPI_|^nccl|Config$|_init$", "", name)) for name in names.drop_nulls().unique()
    }
    kind = pl.col("name").replace_strict(kinds | {FENCE: "barrier"}, default=None, return_dtype=KIND)
    # MPI_Sendrecv notes what it sends first.
    sent = pl.col("row") == pl.col("row").min().over("call")
    way = pl.when(sent).then(pl.lit("send")).otherwise(pl.lit("receive")).cast(KIND)
    return pl.when(pl.col("name").str.starts_with("MPI_Sendrecv")).then(way).otherwise(kind)


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """With `sequence`: collectives count by communicator; messages by peer and tag, too, each way."""
    message = pl.col("kind").is_in(MESSAGES).fill_null(False)
    way = [pl.col("ended")]
    way += [pl.when(message).then(name).alias(f"of_{name}") for name in ("kind", "peer", "tag")]
    return rows.sort("posted", maintain_order=True).with_columns(
        pl.when(message).then(pl.col("peer", "tag")),
        sequence=pl.int_range(pl.len()).over("communicator", *way),
    )


def of_mpi(noted: pl.DataFrame) -> pl.DataFrame:
    """Messages and collectives of MPI in one process, where the program waits for them: a receive that was posted, where it
    ends.
    """
    name, kind = pl.col("name"), pl.col("kind")
    rows = noted.filter(name.str.starts_with("MPI_") & (~name.str.contains(ONE_SIDED) | (name == FENCE)))
    others = rows.filter(~name.str.contains(f"{ENDS}|{STARTS}|{PREPARES}"))
    posts = name.str.contains(POSTS)
    started = _of_requests(rows.filter(name.str.contains(STARTS)), rows.filter(name.str.contains(PREPARES)))
    started = started.with_columns(peer="own_peer", tag="own_tag", bytes="own_bytes", posted="row")
    posted = pl.concat([others.filter(posts), started.select(rows.columns)]).sort("row")
    # Of several calls that name a request, the last ends it.
    ended = _of_requests(rows.filter(name.str.contains(ENDS)), posted).unique("posted", keep="last")
    ended = ended.with_columns(ended=kind == "send")
    # When others came to a collective that goes on in between is not known: it matches nothing, and is counted.
    received = kind == "receive"
    own = [
        pl.when(received).then(pl.coalesce(name, f"own_{name}")).otherwise(f"own_{name}").alias(name)
        for name in ("bytes", "peer", "tag")
    ]
    ended = ended.with_columns(*own, kind=pl.when(kind.is_in(MESSAGES)).then("kind"))
    every = pl.concat([others.filter(~posts), posted.filter(kind == "send"), ended.select(rows.columns)])
    alone = pl.when(kind.is_in(MESSAGES)).then((pl.col("peer") < 0) | (pl.col("peer") == pl.col("place")))
    every = every.filter(~alone.otherwise(pl.col("size") == 1).fill_null(False))
    return numbered(every.with_columns(kind=pl.when(pl.col("called").is_not_null()).then("kind")))


def _of_requests(rows: pl.DataFrame, posts: pl.DataFrame) -> pl.DataFrame:
    """Those of `rows` whose request one of `posts` made, the last before; with what that says."""
    own = {f"own_{name}": name for name in ("bytes", "peer", "tag")}
    said = ["kind", "communicator", "posted", *OF_COMMUNICATOR]
    posts = posts.select("row", "request", *said, **own).sort("row")
    rows = rows.drop(said).sort("row")
    return rows.join_asof(posts, on="row", by="request", check_sortedness=False).drop_nulls("posted")


def as_ranges(noted: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls of `noted` as rows of `MARKERS`, and of `DESCRIBED` those that they number: `rows` (with `sequence`)."""
    rows = rows.sort("call", "row", maintain_order=True)
    of_calls = (
        rows.with_row_index("collective").group_by("call").agg(pl.col("collective").min(), messages=pl.len())
    )
    calls = noted.group_by("call", maintain_order=True).agg(pl.col("process", *CALL).first())
    calls = calls.join(of_calls, on="call", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("messages").fill_null(0))
    said = rows.with_columns(communicator="called", group_size="size", collective_kind="kind")
    return conform(calls, MARKERS, {**OPERATIONS_OF_COLLECTIVES, **RANGES_OF_COLLECTIVES}), conform(
        said, DESCRIBED
    )
