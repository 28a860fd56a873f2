"""Nsight Systems exports: SQLite files and directories of Parquet or Arrow tables, of all schemas since 2021.

Tables and columns come and go with the version, so everything is looked up by name and may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from busfare.trace import api_calls, nsys_devices, nsys_summed
from busfare.trace.beside import beside
from busfare.trace.cupti_numbers import DIRECTION_OF
from busfare.trace.grid import GRID, with_blocks
from busfare.trace.nsys_columns import INT, PLACE, SMALL_INT, TIMES, placed
from busfare.trace.nsys_events import event_tables, events_of, with_waits
from busfare.trace.nsys_texts import Texts, as_places
from busfare.trace.omissions import Omissions
from busfare.trace.summed import keep
from busfare.trace.table_source import AS_THEY_ARE, Change, Changes, Codes, TableSource, bits_of
from busfare.trace.tables import (
    CALLS,
    DIRECTIONS,
    KINDS,
    LATEST,
    MARKERS,
    MEMORY_KINDS,
    OPERATIONS,
    OPERATIONS_OF_KERNELS,
    Schema,
    conform,
    empty,
)
from busfare.trace.trace import Trace
from busfare.trace.words import NONE, of_codes

__all__ = ["matches", "read"]

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"

#: ENUM_CUDA_MEMCPY_OPER, beyond CUPTI's own; the table that explains it is missing from exports before 2022.4.
MIGRATION_DIRECTION_OF = {11: "h2d", 12: "d2h", 13: "d2d"}
#: ENUM_CUDA_MEM_KIND: one less than CUPTI's own numbers.
MEMORY_OF = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "static", 6: "managed"}

#: Kinds of copies as they are; 255 for null and for what is none.
COPY_KINDS = Codes(0, np.arange(NONE, dtype=np.uint8), NONE)
PEER_COPY = 10
MIGRATIONS = np.isin(np.arange(NONE + 1), list(MIGRATION_DIRECTION_OF))

#: Where process and thread stand in a serialised global id.
PROCESS, THREAD = Change(first_bit=24, bits=24), Change(first_bit=0, bits=24)

#: What kernels and copies have in common, and those of it that a caller may have no use for.
OF_OPERATIONS = TIMES | PLACE | {"graphNodeId": INT}
OF_COPIES: dict[str, pl.DataType] = {
    "copyKind": INT,
    "srcKind": INT,
    "dstKind": INT,
    "dstDeviceId": SMALL_INT,
    "copyCount": INT,
}
OF_SETS: dict[str, pl.DataType] = {"graphNodeId": INT, "bytes": INT, "memKind": INT}
MEANS = {"contextId": "operations.context", "graphNodeId": "operations.graph_node"}


def _words(words: Mapping[int, str], among: Sequence[str]) -> Codes:
    """Numbers as the places of the words that they mean; 255 for null and for any that is not listed."""
    of = np.full(max(words) + 1, NONE, np.uint8)
    for number, word in words.items():
        of[number] = among.index(word)
    return Codes(0, of, NONE)


MEMORY_CODES = _words(MEMORY_OF, MEMORY_KINDS)


def matches(tables: TableSource) -> bool:
    """Whether these tables are an Nsight Systems export."""
    return "StringIds" in tables.names and any(
        name.startswith(
            ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "META_DATA_", "EXPORT_META_DATA")
        )
        for name in tables.names
    )


def read(
    tables: TableSource, unused: frozenset[str] = frozenset(), above: int = 0, sums: bool = False
) -> Trace:
    """Reads an export; `unused`, `above` and `sums` are those of `busfare.trace.read`.

    Raises InputError if a table that is there cannot be read.
    """
    omissions = Omissions()
    tables = _Counted(tables)
    strings = tables.read("StringIds", {"id": INT, "value": pl.String()}).unique("id", keep="first")
    strings = strings.drop_nulls()
    if sums and sum(tables.most_rows(table) or 0 for table in (CALLS_TABLE, KERNELS, COPIES, SETS)) > above:
        trace = _in_sums(tables, strings, above)
        if trace is not None:
            return trace

    # Large tables are read as if nobody asked for threads, and again if they are not so large after all.
    without_threads = "calls.thread" in unused and (tables.most_rows(CALLS_TABLE) or 0) > above
    of_calls = TIMES | {"globalTid": INT, "correlationId": INT, "nameId": INT}
    named = as_places(tables, CALLS_TABLE, "nameId", strings)
    called = tables.read(
        CALLS_TABLE, of_calls, {**named, **({"globalTid": PROCESS} if without_threads else {})}
    )
    unused = unused if called.height > above else frozenset()
    if without_threads and "calls.thread" not in unused:
        called, without_threads = tables.read(CALLS_TABLE, of_calls, named), False
    place = {name: kind for name, kind in OF_OPERATIONS.items() if MEANS.get(name) not in unused}
    made = beside(called.height, partial(_calls, called, strings, without_threads, omissions))
    del called
    kernels = _kernels(tables, strings, place if "operations.blocks" in unused else place | GRID)
    calls, names = made()
    del made
    events, waits = events_of(*event_tables(tables), calls, names, omissions)
    if not unused >= {"calls.stream", "calls.event"}:
        calls = with_waits(calls, waits)
    operations = [
        conform(frame, OPERATIONS, OPERATIONS_OF_KERNELS)
        for frame in (
            kernels,
            _copies(_copy_table(tables, place), omissions),
            _sets(tables.read(SETS, TIMES | PLACE | OF_SETS)),
            _graphs(tables, omissions),
        )
    ]
    return _trace(tables, pl.concat(operations, how="diagonal"), calls, events, strings, omissions)


def _trace(
    tables: TableSource,
    operations: pl.DataFrame,
    calls: pl.DataFrame,
    events: pl.DataFrame,
    strings: pl.DataFrame,
    omissions: Omissions,
) -> Trace:
    product, schema = _version(tables)
    trace = Trace(
        path=tables.path,
        format="nsys-sqlite" if tables.path.is_file() else "nsys-directory",
        producer=f"Nsight Systems {product}".strip() + (f" (schema {schema})" if schema else ""),
        operations=operations,
        calls=calls,
        events=events,
        markers=_markers(tables, strings, omissions),
        devices=nsys_devices.devices(tables),
        streams=nsys_devices.streams(tables),
        host=nsys_devices.host(tables),
    )
    _note_diagnostics(tables, omissions)
    trace.omissions = omissions.list()
    return trace


def _in_sums(tables: _Counted, strings: pl.DataFrame, above: int) -> Trace | None:
    """The trace as `Summed`; None if there is something in it to sort out."""
    if tables.most_rows(GRAPHS):
        return None
    waits, records = event_tables(tables)
    ids = pl.concat(
        frame.select(process="globalPid", correlation="correlationId") for frame in (waits, records)
    )
    kinds = {
        KERNELS: (("deviceId", "streamId", "demangledName"), None),
        COPIES: (("deviceId", "streamId", *OF_COPIES), "bytes"),
        SETS: (("deviceId", "streamId", "memKind"), "bytes"),
    }
    process = PROCESS.first_bit, PROCESS.bits
    ids = ids.drop_nulls("correlation")
    scan = nsys_summed.scan(tables, tables.less, process, CALLS_TABLE, kinds, strings, ids)
    if scan is None or not scan.parts or len(scan.calls) == 0:
        return None
    if len(scan.calls) + sum(len(part.starts) for _, part in scan.parts) <= above:
        return None
    omissions = Omissions()
    parts = [_lanes(table, part, strings, omissions) for table, part in scan.parts]
    begin = min(int(part.starts[0]) for _, part in scan.parts)
    end = max(int(part.ends.max()) for _, part in scan.parts)
    # Times of two clocks, and what `_lanes` could not name, are sorted out elsewhere.
    if None in parts or omissions.found or max(begin, scan.calls.first) > min(end, scan.calls.last):
        return None
    first = min(begin, scan.calls.first)
    summed = nsys_summed.summed([part for part in parts if part], scan, first)
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    kept = pl.DataFrame(dict(zip(columns, scan.calls.kept, strict=True)))
    calls, names = _calls(kept, strings, True, omissions)
    events, _ = events_of(waits, records, calls, names, omissions)
    operations = conform(pl.DataFrame({"start_ns": summed.starts, "end_ns": summed.ends}), OPERATIONS)
    keep(operations, summed)
    return _trace(tables, operations, calls, events, strings, omissions)


def _lanes(
    table: str, part: nsys_summed.Operations, strings: pl.DataFrame, omissions: Omissions
) -> nsys_summed.Part | None:
    """A table's lanes as rows of operations; None if some have no name, or are not alike enough to be priced as one."""
    keys = pl.DataFrame(
        {name: pl.Series(values, dtype=INT) for name, values in part.lanes.keys.items()}
    ).rename({"process": "globalPid"})
    names = None
    if table == KERNELS:
        named = Texts.of(keys["demangledName"], strings, "(unnamed kernel)")
        if named.any_unknown:
            return None
        names = named.texts[named.number[named.rows]]
        lanes = placed(keys).with_columns(kind=pl.lit("kernel"))
    elif table == COPIES:
        if ((keys["copyKind"] == PEER_COPY) | (keys["copyCount"] > 1)).any():
            return None
        lanes = _copies(keys, omissions)
    else:
        lanes = _sets(keys)
    return nsys_summed.Part(part, conform(lanes, OPERATIONS), names)


