"""CUPTI's activity records as rows of a trace's tables: files of Nsight Systems, nvprof and our own recorder hold them.

Columns have the names that `record_columns` gives; kinds are CUPTI's numbers.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from busfare.trace.launches import ALLOCATIONS, OF_GPU
from busfare.trace.omissions import Omissions
from busfare.trace.readers.tables import ints, meant
from busfare.trace.tables import DIRECTIONS, KINDS, MARKERS, MEMORY_KINDS, STREAM_KINDS, STREAMS, conform

#: CUpti_ActivityMemcpyKind; Nsight Systems numbers the same, and goes on from 11.
DIRECTION_OF = {
    1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 5: "d2d", 6: "d2d", 7: "d2d", 8: "d2d", 9: "h2h", 10: "p2p",
}  # fmt: skip
PEER_COPY = 10
#: CUpti_ActivityMemoryKind; Nsight Systems has numbers of its own, one less.
MEMORY_OF = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "static", 7: "managed"}
#: The same as PyTorch's profiler and nvprof write them.
DIRECTION_NAMED = {
    "HtoD": "h2d", "HtoA": "h2d", "DtoH": "d2h", "AtoH": "d2h", "HtoH": "h2h", "PtoP": "p2p",
    "DtoD": "d2d", "AtoA": "d2d", "AtoD": "d2d", "DtoA": "d2d",
}  # fmt: skip
#: The ends of a copy in its name (MemcpyH2D, CopyDeviceToHost, MEMORY_COPY_HOST_TO_DEVICE), and what they mean.
ENDS = r"(?i)([hdp])(?:ost|evice|eer)?_?(?:2|to)_?([hdp])"
DIRECTION_OF_ENDS = {"hd": "h2d", "dh": "d2h", "dd": "d2d", "pp": "p2p", "hh": "h2h"}
#: `Host` of AMD traces says neither pinned nor pageable.
MEMORY_NAMED = {
    "Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array", "Managed": "managed",
    "Device Static": "static", "Managed Static": "managed",
}  # fmt: skip
#: CUpti_ActivityUnifiedMemoryCounterKind, of the kinds whose value is bytes moved.
MIGRATION_OF = {1: "h2d", 2: "d2h", 8: "d2d"}
#: CUpti_ActivityStreamFlag.
STREAM_KIND_OF = {1: "blocking", 2: "non-blocking", 3: "null"}
#: CUpti_ActivitySynchronizationType.
EVENT_SYNC, STREAM_WAIT_EVENT, STREAM_SYNC, CONTEXT_SYNC = 1, 2, 3, 4
#: CUpti_ActivityFlag, of markers.
MARK, RANGE_START, RANGE_END = 1, 2, 4
#: No stream, or no event; SQLite holds it unsigned, too.
NO_ID = [-1, 4294967295]

TIMES = ints("start end")
#: The columns of SQLite traces, as those of a trace's tables.
RENAMES = {
    "start": "start_ns", "end": "end_ns", "deviceId": "device", "contextId": "context", "streamId": "stream",
    "correlationId": "correlation", "graphNodeId": "graph_node", "copyKind": "copy_kind", "srcKind": "source_kind",
    "dstKind": "destination_kind", "srcDeviceId": "source_device", "dstDeviceId": "destination_device",
    "copyCount": "copy_count", "memKind": "memory_kind", "memoryKind": "memory_kind",
    "registersPerThread": "registers",
} | {f"{what}{side.upper()}": f"{what}_{side}" for what in ("grid", "block") for side in "xyz"}  # fmt: skip
#: How a kernel is launched.
LAUNCH = ints(
    "gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory"
)


#: What CUPTI says of a GPU.
OF_DEVICES = ints(
    "globalMemoryBandwidth globalMemorySize coreClockRate numMemcpyEngines numMultiprocessors"
    " computeCapabilityMajor computeCapabilityMinor"
)


def record_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of SQLite traces by the names of a trace's tables; ids of 0, which are nobody's, are null."""
    frame = frame.rename(RENAMES, strict=False)
    # Migrations carry correlation 0, and what is outside of graphs node 0.
    ids = [name for name in ("correlation", "graph_node") if name in frame.columns]
    frame = frame.with_columns(pl.col(name).replace(0, None) for name in ids if (frame[name] == 0).any())
    shared = ("staticSharedMemory", "dynamicSharedMemory")
    return frame.with_columns(shared_bytes=shared_bytes(*shared)) if {*shared} <= {*frame.columns} else frame


def shared_bytes(static: str, dynamic: str) -> pl.Expr:
    """Static and dynamic shared memory together; null where either is not known, or negative."""
    parts = pl.col(static), pl.col(dynamic)
    return pl.when(pl.all_horizontal(part.is_between(0, 1 << 32) for part in parts)).then(parts[0] + parts[1])


