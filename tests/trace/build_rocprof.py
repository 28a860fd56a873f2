"""Builds databases of AMD's profilers: rocpd, a set of suffixed tables a process, with plainly named views; and RPD."""

import json
from pathlib import Path

from tests.trace.sqlite_file import Tables, Value, write_sqlite


class AmdTables(Tables):
    """Tables whose rows have ids, and whose texts stand in one of them."""

    def add(self, table: str, **values: Value) -> int:
        """Adds a row and returns its id."""
        rows = self.rows.setdefault(table, [])
        rows.append(({"id": len(rows) + 1} if "id" in self.columns[table] else {}) | values)
        return len(rows)

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings[value] = self.add("rocpd_string", string=value)
        return self.strings[value]


PROCESS = 3131

TIMED = ["start", "end", "event_id"]
PLACED = ["id", "guid", "nid", "pid", "tid"]
LAUNCH = [f"{what}_size_{side}" for what in ("grid", "workgroup") for side in "xyz"] + ["group_segment_size"]
REGISTERS = ["arch_vgpr_count", "accum_vgpr_count"]
COLUMNS: dict[str, list[str]] = {
    "rocpd_metadata": ["id", "tag", "value"],
    "rocpd_string": ["id", "guid", "string"],
    "rocpd_info_process": ["id", "guid", "nid", "ppid", "pid", "command"],
    "rocpd_info_thread": ["id", "guid", "nid", "pid", "tid", "name"],
    "rocpd_info_agent": [
        *["id", "guid", "nid", "pid", "type", "absolute_index", "logical_index", "type_index", "name"],
        *["product_name", "extdata"],
    ],
    "rocpd_info_kernel_symbol": [
        *["id", "guid", "nid", "pid", "code_object_id", "kernel_name", "display_name"],
        *REGISTERS,
    ],
    "rocpd_event": ["id", "guid", "category_id", "stack_id", "parent_stack_id", "correlation_id", "extdata"],
    "rocpd_sample": ["id", "guid", "track_id", "timestamp", "event_id"],
    "rocpd_track": ["id", "guid", "nid", "pid", "tid", "name_id"],
    "rocpd_region": [*PLACED, *TIMED, "name_id", "extdata"],
    "rocpd_kernel_dispatch": [
        *[*PLACED, *TIMED, "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id"],
        *LAUNCH,
    ],
    "rocpd_memory_copy": [
        *[*PLACED, *TIMED, "name_id", "dst_agent_id", "dst_address", "src_agent_id", "src_address", "size"],
        *["queue_id", "stream_id"],
    ],
}
#: Schema 4 keeps times and places in tables of their own.
TIMED_4 = ["start_id", "end_id", "track_id", "event_id"]
COLUMNS_4: dict[str, list[str]] = COLUMNS | {
    "rocpd_timestamp": ["id", "guid", "value"],
    "rocpd_track": ["id", "guid", "nid", "pid", "tid", "agent_id", "queue_id", "stream_id", "name_id"],
    "rocpd_region": ["id", "guid", *TIMED_4, "name_id"],
    "rocpd_kernel_dispatch": ["id", "guid", *TIMED_4, "kernel_id", *LAUNCH],
    "rocpd_memory_copy": ["id", "guid", *TIMED_4, "name_id", "dst_agent_id", "src_agent_id", "size"],
}
#: Schema 4.1 has times with the rows again, and a list of categories.
TIMED_41 = ["id", "guid", "track_id", "start", "end", "event_id"]
COLUMNS_41: dict[str, list[str]] = COLUMNS | {
    "rocpd_info_category": ["id", "guid", "name"],
    "rocpd_track": COLUMNS_4["rocpd_track"],
    "rocpd_region": [*TIMED_41, "name_id"],
    "rocpd_sample": ["id", "guid", "track_id", "name_id", "timestamp", "event_id"],
    "rocpd_kernel_dispatch": [*TIMED_41, "kernel_id", *LAUNCH],
    "rocpd_memory_copy": [*TIMED_41, "name_id", "dst_agent_id", "src_agent_id", "size"],
}
COLUMNS_OF = {3: COLUMNS, 4: COLUMNS_4, 41: COLUMNS_41}

CPU, GPU_0, GPU_1 = 1, 2, 3
DISPATCH, MEMORY, HIP, MARKER = "KERNEL_DISPATCH", "MEMORY_COPY", "HIP_RUNTIME_API_EXT", "MARKER_CORE_API"


