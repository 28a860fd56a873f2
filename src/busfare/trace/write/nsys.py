"""Writes a `Trace` as the SQLite file that readers of Nsight Systems exports expect.

Tables, columns and encodings are those of export schema 3.25; as there, a table without rows is left out. What a
`Trace` does not hold is NULL. Shared memory, of which it holds the sum, is written as if it were all dynamic.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.readers import cupti
from busfare.trace.readers.nsys.rows import MIGRATION_DIRECTION_OF

SCHEMA_VERSION = "3.25.0"

#: ENUM_CUDA_MEMCPY_OPER.
COPY_KINDS = {
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host",
    10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
COPY_KIND_OF = {"h2d": 1, "d2h": 2, "d2d": 8, "h2h": 9, "p2p": 10}
MIGRATION_KIND_OF = {direction: kind for kind, direction in MIGRATION_DIRECTION_OF.items()}
#: ENUM_CUDA_MEM_KIND.
MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
    7: "Unknown",
}  # fmt: skip
#: Mapped memory is pinned memory that the GPU addresses.
MEMORY_KIND_OF = {"pageable": 0, "pinned": 1, "mapped": 1, "device": 2, "array": 3, "managed": 4, "static": 5}
UNKNOWN_MEMORY = 7
SYNC_TYPES = {
    0: "Unknown", 1: "Event synchronize", 2: "Stream wait event", 3: "Stream synchronize", 4: "Context synchronize",
}  # fmt: skip
SYNC_TYPE_OF = {"event": cupti.EVENT_SYNC, "stream": cupti.STREAM_SYNC, "device": cupti.CONTEXT_SYNC}
STREAM_FLAGS = {0: "Unknown", 1: "Default", 2: "Non-blocking", 3: "Null"}
STREAM_FLAG_OF = {kind: flag for flag, kind in cupti.STREAM_KIND_OF.items()}
EVENT_CLASSES = {0: "CUDA runtime", 1: "CUDA driver"}
NO_ID = 4294967295
MARK, PUSH_POP_RANGE = 34, 59
#: Of a process within a global id, and of a thread below it.
BITS = 24

PLACE = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER"
)
TABLES: dict[str, str] = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "ANALYSIS_DETAILS": "globalVid INTEGER, duration INTEGER, startTime INTEGER, stopTime INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": PLACE
    + ", demangledName INTEGER, shortName INTEGER, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,"
    " registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,"
    " blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER,"
    " localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,"
    " sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": PLACE
    + ", bytes INTEGER, copyKind INTEGER, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER,"
    " srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER,"
    " graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": PLACE
    + ", value INTEGER, bytes INTEGER, graphNodeId INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": PLACE + ", graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
    " correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": PLACE
    + ", deprecatedSyncType INTEGER, syncType INTEGER, eventId INTEGER, eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId INTEGER, contextId INTEGER, greenContextId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER, eventId INTEGER, timestamp INTEGER, eventSyncId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, color INTEGER,"
    " text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, isDiscrete INTEGER,"
    " totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, cuDevice INTEGER,"
    " asyncEngines INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT, numMultiprocessors INTEGER",
    "TARGET_INFO_CUDA_STREAM": "streamId INTEGER, hwId INTEGER, vmId INTEGER, processId INTEGER, contextId INTEGER,"
    " priority INTEGER, flag INTEGER",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT",
}
ENUMS: dict[str, Mapping[int, str]] = {
    "ENUM_CUDA_MEMCPY_OPER": COPY_KINDS,
    "ENUM_CUDA_MEM_KIND": MEMORY_KINDS,
    "ENUM_CUPTI_SYNC_TYPE": SYNC_TYPES,
    "ENUM_CUPTI_STREAM_TYPE": STREAM_FLAGS,
    "ENUM_NSYS_EVENT_CLASS": EVENT_CLASSES,
}
ENUM = "id INTEGER PRIMARY KEY, name TEXT, label TEXT"
HOST_NAMES = {
    "cpu": "CpuDescription",
    "driver": "NvDriverVersion",
    "cuda": "CudaDriverVersion",
    "hostname": "Hostname",
}


def export_nsys(trace: Trace, path: Path) -> None:
    """Writes `trace` to `path`. Raises InputError when the file exists or cannot be written."""
    if path.exists():
        raise InputError(f"{path}: exists; choose another name, or remove it")
    try:
        with sqlite3.connect(path) as database:
            # The file is written once, in one go: a crash leaves nothing worth a journal.
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            for name, frame in _tables(trace).items():
                if frame.height or name == "StringIds":
                    database.execute(f"CREATE TABLE {name} ({TABLES.get(name, ENUM)})")
                    columns, marks = ",".join(frame.columns), ",".join("?" * frame.width)
                    database.executemany(
                        f"INSERT INTO {name} ({columns}) VALUES ({marks})", frame.iter_rows()
                    )
        database.close()
    except sqlite3.Error as error:
        path.unlink(missing_ok=True)
        raise InputError(
            f"{path}: cannot be written ({error}); choose a place with room that you may write to"
        ) from None


def _tables(trace: Trace) -> dict[str, pl.DataFrame]:
    """Every table by its name, its columns by theirs."""
    calls, events, markers = trace.calls, trace.events, trace.markers
    operations = trace.operations.with_columns(pl.col("name").cast(pl.String))
    kind, name = pl.col("kind"), pl.col("name")
    # The short name is what stands before the arguments and template arguments, without its namespaces.
    short = name.str.replace(r"^void ", "").str.replace(r"[<(].*$", "").str.replace(r"^.*::", "")
    kernels = operations.filter(kind == "kernel").with_columns(short=short)
    texts = pl.concat([kernels["name"], kernels["short"], calls["name"].cast(pl.String)])
    strings = texts.drop_nulls().unique(maintain_order=True).alias("value").to_frame().with_row_index("id", 1)

    def text(of: pl.Expr) -> pl.Expr:
        known = strings["id"].cast(pl.Int64)
        return of.cast(pl.String).replace_strict(strings["value"], known, default=None, return_dtype=pl.Int64)

    tables = (trace.operations, calls, events, markers, trace.devices, trace.streams)
    processes = _within_bits(
        process for table in tables for process in table["process"].drop_nulls().unique()
    )
    process = pl.col("process").replace_strict(processes, default=None, return_dtype=pl.Int64)
    correlation = pl.col("correlation").fill_null(0)
    device = {
        "deviceId": pl.col("device"),
        "contextId": pl.col("context"),
        "globalPid": process * (1 << BITS),
    }
    of_device = {**device, "correlationId": correlation}
    timed = {"start": pl.col("start_ns"), "end": pl.col("end_ns")}
    place = {**timed, **of_device, "streamId": pl.col("stream")}
    node = {"graphNodeId": pl.col("graph_node")}

    copies = operations.filter(kind.is_in(["copy", "migration"]))
    migrates = kind == "migration"
    copy_kind = pl.when(migrates).then(_number("direction", MIGRATION_KIND_OF, 0))
    ends = {
        f"{end}Kind": pl.when(migrates)
        .then(UNKNOWN_MEMORY)
        .otherwise(_number(memory, MEMORY_KIND_OF, UNKNOWN_MEMORY))
        for end, memory in (("src", "source_memory"), ("dst", "destination_memory"))
    }
    graphs = operations.filter(kind == "graph")
    waits = pl.concat(
        [
            calls.filter(pl.col("waits_for").cast(pl.String).is_in(list(SYNC_TYPE_OF))).with_columns(
                syncType=_number("waits_for", SYNC_TYPE_OF, 0)
            ),
            events.filter(kind == "wait")
            .with_columns(syncType=pl.lit(cupti.STREAM_WAIT_EVENT, pl.Int64))
            .drop("kind"),
        ],
        how="diagonal_relaxed",
    )
    records = events.filter(kind == "record")
    is_driver = ~name.cast(pl.String).str.starts_with("cuda")
    made = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels.select(
            **place, **node, demangledName=text(name), shortName=text(pl.col("short")), **_launch(trace)
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies.select(
            "bytes",
            **place,
            **node,
            **ends,
            copyKind=copy_kind.otherwise(_number("direction", COPY_KIND_OF, 0)),
            srcDeviceId="device",
            dstDeviceId="peer_device",
            copyCount="copy_count",
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": operations.filter(kind == "set").select(
            "bytes", **place, **node, memKind=_number("destination_memory", MEMORY_KIND_OF, UNKNOWN_MEMORY)
        ),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": graphs.select(
            **place, graphId=name.str.extract(r"(\d+)$").cast(pl.Int64)
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls.select(
            **timed,
            eventClass=is_driver.fill_null(True).cast(pl.Int64),
            globalTid=_threads(trace, calls, processes),
            correlationId=correlation,
            nameId=text(name),
            returnValue=pl.lit(0),
        ),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": waits.select(
            "syncType",
            **{**place, "streamId": pl.col("stream").fill_null(NO_ID)},
            eventId=pl.col("event").fill_null(NO_ID),
            eventSyncId=pl.col("event_sync").fill_null(0),
        ),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": records.select(
            **of_device,
            streamId="stream",
            eventId="event",
            timestamp=pl.lit(0),
            eventSyncId=pl.col("event_sync").fill_null(0),
        ),
        "NVTX_EVENTS": markers.select(
            **timed,
            eventType=pl.when(pl.col("end_ns").is_null()).then(MARK).otherwise(PUSH_POP_RANGE),
            text=name.cast(pl.String),
            globalTid=_threads(trace, markers, processes),
            domainId=pl.col("domain").fill_null(0),
        ),
        **_devices(trace.devices, process),
        "TARGET_INFO_CUDA_STREAM": trace.streams.select(
            streamId="stream",
            hwId=pl.lit(0),
            vmId=pl.lit(0),
            processId=process,
            contextId="context",
            priority=pl.col("priority").cast(pl.Int64) % (1 << 32),  # stored unsigned
            flag=_number("kind", STREAM_FLAG_OF, 0),
        ),
        **_facts(trace),
    }
    for enumeration, words in ENUMS.items():
        made[enumeration] = pl.DataFrame({"id": list(words), "name": words.values(), "label": words.values()})
    return {**made, "StringIds": strings}


def _number(column: str, number_of: Mapping[str, int], otherwise: int) -> pl.Expr:
    return pl.col(column).cast(pl.String).replace_strict(number_of, default=otherwise, return_dtype=pl.Int64)


def _launch(trace: Trace) -> dict[str, pl.Expr]:
    """How kernels were launched, where the trace was read with that."""
    if "launch" not in trace.operations.columns:
        return {}
    columns = {f"{what}{side.upper()}": f"{what}_{side}" for what in ("grid", "block") for side in "xyz"}
    columns |= {"registersPerThread": "registers", "dynamicSharedMemory": "shared_bytes"}
    static = pl.when(pl.col("launch").is_not_null()).then(0)
    rows = pl.Series(range(trace.launches.height), dtype=pl.UInt32)
    return {
        column: pl.col("launch").replace_strict(rows, trace.launches[name], default=None)
        for column, name in columns.items()
    } | {"staticSharedMemory": static}


def _within_bits(numbers: Iterable[int]) -> dict[int, int]:
    """Each number's lowest bits; those of another number's are the next that are free."""
    number_of: dict[int, int] = {}
    for number in dict.fromkeys(numbers):
        low = number % (1 << BITS)
        while low in number_of:
            low = (low + 1) % (1 << BITS)
        number_of[low] = number
    return {number: low for low, number in number_of.items()}


def _threads(trace: Trace, frame: pl.DataFrame, processes: dict[int, int]) -> pl.Series:
    """The process and thread of each row of `frame` in one number."""
    thread = pl.col("thread").fill_null(0)
    pairs = pl.concat(table.select("process", thread) for table in (trace.calls, trace.markers)).unique(
        maintain_order=True
    )
    rows = [
        (process, thread, (processes.get(process, 0) << BITS) + low if process is not None else None)
        for (process,), of_process in pairs.group_by("process", maintain_order=True)
        for thread, low in _within_bits(of_process["thread"]).items()
    ]
    schema = {"process": pl.Int64, "thread": pl.Int64, "globalTid": pl.Int64}
    numbers = pl.DataFrame(rows, schema, orient="row")
    return frame.select("process", thread).join(
        numbers, on=["process", "thread"], how="left", maintain_order="left"
    )["globalTid"]


def _devices(devices: pl.DataFrame, process: pl.Expr) -> dict[str, pl.DataFrame]:
    capability = pl.col("compute_capability").str.split_exact(".", 1).struct
    major, minor = (capability.field(f"field_{n}").cast(pl.Int64, strict=False) for n in (0, 1))
    key = pl.coalesce("uuid", "bus_id", pl.col("device").cast(pl.String))
    gpus = devices.with_columns(id=key.rank("dense").cast(pl.Int64) - 1)
    return {
        "TARGET_INFO_GPU": gpus.unique("id", maintain_order=True).select(
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
            computeMajor=major,
            computeMinor=minor,
        ),
        "TARGET_INFO_CUDA_DEVICE": gpus.drop_nulls("process").select(
            gpuId="id", cudaId="device", pid=process, uuid="uuid", numMultiprocessors="multiprocessors"
        ),
    }


def _facts(trace: Trace) -> dict[str, pl.DataFrame]:
    """What the file says of itself, of the run as a whole, of the host, and what is lacking."""
    ends = [frame["end_ns"].max() for frame in (trace.operations, trace.calls) if frame.height]
    last = max((end for end in ends if isinstance(end, int)), default=0)
    version = {"": SCHEMA_VERSION} | dict(
        zip(("_MAJOR", "_MINOR", "_MICRO"), SCHEMA_VERSION.split("."), strict=True)
    )
    about = {"EXPORT_PRODUCT_NAME": "busfare", "EXPORT_PRODUCT_VERSION": trace.producer}
    about |= {f"EXPORT_SCHEMA_VERSION{part}": number for part, number in version.items()}
    known = {HOST_NAMES[key]: text for key, text in trace.host.items() if key in HOST_NAMES and text}
    lacking = [f"{omission.what} ({omission.count})" for omission in trace.omissions]
    schema = {"name": pl.String, "value": pl.String}
    return {
        "META_DATA_EXPORT": pl.DataFrame(list(about.items()), schema, orient="row"),
        "META_DATA_CAPTURE": pl.DataFrame({"name": "CAPTURE_PRODUCER", "value": trace.producer}),
        "ANALYSIS_DETAILS": pl.DataFrame(
            {"globalVid": 0, "duration": last, "startTime": 0, "stopTime": last}
        ),
        "TARGET_INFO_SYSTEM_ENV": pl.DataFrame(list(known.items()), schema, orient="row").with_columns(
            globalVid=0, devStateName=pl.lit(""), nameEnum=0
        ),
        "DIAGNOSTIC_EVENT": pl.DataFrame({"text": pl.Series(lacking, dtype=pl.String)}).with_columns(
            timestamp=0, timestampType=0, source=0, severity=2
        ),
    }
