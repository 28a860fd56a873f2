"""nvprof and Visual Profiler files (SQLite, CUPTI's own numbering)."""

from __future__ import annotations

from functools import cache
from importlib import resources

import polars as pl

from busfare.trace import api_calls
from busfare.trace.model import OPEN_RANGES, Omissions, Trace, name_process
from busfare.trace.readers.cupti import (
    DIRECTION_OF,
    LAUNCH,
    MEMORY_OF,
    NO_ID,
    RENAMES,
    STREAM_KIND_OF,
    TIMES,
    with_launch,
)  # fmt: skip
from busfare.trace.readers.tables import INT, TableSource, ints, meant, texts
from busfare.trace.tables import (
    CALLS,
    DEVICES,
    DIRECTIONS,
    EVENTS,
    LAUNCH_SHAPE,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    STREAM_KINDS,
    STREAMS,
    conform,
)  # fmt: skip

PLACE = ints("deviceId contextId streamId correlationId graphNodeId")
KERNEL_TABLES = ("CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL")
ACTIVITY = "CUPTI_ACTIVITY_KIND_"

#: CUpti_ActivityUnifiedMemoryCounterKind, of the kinds whose value is bytes moved.
MIGRATION_DIRECTION_OF = {1: "h2d", 2: "d2h"}
#: CUpti_ActivitySynchronizationType.
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC = 1, 2, 3