def _version(tables: TableSource) -> tuple[str, str]:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        frame = tables.read(table, {"name": pl.String(), "value": pl.String()})
        if frame.height:
            found = dict(zip(frame["name"], frame["value"], strict=True))
            return found.get("EXPORT_PRODUCT_VERSION") or "", found.get("EXPORT_SCHEMA_VERSION") or ""
    return "", ""


def _process(ids: pl.Series) -> pl.Series:
    """The process id within a serialised global id."""
    return bits_of(ids, PROCESS.first_bit, PROCESS.bits).alias("process")


def _thread(ids: pl.Series) -> pl.Series:
    """The thread id within a serialised global id."""
    return bits_of(ids, THREAD.first_bit, THREAD.bits).alias("thread")


class _Counted:
    """The tables, their times counted from about where the trace begins, and processes in place of their global ids."""

    def __init__(self, tables: TableSource) -> None:
        self._tables = tables
        begins = [tables.first(table, "start") for table in (CALLS_TABLE, KERNELS, COPIES, SETS, GRAPHS)]
        # Which are the first rows of tables that are written in order, nearly.
        self.less = min((begin for begin in begins if begin is not None and 0 <= begin <= LATEST), default=0)
        self.direct = getattr(tables, "direct", None)
        self.path, self.names = tables.path, tables.names
        self.columns, self.first, self.most_rows = tables.columns, tables.first, tables.most_rows
        self.close = tables.close

    def read(self, table: str, wanted: Schema, changes: Changes = AS_THEY_ARE) -> pl.DataFrame:
        of_times = {name: Change(less=self.less) for name in TIMES if name in wanted}
        of_ids = {"globalPid": PROCESS} if "globalPid" in wanted else {}
        return self._tables.read(table, wanted, {**of_times, **of_ids, **changes})


