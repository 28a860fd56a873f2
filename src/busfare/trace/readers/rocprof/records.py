"""What AMD's profilers record, alike in all their files: operations with directions and GPUs, calls, devices."""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from busfare.trace import tables as schema
from busfare.trace import words
from busfare.trace.columns import first_pairs
from busfare.trace.launches import grids_in_blocks
from busfare.trace.model import Trace, number_graph_nodes
from busfare.trace.omissions import Omissions
from busfare.trace.readers.cupti import direction_named
from busfare.trace.readers.tables import ints, meant, texts
from busfare.trace.sites import innermost
from busfare.trace.tables import Schema, conform, empty

#: The types of the agents that a copy is between.
DIRECTION_OF_AGENTS = {"CPU>GPU": "h2d", "GPU>CPU": "d2h", "GPU>GPU": "d2d", "CPU>CPU": "h2h"}
UNNAMED_KERNEL = "(unnamed kernel)"
#: What compilers append to the names of kernels.
DESCRIPTOR = r"( \[clone \.kd\]|\.kd)$"
#: Categories of calls, by what is in their names in all versions; ROCm Systems Profiler records others, of the program.
CALLED = "HIP|HSA|RCCL|ROCDECODE|ROCJPEG|ROCSHMEM"
#: What the kernel's driver did: pages that faulted or moved, queues.
OF_DRIVER = "^KFD_"
#: Calls of HSA's lie so deep within one another at most.
MOST_NESTED = 3

TIMED = ints("start_ns end_ns process correlation")
#: A dispatch, or what is of another `kind`. Its grid is in work-items; vector registers, ordinary and accumulating ones,
#: share a file since CDNA 2.
KERNELS: Schema = (
    TIMED
    | ints("device stream vgprs accumulating shared_bytes")
    | ints(" ".join(f"{what}_{side}" for what in ("grid", "block") for side in "xyz"))
    | texts("name kind")
)
#: A copy between two agents, `source` and `destination`: the GPU's number, null of a CPU; its type, CPU or GPU.
COPIES: Schema = (
    TIMED
    | ints("stream size source destination source_address destination_address")
    | texts("name source_type destination_type")
)
#: A call, or what a program marked by ROCTx: their category tells. `ancestor` is the correlation of the call around it.
REGIONS: Schema = TIMED | ints("thread ancestor") | texts("name category")
#: Memory that was taken or, of size null, given back.
ALLOCATIONS: Schema = TIMED | ints("thread address size") | texts("agent_type")
#: Whether copied host memory was pinned, by the addresses of copies and of what the program allocated: its calls decide.
#: Memory of `hipHostMalloc` is pinned, that of `hipMallocManaged` managed. Any other is pageable only where nothing can have
#: been missed: the device side of every copy lies in memory whose allocation was recorded, and no call registered memory.
PINNING = r"^hip(Host(Malloc|Alloc)|MallocHost|(Ext)?MemAllocHost|MemHostAlloc)"
MANAGING = r"^hipMallocManaged"
REGISTERING = r"^hip(Host|MemHost)Register"
#: Copies and sets that take no stream run in the null stream; streams that are made with flags may not wait for it.
IN_NULL_STREAM = r"^hip(Memcpy|Memset)(2D|3D|D\d+|(To|From)Symbol|[HD]to[HD])?$"
STREAM_WITH_FLAGS = r"^hip(StreamCreateWith|ExtStreamCreate)"
#: What holds a piece of memory: a kind of MEMORY_KINDS, or memory that no call of the program's allocated itself.
UNCLAIMED = "other"

Piece = tuple[int, str]  # its end, and what holds it