class ProcessTables(AmdTables):
    """The tables of one process. Ids are unique among them only."""

    def __init__(self, suffix: str, process: int = PROCESS, schema: int = 3) -> None:
        super().__init__({k: list(v) for k, v in COLUMNS_OF[schema].items()})
        self.categories: dict[str, int] = {}
        self.suffix, self.process, self.schema = suffix, process, schema
        self.add("rocpd_metadata", tag="schema_version", value=str(schema))
        self.add("rocpd_info_process", pid=process)
        self.add("rocpd_info_thread", pid=1, tid=8080)
        for kind, index, name in (("CPU", 0, "EPYC"), ("GPU", 0, "gfx942"), ("GPU", 1, "gfx942")):
            of_agent = {"type": kind, "type_index": index, "name": name, "product_name": f"{kind} {index}"}
            self.add("rocpd_info_agent", pid=1, **of_agent)

    def category(self, name: str) -> int:
        """Its number, of a list of its own or among all texts."""
        if self.schema != 41:
            return self.text(name)
        if name not in self.categories:
            self.categories[name] = self.add("rocpd_info_category", name=name)
        return self.categories[name]

    def place(
        self, start: Value, end: Value, stack: int, category: str, agent: int | None = None
    ) -> dict[str, Value]:
        """When and where, as this schema says it."""
        event = self.add("rocpd_event", category_id=self.category(category), stack_id=stack)
        stream: Value = None if agent is None else 4
        queue: Value = None if agent is None else 9
        if self.schema == 3:
            times: dict[str, Value] = {"start": start, "end": end, "event_id": event, "pid": 1, "tid": 1}
            if agent is None:
                return times
            more: dict[str, Value] = {"stream_id": stream, "queue_id": queue}
            return times | more | ({"agent_id": agent} if category == DISPATCH else {})
        track = self.add("rocpd_track", pid=1, tid=1, agent_id=agent, stream_id=stream, queue_id=queue)
        if self.schema == 41:
            return {"track_id": track, "start": start, "end": end, "event_id": event}
        start_id, end_id = self.add("rocpd_timestamp", value=start), self.add("rocpd_timestamp", value=end)
        return {"start_id": start_id, "end_id": end_id, "track_id": track, "event_id": event}

    def kernel(
        self, name: str, start: Value, end: Value, stack: int, agent: int = GPU_0, **more: Value
    ) -> None:
        """A dispatch; of what `more` says, registers are the kernel's."""
        of_symbol = {name: more.pop(name) for name in REGISTERS if name in more}
        named: dict[str, Value] = {"kernel_name": f"{name}.kd", "display_name": name}
        symbol = self.add("rocpd_info_kernel_symbol", **named | of_symbol)
        place = self.place(start, end, stack, DISPATCH, agent)
        self.add("rocpd_kernel_dispatch", **place | {"kernel_id": symbol} | more)

    def copy(
        self, name: str | None, source: int, destination: int, size: Value, start: Value, end: Value,
        stack: int,
    ) -> None:  # fmt: skip
        """A copy; `name` as MEMORY_COPY_HOST_TO_DEVICE, or None where only the agents tell."""
        what: dict[str, Value] = {"src_agent_id": source, "dst_agent_id": destination, "size": size}
        what["name_id"] = None if name is None else self.text(name)
        self.add("rocpd_memory_copy", **self.place(start, end, stack, MEMORY, destination) | what)

    def marker(self, message: str, start: int, end: int, stack: int) -> None:
        """What a program says by ROCTx, as rocprofv3 writes it: the event holds the text, and no time makes a sample."""
        place = self.place(start, end, stack, MARKER)
        self.rows["rocpd_event"][-1]["extdata"] = json.dumps({"message": message})
        if end > start:
            self.add("rocpd_region", **place | {"name_id": self.text("roctxThreadRangeA")})
        else:
            track = self.add("rocpd_track", pid=1, tid=1, name_id=self.text(MARKER))
            named = {"name_id": self.text("roctxMarkA")} if self.schema == 41 else {}
            self.add("rocpd_sample", track_id=track, timestamp=start, event_id=place["event_id"], **named)

    def call(self, name: str, start: Value, end: Value, stack: int, category: str = HIP) -> None:
        self.add("rocpd_region", **self.place(start, end, stack, category) | {"name_id": self.text(name)})


def write_rocpd(path: Path, *processes: ProcessTables, views: bool = True) -> Path:
    """Writes every table under its process's suffix; views of the plain names would fail if they were run."""
    columns = {t + process.suffix: names for process in processes for t, names in process.columns.items()}
    rows = {t + process.suffix: process.rows.get(t, []) for process in processes for t in process.columns}
    trapped = "".join(f'CREATE VIEW "{table}" AS SELECT abs(-9223372036854775807 - 1);' for table in COLUMNS)
    return write_sqlite(path, columns, rows, trapped if views and processes[0].suffix else "")


