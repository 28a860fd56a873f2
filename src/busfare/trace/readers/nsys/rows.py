"""Rows of Nsight Systems exports as rows of a trace's tables: operations, calls, events and what waits for them, markers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import api_calls
from busfare.trace.columns import occurring, occurs, places, taken
from busfare.trace.model import OPEN_RANGES, Omissions
from busfare.trace.readers.cupti import DIRECTION_OF, LAUNCH, NO_ID, RENAMES, TIMES, with_launch
from busfare.trace.readers.nsys.scan import (
    COPIES,
    GRAPHS,
    KERNELS,
    OF_COPIES,
    PROCESS_BITS,
    RECORDS,
    SETS,
    THREAD_BITS,
    WAITS,
)
from busfare.trace.readers.tables import INT, TableSource, ints, meant, texts
from busfare.trace.tables import (
    CALLS,
    DIRECTIONS,
    EVENTS,
    KINDS,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    conform,
    empty,
)
from busfare.trace.words import of_codes

SMALL_INT = pl.Int32()

PLACE: dict[str, pl.DataType] = {
    "deviceId": SMALL_INT,
    "contextId": INT,
    "streamId": INT,
    "correlationId": INT,
    "globalPid": INT,
}


def _bits(column: str, first: int, bits: int) -> pl.Expr:
    # Of numbers below 0, too: Polars divides towards minus infinity.
    return (pl.col(column) // (1 << first)) & ((1 << bits) - 1)


def process_of(column: str) -> pl.Expr:
    """The process id within a serialised global id."""
    return _bits(column, *PROCESS_BITS).alias("process")


def thread_of(column: str) -> pl.Expr:
    """The thread id within a serialised global id."""
    return _bits(column, *THREAD_BITS).alias("thread")


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Renames the columns that say where and when an operation ran."""
    if "globalPid" in frame.columns:
        frame = frame.with_columns(process_of("globalPid")).drop("globalPid")
    frame = frame.rename(RENAMES, strict=False)
    # 0 is nobody's correlation (migrations carry it), and no node of a graph.
    with_none = [
        pl.when(pl.col(name) != 0).then(name)
        for name in ("correlation", "graph_node")
        if name in frame.columns and (frame[name] == 0).any()
    ]
    return frame.with_columns(with_none)


@dataclass(frozen=True)
class Texts:
    """Texts that a column of ids means: each once, and which one each row has."""

    texts: pl.Series  # the last one stands for whatever is not in the trace
    rows: NDArray[np.uint32]  # where the row's text stands in the table of strings
    number: NDArray[np.uint32]  # of each of those, its place in `texts`
    any_unknown: bool

    @staticmethod
    def of(ids: pl.Series, strings: pl.DataFrame, otherwise: str) -> Texts:
        """Of ids, or of their places in `strings` (UInt32)."""
        known = ids.dtype == pl.UInt32
        rows = np.ascontiguousarray(ids.to_numpy()) if known else places(strings["id"], ids)
        used = occurring(rows, strings.height + 1)
        any_unknown, used[-1] = bool(used[-1]), False
        number = np.cumsum(used, dtype=np.uint32) - used
        texts = strings["value"].filter(used[:-1])
        number[-1] = len(texts)
        return Texts(texts.extend_constant(otherwise, 1), rows, number, any_unknown)

    def unknown(self) -> NDArray[np.bool_]:
        """Which rows mean no text."""
        return np.equal(self.rows, len(self.number) - 1)

    def of_rows(self, values: pl.Series) -> pl.Series:
        """For each row, what `values` (words, none of them null) has for its text."""
        codes = values.to_physical().to_numpy()[self.number]
        return of_codes(taken([codes], self.rows), values)


#: ENUM_CUDA_MEMCPY_OPER, beyond CUPTI's own; the table that explains it is missing from exports before 2022.4.
MIGRATION_DIRECTION_OF = {11: "h2d", 12: "d2h", 13: "d2d"}
#: ENUM_CUDA_MEM_KIND: one less than CUPTI's own numbers.
MEMORY_OF = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "static", 6: "managed"}

PEER_COPY = 10

#: What kernels and copies have in common, and those of it that a caller may have no use for.
OF_OPERATIONS = TIMES | PLACE | ints("graphNodeId")
COPY_COLUMNS: dict[str, pl.DataType] = {
    name: SMALL_INT if name == "dstDeviceId" else INT for name in OF_COPIES
}
OF_SETS: dict[str, pl.DataType] = ints("bytes memKind")