@dataclass(slots=True)
class Records:
    """The records of a run by rocprofv3; columns of the schemas above."""

    kernels: pl.DataFrame = field(default_factory=lambda: empty(KERNELS))
    copies: pl.DataFrame = field(default_factory=lambda: empty(COPIES))
    regions: pl.DataFrame = field(default_factory=lambda: empty(REGIONS))
    allocations: pl.DataFrame = field(default_factory=lambda: empty(ALLOCATIONS))
    devices: pl.DataFrame = field(default_factory=lambda: empty(schema.DEVICES))

    def trace(self, path: Path, format: str, producer: str, omissions: Omissions, launches: bool) -> Trace:
        """The trace of them, its operations with columns of `LAUNCH_SHAPE` if `launches`."""
        category = pl.col("category").str.to_uppercase()
        of_driver = category.str.contains(OF_DRIVER).fill_null(False)
        called = category.str.contains(CALLED).fill_null(True) & ~marked(category) & ~of_driver
        regions = self.regions.filter(called)
        directed = self._directed()
        copied = copies(directed, omissions, self._host(directed, regions, omissions))
        shape = schema.LAUNCH_SHAPE if launches else {}
        kernels = grids_in_blocks(conform(self.kernels, KERNELS), pl.lit(True)).with_columns(
            kind=pl.col("kind").fill_null("kernel"),
            name=pl.col("name").str.replace(DESCRIPTOR, "").fill_null(UNNAMED_KERNEL),
            registers=pl.col("vgprs") + pl.col("accumulating").fill_null(0),
        )
        parts = map(self._called, (kernels, copied))
        operations = pl.concat([conform(part, schema.OPERATIONS, shape) for part in parts], how="diagonal")
        marks, lasting = self.regions.filter(~called & ~of_driver), pl.col("end_ns") != pl.col("start_ns")
        timed = (pl.col("start_ns") != 0) | (pl.col("end_ns") != 0)  # the tracer had no times for others
        trace = Trace(
            path=path,
            format=format,
            producer=producer,
            operations=operations.with_columns(pl.when(timed).then(pl.col("start_ns", "end_ns"))),
            calls=calls(regions),
            streams=_streams(operations, regions),
            markers=conform(marks.with_columns(end_ns=pl.when(lasting).then("end_ns")), schema.MARKERS),
            devices=conform(self.devices, schema.DEVICES),
        )
        number_graph_nodes(trace, omissions)
        omissions.count("driver-events", self.regions.filter(of_driver).height)
        trace.omissions = omissions.list()
        return trace

    def _called(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Operations with the correlation of HIP's call where one of HSA's within that started them."""
        of_hsa = pl.col("category").str.to_uppercase().str.contains("HSA")
        inner = self.regions.filter(of_hsa.fill_null(False) & (pl.col("ancestor") > 0))
        key = ["process", "correlation"]
        inner = inner.select(*key, caller="ancestor").unique(key, keep="first")
        for _ in range(MOST_NESTED if inner.height else 0):
            frame = frame.join(inner, on=key, how="left", maintain_order="left")
            frame = frame.with_columns(correlation=pl.coalesce("caller", "correlation")).drop("caller")
        return frame

    def _directed(self) -> pl.DataFrame:
        """The copies, with directions and the GPU whose they are."""
        frame = conform(self.copies, COPIES)
        types = pl.concat_str("source_type", pl.lit(">"), "destination_type").str.to_uppercase()
        by_agents = meant(types, DIRECTION_OF_AGENTS, schema.DIRECTIONS)
        frame = frame.with_columns(
            kind=pl.lit("copy"),
            direction=pl.coalesce(direction_named(pl.col("name")), by_agents),
            name=pl.lit(None),
        )
        to_gpu = pl.col("direction") == "h2d"
        return frame.with_columns(device=pl.when(to_gpu).then("destination").otherwise("source"))

    def _host(self, copied: pl.DataFrame, calls: pl.DataFrame, omissions: Omissions) -> pl.Expr:
        """The kind of each copy's memory on the host, as far as allocations tell it."""
        kinds = _host_memory(copied, conform(self.allocations, ALLOCATIONS), conform(calls, REGIONS))
        of_host = copied["direction"].is_in(["h2d", "d2h"]).fill_null(False)
        unknown = int((of_host & kinds.is_null()).sum())
        if copied.height and unknown == int(of_host.sum()):
            omissions.add("unknown-memory/all")
        else:
            omissions.count("unknown-memory/allocations", unknown)
        return pl.lit(kinds)


def copies(frame: pl.DataFrame, omissions: Omissions, host: pl.Expr) -> pl.DataFrame:
    """Copies with `p2p` and kinds of memory, `host` on the host; of kind, direction, size, source, destination (GPUs)."""
    direction, ends = pl.col("direction"), (pl.col("source"), pl.col("destination"))
    between = (direction == "d2d") & (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1])
    omissions.count("unknown-direction", frame.filter(direction.is_null(), kind="copy").height)
    host, device = (kind.cast(pl.Enum(schema.MEMORY_KINDS)) for kind in (host, pl.lit("device")))
    ends_on = {"source_memory": ("d2h", "h2d"), "destination_memory": ("h2d", "d2h")}  # GPU, host
    return frame.with_columns(
        direction=pl.when(between).then(pl.lit("p2p")).otherwise(direction).cast(pl.Enum(schema.DIRECTIONS)),
        peer_device=pl.when(between).then("destination"),
        bytes="size",
        copy_count=pl.lit(1),
        **{
            end: pl.when(direction.is_in([on_gpu, "d2d"])).then(device).when(direction == on_host).then(host)
            for end, (on_gpu, on_host) in ends_on.items()
        },
    )