def small_process(suffix: str = "_00003fdc_2a1b", process: int = PROCESS, schema: int = 3) -> ProcessTables:
    """A copy in, a kernel, a copy out, their calls and a marker."""
    made = ProcessTables(suffix, process, schema)
    made.call("hipMemcpyAsync", 1000, 1050, 11)
    made.copy("MEMORY_COPY_HOST_TO_DEVICE", CPU, GPU_0, 4096, 1100, 1200, 11)
    made.call("hipLaunchKernel", 1060, 1070, 12)
    made.kernel("axpy(float*)", 1210, 1310, 12)
    made.call("hipMemcpy", 1095, 1500, 13)
    made.copy("MEMORY_COPY_DEVICE_TO_HOST", GPU_0, CPU, 8192, 1340, 1490, 13)
    made.call("step", 990, 1600, 14, MARKER)
    return made


RPD_PROCESS = 6161

RPD_COLUMNS: dict[str, list[str]] = {
    "rocpd_metadata": ["id", "tag", "value"],
    "rocpd_string": ["id", "string"],
    "rocpd_op": ["id", "gpuId", "queueId", "sequenceId", "start", "end", "description_id", "opType_id"],
    "rocpd_api": ["id", "pid", "tid", "start", "end", "apiName_id", "args_id"],
    "rocpd_api_ops": ["id", "api_id", "op_id"],
    "rocpd_copyapi": [
        *["api_ptr_id", "stream", "size", "width", "height", "kind", "dst", "src", "dstDevice", "srcDevice"],
        *["sync", "pinned"],
    ],
    "rocpd_kernelapi": [
        *["api_ptr_id", "stream", *[f"{what}{side}" for what in ("grid", "workgroup") for side in "XYZ"]],
        *["groupSegmentSize", "kernelName_id"],
    ],
}


class RpdFile(AmdTables):
    """An RPD file in the making."""

    def __init__(self) -> None:
        super().__init__({table: list(columns) for table, columns in RPD_COLUMNS.items()})
        self.add("rocpd_metadata", tag="schema_version", value="2")

    def call(self, name: str, start: int, end: int, arguments: str = "") -> int:
        """A call; its id links the operations that it started."""
        who: dict[str, Value] = {"pid": RPD_PROCESS, "tid": 77, "start": start, "end": end}
        return self.add("rocpd_api", **who | {"apiName_id": self.text(name), "args_id": self.text(arguments)})

    def operation(
        self, kind: str, start: int, end: int, call: int | None = None, description: str = "", gpu: int = 1,
        queue: int = 3,
    ) -> None:  # fmt: skip
        """An operation: KernelExecution, CopyHostToDevice, FillBuffer, Task…"""
        where: dict[str, Value] = {"gpuId": gpu, "queueId": queue, "start": start, "end": end}
        names: dict[str, Value] = {"opType_id": self.text(kind), "description_id": self.text(description)}
        operation = self.add("rocpd_op", **where | names)
        if call is not None:
            self.add("rocpd_api_ops", api_id=call, op_id=operation)

    def copied(self, call: int, size: Value, kind: int, pinned: Value = 0, **more: Value) -> None:
        """What a copy's call says of it: `kind` 1 host to device, 2 device to host, 3 within devices."""
        what: dict[str, Value] = {"api_ptr_id": call, "size": size, "kind": kind, "pinned": pinned}
        self.add("rocpd_copyapi", **what | more)

    def write(self, path: Path) -> Path:
        return write_sqlite(path, self.columns, self.rows)


def small_rpd() -> RpdFile:
    """A copy in from pinned memory, a kernel, a fill, a copy out, their calls and a marker."""
    file = RpdFile()
    file.call("UserMarker", 990, 1600, "step")
    upload = file.call("hipMemcpyAsync", 1000, 1050)
    file.copied(upload, 4096, 1, pinned=1)
    file.operation("CopyHostToDevice", 1100, 1200, upload)
    launch = file.call("hipLaunchKernel", 1060, 1070)
    file.operation("KernelExecution", 1210, 1310, launch, "axpy(float*)")
    fill = file.call("hipMemsetAsync", 1080, 1090)
    file.operation("FillBuffer", 1320, 1330, fill)
    download = file.call("hipMemcpy", 1095, 1500)
    file.copied(download, 8192, 2, pinned=0)
    file.operation("CopyDeviceToHost", 1340, 1490, download)
    return file
