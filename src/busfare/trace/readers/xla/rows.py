"""Events of XLA's profiler as rows, whichever of its files holds them, and the trace of these.

Details are texts that its tracers of CUPTI and ROCm write [OpenXLA: xla/backends/profiler/gpu/cupti_collector.cc,
rocm_collector.cc]: `kind_src:pinned kind_dst:device size:4096 dest:0 async:1`,
`regs:32 static_shared:0 dynamic_shared:16 grid:8,1,1 block:128,1,1`, `kind:device num_bytes:64 async:1`.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from busfare.errors import InputError
from busfare.trace import tables as schema
from busfare.trace import words
from busfare.trace.launches import MOST_REGISTERS
from busfare.trace.model import Trace, name_process, number_graph_nodes
from busfare.trace.omissions import Omissions
from busfare.trace.readers import cupti
from busfare.trace.readers.tables import INT, ints, meant, texts
from busfare.trace.tables import Schema, conform

TEXTS = texts("kernel_details memcpy_details memset_details")
#: Of each event on a stream of a GPU. Of `context_id` the number stands behind two dollars.
ON_GPU = ints("device stream start_ns end_ns correlation graph_node graph") | texts("name context_id") | TEXTS
#: Of each event of the host that has a correlation.
ON_HOST: Schema = ints("process thread start_ns end_ns correlation") | texts("name") | TEXTS

MEMORY_OF = {name: name for name in ("pageable", "pinned", "device", "array", "managed")} | {
    "device_static": "static",
    "managed_static": "managed",
}
OF_HOST, OF_DEVICE = ["pageable", "pinned"], ["device", "array", "static"]
#: Names of calls, rather than of what they launch.
API_NAME = r"^(cu|cuda|hip)[A-Z]"
WITHOUT_GRAPHS = "record with XLA_FLAGS=--xla_gpu_enable_command_buffer= (disables graphs)"
#: What is said behind the name of a call that launches a graph.
OF_GRAPH = r" \(CudaGraph:\d+\)$"
#: Planes, or processes of the timeline: where a file is of several hosts, behind the name of one.
GPU = re.compile(r"(?:\S+ )?/device:GPU:(\d{1,6})(?: \(pid \d+\))?")
TPU = re.compile(r"(?:\S+ )?/device:TPU:\d+(?: \(pid \d+\))?")
HOST = re.compile(r"(?:\S+ )?/host:(?!metadata).*")
#: How a line of a GPU is called that is one of its streams. The others (XLA Modules, XLA Ops, Steps, Framework Ops,
#: Source code …) are derived from those: nothing on them is work of its own.
STREAM = re.compile(r"(?:Stream )?#(\d+)")
#: Stats of events, and the columns of `ON_GPU` and `ON_HOST` that they are.
STATS = {
    "correlation_id": "correlation", "context_id": "context_id", "kernel_details": "kernel_details",
    "memcpy_details": "memcpy_details", "memset_details": "memset_details", "cuda_graph_node_id": "graph_node",
    "cuda_graph_exec_id": "graph",
}  # fmt: skip
#: The columns of those that are whole numbers.
NUMBERS = {name for name, kind in ON_GPU.items() if kind == pl.Int64()}
#: Frames of Python's functions, which are called so.
PYTHON_FRAME = "$"
NVTX = r"^NVTX:"

Row = dict[str, Any]


class Rows:
    """The rows of a profile. A row has columns of `ON_GPU` or `ON_HOST`, those that are known."""

    def __init__(self) -> None:
        self.tpus = 0
        self.gpus: list[Row] = []  # rows of `DEVICES`
        self.amd = False
        self.on_gpu: list[Row] = []
        self.on_host: list[Row] = []
        self.ranges: list[Row] = []

    def add_on_gpu(self, row: Row) -> None:
        """Takes an event of a stream, unless it is an allocation or overhead of the profiler."""
        if not DETAILS.isdisjoint(row):
            self.on_gpu.append(row)

    def add_on_host(self, row: Row) -> None:
        """Takes an event of a thread: a call, or a range."""
        if "correlation" in row:
            self.on_host.append(row)
        elif row["end_ns"] > row["start_ns"]:
            self.ranges.append(row)

    def trace(self, path: Path, producer: str, omissions: Omissions) -> Trace:
        """The trace of these rows. Raises InputError if they are of a TPU."""
        if self.tpus and not self.gpus:
            why = f"a profile of {self.tpus} TPU cores and no GPU; busfare reads GPU traces"
            raise InputError(f"{path}: {why}")
        gpu_rows, host_rows = _frame(self.on_gpu, ON_GPU), _frame(self.on_host, ON_HOST)
        operations = _operations(gpu_rows, omissions)
        kernels = gpu_rows.filter(pl.col("kernel_details").is_not_null())["name"].unique()
        amd = self.amd or bool(host_rows["name"].str.starts_with("hip").any())
        calls = _calls(host_rows, kernels, amd, omissions)
        ranges = _frame(self.ranges, ON_HOST).with_columns(pl.col("name").str.replace(NVTX, ""))
        trace = Trace(
            path=path,
            format="xla",
            producer=producer,
            operations=operations,
            calls=calls,
            markers=conform(ranges, schema.MARKERS),
            devices=conform(pl.DataFrame(self.gpus, strict=False), schema.DEVICES),
        )
        name_process(trace)
        number_graph_nodes(trace, omissions)
        trace.omissions = omissions.list()
        return trace


#: Of which a row has one that is work, or may be.
DETAILS = {*STATS.values()} - {"context_id"}


def _frame(rows: list[Row], kinds: Schema) -> pl.DataFrame:
    """`rows` as columns; null is a number that has no room in 64 bits, or is none."""
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    return pl.DataFrame(columns, schema=dict(kinds), strict=False)


def _number(column: str, key: str) -> pl.Expr:
    return pl.col(column).str.extract(rf"\b{key}:(\d+)").cast(INT, strict=False)


def _memory(key: str) -> pl.Expr:
    kind = pl.col("memcpy_details").str.extract(rf"\b{key}:(\w+)").str.to_lowercase()
    return meant(kind, MEMORY_OF, schema.MEMORY_KINDS)


def _end(column: str) -> pl.Expr:
    """The letter of an end of a copy, as in `DIRECTION_OF_ENDS`, by the kind of its memory."""
    on_gpu = pl.when(pl.col(column).is_in(OF_DEVICE)).then(pl.lit("d"))
    return on_gpu.when(pl.col(column).is_in(OF_HOST)).then(pl.lit("h"))


def _side(single: str, paired: str, host: str, device: str) -> pl.Expr:
    """The memory kind at one end: as recorded for this end (`paired`), or the only recorded kind (`single`) if it fits."""
    only, direction = pl.col(single), pl.col("direction")
    on_host = (direction == host) & only.is_in(OF_HOST)
    on_device = direction.is_in([device, "d2d"]) & only.is_in(OF_DEVICE)
    return pl.coalesce(paired, pl.when(on_host | on_device).then(only))


def _operations(rows: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Rows of `operations`, with the shapes of launches, of rows of `ON_GPU`."""
    copy, kernel = pl.col("memcpy_details").is_not_null(), pl.col("kernel_details").is_not_null()
    kind = pl.when(copy).then(pl.lit("copy")).when(kernel).then(pl.lit("kernel"))
    kind = kind.when(pl.col("memset_details").is_not_null()).then(pl.lit("set"))
    kind = kind.when(pl.col("graph").is_not_null()).then(pl.lit("graph"))
    frame = rows.with_columns(kind=kind)
    omissions.count("unknown-operations/xla", frame["kind"].null_count())
    frame = _copies(frame.drop_nulls("kind"), omissions)
    whole = pl.col("kind") == "graph"
    cupti.graphs(frame.filter(whole), omissions, WITHOUT_GRAPHS)
    name = pl.when(pl.col("kind") == "set").then(pl.lit("memset")).otherwise("name")
    frame = _with_shapes(frame).with_columns(
        name=pl.when(pl.col("kind") != "copy").then(name),
        context=pl.col("context_id").str.extract(r"^\$*(\d+)$").cast(INT, strict=False),
        graph_node=pl.when(pl.col("graph_node") > 0).then("graph_node"),
        correlation=pl.when(pl.col("correlation") > 0).then("correlation"),
    )
    return conform(frame, schema.OPERATIONS, schema.LAUNCH_SHAPE)


