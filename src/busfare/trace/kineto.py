"""PyTorch profiler traces (Kineto, Chrome JSON), plain or gzip, read as they stream past."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from busfare.errors import InputError
from busfare.trace import api_calls
from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.omissions import Omissions
from busfare.trace.one_process import name_process
from busfare.trace.tables import (
    CALLS,
    DEVICES,
    DIRECTIONS,
    EVENTS,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    conform,
    empty,
)
from busfare.trace.trace import Trace

__all__ = ["read"]

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
PIECES_AHEAD = 4

#: `Category` of the event scanner.
KERNEL, COPY, SET, RUNTIME_CALL, DRIVER_CALL, SYNC, EVENT_RECORD, ANNOTATION = range(8)

DIRECTION_OF = {
    "HtoD": "h2d",
    "DtoH": "d2h",
    "DtoD": "d2d",
    "PtoP": "p2p",
    "HtoH": "h2h",
    "HtoA": "h2d",
    "AtoH": "d2h",
}
DIRECTION_OF |= {"AtoA": "d2d", "AtoD": "d2d", "DtoA": "d2d"}
MEMORY_OF = {
    "Pageable": "pageable",
    "Pinned": "pinned",
    "Device": "device",
    "Array": "array",
    "Managed": "managed",
}
MEMORY_OF |= {"Device Static": "static", "Managed Static": "managed"}
#: `Host` of AMD traces says neither pinned nor pageable.
COPY_NAME = r"(?i)^Memcpy (?<direction>\w+)(?: \((?<source>[\w ]+) -> (?<destination>[\w ]+)\))?"

NO_ID = [-1, 4294967295]


class _Device(msgspec.Struct):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    totalGlobalMem: int | None = None  # noqa: N815  the file's own spelling
    computeMajor: int | None = None  # noqa: N815
    computeMinor: int | None = None  # noqa: N815
    numSms: int | None = None  # noqa: N815


class _Job(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None


def read(path: Path) -> Trace:
    """Reads a Kineto trace. Raises InputError if it holds no list of events.

    A file that ends in the middle, or is damaged from some point on, gives what it holds up to there, and an
    omission.
    """
    omissions = Omissions()
    scanner = EventScanner()
    for piece in _pieces(path, omissions):
        scanner.feed(piece)
        if scanner.error:
            break
    scanner.finish()
    if not scanner.saw_events:
        reason = (
            f"{scanner.error} at byte {scanner.error_position}"
            if scanner.error
            else "it has no `traceEvents`"
        )
        raise InputError(
            f"{path}: not a PyTorch profiler trace ({reason}); "
            "give the .json or .json.gz of `export_chrome_trace`"
        )
    if scanner.error:
        omissions.add(
            "damaged",
            f"damaged JSON at byte {scanner.error_position} ({scanner.error}): what follows is left out",
        )
    elif scanner.truncated:
        omissions.add("truncated", "the file ends in the middle: what it held beyond is missing")
    omissions.add_if(
        scanner.unusable, "unusable-events", "entries of the event list without usable times: left out"
    )

    events = _events_table(scanner)
    header = {key.decode("utf-8", "replace"): value for key, value in scanner.header.items()}
    calls = _calls(events)
    operations = _with_graph_nodes(_operations(events, omissions), calls)
    trace = Trace(
        path=path,
        format="kineto",
        producer=_producer(header),
        operations=operations,
        calls=calls,
        events=_dependencies(events, calls),
        markers=_markers(events),
        devices=_devices(header),
        host=_host(header),
    )
    name_process(trace)
    shared = operations.filter(pl.col("graph_node").is_not_null()).height
    omissions.add_if(
        shared,
        "graph-nodes",
        "operations inside CUDA graph launches: seen, but not how they depend on each other; "
        "taken in the order observed",
    )
    trace.omissions = omissions.list()
    return trace


def _pieces(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The file's text in pieces; gzip is undone by a second thread."""
    with path.open("rb") as file:
        if file.read(2) != GZIP_MAGIC:
            file.seek(0)
            while piece := file.read(8 * PIECE):
                yield piece
            return
    ready: queue.Queue[bytes | Exception | None] = queue.Queue(PIECES_AHEAD)
    stop = threading.Event()

    def put(item: bytes | Exception | None) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def decompress() -> None:
        try:
            for piece in _decompressed(path, omissions):
                if not put(piece):
                    return
            put(None)
        except Exception as error:  # carried over to the thread that reads
            put(error)

    worker = threading.Thread(target=decompress, daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stop.set()
        worker.join()


def _decompressed(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The decompressed text of a gzip file of any number of members, in pieces of bounded size."""
    with path.open("rb") as file:
        inflate = zlib_ng.decompressobj(31)
        waiting = b""
        while waiting := waiting or file.read(PIECE // 4):
            if inflate.eof:  # another member, or padding
                waiting += file.read(1) if len(waiting) == 1 else b""
                if not waiting.startswith(GZIP_MAGIC):
                    if waiting.strip(b"\0") or file.read(PIECE).strip(b"\0"):
                        omissions.add("not-gzip", "the compressed file has something after its end: left out")
                    return
                inflate = zlib_ng.decompressobj(31)
            try:
                piece = inflate.decompress(waiting, 4 * PIECE)
            except zlib_ng.error:  # type: ignore[misc]  # its stubs do not say that it is an exception
                omissions.add(
                    "damaged-gzip",
                    f"the compressed data is damaged near byte {file.tell()}: what follows is left out",
                )
                return
            if piece:
                yield piece
            waiting = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if not inflate.eof:
            omissions.add("truncated-gzip", "the compressed file ends in the middle")


def _events_table(scanner: EventScanner) -> pl.DataFrame:
    columns = scanner.columns
    texts = pl.Series("text", [name.decode("utf-8", "replace") for name in scanner.names], dtype=pl.String)
    frame = pl.DataFrame(
        {name: values for name, values in columns.items() if name not in ("name", "sync_kind")}
    )
    missing = [name for name, kind in frame.schema.items() if kind == pl.Int64]
    frame = frame.with_columns(
        pl.when(pl.col(name) != MISSING).then(pl.col(name)).alias(name) for name in missing
    )
    return frame.with_columns(
        pl.Series("name", texts.gather(_indices(columns["name"]))).fill_null("(unnamed)"),
        pl.Series("sync_kind", texts.gather(_indices(columns["sync_kind"]))),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
    )


def _indices(values: NDArray[np.int64]) -> pl.Series:
    indices = pl.Series(values, dtype=pl.Int64)
    return indices.set(indices < 0, None)


def _operations(events: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = events.filter(pl.col("category") <= SET)
    if frame.is_empty():
        return empty(OPERATIONS)
    category = pl.col("category")
    copy = category == COPY
    parts = pl.col("name").str.extract_groups(COPY_NAME)
    frame = frame.with_columns(
        kind=pl.when(category == KERNEL)
        .then(pl.lit("kernel"))
        .when(copy)
        .then(pl.lit("copy"))
        .otherwise(pl.lit("set")),
        # Older traces give the device as the process, and the stream as the thread, of a GPU row.
        device=pl.coalesce("device", "process"),
        stream=pl.coalesce("stream", "thread"),
        process=pl.lit(None, dtype=pl.Int64),
        copied=pl.when(copy).then(parts),
    ).unnest("copied")
    frame = frame.with_columns(
        direction=pl.col("direction").replace_strict(
            DIRECTION_OF, default=None, return_dtype=pl.Enum(DIRECTIONS)
        ),
        source_memory=pl.col("source").replace_strict(
            MEMORY_OF, default=None, return_dtype=pl.Enum(MEMORY_KINDS)
        ),
        destination_memory=pl.col("destination").replace_strict(
            MEMORY_OF, default=None, return_dtype=pl.Enum(MEMORY_KINDS)
        ),
        copy_count=pl.when(copy).then(1),
        correlation=pl.when(pl.col("correlation") > 0).then("correlation"),
        graph_node=pl.when(pl.col("graph_node") > 0).then("graph_node"),
        name=pl.when(copy).then(None).otherwise("name"),
    )
    unknown = frame.filter((pl.col("kind") == "copy") & pl.col("direction").is_null()).height
    omissions.add_if(
        unknown,
        "unknown-direction",
        "copies whose name does not say their direction: counted, with no direction",
    )
    host = frame.filter((pl.col("source") == "Host") | (pl.col("destination") == "Host")).height
    omissions.add_if(
        host,
        "unknown-memory",
        "copies whose host memory is not told as pinned or pageable: advice on pinning cannot be given",
    )
    return conform(frame, OPERATIONS)


def _with_graph_nodes(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Numbers the operations of each graph launch whose nodes the trace does not number itself."""
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(api_calls.GRAPH_LAUNCH))[
        "correlation"
    ]
    launched = pl.col("correlation").is_in(launches.drop_nulls().unique().implode())
    number = pl.int_range(1, pl.len() + 1).over("correlation")
    return operations.with_columns(pl.coalesce("graph_node", pl.when(launched).then(number)))


def _calls(events: pl.DataFrame) -> pl.DataFrame:
    frame = events.filter(pl.col("category").is_in([RUNTIME_CALL, DRIVER_CALL]))
    if frame.is_empty():
        return empty(CALLS)
    plain = api_calls.plain_name(pl.col("name"))
    frame = frame.with_columns(name=plain, correlation=pl.when(pl.col("correlation") > 0).then("correlation"))
    frame = frame.with_columns(waits_for=api_calls.waits_for(pl.col("name"))).drop("stream")
    waits = events.filter(
        pl.col("category") == SYNC, pl.col("sync_kind").is_in(["Stream Sync", "Event Sync"])
    ).select(
        "correlation",
        stream=pl.when(pl.col("sync_kind") == "Stream Sync", ~pl.col("stream").is_in(NO_ID)).then("stream"),
        event=pl.when(pl.col("sync_kind") == "Event Sync", pl.col("waited_event") >= 0).then("waited_event"),
    )
    return conform(frame.join(waits.unique("correlation", keep="first"), on="correlation", how="left"), CALLS)


def _dependencies(events: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    waits = events.filter(pl.col("category") == SYNC, pl.col("sync_kind") == "Stream Wait Event")
    records = events.filter(pl.col("category") == EVENT_RECORD)
    if waits.is_empty() and records.is_empty():
        return empty(EVENTS)
    known = pl.col("waited_correlation") > 0
    waits = waits.with_columns(
        kind=pl.lit("wait"),
        event=pl.when(pl.col("waited_event") >= 0).then("waited_event"),
        record_correlation=pl.when(known).then("waited_correlation"),
    )
    # A wait names the record that it waits for; where that has no row of its own, its call gives one.
    implied = waits.filter(known).select(
        correlation="waited_correlation",
        stream="waited_stream",
        event="event",
        device="device",
        context="context",
    )
    implied = implied.join(records.select("correlation"), on="correlation", how="anti").unique(
        "correlation", keep="first"
    )
    implied = implied.join(
        calls.select("correlation", "start_ns", "end_ns")
        .drop_nulls("correlation")
        .unique("correlation", keep="first"),
        on="correlation",
        how="inner",
    ).with_columns(kind=pl.lit("record"))
    records = records.with_columns(kind=pl.lit("record"), event="waited_event")
    cleaned = [
        frame.with_columns(process=pl.lit(None, dtype=pl.Int64)) for frame in (waits, records, implied)
    ]
    return pl.concat(conform(frame, EVENTS) for frame in cleaned)


def _markers(events: pl.DataFrame) -> pl.DataFrame:
    return conform(events.filter(pl.col("category") == ANNOTATION), MARKERS)


def _decoded(text: bytes | None, kind: type[object] | object) -> object:
    """`text` as `kind`, or None where the file says something else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _devices(header: dict[str, bytes]) -> pl.DataFrame:
    found = _decoded(header.get("deviceProperties"), list[_Device])
    if not isinstance(found, list):
        return empty(DEVICES)
    rows = [
        {
            "device": d.id,
            "name": d.name,
            "memory_bytes": d.totalGlobalMem,
            "multiprocessors": d.numSms,
            "compute_capability": f"{d.computeMajor}.{d.computeMinor}"
            if d.computeMajor is not None
            else None,
        }
        for d in found
        if d.id is not None and abs(d.id) < 1 << 31
    ]
    return conform(pl.DataFrame(rows, strict=False), DEVICES) if rows else empty(DEVICES)


def _producer(header: dict[str, bytes]) -> str:
    version = _decoded(header.get("cupti_version"), int)
    return "PyTorch profiler (Kineto" + (f", CUPTI {version})" if version else ")")


def _host(header: dict[str, bytes]) -> dict[str, str]:
    keys = {"cuda_driver_version": "cuda", "hostname": "hostname"}
    values = {new: _decoded(header.get(old), str | int) for old, new in keys.items()}
    job = _decoded(header.get("distributedInfo"), _Job)
    if isinstance(job, _Job) and job.rank is not None:
        values["rank"] = str(job.rank)
    return {key: str(value) for key, value in values.items() if value}
