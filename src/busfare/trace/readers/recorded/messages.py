"""MPI and NCCL calls of a recording: a range each, and what it sends, receives or does together with other ranks."""

from __future__ import annotations

import re

import polars as pl

from busfare.trace.collectives import kind_of
from busfare.trace.readers.recorded.process import RecordedProcess
from busfare.trace.tables import (
    COLLECTIVE_KINDS,
    DESCRIBED,
    MARKERS,
    OPERATIONS_OF_COLLECTIVES,
    RANGES_OF_COLLECTIVES,
    conform,
    empty,
)

#: Calls that end requests, that start prepared ones, and that post one; the ends of groups of NCCL.
ENDS, STARTS, PREPARES, POSTS = r"^MPI_(Wait|Test)", r"^MPI_Start(all)?$", r"_init$", r"^MPI_I[a-z]"
#: What moves bytes of a window, and what waits for it, but for the fence, which waits for all its ranks.
ONE_SIDED, FENCE = r"^MPI_((Put|Get|Accumulate|Rput|Rget|Raccumulate)$|Win_)", "MPI_Win_fence"
GROUP_END = "ncclGroupEnd"
MESSAGES = ("send", "receive")
KIND = pl.Enum(COLLECTIVE_KINDS)
CALL = ["thread", "start_ns", "end_ns", "name"]
OF_COMMUNICATOR = ["called", "members", "place", "size"]


