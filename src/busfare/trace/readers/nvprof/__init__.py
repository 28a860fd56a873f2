"""nvprof and Visual Profiler files (SQLite, CUPTI's own numbering)."""

from functools import cache
from importlib import resources

import polars as pl

from busfare.trace import tables as schema
from busfare.trace import words
from busfare.trace.model import Trace, name_process
from busfare.trace.omissions import Omissions
from busfare.trace.readers import Format, RecordAgain, cupti
from busfare.trace.readers.cupti import NO_ID, TIMES
from busfare.trace.readers.tables import TableSource, ints, texts
from busfare.trace.tables import Schema, conform

OF_OPERATIONS = TIMES | ints("deviceId contextId streamId correlationId graphNodeId")
OF_COPIES = OF_OPERATIONS | ints("bytes copyKind srcKind dstKind srcDeviceId dstDeviceId copyCount")
KERNEL_TABLES = ("CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL")


def read(tables: TableSource, launches: bool = False) -> Trace:
    """Reads an nvprof file, with its launches or not. Raises InputError if a table that is there cannot be read."""
    omissions = Omissions()
    strings = tables.read("StringTable", ints("_id_") | texts("value")).unique("_id_", keep="first")
    wanted = TIMES | ints("type correlationId contextId streamId cudaEventId")
    waits = _records(tables, "SYNCHRONIZATION", wanted).rename({"cudaEventId": "event"})
    waits = waits.with_columns(pl.col("stream", "event").replace(NO_ID, None))
    on_host = waits.filter(pl.col("type") != cupti.STREAM_WAIT_EVENT)
    calls = cupti.with_waits(_calls(tables, omissions), on_host, on=["correlation"])
    version = tables.read("Version", ints("version"))
    number = version["version"][0] if version.height else None
    between_gpus = _records(tables, "MEMCPY2", OF_COPIES).with_columns(copy_kind=pl.lit(cupti.PEER_COPY))
    copied = [_records(tables, "MEMCPY", OF_COPIES), between_gpus]
    operations = [
        *_kernels(tables, strings, launches),
        cupti.copies(pl.concat(copied, how="vertical_relaxed"), omissions),
        cupti.sets(_records(tables, "MEMSET", OF_OPERATIONS | ints("bytes memoryKind"))),
        _migrations(tables),
    ]
    operations = [conform(rows, schema.OPERATIONS, schema.LAUNCH_SHAPE) for rows in operations]
    marked = _named(_records(tables, "MARKER", ints("flags timestamp id name domain")), strings)
    trace = Trace(
        path=tables.path,
        format="nvprof",
        producer="nvprof" + (f" (file version {number})" if number is not None else ""),
        operations=pl.concat(operations, how="diagonal"),
        calls=calls,
        events=_events(tables, calls, waits),
        markers=cupti.markers(marked.rename({"timestamp": "start_ns", "id": "marker"}), omissions),
        devices=_devices(tables, strings, omissions),
        streams=cupti.streams(_records(tables, "STREAM", ints("contextId streamId priority flag"))),
    )
    name_process(trace)
    trace.omissions = omissions.list()
    return trace


def _records(tables: TableSource, kind: str, wanted: Schema) -> pl.DataFrame:
    """CUPTI's records of a kind; times of zero were not collected [CUPTI: CUpti_ActivityKernel, CUpti_ActivityAPI]."""
    frame = cupti.record_columns(tables.read("CUPTI_ACTIVITY_KIND_" + kind, wanted))
    return frame.with_columns(pl.col("start_ns", "end_ns").replace(0, None)) if "start" in wanted else frame