def kernels(tables: TableSource, strings: pl.DataFrame, launches: bool) -> pl.DataFrame:
    """Kernels as rows of `operations`; how they are launched, too, if `launches`."""
    wanted = {**OF_OPERATIONS, "demangledName": INT} | (LAUNCH if launches else {})
    frame = tables.read(KERNELS, wanted)
    if frame.is_empty():
        return empty(OPERATIONS)
    named = Texts.of(frame["demangledName"], strings, "(unnamed kernel)")
    if named.any_unknown:  # some versions and languages fill only another column
        others = tables.read(KERNELS, ints("demangledName shortName mangledName"))
        if others.height == frame.height:
            known = [
                pl.when(pl.col(name).is_in(strings["id"].implode())).then(name) for name in others.columns
            ]
            ids = others.select(pl.coalesce(*known)).to_series()
            named = Texts.of(ids, strings, "(unnamed kernel)")
    name = named.of_rows(named.texts.cast(pl.Categorical))
    frame = with_launch(frame).drop("demangledName", strict=False)
    return placed(frame).with_columns(kind=pl.lit("kernel"), name=name)


def copy_table(tables: TableSource) -> pl.DataFrame:
    """The table of copies, for `copies`."""
    return tables.read(COPIES, {**OF_OPERATIONS, "bytes": INT, **COPY_COLUMNS})


def copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Copies and migrations as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    migration = pl.col("copyKind").is_in(list(MIGRATION_DIRECTION_OF)).fill_null(False)
    managed = pl.when(migration).then(pl.lit("managed", pl.Enum(MEMORY_KINDS)))
    frame = placed(frame).with_columns(
        kind=pl.when(migration).then(pl.lit("migration")).otherwise(pl.lit("copy")).cast(pl.Enum(KINDS)),
        direction=meant("copyKind", DIRECTION_OF | MIGRATION_DIRECTION_OF, DIRECTIONS),
        source_memory=managed.otherwise(meant("srcKind", MEMORY_OF, MEMORY_KINDS)),
        destination_memory=managed.otherwise(meant("dstKind", MEMORY_OF, MEMORY_KINDS)),
        peer_device=pl.when(pl.col("copyKind") == PEER_COPY).then("dstDeviceId"),
        copy_count=pl.col("copyCount").fill_null(1).clip(1),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    return frame


def set_table(tables: TableSource) -> pl.DataFrame:
    """The table of sets, for `sets`."""
    return tables.read(SETS, {**OF_OPERATIONS, **OF_SETS})


def sets(frame: pl.DataFrame) -> pl.DataFrame:
    """Sets as rows of `operations`."""
    if frame.is_empty():
        return empty(OPERATIONS)
    return placed(frame).with_columns(
        kind=pl.lit("set"),
        name=pl.lit("memset"),
        destination_memory=meant("memKind", MEMORY_OF, MEMORY_KINDS),
    )


def graphs(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    """Graph launches that were recorded as a whole, as rows of `operations`."""
    frame = tables.read(GRAPHS, TIMES | PLACE | ints("graphId"))
    if frame.is_empty():
        return empty(OPERATIONS)
    omissions.add(
        "opaque-graphs",
        "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the "
        "trace, and not in any count here; record with `nsys profile --cuda-graph-trace=node` to see them",
        frame.height,
    )
    name = pl.lit("CUDA graph ") + pl.col("graphId").cast(pl.String).fill_null("")
    return placed(frame).with_columns(kind=pl.lit("graph"), name=name.str.strip_chars())


def calls_of(
    frame: pl.DataFrame, strings: pl.DataFrame, omissions: Omissions
) -> tuple[pl.DataFrame, pl.Series]:
    """The calls, and the plain name of each; null where it is lost. Their process may be known already."""
    if frame.is_empty():
        return empty(CALLS), pl.Series(dtype=pl.Categorical())
    named = Texts.of(frame["nameId"], strings, "(unnamed call)")
    plain = api_calls.plain_name(pl.col("plain"))
    names = (
        named.texts.alias("plain")
        .to_frame()
        .select(plain.cast(pl.Categorical), waits_for=api_calls.waits_for(plain))
    )
    unnamed = int(named.unknown().sum()) if named.any_unknown else 0
    omissions.add_if(unnamed, "unnamed-calls", "API calls whose name is lost: taken to wait for nothing")
    frame = frame.select(
        *(["process"] if "process" in frame.columns else [process_of("globalTid"), thread_of("globalTid")]),
        start_ns="start",
        end_ns="end",
        correlation="correlationId",
        name=named.of_rows(names["plain"]),
        waits_for=named.of_rows(names["waits_for"]),
    )
    names_known = frame["name"]
    if unnamed:
        names_known = frame.select(pl.when(~pl.Series(named.unknown())).then("name")).to_series()
    return conform(frame, CALLS), names_known


def event_tables(tables: TableSource) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Waits, and records of events."""
    place = PLACE | ints("eventId eventSyncId")
    return tables.read(WAITS, TIMES | place), tables.read(RECORDS, place)


def events_of(
    waits: pl.DataFrame,
    records: pl.DataFrame,
    calls: pl.DataFrame,
    names: pl.Series,
    omissions: Omissions,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Event records and stream waits; and what each host-side wait waits for, by (process, correlation).

    `syncType` changed its meaning between versions, so the call's own name decides. A record without its call
    that may be either kind of wait is counted as unknown.
    """
    call_ids = _calls_of([waits, records], calls, names)
    parts: list[pl.DataFrame] = []
    host_waits = pl.DataFrame(schema=ints("process correlation stream event"))
    if not waits.is_empty():
        waits = placed(waits).join(
            call_ids.select("process", "correlation", "call"), on=["process", "correlation"], how="left"
        )
        waits = waits.with_columns(stream=pl.col("stream").replace(NO_ID, None), event=_some_id("eventId"))
        stream_wait = pl.col("call").str.contains(api_calls.STREAM_WAIT_EVENT)
        unnamed = waits.filter(
            pl.col("call").is_null() & pl.col("event").is_not_null() & pl.col("stream").is_not_null()
        )
        omissions.add_if(
            unnamed.height,
            "unknown-wait",
            "synchronisations whose call was not recorded and which may be a stream or a host waiting for an "
            "event: left out of the dependencies",
        )
        parts.append(
            conform(
                waits.filter(stream_wait).with_columns(
                    kind=pl.lit("wait"), event_sync=_some_id("eventSyncId")
                ),
                EVENTS,
            )
        )
        host_waits = waits.filter(~stream_wait.fill_null(False)).select(
            "process", "correlation", "stream", "event"
        )
    if not records.is_empty():
        records = placed(records).join(
            call_ids.select("process", "correlation", "start_ns", "end_ns"),
            on=["process", "correlation"],
            how="left",
        )
        ids = {"event": _some_id("eventId"), "event_sync": _some_id("eventSyncId")}
        parts.append(conform(records.with_columns(kind=pl.lit("record"), **ids), EVENTS))
    elif parts and parts[0].height:
        omissions.add(
            "waits-without-records",
            "streams wait for events whose records the trace does not hold: what they wait for is not known",
            parts[0].height,
        )
    return (pl.concat(parts) if parts else empty(EVENTS)), host_waits.unique(
        ["process", "correlation"], keep="first"
    )


def _calls_of(tables: list[pl.DataFrame], calls: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Process, correlation, plain name and times of the calls that rows of `tables` come from: each once."""
    ids = pl.concat(frame.select(process_of("globalPid"), correlation="correlationId") for frame in tables)
    ids = ids.drop_nulls("correlation")
    picked = occurs(ids, calls.select("process", "correlation"))
    known = calls.select("process", "correlation", "start_ns", "end_ns").with_columns(
        call=names if len(names) else pl.lit(None, dtype=pl.String)
    )
    known = known.filter(picked).with_columns(pl.col("call").cast(pl.String))
    return known.unique(["process", "correlation"], keep="first")


def _some_id(column: str) -> pl.Expr:
    return pl.col(column).replace([0, *NO_ID], None)


def with_waits(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Calls with the stream or event that they wait for."""
    waiting = calls["waits_for"].is_in(["stream", "event"])
    if waits.is_empty() or not waiting.any():
        return calls
    # Those that wait for nothing, nearly all, need not be looked up.
    row = calls.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "process", "correlation", "waits_for"
    )
    known = row.filter(waiting).join(waits, on=["process", "correlation"], how="inner")
    columns = []
    for name in ("stream", "event"):
        part = known.filter((pl.col("waits_for") == name) & pl.col(name).is_not_null())
        columns.append(calls[name].clone().scatter(part["row"], part[name]))
    return calls.with_columns(columns)


def markers(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Ranges and marks that the program named."""
    frame = tables.read(
        "NVTX_EVENTS",
        TIMES | ints("eventType textId globalTid domainId") | texts("text"),
    )
    if frame.is_empty():
        newer = sorted(name for name in tables.names if name.startswith("NVTX_EVENTS_"))
        if newer:
            omissions.add(
                "unknown-nvtx", f"table {newer[0]} is newer than this version: its NVTX ranges are not read"
            )
        return empty(MARKERS)
    # 34 mark, 59 push/pop range, 60 start/end range; the others define domains and categories.
    frame = frame.filter(pl.col("eventType").is_in([34, 59, 60]))
    unended = frame.filter(pl.col("end").is_null() & (pl.col("eventType") != 34)).height
    omissions.add_if(unended, "open-ranges", OPEN_RANGES)
    frame = frame.join(strings, left_on="textId", right_on="id", how="left").with_columns(
        process_of("globalTid"),
        thread_of("globalTid"),
        name=pl.coalesce("text", "value"),
        start_ns="start",
        end_ns="end",
    )
    return conform(frame.rename({"domainId": "domain"}), MARKERS)
