"""Builds Nsight Systems exports of a chosen generation, a row at a time.

The generations differ as the real ones do: where the version stands, which columns there are, what is said of
GPUs.
"""

import re
from pathlib import Path

from tests.trace.sqlite_file import Tables, Value, write_sqlite

#: Product and schema version of each generation; None where the export says neither.
VERSIONS: dict[str, tuple[str, str] | None] = {
    "2021": None,
    "2022": ("2022.2.1.31", "2.9.1"),
    "2022.4": ("2022.4.2.1", "3.0.0"),
    "2023.2": ("2023.2.3.1004", "3.1.7"),
    "2024.5": ("2024.5.1.113", "3.13.2"),
    "2025.1": ("2025.1.1.110", "3.17.1"),
    "2025.6": ("2025.6.3.343", "3.24.8"),
    "2026.2": ("2026.2.1.210", "3.25.0"),
}

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CHAINS = "CUDA_CALLCHAINS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
RANKS, COMMUNICATORS = "MPI_RANKS", "MPI_COMMUNICATORS"
#: Columns of MPI's calls beside their times, thread and name.
MPI_CALLS = {
    "MPI_P2P_EVENTS": ["commHandle", "tag", "remoteRank", "size", "requestHandle"],
    "MPI_COLLECTIVES_EVENTS": ["commHandle", "rootRank", "size", "recvSize", "requestHandle"],
    "MPI_START_WAIT_EVENTS": ["requestHandle"],
    "MPI_OTHER_EVENTS": [],
}

#: An unsigned -1: no stream, or no event.
NONE_32 = 4294967295
PROCESS = 71

LAUNCH = [
    *[f"{what}{side}" for what in ("grid", "block") for side in "XYZ"],
    *["registersPerThread", "staticSharedMemory", "dynamicSharedMemory"],
]
TIMED = ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"]


def global_pid(process: int = PROCESS, machine: int = 1) -> int:
    """nsys's serialised process id; a large `machine` sets the sign bit."""
    value = machine << 48 | process << 24
    return value - (1 << 64) if value >= 1 << 63 else value


def columns_of(generation: str) -> dict[str, list[str]]:
    """The columns of every table in exports of this generation, new ones in the middle as really."""
    year = float(generation)
    green = ["greenContextId"] if year >= 2024 else []
    place = [*TIMED[:4], *green, *TIMED[4:]]
    mangled = ["mangledName"] if year >= 2022 else []
    columns = {
        "StringIds": ["id", "value"],
        KERNEL: [*place, "demangledName", "shortName", *mangled, *LAUNCH, "graphNodeId"],
        MEMCPY: [
            *place,
            *["bytes", "copyKind", "deprecatedSrcId", "srcKind", "dstKind", "srcDeviceId", "srcContextId"],
            *["dstDeviceId", "dstContextId", "migrationCause", "graphNodeId"],
            *(["virtualAddress"] if year >= 2022 else []),
            *(["copyCount"] if year >= 2025.6 else []),
        ],
        MEMSET: [*place, "value", "bytes", "graphNodeId", "memKind"],
        GRAPH: [*place, "graphId", "graphExecId"],
        RUNTIME: [
            *["start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"],
            "callchainId",
        ],
        SYNC: [
            *place,
            *(["deprecatedSyncType"] if year >= 2025 else []),
            *["syncType", "eventId"],
            *(["eventSyncId"] if year >= 2025.6 else []),
        ],
        EVENT: [
            *(["timestamp"] if year >= 2025.6 else []),
            *["deviceId", "contextId", *green, "streamId", "correlationId", "globalPid", "eventId"],
            *(["eventSyncId"] if year >= 2025.6 else []),
        ],
        CHAINS: ["id", "symbol", "module", "unresolved", "originalIP", "stackDepth"],
        MEMORY_USAGE: [
            *["start", "globalPid", "deviceId", "contextId", "address", "pc", "bytes", "memKind"],
            *["memoryOperationType", "name", "correlationId"],
            *(["streamId", "localMemoryPoolAddress", "localMemoryPoolSize"] if year >= 2023.2 else []),
        ],
        "NVTX_EVENTS": [
            *["start", "end", "eventType", "rangeId", "text", "globalTid", "textId", "domainId"],
            "jsonText",
        ],
        "TARGET_INFO_CUDA_STREAM": ["streamId", "hwId", "vmId", "processId", "contextId", "priority", "flag"],
        "TARGET_INFO_CUDA_DEVICE": ["gpuId", "cudaId", "pid", "uuid", "numMultiprocessors"],
        "TARGET_INFO_SYSTEM_ENV": ["globalVid", "devStateName", "name", "nameEnum", "value"],
        "DIAGNOSTIC_EVENT": ["timestamp", "timestampType", "source", "severity", "text", "globalPid"],
        "META_DATA_EXPORT": ["name", "value"],
        "EXPORT_META_DATA": ["name", "value"],
    }
    if year >= 2022.4:
        columns |= {t: ["start", "end", "globalTid", "textId", *names] for t, names in MPI_CALLS.items()}
        columns[RANKS] = ["globalTid", "rank"]
        columns[COMMUNICATORS] = [
            *["rank", "timestamp", "commHandle", "parentHandle", "localRank", "size", "groupRoot"],
            *["groupRootUid", "members", *(["commUid"] if year >= 2026 else [])],
        ]
    if year < 2022:
        columns["TARGET_INFO_GPU"] = ["vmId", "deviceId", "name", "busLocation", "isDiscrete"]
        columns["TARGET_INFO_CUDA_GPU"] = [
            *["pciBusId", "globalMemoryBandwidth", "coreClockRate", "numMemcpyEngines", "numMultiprocessors"],
            *["computeCapabilityMajor", "computeCapabilityMinor", "deviceId", "pid"],
        ]
    else:
        columns["TARGET_INFO_GPU"] = [
            *[
                "vmId", "id", "name", "busLocation", "isDiscrete", "totalMemory", "memoryBandwidth",
                "clockRate",
            ],
            *["smCount", "uuid", "chipName", "cuDevice", "asyncEngines", "computeMajor", "computeMinor"],
        ]  # fmt: skip
    return columns