def _named(frame: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the text that its column `name` numbers."""
    named = frame.join(strings, left_on="name", right_on="_id_", how="left", maintain_order="left")
    return named.with_columns(name="value")


@cache
def _call_names() -> pl.DataFrame:
    """Interface and number of each call; its plain name and what that waits for."""
    file = resources.files(__package__).joinpath("calls.tsv").read_bytes()
    columns = ["interface", "cbid", "name"]
    names = pl.read_csv(file, separator="\t", comment_prefix="#", has_header=False, new_columns=columns)
    names = names.with_columns(words.plain_name(pl.col("name")))
    return names.with_columns(waits_for=words.waits_for(pl.col("name")))


def _calls(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    wanted = TIMES | ints("cbid processId threadId correlationId returnValue")
    parts = [
        _records(tables, interface.upper(), wanted).with_columns(interface=pl.lit(interface))
        for interface in ("runtime", "driver")
    ]
    frame = pl.concat(parts).join(_call_names(), on=["interface", "cbid"], how="left")
    omissions.count("unnamed-calls/numbers", frame["name"].null_count())
    number = pl.concat_str("interface", pl.lit(" call "), "cbid")
    frame = frame.with_columns(
        process="processId",
        thread="threadId",
        name=pl.coalesce("name", number),
        waits_for=pl.col("waits_for").fill_null("none"),
        result="returnValue",
    )
    return conform(frame, schema.CALLS, schema.CALLS_RETURNED)


def _kernels(tables: TableSource, strings: pl.DataFrame, launches: bool) -> list[pl.DataFrame]:
    wanted = OF_OPERATIONS | ints("name") | (cupti.LAUNCH if launches else {})
    named = [_named(_records(tables, kind, wanted), strings) for kind in KERNEL_TABLES]
    name = pl.col("name").fill_null("(unnamed kernel)")
    return [frame.with_columns(kind=pl.lit("kernel"), name=name) for frame in named]


def _migrations(tables: TableSource) -> pl.DataFrame:
    wanted = TIMES | ints("counterKind value srcId dstId streamId")
    names = {"counterKind": "counter", "value": "bytes", "srcId": "source", "dstId": "destination"}
    return cupti.migrations(_records(tables, "UNIFIED_MEMORY_COUNTER", wanted).rename(names))


def _events(tables: TableSource, calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    records = _records(tables, "CUDA_EVENT", ints("correlationId contextId streamId eventId"))
    times = calls.select("correlation", "start_ns", "end_ns").drop_nulls("correlation")
    times = times.unique("correlation", keep="first")
    records = records.rename({"eventId": "event"}).join(times, on="correlation", how="left")
    waits = waits.filter(pl.col("type") == cupti.STREAM_WAIT_EVENT)
    frames = records.with_columns(kind=pl.lit("record")), waits.with_columns(kind=pl.lit("wait"))
    return pl.concat(conform(frame, schema.EVENTS) for frame in frames)


def _devices(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = _named(_records(tables, "DEVICE", ints("id name") | cupti.OF_DEVICES), strings)
    frame = cupti.devices(frame).with_columns(device="id")
    links = _records(tables, "PCIE", ints("type pcieGeneration linkWidth")).filter(pl.col("type") == 0)
    of_gpus = links.unique(["pcieGeneration", "linkWidth"])
    # Of several GPUs the file may name the link of one only, and not whose it is.
    if of_gpus.height == 1 and links.height >= frame.height:
        generation, lanes = of_gpus.row(0)[1:]
        frame = frame.with_columns(pcie_generation=pl.lit(generation), pcie_lanes=pl.lit(lanes))
    elif of_gpus.height:
        omissions.add("links-unlike", links.height)
    return conform(frame, schema.DEVICES)


#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "links-unlike": "PCIe links recorded for only some GPUs, or of several kinds: they cannot be matched to GPUs",
    "unnamed-calls/numbers": "minor API calls recorded only by number: shown as numbers, assumed not to wait",
}
FORMATS = (
    Format(
        name="nvprof",
        title="nvprof (its file)",
        read=lambda source: read(source.tables, source.launches),
        sentences=SENTENCES,
        database=lambda file: {"StringTable", "Version"} <= file.names,
        suffixes=(".nvvp", ".nvprof"),
        record_again=RecordAgain(gpu="`nvprof -o FILE PROGRAM`"),
    ),
)
