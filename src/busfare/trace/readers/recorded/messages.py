"""MPI and NCCL calls of a recording: a range each, and what it sends, receives or does together with other ranks."""

from __future__ import annotations

import polars as pl

from busfare.trace.readers.mpi_messages import (
    CALL,
    KIND,
    MESSAGES,
    OF_COMMUNICATOR,
    as_ranges,
    kinds_of,
    numbered,
    of_mpi,
)
from busfare.trace.readers.recorded.process import RecordedProcess
from busfare.trace.tables import DESCRIBED, MARKERS, empty

#: The ends of groups of NCCL.
GROUP_END = "ncclGroupEnd"


def messages(process: RecordedProcess) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `MARKERS`, and of `DESCRIBED` those that they number."""
    noted = _noted(process)
    if noted.is_empty():
        return empty(MARKERS), empty(DESCRIBED)
    rows = pl.concat([of_mpi(noted), _of_nccl(noted)])
    if (process.recording.table("losses")["loss"] == 3).any():  # numbers behind those lost would be wrong
        rows = rows.with_columns(sequence=pl.lit(None, pl.Int64))
    calls, described = as_ranges(noted, rows)
    inside = process.inside_window(calls["start_ns"].to_numpy() - process.shift_ns)
    return calls.filter(pl.Series(inside)), described


def _noted(process: RecordedProcess) -> pl.DataFrame:
    """The rows of the file in their order, numbered (`row`), with their communicators; `call` numbers the calls."""
    columns = ("thread", "communicator", "bytes", "peer", "tag", "request")
    table, made = (process.recording.table(name) for name in ("messages", "communicators"))
    noted = process.frame(table, *columns, wall=True).with_columns(
        name=process.names(table["name"]).cast(pl.String)
    )
    noted = noted.filter(pl.col("name").str.contains("^(MPI_|nccl)"))
    names, members = (process.names(made[column]).cast(pl.String) for column in ("name", "members"))
    known = process.frame(made, "number", "place", "size").with_columns(called=names, members=members)
    known = known.select(pl.col("number").alias("communicator"), *OF_COMMUNICATOR).unique(
        "communicator", keep="last"
    )
    return (
        noted.sort("start_ns", "thread", maintain_order=True)
        .join(known, on="communicator", how="left", maintain_order="left")
        .with_columns(call=pl.struct(CALL).rle_id())
        .with_row_index("row")
        .with_columns(posted="row", kind=kinds_of(noted["name"]), ended=False)
    )


def _of_nccl(noted: pl.DataFrame) -> pl.DataFrame:
    """What NCCL's calls do, those of a group together, at its end."""
    rows = numbered(
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
