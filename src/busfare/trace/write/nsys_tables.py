"""Tables and enumerations of an Nsight Systems export, as `export_nsys` writes them: export schema 3.25."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

__all__ = ["Numbers"]

SCHEMA_VERSION = "3.25.0"

#: ENUM_CUDA_MEMCPY_OPER.
COPY_KINDS = {
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host",
    10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
COPY_KIND_OF = {"h2d": 1, "d2h": 2, "d2d": 8, "h2h": 9, "p2p": 10}
MIGRATION_KIND_OF = {"h2d": 11, "d2h": 12, "d2d": 13}
#: ENUM_CUDA_MEM_KIND.
MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
    7: "Unknown",
}  # fmt: skip
#: Mapped memory is pinned memory that the GPU addresses.
MEMORY_KIND_OF = {"pageable": 0, "pinned": 1, "mapped": 1, "device": 2, "array": 3, "managed": 4, "static": 5}
UNKNOWN_MEMORY = 7
SYNC_TYPES = {
    0: "Unknown",
    1: "Event synchronize",
    2: "Stream wait event",
    3: "Stream synchronize",
    4: "Context synchronize",
}
SYNC_TYPE_OF = {"event": 1, "stream": 3, "device": 4}
STREAM_WAIT = 2
STREAM_FLAGS = {0: "Unknown", 1: "Default", 2: "Non-blocking", 3: "Null"}
STREAM_FLAG_OF = {"blocking": 1, "non-blocking": 2, "null": 3}
EVENT_CLASSES = {0: "CUDA runtime", 1: "CUDA driver"}
NO_ID = 4294967295
MARK, PUSH_POP_RANGE = 34, 59
PROCESS_BITS = THREAD_BITS = 24

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
HOST_NAMES = {
    "cpu": "CpuDescription",
    "driver": "NvDriverVersion",
    "cuda": "CudaDriverVersion",
    "hostname": "Hostname",
}


class Numbers:
    """Given out as they are asked for, the same one each time."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self._processes: dict[int, int] = {}
        self._threads: dict[tuple[int, int], int] = {}

    def texts(self, texts: pl.Series) -> pl.Series:
        """StringIds of each text."""
        for text in texts.cast(pl.String).unique(maintain_order=True).drop_nulls().to_list():
            self.strings.setdefault(text, len(self.strings) + 1)
        known = pl.Series(list(self.strings), dtype=pl.String)
        wanted = pl.Series(list(self.strings.values()), dtype=pl.Int64)
        return texts.cast(pl.String).replace_strict(known, wanted, default=None, return_dtype=pl.Int64)

    def process(self, processes: pl.Series) -> pl.Series:
        """Process numbers in bits 24 to 47; those that do not fit, or would share a number, get a free one."""
        for process in processes.unique(maintain_order=True).drop_nulls().to_list():
            if process not in self._processes:
                number = process % (1 << PROCESS_BITS)
                taken = set(self._processes.values())
                while number in taken:
                    number = (number + 1) % (1 << PROCESS_BITS)
                self._processes[process] = number
        table = {process: number << THREAD_BITS for process, number in self._processes.items()}
        return processes.replace_strict(table, default=None, return_dtype=pl.Int64)

    def thread(self, frame: pl.DataFrame) -> pl.Series:
        """Process and thread in one number; threads likewise keep the 24 bits that they have, or get free ones."""
        pairs = frame.select("process", pl.col("thread").fill_null(0)).unique(maintain_order=True)
        taken: dict[int, set[int]] = {}
        for (process, _), number in self._threads.items():
            taken.setdefault(process, set()).add(number)
        for process, thread in pairs.iter_rows():
            if (process, thread) in self._threads:
                continue
            used = taken.setdefault(process, set())
            number = thread % (1 << THREAD_BITS)
            while number in used:
                number = (number + 1) % (1 << THREAD_BITS)
            used.add(number)
            self._threads[process, thread] = number
        numbers = pairs.with_columns(
            number=pl.Series([self._threads[pair] for pair in pairs.iter_rows()], dtype=pl.Int64)
        )
        joined = frame.select("process", pl.col("thread").fill_null(0)).join(
            numbers, on=["process", "thread"], how="left", maintain_order="left"
        )
        return (self.process(frame["process"]) + joined["number"]).alias("globalTid")
