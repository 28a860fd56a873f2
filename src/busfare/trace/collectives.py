"""What a trace tells of communication between ranks: kind, communicator, bytes and peers of each kernel and MPI call.

In order of preference: arguments of the kernel (Kineto's NCCL fields), the range around the call that launched it
(`nccl:all_reduce` of PyTorch, NCCL's own NVTX ranges), the kernel's name. Readers that see communicators, peers and requests
of MPI's calls give a table of these, `noted` below: a row a message, collective or request of a call, in the order of the
program, numbered by `row`; columns process, CALL, `call` (numbers the calls), `posted` (= row), `ended` (false), `kind`,
`communicator`, OF_COMMUNICATOR, `bytes`, `peer`, `tag`, `request`.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from busfare.trace import tables as schema
from busfare.trace.columns import decoded_json, first_pairs
from busfare.trace.lanes import Lanes, is_communication
from busfare.trace.sites import around_calls
from busfare.trace.tables import conform, empty

#: A collective by its name in small letters alone, whoever calls it so: allreduce of PyTorch, AllReduce of NCCL.
KINDS = {
    "all_reduce": r"^i?allreduce", "all_gather": r"^i?allgather", "reduce_scatter": r"^i?reducescatter",
    "all_to_all": r"^i?alltoall", "broadcast": r"^(i?bcast|broadcast)", "reduce": r"^i?reduce(v|oop)?$",
    "send_receive": r"^sendrecv", "send": r"^(i|s|b|r|is)?send$", "receive": r"^(i|m)?recv$",
    "gather": r"^i?gather", "scatter": r"^i?scatter", "barrier": r"^i?barrier",
}  # fmt: skip
#: Ranges around the calls that launch: `nccl:all_reduce, op_id = 12, sizes = [[4096]]` of PyTorch, ncclAllReduce of NCCL.
RANGE = r"^(?:nccl:_?(\w+)|nccl([A-Z]\w+)$)"
#: MPI calls that give other ranks something, or wait for it. Of those that begin with I, and of waits for them, a range does
#: not say which message it is of.
MPI = (
    r"^P?MPI_((?i)i?(?:allreduce|allgatherv?|alltoall[vw]?|bcast|reduce(?:_scatter(?:_block)?)?|gatherv?|scatterv?|barrier"
    r"|[sbr]?send|recv)|sendrecv(?:_replace)?|wait(?:all|any|some)?)$"
)
OF_REQUESTS = r"^(I|Wait)"
#: ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t, ncclAllReduceRingLLKernel_sum_f32.
KERNEL = (
    r"nccl(?:Symk)?(?:Dev)?Kernel_([A-Z][A-Za-z]*)"
    r"|nccl([A-Z][a-z]+(?:[A-Z][a-z]+)??)(?:Ring|Tree|CollNet|NVLS)?(?:LL128|LL)?Kernel"
)
ALGORITHM = r"(?i)(ring|tree|nvls_?tree|nvls|collnet_?\w*?|pat)_?(?:simple|ll128|ll)"
PROTOCOL = r"(?i)(?:ring|tree|nvls|direct|chain|pat)_?(simple|ll128|ll)"
TYPE_BYTES = {
    "double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "c10::half": 2, "bfloat16": 2,
    "c10::bfloat16": 2, "short": 2, "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
#: Where PyTorch cuts the list of a group's ranks.
CUT = "..."
#: What alone differs from one collective to the next of a kind.
SEQUENCE = re.compile(rb'"Seq":\s*(\d{1,18})(?=[,}\s])')


class Arguments(msgspec.Struct):
    """Kineto's arguments of a communication kernel, or of the range around its call."""

    name: str | None = msgspec.field(default=None, name="Collective name")
    sent: int | None = msgspec.field(default=None, name="In msg nelems")
    received: int | None = msgspec.field(default=None, name="Out msg nelems")
    dtype: str | None = None
    size: int | None = msgspec.field(default=None, name="Group size")
    group: str | int | None = msgspec.field(default=None, name="Process Group Name")
    ranks: str | list[int] | None = msgspec.field(default=None, name="Process Group Ranks")
    sequence: int | None = msgspec.field(default=None, name="Seq")
    source: int | None = msgspec.field(default=None, name="Src Rank")
    destination: int | None = msgspec.field(default=None, name="Dst Rank")
    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")