def _kernels(tables: TableSource, strings: pl.DataFrame, place: Schema) -> pl.DataFrame:
    changes = as_places(tables, KERNELS, "demangledName", strings)
    frame = tables.read(KERNELS, {**place, "demangledName": INT}, changes)
    if frame.is_empty():
        return empty(OPERATIONS)
    named = Texts.of(frame["demangledName"], strings, "(unnamed kernel)")
    if named.any_unknown:  # some versions and languages fill only another column
        others = tables.read(KERNELS, {"demangledName": INT, "shortName": INT, "mangledName": INT})
        if others.height == frame.height:
            known = [
                pl.when(pl.col(name).is_in(strings["id"].implode())).then(name) for name in others.columns
            ]
            ids = others.select(pl.coalesce(*known)).to_series()
            named = Texts.of(ids, strings, "(unnamed kernel)")
    name = named.of_rows(named.texts.cast(pl.Categorical))
    frame = with_blocks(frame).drop("demangledName", strict=False)
    return placed(frame).with_columns(kind=pl.lit("kernel"), name=name)


def _copy_table(tables: TableSource, place: Schema) -> pl.DataFrame:
    of_memory = {side: Change(codes=MEMORY_CODES) for side in ("srcKind", "dstKind")}
    changes = {"copyKind": Change(codes=COPY_KINDS), **of_memory}
    return tables.read(COPIES, {**place, "bytes": INT, **OF_COPIES}, changes)