def calls(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of `calls`."""
    plain = words.plain_name(pl.col("name").fill_null("(unnamed call)"))
    return conform(frame.with_columns(name=plain, waits_for=words.waits_for(plain)), schema.CALLS)


def _streams(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Kinds of streams, where copies without a stream of their own show which one is the null stream: HIP's other streams
    wait for that, but for those that are made with flags.
    """
    rows = pl.Series(first_pairs(calls, operations)).replace(-1, None).cast(pl.UInt32)
    of_null = calls["name"].gather(rows).str.contains(IN_NULL_STREAM).fill_null(False)
    made = calls["name"].str.contains(STREAM_WITH_FLAGS).any()
    kind = pl.when("of_null").then(pl.lit("null")).otherwise(None if made else pl.lit("blocking"))
    place = ["process", "device", "context", "stream"]
    used = operations.with_columns(of_null=of_null).group_by(place, maintain_order=True)
    streams = used.agg(pl.col("of_null").any()).with_columns(kind=kind)
    return conform(streams if of_null.any() else streams.clear(), schema.STREAMS)


def marked(category: pl.Expr) -> pl.Expr:
    """Whether a program marked what is of this category, by ROCTx."""
    return category.str.to_uppercase().str.contains("MARKER|ROCTX").fill_null(False)


def of_agents(
    frame: pl.DataFrame, column: str, agents: pl.DataFrame, keys: Mapping[str, str]
) -> pl.DataFrame:
    """`frame` with the GPU's number, null of a CPU, as `column`, and the type of agent as `column`_type. `agents`: type,
    device, and what `keys` names: columns of `frame` by those of `agents`.
    """
    ordinal = pl.when(pl.col("type") == "GPU").then("device").cast(pl.Int64).alias(column)
    numbers = agents.select(*keys, ordinal, pl.col("type").alias(f"{column}_type"))
    numbers = numbers.unique([*keys], keep="first", maintain_order=True)
    return frame.join(numbers, left_on=[*keys.values()], right_on=[*keys], how="left", maintain_order="left")


def _host_memory(copies: pl.DataFrame, allocations: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """The kind of the host's memory of each copy, null where it is not known; columns of the schemas above."""
    none = pl.Series([None] * copies.height, dtype=pl.Enum(schema.MEMORY_KINDS))
    named = calls["name"].fill_null("")
    if allocations.is_empty() or not named.str.starts_with("hip").any():
        return none
    ends = ("source_address", "destination_address")
    host, device = (
        pl.when(pl.col("direction") == "h2d").then(of_h2d).when(pl.col("direction") == "d2h").then(of_d2h)
        for of_h2d, of_d2h in (ends, reversed(ends))
    )
    # When each copy was asked for: the clocks of GPU and host may differ.
    rows = pl.Series(first_pairs(calls, copies)).replace(-1, None).cast(pl.UInt32)
    called_ns = calls["start_ns"].gather(rows).fill_null(copies["start_ns"])
    addressed = copies.select("process", start_ns=called_ns, order=pl.lit(1), host=host, device=device)
    addressed = addressed.with_row_index("row").filter((pl.col("host") > 0) & (pl.col("device") > 0))
    if addressed.is_empty():
        return none
    held = _held(allocations, calls.filter(named.str.starts_with("hip")))
    holder: dict[int, str | None] = {}
    complete = not named.str.contains(REGISTERING).any()
    events = pl.concat([held, addressed], how="diagonal").sort("start_ns", "order", maintain_order=True)
    live: dict[int | None, _Memory] = {}
    for event in events.iter_rows(named=True):
        memory = live.setdefault(event["process"], _Memory())
        if event["row"] is None:
            memory.change(event["address"], event["size"], event["holds"])
            continue
        complete &= memory.holds(event["device"]) == "device"
        holder[event["row"]] = memory.holds(event["host"])
    kinds = {"pinned": "pinned", "managed": "managed"} | ({UNCLAIMED: "pageable"} if complete else {})
    kind_of = [kinds.get(holder[row] or UNCLAIMED) if row in holder else None for row in range(copies.height)]
    return pl.Series(kind_of, dtype=pl.Enum(schema.MEMORY_KINDS))


def _held(allocations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Changes of what is allocated, in order: `holds` says by whom memory was taken; size null where it is given back."""
    name = pl.lit(calls["name"].gather(innermost(calls, allocations)))
    holds = (
        pl.when(name.str.contains(PINNING)).then(pl.lit("pinned"))
        .when(name.str.contains(MANAGING)).then(pl.lit("managed"))
        .when(pl.col("agent_type") == "GPU").then(pl.lit("device"))
        .otherwise(pl.lit(UNCLAIMED))
    )  # fmt: skip
    # Memory is there once its call returns, and gone when the call that frees it begins.
    taken = pl.col("size").is_not_null()
    return allocations.with_columns(holds=holds).select(
        "process", "address", "size", "holds",
        start_ns=pl.when(taken).then("end_ns").otherwise("start_ns"),
        order=pl.lit(0),
    ).drop_nulls(["address", "start_ns"])  # fmt: skip


class _Memory:
    """What a process has allocated: pieces that lie apart, by address."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._pieces: dict[int, Piece] = {}

    def change(self, address: int, size: int | None, holds: str) -> None:
        """Memory is taken, or of no size given back."""
        if size is None:
            if self._pieces.pop(address, None):
                del self._bases[bisect.bisect_left(self._bases, address)]
        elif size > 0:
            if address not in self._pieces:
                bisect.insort(self._bases, address)
            self._pieces[address] = (address + size, holds)

    def holds(self, address: int) -> str | None:
        """What holds the memory at `address`; None where nothing was allocated there."""
        at = bisect.bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        end, holds = self._pieces[self._bases[at]]
        return holds if address < end else None