def _copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    copy = pl.col("kind") == "copy"
    frame = frame.with_columns(
        source=_memory("kind_src"), destination=_memory("kind_dst"), only=_memory("kind")
    )
    ends = pl.concat_str(_end("source"), _end("destination"))
    by_memory = meant(ends, cupti.DIRECTION_OF_ENDS, schema.DIRECTIONS)
    by_name = cupti.direction_named(pl.col("name"))
    frame = frame.with_columns(
        direction=pl.when(copy).then(pl.coalesce(by_name, by_memory)),
        bytes=pl.coalesce(_number("memcpy_details", "size"), _number("memset_details", "num_bytes")),
    ).with_columns(
        source_memory=_side("only", "source", "h2d", "d2h"),
        destination_memory=_side("only", "destination", "d2h", "h2d"),
        peer_device=pl.when(pl.col("direction") == "p2p").then(_number("memcpy_details", "dest")),
        copy_count=pl.when(copy).then(1),
    )
    copies = frame.filter(copy)
    omissions.count("unknown-direction", copies["direction"].null_count())
    unknown = (pl.col("direction") == "h2d") & pl.col("source_memory").is_null()
    unknown |= (pl.col("direction") == "d2h") & pl.col("destination_memory").is_null()
    omissions.count("unknown-memory", copies.filter(unknown).height)
    return frame