def copies(
    frame: pl.DataFrame,
    omissions: Omissions,
    direction_of: Mapping[int, str] = DIRECTION_OF,
    memory_of: Mapping[int, str] = MEMORY_OF,
) -> pl.DataFrame:
    """Copies as rows of `operations`: of copy_kind and copy_count, and kind and device of source and destination. A peer
    copy whose ends are the same GPU is a copy within it.
    """
    peer, destination = pl.col("copy_kind") == PEER_COPY, pl.col("destination_device")
    within = (peer & (destination == pl.col("source_device"))).fill_null(False)
    direction = meant("copy_kind", direction_of, DIRECTIONS)
    frame = frame.with_columns(
        pl.col("copy_count").fill_null(1).clip(1),
        kind=pl.lit("copy", pl.Enum(KINDS)),
        direction=pl.when(within).then(pl.lit("d2d", pl.Enum(DIRECTIONS))).otherwise(direction),
        source_memory=meant("source_kind", memory_of, MEMORY_KINDS),
        destination_memory=meant("destination_kind", memory_of, MEMORY_KINDS),
        peer_device=pl.when(peer & ~within).then(destination),
    )
    omissions.count("unknown-direction", frame["direction"].null_count())
    return frame


def direction_named(name: pl.Expr) -> pl.Expr:
    """The direction that the name of a copy says."""
    ends = pl.concat_str(name.str.extract(ENDS, 1), name.str.extract(ENDS, 2))
    return meant(ends.str.to_lowercase(), DIRECTION_OF_ENDS, DIRECTIONS)


def allocations(frame: pl.DataFrame, memory_of: Mapping[int, str] = MEMORY_OF) -> pl.DataFrame:
    """Rows of `ALLOCATIONS`: of memory_kind, freed, bytes, those of a GPU's memory."""
    memory = meant("memory_kind", memory_of, MEMORY_KINDS)
    return conform(
        frame.filter(memory.is_in(OF_GPU), pl.col("freed").is_not_null()).with_columns(
            bytes=pl.when("freed").then(-pl.col("bytes")).otherwise("bytes"),
            device=pl.when(memory != "managed").then("device"),
        ),
        ALLOCATIONS,
    )


def sets(frame: pl.DataFrame, memory_of: Mapping[int, str] = MEMORY_OF) -> pl.DataFrame:
    """Sets as rows of `operations`: of memory_kind."""
    memory = meant("memory_kind", memory_of, MEMORY_KINDS)
    return frame.with_columns(kind=pl.lit("set"), name=pl.lit("memset"), destination_memory=memory)


def migrations(frame: pl.DataFrame) -> pl.DataFrame:
    """Migrations as rows of `operations`: of counter, bytes, source and destination (devices)."""
    direction, managed = pl.col("direction"), pl.lit("managed")
    frame = frame.with_columns(direction=meant("counter", MIGRATION_OF, DIRECTIONS))
    return frame.filter(direction.is_not_null()).with_columns(
        kind=pl.lit("migration"),
        source_memory=managed,
        destination_memory=managed,
        # The side that is not the host.
        device=pl.when(direction == "h2d").then("destination").otherwise("source"),
        peer_device=pl.when(direction == "d2d").then("destination"),
        copy_count=pl.lit(1),
    )


def graphs(frame: pl.DataFrame, omissions: Omissions, remedy: str) -> pl.DataFrame:
    """Launches of graphs that were recorded as a whole as rows of `operations`: of graph."""
    omissions.count("opaque-graphs", frame.height, remedy=remedy)
    name = pl.lit("CUDA graph ") + pl.col("graph").cast(pl.String).fill_null("")
    return frame.with_columns(kind=pl.lit("graph"), name=name.str.strip_chars())


def with_waits(calls: pl.DataFrame, waits: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Calls with the `context`, `stream` and `event` that they wait for, as the first of `waits` of their ids `on` says."""
    waiting = calls["waits_for"].is_in(["stream", "device", "event"])
    if waits.is_empty() or not waiting.any():
        return calls
    # Those that wait for nothing, nearly all, need not be looked up.
    row = calls.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), *on, "waits_for").filter(waiting)
    looked_up = row.join(waits.unique(on, keep="first", maintain_order=True), on=on, how="inner")
    columns = []
    for name in ("context", "stream", "event"):
        part = looked_up.filter((name == "context") | (pl.col("waits_for") == name))
        columns.append(calls[name].clone().scatter(part["row"], part[name]))
    return calls.with_columns(columns)


def markers(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """NVTX ranges and marks as rows of `markers`: of flags, marker (its id), start_ns."""
    flags = pl.col("flags")
    marks, starts, ends = (frame.filter(flags & flag != 0) for flag in (MARK, RANGE_START, RANGE_END))
    ends = ends.unique("marker", keep="first", maintain_order=True).select("marker", ended_ns="start_ns")
    ranges = starts.unique("marker", keep="first", maintain_order=True)
    ranges = ranges.join(ends, on="marker", how="left", maintain_order="left")
    omissions.count("open-ranges", ranges["ended_ns"].null_count())
    rows = pl.concat([marks, ranges], how="diagonal")
    return conform(rows.with_columns(end_ns="ended_ns"), MARKERS)


def streams(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of `streams`: of flag."""
    return conform(frame.with_columns(kind=meant("flag", STREAM_KIND_OF, STREAM_KINDS)), STREAMS)


def devices(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `devices` that `OF_DEVICES` tell."""
    return frame.with_columns(
        # Counted in kB/s and kHz.
        memory_bandwidth_bytes_per_s=pl.col("globalMemoryBandwidth").cast(pl.Float64) * 1000,
        clock_hz=pl.col("coreClockRate").cast(pl.Float64) * 1000,
        memory_bytes="globalMemorySize",
        multiprocessors="numMultiprocessors",
        copy_engines="numMemcpyEngines",
        compute_capability=pl.format("{}.{}", "computeCapabilityMajor", "computeCapabilityMinor"),
    )
