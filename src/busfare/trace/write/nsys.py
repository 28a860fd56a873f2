"""Writes a `Trace` as the SQLite file that readers of Nsight Systems exports expect.

Tables, columns and encodings are those of export schema 3.25; as there, a table without rows is left out. What a
`Trace` does not hold (blocks' sizes, registers) is NULL. Of a kernel's grid it holds the number of blocks: they are written
as one row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.write.nsys_tables import (
    COPY_KIND_OF,
    ENUMS,
    HOST_NAMES,
    MARK,
    MEMORY_KIND_OF,
    MIGRATION_KIND_OF,
    NO_ID,
    PUSH_POP_RANGE,
    SCHEMA_VERSION,
    STREAM_FLAG_OF,
    STREAM_WAIT,
    SYNC_TYPE_OF,
    TABLES,
    THREAD_BITS,
    UNKNOWN_MEMORY,
    Numbers,
)

__all__ = ["export_nsys"]


def export_nsys(trace: Trace, path: Path) -> None:
    """Writes `trace` to `path`. Raises InputError when the file exists or cannot be written."""
    if path.exists():
        raise InputError(f"{path}: exists; choose another name, or remove it")
    try:
        with sqlite3.connect(path) as database:
            # The file is written once, in one go: a crash leaves nothing worth a journal.
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            _Export(trace, database).write()
        database.close()
    except sqlite3.Error as error:
        path.unlink(missing_ok=True)
        raise InputError(
            f"{path}: cannot be written ({error}); choose a place with room that you may write to"
        ) from None


class _Export:
    def __init__(self, trace: Trace, database: sqlite3.Connection) -> None:
        self.trace = trace
        self.database = database
        self.numbers = Numbers()

    def write(self) -> None:
        operations = self.trace.operations
        self._kernels(operations.filter(pl.col("kind") == "kernel"))
        self._copies(operations.filter(pl.col("kind").cast(pl.String).is_in(["copy", "migration"])))
        self._sets(operations.filter(pl.col("kind") == "set"))
        self._graphs(operations.filter(pl.col("kind") == "graph"))
        self._calls()
        self._waits()
        self._events()
        self._markers()
        self._devices()
        self._facts()
        for name, values in ENUMS.items():
            self.database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
            self.database.executemany(
                f"INSERT INTO {name} VALUES (?,?,?)", [(n, t, t) for n, t in values.items()]
            )
        self._insert(
            "StringIds", ["id", "value"], ((number, text) for text, number in self.numbers.strings.items())
        )

    def _insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        rows = iter(rows)
        first = next(rows, None)
        if first is None and table != "StringIds":
            return
        self.database.execute(f"CREATE TABLE {table} ({TABLES[table]})")
        statement = f"INSERT INTO {table} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})"
        if first is not None:
            self.database.execute(statement, first)
            self.database.executemany(statement, rows)

    def _insert_frame(self, table: str, frame: pl.DataFrame) -> None:
        self._insert(table, frame.columns, frame.iter_rows())

    def _placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(
            start="start_ns",
            end="end_ns",
            deviceId="device",
            contextId="context",
            streamId="stream",
            correlationId=pl.col("correlation").fill_null(0),
            globalPid=self.numbers.process(frame["process"]),
        )

    def _kernels(self, kernels: pl.DataFrame) -> None:
        full = kernels["name"].cast(pl.String)
        # The short name is what stands before the arguments and template arguments, without its namespaces.
        short = full.str.replace(r"^void ", "").str.replace(r"[<(].*$", "").str.replace(r"^.*::", "")
        name, short_name = self.numbers.texts(full), self.numbers.texts(short)
        frame = self._placed(kernels).with_columns(
            name.alias("demangledName"),
            short_name.alias("shortName"),
            kernels["graph_node"].alias("graphNodeId"),
        )
        if "blocks" in kernels.columns:
            one = pl.when(kernels["blocks"].is_not_null()).then(1)
            frame = frame.with_columns(kernels["blocks"].alias("gridX"), gridY=one, gridZ=one)
        self._insert_frame("CUPTI_ACTIVITY_KIND_KERNEL", frame)

    def _copies(self, copies: pl.DataFrame) -> None:
        migration = copies["kind"] == "migration"
        direction = copies["direction"].cast(pl.String)
        kind = direction.replace_strict(COPY_KIND_OF, default=0, return_dtype=pl.Int64)
        moved = direction.replace_strict(MIGRATION_KIND_OF, default=0, return_dtype=pl.Int64)
        peer = copies["peer_device"].cast(pl.Int64)
        source = _memory(copies["source_memory"])
        destination = _memory(copies["destination_memory"])
        unknown = pl.Series([UNKNOWN_MEMORY], dtype=pl.Int64)
        frame = self._placed(copies).with_columns(
            copies["bytes"],
            moved.zip_with(migration, kind).alias("copyKind"),
            unknown.new_from_index(0, len(copies)).zip_with(migration, source).alias("srcKind"),
            unknown.new_from_index(0, len(copies)).zip_with(migration, destination).alias("dstKind"),
            copies["device"].alias("srcDeviceId"),
            peer.alias("dstDeviceId"),
            copies["graph_node"].alias("graphNodeId"),
            copies["copy_count"].alias("copyCount"),
        )
        self._insert_frame("CUPTI_ACTIVITY_KIND_MEMCPY", frame)

    def _sets(self, sets: pl.DataFrame) -> None:
        frame = self._placed(sets).with_columns(
            sets["bytes"],
            sets["graph_node"].alias("graphNodeId"),
            _memory(sets["destination_memory"]).alias("memKind"),
        )
        self._insert_frame("CUPTI_ACTIVITY_KIND_MEMSET", frame)

    def _graphs(self, graphs: pl.DataFrame) -> None:
        number = graphs["name"].cast(pl.String).str.extract(r"(\d+)$").cast(pl.Int64)
        self._insert_frame(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", self._placed(graphs).with_columns(number.alias("graphId"))
        )

    def _calls(self) -> None:
        calls = self.trace.calls
        frame = calls.select(
            start="start_ns",
            end="end_ns",
            eventClass=pl.when(pl.col("name").cast(pl.String).str.starts_with("cuda")).then(0).otherwise(1),
            globalTid=self.numbers.thread(calls),
            correlationId=pl.col("correlation").fill_null(0),
            nameId=self.numbers.texts(calls["name"]),
            returnValue=pl.lit(0),
        )
        self._insert_frame("CUPTI_ACTIVITY_KIND_RUNTIME", frame)

    def _waits(self) -> None:
        """Host-side waits from the calls, and waits of streams from the events."""
        host = self.trace.calls.filter(pl.col("waits_for").cast(pl.String).is_in(list(SYNC_TYPE_OF)))
        host = host.with_columns(
            syncType=pl.col("waits_for").cast(pl.String).replace_strict(SYNC_TYPE_OF, return_dtype=pl.Int64)
        )
        streams = self.trace.events.filter(pl.col("kind") == "wait").with_columns(
            syncType=pl.lit(STREAM_WAIT, pl.Int64)
        )
        both = pl.concat([host, streams.drop("kind")], how="diagonal_relaxed")
        if not both.height:
            return
        frame = both.select(
            start="start_ns",
            end="end_ns",
            deviceId="device",
            contextId="context",
            streamId=pl.col("stream").fill_null(NO_ID),
            correlationId=pl.col("correlation").fill_null(0),
            globalPid=self.numbers.process(both["process"]),
            syncType="syncType",
            eventId=pl.col("event").fill_null(NO_ID),
            eventSyncId=pl.col("event_sync").fill_null(0),
        )
        self._insert_frame("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", frame)

    def _events(self) -> None:
        records = self.trace.events.filter(pl.col("kind") == "record")
        frame = records.select(
            deviceId="device",
            contextId="context",
            streamId="stream",
            correlationId=pl.col("correlation").fill_null(0),
            globalPid=self.numbers.process(records["process"]),
            eventId="event",
            timestamp=pl.lit(0),
            eventSyncId=pl.col("event_sync").fill_null(0),
        )
        self._insert_frame("CUPTI_ACTIVITY_KIND_CUDA_EVENT", frame)

    def _markers(self) -> None:
        markers = self.trace.markers
        thread = self.numbers.thread(markers)
        frame = markers.select(
            start="start_ns",
            end="end_ns",
            eventType=pl.when(pl.col("end_ns").is_null()).then(MARK).otherwise(PUSH_POP_RANGE),
            text=pl.col("name").cast(pl.String),
            globalTid=thread,
            domainId=pl.col("domain").fill_null(0),
        )
        self._insert_frame("NVTX_EVENTS", frame)

    def _devices(self) -> None:
        devices = self.trace.devices
        capability = devices["compute_capability"].str.split_exact(".", 1)
        major, minor = (capability.struct.field(f"field_{n}").cast(pl.Int64, strict=False) for n in (0, 1))
        gpus = devices.with_columns(major=major, minor=minor)
        key = pl.coalesce("uuid", "bus_id", pl.col("device").cast(pl.String))
        gpus = gpus.with_columns(id=key.rank("dense").cast(pl.Int64) - 1)
        unique = gpus.unique("id", maintain_order=True)
        self._insert_frame(
            "TARGET_INFO_GPU",
            unique.select(
                vmId=pl.lit(0),
                id="id",
                name="name",
                busLocation="bus_id",
                isDiscrete=pl.lit(1),
                totalMemory="memory_bytes",
                memoryBandwidth=pl.col("memory_bandwidth_bytes_per_s").cast(pl.Int64),
                clockRate=pl.col("clock_hz").cast(pl.Int64),
                smCount="multiprocessors",
                uuid="uuid",
                cuDevice="device",
                asyncEngines="copy_engines",
                computeMajor="major",
                computeMinor="minor",
            ),
        )
        of_processes = gpus.filter(pl.col("process").is_not_null())
        pids = (self.numbers.process(of_processes["process"]) // (1 << THREAD_BITS)).alias("pid")
        self._insert_frame(
            "TARGET_INFO_CUDA_DEVICE",
            of_processes.select(
                gpuId="id", cudaId="device", pid=pids, uuid="uuid", numMultiprocessors="multiprocessors"
            ),
        )
        streams = self.trace.streams
        flag = (
            streams["kind"].cast(pl.String).replace_strict(STREAM_FLAG_OF, default=0, return_dtype=pl.Int64)
        )
        priority = streams["priority"].cast(pl.Int64)
        self._insert_frame(
            "TARGET_INFO_CUDA_STREAM",
            streams.select(
                streamId="stream",
                hwId=pl.lit(0),
                vmId=pl.lit(0),
                processId=self.numbers.process(streams["process"]) // (1 << THREAD_BITS),
                contextId="context",
                priority=pl.when(priority < 0).then(priority + (1 << 32)).otherwise(priority),
                flag=flag,
            ),
        )

    def _facts(self) -> None:
        trace = self.trace
        self._insert(
            "META_DATA_EXPORT",
            ["name", "value"],
            [
                ("EXPORT_PRODUCT_NAME", "busfare"),
                ("EXPORT_PRODUCT_VERSION", trace.producer),
                ("EXPORT_SCHEMA_VERSION", SCHEMA_VERSION),
                *zip(
                    (
                        "EXPORT_SCHEMA_VERSION_MAJOR",
                        "EXPORT_SCHEMA_VERSION_MINOR",
                        "EXPORT_SCHEMA_VERSION_MICRO",
                    ),
                    SCHEMA_VERSION.split("."),
                    strict=True,
                ),
            ],
        )
        self._insert("META_DATA_CAPTURE", ["name", "value"], [("CAPTURE_PRODUCER", trace.producer)])
        ends = [frame["end_ns"].max() for frame in (trace.operations, trace.calls) if frame.height]
        last = max((end for end in ends if isinstance(end, int)), default=0)
        self._insert(
            "ANALYSIS_DETAILS", ["globalVid", "duration", "startTime", "stopTime"], [(0, last, 0, last)]
        )
        known = [
            (0, "", HOST_NAMES[key], 0, text)
            for key, text in trace.host.items()
            if key in HOST_NAMES and text
        ]
        self._insert(
            "TARGET_INFO_SYSTEM_ENV", ["globalVid", "devStateName", "name", "nameEnum", "value"], known
        )
        said = [(0, 0, 0, 2, f"{omission.what} ({omission.count})") for omission in trace.omissions]
        self._insert("DIAGNOSTIC_EVENT", ["timestamp", "timestampType", "source", "severity", "text"], said)


def _memory(kinds: pl.Series) -> pl.Series:
    return kinds.cast(pl.String).replace_strict(MEMORY_KIND_OF, default=UNKNOWN_MEMORY, return_dtype=pl.Int64)