def _with_shapes(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds columns of `LAUNCH_SHAPE`."""
    details = pl.col("kernel_details").str
    sides = {
        f"{what}_{side}": details.extract(rf"\b{what}:(\d+),(\d+),(\d+)", number).cast(INT, strict=False)
        for what in ("grid", "block")
        for number, side in enumerate("xyz", 1)
    }
    parts = {key: _number("kernel_details", key) for key in ("static_shared", "dynamic_shared")}
    frame = frame.with_columns(**sides, **parts, registers=_number("kernel_details", "regs"))
    # Where the number of registers is none, the tracer (ROCm's, of 2024) looked none of the three up.
    looked_up = pl.when(pl.col("registers") <= MOST_REGISTERS)
    shared = pl.coalesce(cupti.shared_bytes(*parts), _number("kernel_details", "shm"))
    return frame.with_columns(
        registers=looked_up.then("registers"),
        shared_bytes=pl.coalesce(_number("kernel_details", "group_mem"), looked_up.then(shared)),
    )


def _calls(rows: pl.DataFrame, kernels: pl.Series, amd: bool, omissions: Omissions) -> pl.DataFrame:
    """Rows of `calls`, of rows of `ON_HOST`. `kernels`: names of the kernels; `amd`: the GPUs are AMD's. Older tracers name
    a call as the work that it launches: it is then called as the driver's function for that.
    """
    plain = words.plain_name(pl.col("name").str.replace(OF_GRAPH, ""))
    named = pl.col("name").str.extract_groups(cupti.ENDS).struct
    ends = pl.concat_str(named.field("1"), pl.lit("to"), named.field("2"))
    waits = pl.when(_number("memcpy_details", "async") == 0).then(pl.lit("")).otherwise(pl.lit("Async"))
    copies = pl.concat_str(pl.lit("Memcpy"), ends.fill_null(""), waits)
    launches = pl.col("kernel_details").is_not_null() | pl.col("name").is_in(kernels.implode())
    copied = pl.col("memcpy_details").is_not_null()
    does = pl.when(copied).then(copies).when(launches).then(pl.lit("LaunchKernel"))
    called = pl.concat_str(pl.lit("hip" if amd else "cu"), does)
    frame = rows.with_columns(plain=plain, is_call=plain.str.contains(API_NAME))
    omissions.count("calls-named-by-work", frame.filter(~pl.col("is_call")).height)
    frame = frame.with_columns(name=pl.when("is_call").then("plain").otherwise(pl.coalesce(called, "plain")))
    frame = frame.with_columns(
        waits_for=words.waits_for(pl.col("name")),
        correlation=pl.when(pl.col("correlation") > 0).then("correlation"),
    )
    return conform(frame, schema.CALLS)