def matches(tables: TableSource) -> bool:
    """Whether these tables are an nvprof file."""
    return {"StringTable", "Version"} <= tables.names


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads an nvprof file, with its launches or not. Raises InputError if a table that is there cannot be read."""
    omissions = Omissions()
    strings = tables.read("StringTable", ints("_id_") | texts("value")).unique("_id_", keep="first")
    waits = _waits(tables)
    calls = _with_waits(_calls(tables, omissions), waits)
    version = tables.read("Version", ints("version"))
    number = version["version"][0] if version.height else None
    trace = Trace(
        path=tables.path,
        format="nvprof",
        producer="nvprof" + (f" (file version {number})" if number is not None else ""),
        operations=pl.concat(
            [
                _kernels(tables, strings, launches),
                _copies(tables, omissions),
                _sets(tables),
                _migrations(tables),
            ],
            how="diagonal",
        ),
        calls=calls,
        events=_events(tables, calls, waits),
        markers=_markers(tables, strings, omissions),
        devices=_devices(tables, strings, omissions),
        streams=_streams(tables),
    )
    name_process(trace)
    trace.omissions = omissions.list()
    return trace


@cache
def _call_names() -> pl.DataFrame:
    """Interface and number of each call; its plain name and what that waits for."""
    file = resources.files(__package__).joinpath("nvprof_calls.tsv").read_bytes()
    columns = ["interface", "cbid", "name"]
    names = pl.read_csv(file, separator="\t", comment_prefix="#", has_header=False, new_columns=columns)
    names = names.with_columns(api_calls.plain_name(pl.col("name")))
    return names.with_columns(waits_for=api_calls.waits_for(pl.col("name")))


def _calls(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    wanted = TIMES | ints("cbid processId threadId correlationId")
    parts = [
        tables.read(ACTIVITY + interface.upper(), wanted).with_columns(interface=pl.lit(interface))
        for interface in ("runtime", "driver")
    ]
    frame = pl.concat(parts).join(_call_names(), on=["interface", "cbid"], how="left")
    omissions.add_if(
        frame["name"].null_count(),
        "unnamed-calls",
        "API calls known by number only (minor ones): shown as numbers, taken to wait for nothing",
    )
    number = pl.concat_str("interface", pl.lit(" call "), "cbid")
    frame = frame.with_columns(
        name=pl.coalesce("name", number), waits_for=pl.col("waits_for").fill_null("none")
    ).rename(RENAMES | {"processId": "process", "threadId": "thread"}, strict=False)
    return conform(_timed(frame), CALLS)


def _timed(frame: pl.DataFrame) -> pl.DataFrame:
    """Times of zero are times that were not collected [CUPTI: CUpti_ActivityKernel, CUpti_ActivityAPI]."""
    return frame.with_columns(pl.col("start_ns", "end_ns").replace(0, None))


def _operations(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    frame = _timed(frame.rename(RENAMES, strict=False))
    if "graph_node" in frame.columns:
        frame = frame.with_columns(pl.col("graph_node").replace(0, None))
    return conform(frame.with_columns(**columns), OPERATIONS, LAUNCH_SHAPE)


def _kernels(tables: TableSource, strings: pl.DataFrame, launches: bool) -> pl.DataFrame:
    parts = []
    wanted = TIMES | PLACE | ints("name") | (LAUNCH if launches else {})
    for table in KERNEL_TABLES:
        frame = with_launch(tables.read(ACTIVITY + table, wanted))
        frame = frame.rename({"name": "name_id"}).join(
            strings, left_on="name_id", right_on="_id_", how="left"
        )
        name = pl.col("value").fill_null("(unnamed kernel)")
        parts.append(_operations(frame, kind=pl.lit("kernel"), name=name))
    return pl.concat(parts, how="diagonal")


def _copies(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    wanted = TIMES | PLACE | ints("bytes copyKind srcKind dstKind srcDeviceId dstDeviceId")
    parts = []
    for table in ("MEMCPY", "MEMCPY2"):
        direction = meant("copyKind", DIRECTION_OF, DIRECTIONS)
        copies = _operations(
            tables.read(ACTIVITY + table, wanted),
            kind=pl.lit("copy"),
            direction=direction if table == "MEMCPY" else pl.lit("p2p", dtype=pl.Enum(DIRECTIONS)),
            peer_device=pl.col("dstDeviceId"),
            source_memory=meant("srcKind", MEMORY_OF, MEMORY_KINDS),
            destination_memory=meant("dstKind", MEMORY_OF, MEMORY_KINDS),
            copy_count=pl.lit(1),
        )
        parts.append(copies)
    copies = pl.concat(parts)
    omissions.add_if(
        copies["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    return copies


def _sets(tables: TableSource) -> pl.DataFrame:
    frame = tables.read(ACTIVITY + "MEMSET", TIMES | PLACE | ints("bytes memoryKind"))
    memory = meant("memoryKind", MEMORY_OF, MEMORY_KINDS)
    return _operations(frame, kind=pl.lit("set"), name=pl.lit("memset"), destination_memory=memory)


def _migrations(tables: TableSource) -> pl.DataFrame:
    wanted = TIMES | ints("counterKind value srcId dstId streamId")
    frame = tables.read(ACTIVITY + "UNIFIED_MEMORY_COUNTER", wanted)
    return _operations(
        frame.filter(pl.col("counterKind").is_in(list(MIGRATION_DIRECTION_OF))),
        kind=pl.lit("migration"),
        direction=meant("counterKind", MIGRATION_DIRECTION_OF, DIRECTIONS),
        device=pl.when(pl.col("counterKind") == 1).then("dstId").otherwise("srcId"),
        bytes=pl.col("value"),
        source_memory=pl.lit("managed"),
        destination_memory=pl.lit("managed"),
        copy_count=pl.lit(1),
    )


def _waits(tables: TableSource) -> pl.DataFrame:
    wanted = TIMES | ints("type correlationId contextId streamId cudaEventId")
    waits = tables.read(ACTIVITY + "SYNCHRONIZATION", wanted).rename(RENAMES, strict=False)
    return waits.with_columns(
        pl.col("stream").replace(NO_ID, None), event=pl.col("cudaEventId").replace(NO_ID, None)
    )


def _with_waits(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Calls with the stream or event that they wait for."""
    on_host = waits.filter(pl.col("type").is_in([EVENT_SYNC, STREAM_SYNC])).select(
        "correlation",
        waited_stream=pl.when(pl.col("type") == STREAM_SYNC).then("stream"),
        waited_event=pl.when(pl.col("type") == EVENT_SYNC).then("event"),
    )
    joined = calls.join(on_host.unique("correlation", keep="first"), on="correlation", how="left")
    return conform(
        joined.with_columns(
            stream=pl.when(pl.col("waits_for") == "stream").then("waited_stream"),
            event=pl.when(pl.col("waits_for") == "event").then("waited_event"),
        ),
        CALLS,
    )


