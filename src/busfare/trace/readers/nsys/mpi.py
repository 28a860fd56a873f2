"""MPI calls of Nsight Systems exports: a range each, and what it sends, receives or does together with other ranks.

Tables and columns are those of the User Guide: 'SQLite Schema Reference' of 2026.4 (schema 3.28.1) and of earlier versions,
and 'MPI API Trace'. A START_WAIT call has a row a request. Peers are numbered within the communicator. A communicator is
alike in all ranks by the world rank of its group's root and that root's number for it; a handle may come back for another.
"""

import polars as pl

from busfare.trace.collectives import CALL, MESSAGES, as_ranges, kinds_of, of_mpi
from busfare.trace.omissions import Omissions
from busfare.trace.readers.cupti import TIMES
from busfare.trace.readers.nsys.rows import PROCESS, THREAD
from busfare.trace.readers.tables import TableSource, ints, smalls
from busfare.trace.tables import DESCRIBED, MARKERS, empty

#: Calls by their table, each with the columns that its calls have beside CALL_COLUMNS.
TABLES = {
    "MPI_P2P_EVENTS": "commHandle tag remoteRank size requestHandle",
    "MPI_COLLECTIVES_EVENTS": "commHandle size requestHandle",
    "MPI_START_WAIT_EVENTS": "requestHandle",
    "MPI_OTHER_EVENTS": "",
}
CALL_COLUMNS = TIMES | ints("globalTid textId")
OF_CALLS = {"commHandle": "handle", "remoteRank": "peer", "size": "bytes", "requestHandle": "request"}
RANKS, COMMUNICATORS = "MPI_RANKS", "MPI_COMMUNICATORS"
OF_COMMUNICATORS = ints(
    "rank timestamp commHandle parentHandle localRank size groupRoot groupRootUid commUid"
)
WORLD = "MPI_COMM_WORLD"
#: Calls of tables with communicators that tell other ranks nothing.
LOCAL = r"^MPI_(File_|Reduce_local$)"
#: Kinds whose `size` is what DESCRIBED calls bytes. Of others the guide does not say whether it is of one rank or of all.
SIZED = ("send", "all_reduce", "broadcast", "reduce")
#: The greatest number of a rank, and the first moment.
LARGEST_RANK, EVER = 999_999_999, -(1 << 62)


def ranks(tables: TableSource) -> dict[int, int]:
    """The rank of each process that has one."""
    frame = tables.read(RANKS, ints("globalTid rank")).with_columns(PROCESS)
    frame = frame.filter(pl.col("rank").is_between(0, LARGEST_RANK)).drop_nulls("process")
    of_process = frame.unique("process", keep="first", maintain_order=True)
    return dict(of_process.select("process", "rank").iter_rows())


def host(tables: TableSource) -> dict[str, str]:
    """`rank` of the only process that has one, or `ranks`, PROCESS=RANK of several; as in `Trace.host`."""
    rank_of = ranks(tables)
    if len(rank_of) > 1:
        return {"ranks": " ".join(f"{process}={rank}" for process, rank in rank_of.items())}
    return {"rank": str(*rank_of.values())} if rank_of else {}