def all_described(texts: Sequence[bytes], range_names: Sequence[str | None]) -> pl.DataFrame:
    """What Kineto's arguments `texts` tell of so many collectives, each with the name of its range: columns of DESCRIBED."""
    about: dict[tuple[bytes, str | None], int] = {}  # what is said, by its row among those that differ
    of = np.empty(len(texts), np.int64)
    sequences: list[int | None] = [None] * len(texts)
    for row, (text, name) in enumerate(zip(texts, range_names, strict=True)):
        if sequence := SEQUENCE.search(text):
            sequences[row] = int(sequence[1])
            text = text[: sequence.start(1)] + b"null" + text[sequence.end(1) :]
        of[row] = about.setdefault((text, name), len(about))
    differing = pl.from_dicts([described(*key) for key in about], schema=dict(schema.DESCRIBED), strict=False)
    numbers = pl.Series(sequences, dtype=schema.DESCRIBED["sequence"])
    return differing[of].with_columns(sequence=pl.coalesce(numbers, "sequence"))


def described(text: bytes, range_name: str | None = None) -> dict[str, Any]:
    """What Kineto's arguments `text` (JSON) tell of a collective: keys of DESCRIBED; empty where it is none of them."""
    fields = decoded_json(text, Arguments, strict=False)
    if fields is None:
        return {}
    kind = kind_of(fields.name or (range_name or "").removeprefix("nccl:"))
    element_bytes = TYPE_BYTES.get((fields.dtype or "").lower())
    sent, received = fields.sent, fields.received
    # Before 2024 the range gives shapes and types of its tensors.
    if fields.name is None and isinstance(fields.dims, list):
        first_type = next(iter(fields.types), "") if isinstance(fields.types, list) else ""
        element_bytes, sent = TYPE_BYTES.get(str(first_type).lower()), _elements(fields.dims)
    count = {"all_gather": received, "receive": received}.get(kind or "", sent)
    if kind == "all_gather" and count is None and sent is not None and fields.size:
        count = sent * fields.size
    peer = {"send": fields.destination, "receive": fields.source}.get(kind or "")
    return {
        "collective_kind": kind,
        "communicator": None if fields.group is None else str(fields.group),
        "members": _members(fields.ranks),
        "group_size": fields.size,
        "bytes": count * element_bytes if count is not None and element_bytes and count >= 0 else None,
        "sequence": fields.sequence,
        "peer": peer if peer is not None and peer >= 0 else None,
    }


def kind_of(name: str) -> str | None:
    """The kind of a collective that somebody calls `name`; None for several at once, and for others."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, letters)), None)


def _elements(dims: list[Any]) -> int | None:
    """The elements of all tensors of these dimensions."""
    sizes = [side for side in dims if isinstance(side, list)]
    if not sizes or not all(isinstance(n, int) and n >= 0 for side in sizes for n in side):
        return None
    return sum(int(np.prod(side, dtype=object)) for side in sizes if side) or None


def _members(ranks: str | list[int] | None) -> str | None:
    """'0,1,2' of '[0, 1, 2]'; None where the list is cut."""
    text = str(ranks) if ranks is not None else CUT
    numbers = re.findall(r"\d+", text)
    return None if CUT in text or not numbers else ",".join(numbers)


def collectives_of(
    operations: pl.DataFrame,
    lanes: Lanes,
    calls: pl.DataFrame,
    markers: pl.DataFrame,
    given: pl.DataFrame,
    ranges: pl.DataFrame,
) -> pl.DataFrame:
    """Columns of COLLECTIVES, in order of start; `given`: DESCRIBED, by the reader; `ranges`: as of `mpi_calls`."""
    rows = lanes.rows(is_communication())
    kernels = empty(schema.COLLECTIVES)
    if len(rows):
        kernels = operations[rows].with_columns(operation=rows)
        tables = (
            _given(kernels, given),
            _ranges_around(kernels, calls, markers, given),
            _named(kernels["name"]),
        )
        columns = [pl.coalesce(*(table[name] for table in tables)).alias(name) for name in schema.DESCRIBED]
        kernels = conform(kernels.drop("bytes").with_columns(columns), schema.COLLECTIVES)
    return pl.concat([kernels, ranges]).sort("start_ns", maintain_order=True) if ranges.height else kernels


def _given(rows: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """What the reader gave for each of `rows`, which has a column `collective`; nulls otherwise."""
    if "collective" not in rows.columns:
        return empty(schema.DESCRIBED).clear(rows.height)
    return conform(given, schema.DESCRIBED)[rows["collective"]]


def _ranges_around(
    kernels: pl.DataFrame, calls: pl.DataFrame, markers: pl.DataFrame, given: pl.DataFrame
) -> pl.DataFrame:
    """What the innermost range around the call that launched each kernel tells."""
    nothing = empty(schema.DESCRIBED).clear(kernels.height)
    names = markers["name"].unique().drop_nulls().cast(pl.String)
    names = names.filter(names.str.contains(RANGE))
    if names.is_empty() or calls.is_empty():
        return nothing
    called = zip(names, names.str.extract(RANGE, 1), names.str.extract(RANGE, 2), strict=True)
    kinds = {text: kind_of(of_torch or of_nccl) for text, of_torch, of_nccl in called}
    ranges = markers.drop_nulls("end_ns").with_columns(text=pl.col("name").cast(pl.String))
    ranges = ranges.filter(pl.col("text").is_in(list(kinds)))
    # A range of a group says what it does by its arguments alone.
    tells = pl.col("text").is_in([text for text, kind in kinds.items() if kind])
    if "collective" in ranges.columns:
        noted = pl.col("collective").is_not_null()
        # Inside a range that says what it carries, NCCL's own of the same name says nothing more.
        ranges = ranges.filter(noted | (tells & ~noted.any().over("process")))
    else:
        ranges = ranges.filter(tells)
    if ranges.is_empty():
        return nothing
    place = around_calls(ranges, calls, first_pairs(calls, kernels))
    named = pl.Series([kinds[text] for text in ranges["text"]], dtype=schema.DESCRIBED["collective_kind"])
    described = _given(ranges, given).with_columns(pl.coalesce("collective_kind", named))[place]
    # Of several kernels that a group launches on a GPU, the bytes of each are not known.
    of_group = ranges["text"].is_in(["ncclGroupEnd"])[place].fill_null(False)
    where = pl.struct(pl.Series(place), kernels["process"], kernels["device"])
    several = pl.Series(of_group) & (pl.len().over(where) > 1)
    return described.with_columns(bytes=pl.when(several).then(None).otherwise("bytes"))


def _named(names: pl.Series) -> pl.DataFrame:
    """What kernels' names tell: kind, algorithm, protocol."""
    distinct = names.unique().cast(pl.String)
    words = zip(distinct.str.extract(KERNEL, 1), distinct.str.extract(KERNEL, 2), strict=True)
    groups = pl.DataFrame(
        {
            "name": distinct,
            "algorithm": distinct.str.extract(ALGORITHM).str.to_lowercase(),
            "protocol": distinct.str.extract(PROTOCOL).str.to_lowercase(),
            "collective_kind": pl.Series([kind_of(new or old or "") for new, old in words], dtype=KIND),
        }
    )
    of_names = names.cast(pl.String).to_frame("name")
    return conform(of_names.join(groups, on="name", how="left", maintain_order="left"), schema.DESCRIBED)


