"""Builds nvprof files a row at a time: CUPTI's own numbers, calls by number, names in StringTable."""

from pathlib import Path

from tests.trace.build_nsys import LAUNCH
from tests.trace.sqlite_file import Tables, Value, write_sqlite

PREFIX = "CUPTI_ACTIVITY_KIND_"
PROCESS = 5150
#: nvprof's times are nanoseconds since 1970.
EPOCH = 1_722_359_465_000_000_000

TIMED = ["_id_", "start", "end", "deviceId", "contextId", "streamId", "correlationId"]
COPY = [*TIMED, "copyKind", "srcKind", "dstKind", "flags", "bytes", "runtimeCorrelationId", "graphNodeId"]
CALL = ["_id_", "cbid", "start", "end", "processId", "threadId", "correlationId", "returnValue"]
KERNEL = [*TIMED, "name", *LAUNCH, "queued", "graphNodeId"]
COLUMNS: dict[str, list[str]] = {
    "StringTable": ["_id_", "value"],
    "Version": ["version"],
    PREFIX + "CONCURRENT_KERNEL": KERNEL,
    PREFIX + "KERNEL": KERNEL,
    PREFIX + "CDP_KERNEL": [*TIMED, "name", "parentGridId"],
    PREFIX + "MEMCPY": COPY,
    PREFIX + "MEMCPY2": [*COPY, "srcContextId", "srcDeviceId", "dstContextId", "dstDeviceId"],
    PREFIX + "MEMSET": [*TIMED, "value", "bytes", "memoryKind", "graphNodeId"],
    PREFIX + "RUNTIME": CALL,
    PREFIX + "DRIVER": CALL,
    PREFIX + "SYNCHRONIZATION": [
        *["_id_", "type", "start", "end", "correlationId", "contextId", "streamId", "cudaEventId"]
    ],
    PREFIX + "CUDA_EVENT": ["_id_", "correlationId", "contextId", "streamId", "eventId"],
    PREFIX + "UNIFIED_MEMORY_COUNTER": [
        *["_id_", "counterKind", "value", "start", "end", "address", "srcId", "dstId"],
        *["streamId", "processId"],
    ],
    PREFIX + "MARKER": ["_id_", "flags", "timestamp", "id", "objectKind", "objectId", "name", "domain"],
    PREFIX + "DEVICE": [
        *["_id_", "id", "name", "globalMemoryBandwidth", "globalMemorySize", "coreClockRate"],
        *["numMemcpyEngines", "numMultiprocessors", "computeCapabilityMajor"],
        *["computeCapabilityMinor", "uuid"],
    ],
    PREFIX + "PCIE": ["_id_", "type", "domain", "pcieGeneration", "linkRate", "linkWidth"],
    PREFIX + "STREAM": ["_id_", "contextId", "streamId", "priority", "flag", "correlationId"],
}


class NvprofFile(Tables):
    """A file in the making. nvprof makes every table, mostly empty."""

    def __init__(self) -> None:
        super().__init__({table: list(columns) for table, columns in COLUMNS.items()})

    def add(self, table: str, **values: Value) -> None:
        rows = self.rows.setdefault(PREFIX + table, [])
        rows.append({"_id_": len(rows) + 1} | values)

    def place(self, start: int, end: int, correlation: int) -> dict[str, Value]:
        place: dict[str, Value] = {"start": EPOCH + start, "end": EPOCH + end, "deviceId": 0, "contextId": 1}
        return place | {"streamId": 7, "correlationId": correlation}

    def kernel(
        self, name: str, start: int, end: int, correlation: int, table: str = "CONCURRENT_KERNEL",
        **more: Value,
    ) -> None:  # fmt: skip
        self.add(table, **self.place(start, end, correlation) | {"name": self.text(name)} | more)

    def copy(
        self, copy_kind: int, kinds: tuple[int, int], size: Value, start: int, end: int, correlation: int,
        **more: Value,
    ) -> None:  # fmt: skip
        """A copy by CUPTI's numbers: `kinds` 1 pageable, 2 pinned, 3 device…; MEMCPY2 if of two devices."""
        what = {"copyKind": copy_kind, "srcKind": kinds[0], "dstKind": kinds[1], "bytes": size}
        table = "MEMCPY2" if "dstDeviceId" in more else "MEMCPY"
        self.add(table, **self.place(start, end, correlation) | what | more)

    def call(self, number: int, start: int, end: int, correlation: int, table: str = "RUNTIME") -> None:
        """A call by its CUPTI number: in RUNTIME 31 cudaMemcpy, 41 cudaMemcpyAsync…"""
        times: dict[str, Value] = {"start": EPOCH + start, "end": EPOCH + end}
        who: dict[str, Value] = {"processId": PROCESS, "threadId": -139_872, "correlationId": correlation}
        self.add(table, **times | who | {"cbid": number})

    def wait(
        self, kind: int, start: int, end: int, correlation: int, stream: int = -1, event: int = -1
    ) -> None:
        """A synchronisation: 1 event, 2 stream wait event, 3 stream, 4 context."""
        times: dict[str, Value] = {"start": EPOCH + start, "end": EPOCH + end, "contextId": 1}
        ids: dict[str, Value] = {"correlationId": correlation, "streamId": stream, "cudaEventId": event}
        self.add("SYNCHRONIZATION", **times | ids | {"type": kind})

    def write(self, path: Path) -> Path:
        rows = dict(self.rows)
        rows["StringTable"] = [{"_id_": number, "value": text} for text, number in self.strings.items()]
        rows["Version"] = [{"version": 22}]
        return write_sqlite(path, self.columns, rows)


def small_file() -> NvprofFile:
    """A copy in, a kernel, a set, a copy out, and their calls."""
    file = NvprofFile()
    file.call(41, 0, 50, 1)
    file.copy(1, (2, 3), 4096, 100, 200, 1)
    file.call(211, 60, 70, 2)
    file.kernel("_Z4axpyPf", 210, 310, 2)
    file.call(51, 80, 90, 3)
    file.add("MEMSET", **file.place(320, 330, 3) | {"bytes": 512, "memoryKind": 3})
    file.call(31, 95, 500, 4)
    file.copy(2, (3, 1), 8192, 340, 490, 4)
    file.call(165, 510, 550, 5)
    file.wait(4, 511, 549, 5)
    return file