def messages(process: RecordedProcess) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `MARKERS`, and of `DESCRIBED` those that they number."""
    noted = _noted(process)
    if noted.is_empty():
        return empty(MARKERS), empty(DESCRIBED)
    rows = pl.concat([_of_mpi(noted), _of_nccl(noted)]).sort("call", "row", maintain_order=True)
    if (process.recording.table("losses")["loss"] == 3).any():  # numbers behind those lost would be wrong
        rows = rows.with_columns(sequence=pl.lit(None, pl.Int64))
    of_calls = (
        rows.with_row_index("collective").group_by("call").agg(pl.col("collective").min(), messages=pl.len())
    )
    calls = noted.group_by("call", maintain_order=True).agg(pl.col("process", *CALL).first())
    calls = calls.join(of_calls, on="call", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("messages").fill_null(0))
    calls = calls.filter(pl.Series(process.inside_window(calls["start_ns"].to_numpy() - process.shift_ns)))
    said = rows.with_columns(communicator="called", group_size="size", collective_kind="kind")
    return conform(calls, MARKERS, {**OPERATIONS_OF_COLLECTIVES, **RANGES_OF_COLLECTIVES}), conform(
        said, DESCRIBED
    )


def _noted(process: RecordedProcess) -> pl.DataFrame:
    """The rows of the file in their order, numbered (`row`), with their communicators; `call` numbers the calls."""
    columns = ("thread", "communicator", "bytes", "peer", "tag", "request")
    table, made = (process.recording.table(name) for name in ("messages", "communicators"))
    noted = process.frame(table, *columns, wall=True).with_columns(
        name=process.names(table["name"]).cast(pl.String)
    )
    noted = noted.filter(pl.col("name").str.contains("^(MPI_|nccl)"))  # not what threads wait with
    names, members = (process.names(made[column]).cast(pl.String) for column in ("name", "members"))
    known = process.frame(made, "number", "place", "size").with_columns(called=names, members=members)
    known = known.select(pl.col("number").alias("communicator"), *OF_COMMUNICATOR).unique(
        "communicator", keep="last"
    )
    kinds = {
        name: kind_of(re.sub(r"^MPI_|^nccl|Config$|_init$", "", name))
        for name in noted["name"].drop_nulls().unique()
    }
    kinds |= {FENCE: "barrier"}
    kind = pl.col("name").replace_strict(kinds, default=None, return_dtype=KIND)
    # MPI_Sendrecv notes what it sends first.
    sent = pl.col("row") == pl.col("row").min().over("call")
    way = pl.when(sent).then(pl.lit("send")).otherwise(pl.lit("receive")).cast(KIND)
    kind = pl.when(pl.col("name").str.starts_with("MPI_Sendrecv")).then(way).otherwise(kind)
    return (
        noted.sort("start_ns", "thread", maintain_order=True)
        .join(known, on="communicator", how="left", maintain_order="left")
        .with_columns(call=pl.struct(CALL).rle_id())
        .with_row_index("row")
        .with_columns(posted="row", kind=kind, ended=False)
    )


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """With `sequence`: collectives count by communicator; messages by peer and tag, too, each way."""
    message = pl.col("kind").is_in(MESSAGES).fill_null(False)
    way = [pl.col("ended")]
    way += [pl.when(message).then(name).alias(f"of_{name}") for name in ("kind", "peer", "tag")]
    return rows.sort("posted", maintain_order=True).with_columns(
        pl.when(message).then(pl.col("peer", "tag")),
        sequence=pl.int_range(pl.len()).over("communicator", *way),
    )


def _of_mpi(noted: pl.DataFrame) -> pl.DataFrame:
    """Messages and collectives of MPI, where the program waits for them: a receive that was posted, where it ends."""
    name, kind = pl.col("name"), pl.col("kind")
    rows = noted.filter(name.str.starts_with("MPI_") & (~name.str.contains(ONE_SIDED) | (name == FENCE)))
    others = rows.filter(~name.str.contains(f"{ENDS}|{STARTS}|{PREPARES}"))
    posts = name.str.contains(POSTS)
    started = _of_requests(rows.filter(name.str.contains(STARTS)), rows.filter(name.str.contains(PREPARES)))
    started = started.with_columns(peer="own_peer", tag="own_tag", bytes="own_bytes", posted="row")
    posted = pl.concat([others.filter(posts), started.select(rows.columns)]).sort("row")
    ended = _of_requests(rows.filter(name.str.contains(ENDS)), posted).with_columns(ended=kind == "send")
    # When others came to a collective that goes on in between is not known: it matches nothing, and is counted.
    received = kind == "receive"
    own = [
        pl.when(received).then(name).otherwise(f"own_{name}").alias(name) for name in ("bytes", "peer", "tag")
    ]
    ended = ended.with_columns(*own, kind=pl.when(kind.is_in(MESSAGES)).then("kind"))
    every = pl.concat([others.filter(~posts), posted.filter(kind == "send"), ended.select(rows.columns)])
    alone = pl.when(kind.is_in(MESSAGES)).then((pl.col("peer") < 0) | (pl.col("peer") == pl.col("place")))
    every = every.filter(~alone.otherwise(pl.col("size") == 1).fill_null(False))
    return _numbered(every.with_columns(kind=pl.when(pl.col("called").is_not_null()).then("kind")))


def _of_requests(rows: pl.DataFrame, posts: pl.DataFrame) -> pl.DataFrame:
    """Those of `rows` whose request one of `posts` made, the last before; with what that says."""
    own = {f"own_{name}": name for name in ("bytes", "peer", "tag")}
    said = ["kind", "communicator", "posted", *OF_COMMUNICATOR]
    posts = posts.select("row", "request", *said, **own).sort("row")
    rows = rows.drop(said).sort("row")
    return rows.join_asof(posts, on="row", by="request", check_sortedness=False).drop_nulls("posted")


def _of_nccl(noted: pl.DataFrame) -> pl.DataFrame:
    """What NCCL's calls do, those of a group together, at its end."""
    rows = _numbered(
        noted.filter(pl.col("name").str.starts_with("nccl")).with_columns(tag=pl.lit(None, pl.Int64))
    )
    ends = rows.filter(pl.col("name") == GROUP_END)
    grouped = rows.filter((pl.col("request") > 0) & (pl.col("name") != GROUP_END))
    alone = rows.filter(pl.col("request") == 0)
    message = pl.col("kind").is_in(MESSAGES)
    alone = alone.with_columns(sequence=pl.when(~message).then("sequence"))
    each = grouped.group_by("request", "communicator").agg(
        pl.col("called", "members", "place", "size").first(),
        kinds=pl.col("kind").unique(),
        only=pl.col("kind").first(),
        bytes=pl.col("bytes").sum(),
        sent=pl.col("bytes").filter(pl.col("kind") == "send").sum(),
        sends=pl.col("peer").filter(pl.col("kind") == "send").n_unique(),
        receives=pl.col("peer").filter(pl.col("kind") == "receive").n_unique(),
        peer=pl.col("peer").first(),
        sequence=pl.col("sequence").min(),
        count=pl.len(),
    )
    one = pl.col("kinds").list.len() == 1
    messages = pl.col("kinds").list.eval(pl.element().is_in(MESSAGES)).list.all()
    everybody = (pl.col("sends") == pl.col("size")) & (pl.col("receives") == pl.col("size"))
    several = pl.when(everybody).then(pl.lit("all_to_all")).otherwise(pl.lit("send_receive"))
    single = messages & (pl.col("count") == 1)
    each = each.with_columns(
        kind=pl.when(single | (one & ~messages)).then(pl.col("only")).when(messages).then(several.cast(KIND)),
        bytes=pl.when(messages & ~single).then("sent").when(one).then("bytes"),
        peer=pl.when(single).then("peer"),
        sequence=pl.when(~messages).then("sequence"),
    )
    # Of several GPUs of one process it says what is true of all.
    fields = [*OF_COMMUNICATOR, "kind", "bytes", "peer", "sequence"]
    each = each.group_by("request").agg(
        pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name).first()
        for name in fields
    )
    ends = ends.drop(fields).join(each, on="request", maintain_order="left")
    return pl.concat([alone, ends.select(rows.columns)])