def mpi_calls(markers: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """MPI calls that give other ranks something or wait for it: columns of COLLECTIVES. A range of such a name is one only
    in processes whose calls nobody recorded; those inside another are part of it.
    """
    markers = markers.with_row_index("marker")
    names = markers["name"].unique().drop_nulls()
    of_mpi = pl.col("name").is_in(names.filter(names.cast(pl.String).str.starts_with("MPI_")).implode())
    theirs = pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(MPI)).implode())
    if "messages" in markers.columns:
        recorded = pl.col("messages").is_not_null() & of_mpi
        by_name = pl.col("messages").is_null() & theirs & ~recorded.any().over("process")
        theirs = (recorded & (pl.col("messages") > 0)) | by_name
    markers = markers.filter(theirs & pl.col("end_ns").is_not_null())
    if markers.is_empty():
        return empty(schema.COLLECTIVES)
    ended = pl.col("end_ns").cum_max().shift(1).over("process", "thread")
    markers = markers.sort("start_ns", -pl.col("end_ns"))
    markers = markers.filter((pl.col("start_ns") >= ended).fill_null(True))
    if "collective" in markers.columns:
        several = pl.int_ranges("collective", pl.col("collective") + pl.col("messages"), dtype=pl.UInt32)
        markers = markers.with_columns(collective=several).explode("collective")
    called = markers["name"].cast(pl.String).str.extract(MPI, 1)
    kinds = [None if not text or re.match(OF_REQUESTS, text) else kind_of(text) for text in called]
    named = pl.Series(kinds, dtype=schema.DESCRIBED["collective_kind"])
    described = _given(markers, given).with_columns(pl.coalesce("collective_kind", named))
    return conform(markers.with_columns(described), schema.COLLECTIVES)


#: Calls that end requests, that start prepared ones, and that post one.
ENDS, STARTS, PREPARES, POSTS = r"^MPI_(Wait|Test)", r"^MPI_Start(all)?$", r"_init$", r"^MPI_I[a-z]"
#: What moves bytes of a window, and what waits for it, but for the fence, which waits for all its ranks.
ONE_SIDED, FENCE = r"^MPI_((Put|Get|Accumulate|Rput|Rget|Raccumulate)$|Win_)", "MPI_Win_fence"
MESSAGES = ("send", "receive")
KIND = pl.Enum(schema.COLLECTIVE_KINDS)
CALL = ["thread", "start_ns", "end_ns", "name"]
OF_COMMUNICATOR = ["called", "members", "place", "size"]