def _events(tables: TableSource, calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    records = tables.read(ACTIVITY + "CUDA_EVENT", ints("correlationId contextId streamId eventId"))
    times = calls.select("correlation", "start_ns", "end_ns").drop_nulls("correlation")
    records = records.rename(RENAMES | {"eventId": "event"}, strict=False).join(
        times.unique("correlation", keep="first"), on="correlation", how="left"
    )
    waits = waits.filter(pl.col("type") == STREAM_WAIT)
    return pl.concat(
        conform(frame.with_columns(kind=pl.lit(kind)), EVENTS)
        for frame, kind in ((records, "record"), (waits, "wait"))
    )


def _markers(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = tables.read(ACTIVITY + "MARKER", ints("flags timestamp id name domain"))
    flags = pl.col("flags")
    instants = frame.filter(flags & 1 != 0).with_columns(start_ns="timestamp", end_ns=pl.lit(None, dtype=INT))
    starts = frame.filter(flags & 2 != 0).unique("id", keep="first")
    ends = frame.filter(flags & 4 != 0).unique("id", keep="first").select("id", end_ns="timestamp")
    ranges = starts.join(ends, on="id", how="left").with_columns(start_ns="timestamp")
    omissions.add_if(ranges["end_ns"].null_count(), "open-ranges", OPEN_RANGES)
    both = pl.concat(
        [part.select("start_ns", "end_ns", "domain", name_id="name") for part in (instants, ranges)]
    )
    both = both.join(strings, left_on="name_id", right_on="_id_", how="left").rename({"value": "name"})
    return conform(both, MARKERS)


def _devices(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    wanted = ints("id name globalMemoryBandwidth globalMemorySize coreClockRate numMemcpyEngines")
    wanted |= ints("numMultiprocessors computeCapabilityMajor computeCapabilityMinor")
    frame = tables.read(ACTIVITY + "DEVICE", wanted)
    frame = frame.rename({"name": "name_id"})
    frame = frame.join(strings, left_on="name_id", right_on="_id_", how="left").with_columns(
        device="id",
        name="value",
        # The file counts in kB/s and kHz.
        memory_bandwidth_bytes_per_s=pl.col("globalMemoryBandwidth") * 1000,
        clock_hz=pl.col("coreClockRate") * 1000,
        memory_bytes="globalMemorySize",
        multiprocessors="numMultiprocessors",
        copy_engines="numMemcpyEngines",
        compute_capability=pl.format("{}.{}", "computeCapabilityMajor", "computeCapabilityMinor"),
    )
    links = tables.read(ACTIVITY + "PCIE", ints("type pcieGeneration linkWidth"))
    lanes = links.filter(pl.col("type") == 0).select("pcieGeneration", "linkWidth")
    of_gpus = lanes.unique()
    # Of several GPUs the file may name the link of one only, and not whose it is.
    if of_gpus.height == 1 and lanes.height >= frame.height:
        frame = frame.with_columns(
            pcie_generation=pl.lit(of_gpus["pcieGeneration"][0]), pcie_lanes=pl.lit(of_gpus["linkWidth"][0])
        )
    elif of_gpus.height:
        omissions.add(
            "links-unlike", "PCIe links of some GPUs, or unlike ones: not told which is whose", lanes.height
        )
    return conform(frame, DEVICES)


def _streams(tables: TableSource) -> pl.DataFrame:
    frame = tables.read(ACTIVITY + "STREAM", ints("contextId streamId priority flag"))
    frame = frame.rename({"contextId": "context", "streamId": "stream"}).with_columns(
        kind=meant("flag", STREAM_KIND_OF, STREAM_KINDS)
    )
    return conform(frame, STREAMS)