class NsysExport(Tables):
    """An export in the making. Tables come into being with their first row, as nsys makes them."""

    def __init__(self, generation: str = "2025.1") -> None:
        super().__init__(columns_of(generation))
        self.tables: set[str] = set()  # to be there even if they have no row
        version = VERSIONS[generation]
        if version is not None:
            table = "META_DATA_EXPORT" if float(generation) >= 2023.2 else "EXPORT_META_DATA"
            self.add(table, name="EXPORT_PRODUCT_VERSION", value=version[0])
            self.add(table, name="EXPORT_SCHEMA_VERSION", value=version[1])
        else:
            self.add("TARGET_INFO_SESSION_START_TIME", utcTime="0")

    def add(self, table: str, **values: Value) -> None:
        """Adds a row; a table unknown to this generation gets the columns of the row."""
        self.columns.setdefault(table, list(values))
        self.rows.setdefault(table, []).append(values)

    def place(self, start: int, end: int, correlation: int | None, process: int) -> dict[str, Value]:
        where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_pid(process)}
        return {"start": start, "end": end, "correlationId": correlation} | where

    def kernel(
        self, name: str, start: int, end: int, correlation: int | None = None, process: int = PROCESS,
        **more: Value,
    ) -> None:  # fmt: skip
        names: dict[str, Value] = {"demangledName": self.text(name), "shortName": self.text(name[:4])}
        self.add(KERNEL, **self.place(start, end, correlation, process) | names | more)

    def copy(
        self, copy_kind: int, kinds: tuple[int, int], size: Value, start: int, end: int,
        correlation: int | None = None, **more: Value,
    ) -> None:  # fmt: skip
        """A copy by nsys's numbers: `copy_kind` 1 HtoD, 2 DtoH…; `kinds` 0 pageable, 1 pinned, 2 device…"""
        what = {"bytes": size, "copyKind": copy_kind, "srcKind": kinds[0], "dstKind": kinds[1]}
        self.add(MEMCPY, **self.place(start, end, correlation, PROCESS) | what | more)

    def allocation(
        self, start: int, size: Value, memory: int = 2, freed: bool = False, **more: Value
    ) -> None:
        """An allocation by nsys's numbers: `memory` 1 pinned, 2 device, 3 array, 4 managed, 5 static."""
        what = {"bytes": size, "memKind": memory, "memoryOperationType": int(freed)}
        self.add(MEMORY_USAGE, **{"start": start, "globalPid": global_pid(), "deviceId": 0} | what | more)

    def call(
        self, name: str, start: int, end: int, correlation: int, process: int = PROCESS, thread: int = 5,
        **more: Value,
    ) -> None:  # fmt: skip
        """An API call with its ABI suffix, as nsys writes it: cudaMemcpy_v3020."""
        row: dict[str, Value] = {"start": start, "end": end, "eventClass": 0, "correlationId": correlation}
        ids = {"globalTid": global_pid(process) + thread, "nameId": self.text(name)}
        self.add(RUNTIME, **row | ids | more)

    def chain(self, id: int, *frames: tuple[str, str]) -> None:
        """A call chain: functions and their modules, the innermost first."""
        for depth, (function, module) in enumerate(frames):
            names: dict[str, Value] = {"symbol": self.text(function), "module": self.text(module)}
            self.add(CHAINS, id=id, **names, stackDepth=depth)

    def wait(
        self, sync_type: int, start: int, end: int, correlation: int, process: int = PROCESS, **more: Value
    ) -> None:
        """A synchronisation record; by default of a whole context."""
        place = self.place(start, end, correlation, process) | {"streamId": NONE_32, "eventId": NONE_32}
        self.add(SYNC, **place | {"syncType": sync_type} | more)

    def record(
        self, event: int, stream: int, correlation: int, process: int = PROCESS, **more: Value
    ) -> None:
        """A cudaEventRecord, which has no time of its own."""
        place = self.place(0, 0, correlation, process) | {"streamId": stream, "eventId": event}
        self.add(EVENT, **{name: v for name, v in place.items() if name not in ("start", "end")} | more)

    def rank(self, number: Value, process: int = PROCESS, thread: int = 5) -> None:
        """The rank of a thread's process."""
        self.add(RANKS, globalTid=global_pid(process) + thread, rank=number)

    def communicator(self, rank: Value, handle: Value, size: Value, **more: Value) -> None:
        """A communicator as a rank knows it."""
        self.add(COMMUNICATORS, rank=rank, commHandle=handle, size=size, **more)

    def mpi(
        self, name: str, start: int, end: Value, process: int = PROCESS, thread: int = 5, **more: Value
    ) -> None:
        """A call of MPI, in the table of its kind."""
        tables = {
            r"MPI_(Start|Startall|Wait.*|Test.*)$": "MPI_START_WAIT_EVENTS",
            r"MPI_(I?[bsr]?send|I?m?recv|Sendrecv|.*_init)$": "MPI_P2P_EVENTS",
            r"MPI_(I?(all|reduce|bcast|barrier|gather|scatter|scan)|File_)": "MPI_COLLECTIVES_EVENTS",
            r"": "MPI_OTHER_EVENTS",
        }
        table = next(table for pattern, table in tables.items() if re.match(pattern, name, re.IGNORECASE))
        thread_id = global_pid(process) + thread
        self.add(table, start=start, end=end, globalTid=thread_id, textId=self.text(name), **more)

    def write(self, path: Path, after: str = "") -> Path:
        strings: list[dict[str, Value]] = [{"id": id, "value": text} for text, id in self.strings.items()]
        rows = {**self.rows, "StringIds": self.rows.get("StringIds", []) + strings}
        there = {table: n for table, n in self.columns.items() if table in rows or table in self.tables}
        return write_sqlite(path, there, rows, after)


def small_export(generation: str = "2025.1") -> NsysExport:
    """What every generation has: a copy in, a kernel, a set, a copy out, their calls, a range."""
    export = NsysExport(generation)
    export.call("cudaMemcpyAsync_v3020", 100, 150, 1)
    export.copy(1, (1, 2), 4096, 200, 300, 1)
    export.call("cudaMemsetAsync_v3020", 160, 170, 2)
    export.add(MEMSET, **export.place(310, 320, 2, PROCESS) | {"value": 0, "bytes": 512, "memKind": 2})
    export.call("cudaLaunchKernel_v7000", 180, 190, 3)
    export.kernel("void axpy<float>(int)", 330, 430, 3)
    export.call("cudaMemcpy_v3020", 195, 600, 4)
    export.copy(2, (2, 0), 8192, 440, 590, 4)
    export.call("cudaDeviceSynchronize_v3020", 610, 650, 5)
    export.wait(1, 611, 649, 5)
    export.add(
        "NVTX_EVENTS", start=90, end=700, eventType=59, text="step", globalTid=global_pid() + 5, domainId=0
    )
    return export