def kinds_of(names: pl.Series) -> pl.Expr:
    """The kind of each row by its `name`, one of `names`; `row` and `call` number the rows."""
    distinct = names.drop_nulls().unique()
    kinds = {name: kind_of(re.sub(r"^MPI_|^nccl|Config$|_init$", "", name)) for name in distinct}
    kind = pl.col("name").replace_strict(kinds | {FENCE: "barrier"}, default=None, return_dtype=KIND)
    # MPI_Sendrecv notes what it sends first.
    sent = pl.col("row") == pl.col("row").min().over("call")
    end = pl.when(sent).then(pl.lit("send")).otherwise(pl.lit("receive")).cast(KIND)
    return pl.when(pl.col("name").str.starts_with("MPI_Sendrecv")).then(end).otherwise(kind)


def in_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """With `sequence`: collectives count by communicator; messages by peer and tag, too, each way."""
    message = pl.col("kind").is_in(MESSAGES).fill_null(False)
    direction = [pl.col("ended")]
    direction += [pl.when(message).then(name).alias(f"of_{name}") for name in ("kind", "peer", "tag")]
    return rows.sort("posted", maintain_order=True).with_columns(
        pl.when(message).then(pl.col("peer", "tag")),
        sequence=pl.int_range(pl.len()).over("communicator", *direction),
    )


def of_mpi(noted: pl.DataFrame) -> pl.DataFrame:
    """Messages and collectives of MPI in a process, where the program waits for them: a posted receive, where it ends."""
    name, kind = pl.col("name"), pl.col("kind")
    rows = noted.filter(name.str.starts_with("MPI_") & (~name.str.contains(ONE_SIDED) | (name == FENCE)))
    plain = rows.filter(~name.str.contains(f"{ENDS}|{STARTS}|{PREPARES}"))
    posts = name.str.contains(POSTS)
    started = _of_requests(rows.filter(name.str.contains(STARTS)), rows.filter(name.str.contains(PREPARES)))
    started = started.with_columns(peer="own_peer", tag="own_tag", bytes="own_bytes", posted="row")
    posted = pl.concat([plain.filter(posts), started.select(rows.columns)]).sort("row")
    # Of several calls that name a request, the last ends it.
    ended = _of_requests(rows.filter(name.str.contains(ENDS)), posted).unique("posted", keep="last")
    ended = ended.with_columns(ended=kind == "send")
    # When others came to a collective that goes on in between is not known: it matches nothing, and is counted.
    received = kind == "receive"
    posted_values = [
        pl.when(received).then(pl.coalesce(name, f"own_{name}")).otherwise(f"own_{name}").alias(name)
        for name in ("bytes", "peer", "tag")
    ]
    ended = ended.with_columns(*posted_values, kind=pl.when(kind.is_in(MESSAGES)).then("kind"))
    every = pl.concat([plain.filter(~posts), posted.filter(kind == "send"), ended.select(rows.columns)])
    alone = pl.when(kind.is_in(MESSAGES)).then((pl.col("peer") < 0) | (pl.col("peer") == pl.col("place")))
    every = every.filter(~alone.otherwise(pl.col("size") == 1).fill_null(False))
    return in_sequence(every.with_columns(kind=pl.when(pl.col("called").is_not_null()).then("kind")))


def _of_requests(rows: pl.DataFrame, posts: pl.DataFrame) -> pl.DataFrame:
    """Those of `rows` whose request one of `posts` made, the last before; with what that says."""
    posted_columns = {f"own_{name}": name for name in ("bytes", "peer", "tag")}
    columns = ["kind", "communicator", "posted", *OF_COMMUNICATOR]
    posts = posts.select("row", "request", *columns, **posted_columns).sort("row")
    rows = rows.drop(columns).sort("row")
    return rows.join_asof(posts, on="row", by="request", check_sortedness=False).drop_nulls("posted")


def as_ranges(noted: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls of `noted` as rows of `MARKERS`, and of `DESCRIBED` those that they number: `rows` (with `sequence`)."""
    rows = rows.sort("call", "row", maintain_order=True)
    numbered = rows.with_row_index("collective").group_by("call")
    of_calls = numbered.agg(pl.col("collective").min(), messages=pl.len())
    calls = noted.group_by("call", maintain_order=True).agg(pl.col("process", *CALL).first())
    calls = calls.join(of_calls, on="call", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("messages").fill_null(0))
    rows = rows.with_columns(communicator="called", group_size="size", collective_kind="kind")
    numbers = {**schema.OPERATIONS_OF_COLLECTIVES, **schema.RANGES_OF_COLLECTIVES}
    return conform(calls, schema.MARKERS, numbers), conform(rows, schema.DESCRIBED)