def calls(
    tables: TableSource, strings: pl.DataFrame, omissions: Omissions
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """MPI's calls as rows of `MARKERS`, and of `DESCRIBED` those that they number."""
    noted = _noted(tables, strings)
    omissions.count("mpi-without-process", noted["process"].null_count())
    noted = noted.drop_nulls("process")
    if noted.is_empty():
        return empty(MARKERS), empty(DESCRIBED)
    omissions.count("open-ranges", noted["end_ns"].null_count())
    noted = _with_peers(_numbered(_in_communicators(noted, tables)))
    unknown = noted.filter(pl.col("kind").is_not_null() & pl.col("called").is_null())
    omissions.count("unknown-communicators", unknown["call"].n_unique())
    rows = [of_mpi(noted.clear())]
    for _, of_process in noted.group_by("process", maintain_order=True):
        # Numbers count from where the process began to talk.
        from_start = bool(of_process["name"].str.contains(r"^MPI_Init(_thread)?$").any())
        talked = of_process.filter("talks")
        # Messages have numbers only where none of their communicator can be any other's.
        message = pl.col("kind").is_in(MESSAGES).fill_null(False)
        half = pl.col("name").str.starts_with("MPI_Sendrecv") & (pl.len().over("call") == 1)
        unclear = (message & pl.any_horizontal(pl.col("peer", "tag").is_null())) | half
        unclear_in = talked.filter(unclear)["called"].unique().drop_nulls()
        numbered = ~(message & pl.col("called").is_in(unclear_in.implode())) & from_start
        rows.append(of_mpi(talked).with_columns(sequence=pl.when(numbered).then("sequence")))
    return as_ranges(noted, pl.concat(rows))


def _noted(tables: TableSource, strings: pl.DataFrame) -> pl.DataFrame:
    """The rows of all tables; `talks`: to other ranks."""
    frames = [
        tables.read(table, CALL_COLUMNS | ints(columns)).with_columns(table=pl.lit(table))
        for table, columns in TABLES.items()
    ]
    name = pl.col("value").fill_null("MPI_(unnamed)")
    return (
        pl.concat(frames, how="diagonal")
        .join(strings, left_on="textId", right_on="id", how="left", maintain_order="left")
        .rename(OF_CALLS)
        .select(
            PROCESS,
            THREAD,
            *OF_CALLS.values(),
            "tag",
            start_ns="start",
            end_ns="end",
            name=name,
            talks=(pl.col("table") != "MPI_OTHER_EVENTS") & ~name.str.contains(LOCAL),
        )
    )


def _communicators(described: pl.DataFrame, rank_of: pl.DataFrame) -> pl.DataFrame:
    """A row a communicator of a process: its handle and when it got that, its parent's, and what messages need of it."""
    size, root = pl.col("size"), pl.col("groupRoot", "groupRootUid")
    # As Nsight Systems shows it: the size, the root's rank in the world, the root's number.
    called = pl.coalesce(
        pl.when(pl.all_horizontal(root.is_not_null())).then(
            pl.format("MPI_COMM[{}] {}.{}", size, "groupRoot", "groupRootUid")
        ),
        pl.format("MPI_COMM[{}] {}", size, "commUid"),
    )
    begun = pl.col("timestamp").fill_null(EVER)
    first = pl.int_range(pl.len()).over("process", "handle") == 0
    return (
        described.join(rank_of, on="rank", how="inner", maintain_order="left")
        .filter(size > 0)
        .rename({"localRank": "place", "commHandle": "handle", "parentHandle": "parent"})
        .with_columns(called=called, begun=begun)
        .sort("begun", maintain_order=True)
        .with_columns(begun=pl.when(first).then(EVER).otherwise("begun"))
        .sort("begun", maintain_order=True)
        .select("process", "handle", "begun", "parent", "called", "place", "size")
    )


def _in_communicators(noted: pl.DataFrame, tables: TableSource) -> pl.DataFrame:
    """With `called`, `place` and `size` of each row's communicator, and `members`, of which the guide says too little."""
    keys = ["process", "handle"]
    rank_of = pl.DataFrame(list(ranks(tables).items()), schema=smalls("process") | ints("rank"), orient="row")
    described = tables.read(COMMUNICATORS, OF_COMMUNICATORS).drop_nulls("commHandle")
    made = _communicators(described, rank_of)
    placed = noted.with_row_index("at").sort("start_ns")
    placed = placed.join_asof(made, left_on="start_ns", right_on="begun", by=keys, check_sortedness=False)
    # Of what is not described, the world is what the others were made of, or all that there is.
    worlds = noted.select(keys).drop_nulls("handle").unique().join(made, on=keys, how="anti")
    if described.height:
        worlds = worlds.join(made, left_on=keys, right_on=["process", "parent"], how="semi")
    worlds = worlds.filter(pl.len().over("process") == 1).with_columns(world=True)
    called = pl.coalesce("called", pl.when("world").then(pl.lit(WORLD)))
    return (
        placed.sort("at")
        .join(worlds, on=keys, how="left", maintain_order="left")
        .join(rank_of, on="process", how="left", maintain_order="left")
        .with_columns(
            called=called,
            communicator=called,
            place=pl.coalesce("place", pl.when("world").then("rank")),
            members=pl.lit(None, pl.String),
        )
    )


def _numbered(noted: pl.DataFrame) -> pl.DataFrame:
    """In their order, with the columns that rows of messages have."""
    noted = noted.sort("process", "start_ns", "thread", maintain_order=True)
    noted = noted.with_columns(call=pl.struct("process", *CALL).rle_id()).with_row_index("row")
    kind = pl.when("talks").then(kinds_of(noted["name"]))
    return noted.with_columns(posted="row", kind=kind, ended=False).select(
        "process", *CALL, "talks", "call", "row", "posted", "ended", "kind", "communicator", "called", "members",
        "place", "size", "bytes", "peer", "tag", "request",
    )  # fmt: skip


def _with_peers(noted: pl.DataFrame) -> pl.DataFrame:
    """With null for peers, tags and bytes that are not known. A receive's `size` is what there is room for."""
    kind, peer, size = pl.col("kind"), pl.col("peer"), pl.col("bytes")
    # MPI_PROC_NULL and MPI_ANY_SOURCE are negative, in each MPI another way; only the first is ever sent to.
    nobody = noted.filter((kind == "send") & (peer < 0)).select("process", "peer", nobody=True).unique()
    noted = noted.join(nobody, on=["process", "peer"], how="left", maintain_order="left")
    sized = pl.when(kind.is_in(SIZED) & (size >= 0)).then(size).when(kind == "barrier").then(0)
    return noted.with_columns(
        bytes=sized,
        peer=pl.when((peer >= 0) | pl.col("nobody")).then(peer),
        tag=pl.when(pl.col("tag") >= 0).then("tag"),
    ).drop("nobody")
