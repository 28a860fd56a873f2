"""What the calls of a Kineto trace tell of operations on GPUs: whose they are, and of copies direction and size."""

from __future__ import annotations

import polars as pl

from busfare.trace.readers.tables import INT, meant
from busfare.trace.tables import DIRECTIONS

#: hipMemcpyKind, of the kinds that have an end on the host and one on the GPU.
DIRECTION_OF_KIND = {1: "h2d", 2: "d2h"}
LAUNCH = ["process", "correlation"]
#: A number of a process is less: what is above tells processes apart that have one number.
RANK_BITS = 32


def with_owners(events: pl.DataFrame, names: pl.DataFrame, call: pl.Expr, host: pl.Expr) -> pl.DataFrame:
    """The events with a column `owner`: the process whose call launched an operation, null where that is not known.

    `call`, `host`: which events are calls, and which are rows of the host; the process of a GPU's row is the GPU's
    number. In a file into which several ranks were merged, each may use the same numbers for calls and what they
    launch: what the tool that merged them made of the numbers of processes decides, or, where it left them alone,
    whether only one process has made a call of that number.
    """
    events = _with_labels(events, names, host)
    calls = events.filter(call).select(*LAUNCH, "place", "label")
    processes = calls["process"].unique()
    if len(processes) <= 1:
        return events.with_columns(owner=pl.lit(processes.first() if len(processes) else None, INT))
    found = []
    for key in ("place", "label", "correlation"):
        only = pl.when(pl.col("process").n_unique() == 1).then(pl.col("process").first())
        owners = calls.drop_nulls(key).group_by(key).agg(only.alias(f"of_{key}"))
        events = events.join(owners, on=key, how="left", maintain_order="left")
        found.append(f"of_{key}")
    return events.with_columns(owner=pl.coalesce(found)).drop(found)


def _with_labels(events: pl.DataFrame, names: pl.DataFrame, host: pl.Expr) -> pl.DataFrame:
    """The events with a column `label`: of a process that is a text, that without its last number, which tells ranks.

    Processes of several texts that have one number get another each.
    """
    if events["place"].null_count() == events.height:
        return events.with_columns(label=pl.lit(None, pl.String))
    texts = events.filter(host).select("place", "process").drop_nulls("place").unique(maintain_order=True)
    again = pl.int_range(pl.len()).over("process") * (1 << RANK_BITS)
    number = pl.col("process").fill_null(0) if texts.height > 1 else pl.col("process")
    texts = texts.select("place", apart=number + again)
    places = events["place"].drop_nulls().unique()
    label = names["name"].gather(places).cast(pl.String).str.replace(r"\d+(\D*)$", " ${1}")
    events = events.join(texts, on="place", how="left", maintain_order="left")
    events = events.join(
        pl.DataFrame({"place": places, "label": label}), on="place", how="left", maintain_order="left"
    )
    process = pl.when(host).then(pl.coalesce("apart", "process")).otherwise("process")
    return events.with_columns(process=process).drop("apart")


def of_calls(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`operations`, copies with size and direction as their calls tell them, where they do not tell themselves.

    Profilers of HIP before 2025 write the size with the call alone. They call a copy 'DtoD', too, whose host memory
    HIP knows (pinned memory), as HIP itself treats that as a buffer like any other: the call has the true direction.
    """
    telling = calls.filter(pl.col("bytes").is_not_null() | pl.col("copy_kind").is_not_null())
    if telling.is_empty():
        return operations
    telling = telling.drop_nulls("correlation").unique(LAUNCH, keep="first", maintain_order=True)
    kind_told = meant("copy_kind", DIRECTION_OF_KIND, DIRECTIONS)
    telling = telling.select(*LAUNCH, told="bytes", kind_told=kind_told)
    found = operations.join(telling, on=LAUNCH, how="left", nulls_equal=True, maintain_order="left")
    # Several copies of one call share its size.
    alone = (pl.col("kind") == "copy") & (pl.len().over(LAUNCH) == 1)
    other = ((pl.col("direction") == "d2d") & pl.col("kind_told").is_not_null()).fill_null(False)
    to_gpu = other & (pl.col("kind_told") == "h2d")
    return found.with_columns(
        bytes=pl.coalesce("bytes", pl.when(alone).then("told")),
        direction=pl.when(other).then("kind_told").otherwise("direction"),
        # What HIP knows of that memory beyond that it is the host's is not told.
        source_memory=pl.when(~to_gpu).then("source_memory"),
        destination_memory=pl.when(~other | to_gpu).then("destination_memory"),
        of_host=pl.col("of_host") | other,
    ).drop("told", "kind_told")