def _copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    if frame.is_empty():
        return empty(OPERATIONS)
    frame = placed(frame)
    kinds = COPY_KINDS.column(frame["copyKind"]).to_numpy()
    migration = MIGRATIONS[kinds]
    memory = [MEMORY_CODES.column(frame[side]).to_numpy() for side in ("srcKind", "dstKind")]
    if migration.any():
        memory = [np.where(migration, np.uint8(MEMORY_KINDS.index("managed")), side) for side in memory]
    to_peer = pl.Series(kinds == PEER_COPY)
    directions = _words(DIRECTION_OF | MIGRATION_DIRECTION_OF, DIRECTIONS)
    kind = np.where(migration, np.uint8(KINDS.index("migration")), np.uint8(KINDS.index("copy")))
    frame = frame.with_columns(
        kind=of_codes(kind, pl.Series(dtype=pl.Enum(KINDS))),
        direction=of_codes(directions.of_codes(kinds), pl.Series(dtype=pl.Enum(DIRECTIONS))),
        source_memory=of_codes(memory[0], pl.Series(dtype=pl.Enum(MEMORY_KINDS))),
        destination_memory=of_codes(memory[1], pl.Series(dtype=pl.Enum(MEMORY_KINDS))),
        peer_device=pl.when(to_peer).then("dstDeviceId") if to_peer.any() else pl.lit(None, dtype=SMALL_INT),
        copy_count=pl.col("copyCount").fill_null(1).clip(1),
    )
    omissions.add_if(
        frame["direction"].null_count(),
        "unknown-direction",
        "copies of a kind that this version does not know: counted, with no direction",
    )
    return frame


def _sets(frame: pl.DataFrame) -> pl.DataFrame:
    if frame.is_empty():
        return empty(OPERATIONS)
    return placed(frame).with_columns(
        kind=pl.lit("set"),
        name=pl.lit("memset"),
        destination_memory=pl.col("memKind").replace_strict(
            MEMORY_OF, default=None, return_dtype=pl.Enum(MEMORY_KINDS)
        ),
    )


def _graphs(tables: TableSource, omissions: Omissions) -> pl.DataFrame:
    frame = tables.read(GRAPHS, TIMES | PLACE | {"graphId": INT})
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


def _calls(
    frame: pl.DataFrame, strings: pl.DataFrame, without_threads: bool, omissions: Omissions
) -> tuple[pl.DataFrame, pl.Series]:
    """The calls, and the plain name of each; null where it is lost.

    `without_threads`: the global ids are processes already.
    """
    if frame.is_empty():
        return empty(CALLS), pl.Series(dtype=pl.Categorical())
    named = Texts.of(frame["nameId"], strings, "(unnamed call)")
    meanings = [api_calls.meaning(text) for text in named.texts]
    names = pl.DataFrame(
        {
            "plain": pl.Series([plain for plain, _ in meanings], dtype=pl.Categorical()),
            "waits_for": pl.Series([waits for _, waits in meanings], dtype=CALLS["waits_for"]),
        }
    )
    unnamed = int(named.unknown().sum()) if named.any_unknown else 0
    omissions.add_if(unnamed, "unnamed-calls", "API calls whose name is lost: taken to wait for nothing")
    frame = frame.select(
        *(
            [pl.col("globalTid").alias("process")]
            if without_threads
            else [_process(frame["globalTid"]), _thread(frame["globalTid"])]
        ),
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


def _markers(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    frame = tables.read(
        "NVTX_EVENTS",
        TIMES | {"eventType": INT, "text": pl.String(), "textId": INT, "globalTid": INT, "domainId": INT},
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
    omissions.add_if(
        unended, "open-ranges", "NVTX ranges that were still open when the trace ended: shown as marks"
    )
    frame = frame.join(strings, left_on="textId", right_on="id", how="left").with_columns(
        _process(frame["globalTid"]),
        _thread(frame["globalTid"]),
        name=pl.coalesce("text", "value"),
        start_ns="start",
        end_ns="end",
    )
    return conform(frame.rename({"domainId": "domain"}), MARKERS)


def _note_diagnostics(tables: TableSource, omissions: Omissions) -> None:
    frame = tables.read("DIAGNOSTIC_EVENT", {"text": pl.String()})
    if frame.is_empty():
        return
    lost = frame.filter(pl.col("text").str.contains(r"(?i)\bdropped\b|not collected|\blost\b|incomplete"))
    for text in lost["text"].unique(maintain_order=True).head(5):
        omissions.add("profiler-said", f"the profiler said while it recorded: {text[:200]}", 1)
