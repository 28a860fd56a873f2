"""Builds the JSON, CSV and Perfetto files of rocprofv3, and those of rocprof before it, of the run of `small_process`."""

import csv
import json
from pathlib import Path
from typing import Any

from tests.trace.build_rocprof import PROCESS
from tests.trace.sqlite_file import Value, write_sqlite

CPU, GPU_0, GPU_1 = 37944, 37946, 37947
STREAM, QUEUE, THREAD = 4, 9, 8080
PATHS = ("HOST_TO_HOST", "HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE")
COPIES = ["MEMORY_COPY_NONE", *(f"MEMORY_COPY_{path}" for path in PATHS)]
#: Kinds and operations, by the place that records name.
STRINGS: list[dict[str, Any]] = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": []},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA"]},
    {"kind": "MEMORY_COPY", "operations": COPIES},
    {"kind": "KERNEL_DISPATCH", "operations": []},
    {"kind": "MEMORY_ALLOCATION", "operations": ["MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"]},
    {"kind": "HSA_CORE_API", "operations": ["hsa_signal_store_relaxed"]},
]
HIP, MARKER, COPY, DISPATCH, ALLOCATION, HSA = range(1, 7)
H2D, D2H, D2D = 2, 3, 4


class JsonRun:
    """A process in rocprofv3's JSON, in the making."""

    def __init__(self, process: int = PROCESS) -> None:
        self.strings = json.loads(json.dumps(STRINGS))
        self.messages: list[dict[str, Any]] = []
        self.symbols: list[dict[str, Any]] = []
        self.metadata = {"pid": process, "init_time": 0, "command": ["./app"]}
        self.agents = [
            {"id": {"handle": handle}, "type": kind, "node_id": node, "logical_node_type_id": index, "name": name,
             "product_name": product, "num_sdma_engines": 2 * (kind - 1), "cu_count": 304 * (kind - 1)}
            for handle, kind, node, index, name, product in (
                (CPU, 1, 0, 0, "EPYC", "CPU 0"), (GPU_0, 2, 1, 0, "gfx942", "GPU 0"), (GPU_1, 2, 2, 1, "gfx942", "GPU 1"),
            )
        ]  # fmt: skip
        names = (
            "kernel_dispatch", "memory_copy", "memory_allocation", "hip_api", "hsa_api", "marker_api",
            "rccl_api",
        )  # fmt: skip
        self.records: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    def add(
        self, where: str, kind: int, operation: int, start: int, end: int, id: int, ancestor: int = 0,
        **more: Any,
    ) -> None:  # fmt: skip
        times = {"start_timestamp": start, "end_timestamp": end, "thread_id": THREAD}
        ids = {"correlation_id": {"internal": id, "external": 0, "ancestor": ancestor}}
        self.records[where].append({"size": 64, "kind": kind, "operation": operation, **times, **ids, **more})

    def call(self, name: str, start: int, end: int, id: int) -> None:
        operations = self.strings[HIP]["operations"]
        if name not in operations:
            operations.append(name)
        self.add("hip_api", HIP, operations.index(name), start, end, id, stream_id={"handle": STREAM})

    def mark(self, name: str, start: int, end: int, id: int) -> None:
        self.messages.append({"key": id, "value": name})
        self.add("marker_api", MARKER, 1, start, end, id)

    def kernel(self, name: str, start: int, end: int, id: int, agent: int = GPU_0, **more: Any) -> None:
        number = len(self.symbols) + 1
        self.symbols.append(
            {"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name, "arch_vgpr_count": 8,
             "accum_vgpr_count": 4}
        )  # fmt: skip
        info = {"agent_id": {"handle": agent}, "queue_id": {"handle": QUEUE}, "kernel_id": number, "dispatch_id": 1,
                "group_segment_size": 512, "workgroup_size": {"x": 64, "y": 1, "z": 1},
                "grid_size": {"x": 100, "y": 2, "z": 1}}  # fmt: skip
        more = {"stream_id": {"handle": STREAM}} | more
        self.add("kernel_dispatch", DISPATCH, 2, start, end, id, dispatch_info=info, **more)

    def copy(
        self, operation: int, source: int, destination: int, size: int, start: int, end: int, id: int,
        **more: Any,
    ) -> None:  # fmt: skip
        ends = {"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": destination}, "bytes": size}
        self.add("memory_copy", COPY, operation, start, end, id, **ends, stream_id={"handle": STREAM}, **more)

    def document(self) -> dict[str, Any]:
        return {
            "metadata": self.metadata,
            "agents": self.agents,
            "strings": {"buffer_records": self.strings, "marker_api": self.messages},
            "kernel_symbols": self.symbols,
            "callback_records": {"counter_collection": []},
            "buffer_records": self.records,
        }


def write_json(path: Path, *runs: JsonRun) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [run.document() for run in runs]}, indent=1))
    return path


def small_json(process: int = PROCESS) -> JsonRun:
    """The run of `small_process`."""
    run = JsonRun(process)
    run.call("hipMemcpyAsync", 1000, 1050, 11)
    run.copy(H2D, CPU, GPU_0, 4096, 1100, 1200, 11)
    run.call("hipLaunchKernel", 1060, 1070, 12)
    run.kernel("axpy(float*)", 1210, 1310, 12)
    run.call("hipMemcpy", 1095, 1500, 13)
    run.copy(D2H, GPU_0, CPU, 8192, 1340, 1490, 13)
    run.mark("step", 990, 1600, 14)
    return run


Row = list[object]
CALLS = [
    "Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp",
]  # fmt: skip
SIDES = [f"{what}_Size_{side}" for what in ("Workgroup", "Grid") for side in "XYZ"]
#: Files by kind: their columns, of ROCm 7, and the run of `small_process`.
CSV: dict[str, tuple[list[str], list[Row]]] = {
    "agent_info": (
        ["Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Num_Sdma_Engines", "Name", "Product_Name"],
        [
            [0, 0, "CPU", 64, 0, "EPYC", "CPU 0"],
            [1, 1, "GPU", 304, 2, "gfx942", "GPU 0"],
            [2, 2, "GPU", 304, 2, "gfx942", "GPU 1"],
        ],
    ),
    "hip_api_trace": (
        CALLS,
        [
            ["HIP_RUNTIME_API", "hipMemcpyAsync", PROCESS, THREAD, 11, 1000, 1050],
            ["HIP_RUNTIME_API", "hipLaunchKernel", PROCESS, THREAD, 12, 1060, 1070],
            ["HIP_RUNTIME_API", "hipMemcpy", PROCESS, THREAD, 13, 1095, 1500],
        ],
    ),
    "marker_api_trace": (CALLS, [["MARKER_CORE_API", "step", PROCESS, THREAD, 14, 990, 1600]]),
    "kernel_trace": (
        ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
         "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
         "Accum_VGPR_Count", "SGPR_Count", *SIDES],
        [["KERNEL_DISPATCH", "Agent 1", QUEUE, STREAM, THREAD, 1, 7, "axpy(float*)", 12, 1210, 1310, 512, 0, 8, 4,
          16, 64, 1, 1, 100, 2, 1]],
    ),
    "memory_copy_trace": (
        ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
         "Start_Timestamp", "End_Timestamp"],
        [
            ["MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE", STREAM, "Agent 0", "Agent 1", 11, 1100, 1200],
            ["MEMORY_COPY", "MEMORY_COPY_DEVICE_TO_HOST", STREAM, "Agent 1", "Agent 0", 13, 1340, 1490],
        ],
    ),
    "memory_allocation_trace": (
        ["Kind", "Operation", "Agent_Id", "Allocation_Size", "Address", "Correlation_Id", "Start_Timestamp",
         "End_Timestamp"],
        [["MEMORY_ALLOCATION", "MEMORY_ALLOCATION_ALLOCATE", "Agent 1", 4096, "0x00007f0000000000", 9, 900, 910]],
    ),
}  # fmt: skip


def small_csv() -> dict[str, tuple[list[str], list[Row]]]:
    return {kind: (list(columns), [list(row) for row in rows]) for kind, (columns, rows) in CSV.items()}


def write_csv(folder: Path, files: dict[str, tuple[list[str], list[Row]]], prefix: str = "3131_") -> Path:
    """Writes each kind's file, with names and texts in quotes as rocprofv3 does."""
    folder.mkdir(exist_ok=True)
    for kind, (columns, rows) in files.items():
        with (folder / f"{prefix}{kind}.csv").open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows([columns, *rows])
    return folder


#: Of rocprof: calls with their arguments as text, and what they started, by the number of the call.
V1_CALLS = [
    ("hipMalloc", 900, 910, "( ptr(0x7f0000000000) size(8192))", 1),
    ("hipHostMalloc", 920, 930, "( ptr(0x7e0000000000) size(8192) flags(0))", 2),
    ("hipMemcpyAsync", 1000, 1050, "( dst(0x7f0000000000) src(0x7e0000000100) sizeBytes(4096) kind(1) stream(1))", 11),
    ("hipLaunchKernel", 1060, 1070, "( kernel(axpy(float*)) function_address(0x200a40) numBlocks({z(1) y(2) x(2}) "
     "dimBlocks({z(1) y(1) x(64}) args(0x7f) sharedMemBytes(0) stream(1))", 12),
    ("hipMemcpy", 1095, 1500, "( dst(0x7ffe00000000) src(0x7f0000000000) sizeBytes(8192) kind(2))", 13),
]  # fmt: skip
V1_WORK = [
    ("COPY", "CopyHostToDevice", 1100, 1200, 11),
    ("OPS", "axpy(float*)", 1210, 1310, 12),
    ("COPY", "CopyDeviceToHost", 1340, 1490, 13),
]
V1_OPS = [
    *["BeginNs", "EndNs", "dev-id", "queue-id", "Name", "pid", "tid", "stream-id", "Index", "__section"],
    "DurationNs",
]
V1_COLUMNS = {
    "HIP": ["BeginNs", "EndNs", "pid", "tid", "Name", "args", "Index", "DurationNs"],
    "rocTX": ["BeginNs", "EndNs", "pid", "tid", "Name", "Index"],
    "COPY": V1_OPS,
    "OPS": V1_OPS,
}


def v1_rows() -> dict[str, list[dict[str, Value]]]:
    """The run of `small_process`, from pinned memory, in tables of rocprof."""
    who: dict[str, Value] = {"pid": PROCESS, "tid": THREAD}
    rows: dict[str, list[dict[str, Value]]] = {"COPY": [], "OPS": []}
    rows["HIP"] = [
        {"BeginNs": start, "EndNs": end, "Name": name, "args": args, "Index": id} | who
        for name, start, end, args, id in V1_CALLS
    ]
    rows["rocTX"] = [{"BeginNs": 990, "EndNs": 1600, "Name": "step", "Index": 3} | who]
    for table, name, start, end, id in V1_WORK:
        where: dict[str, Value] = {"dev-id": 0, "queue-id": QUEUE, "stream-id": STREAM, "Index": id}
        rows[table].append({"BeginNs": start, "EndNs": end, "Name": name} | where | who)
    return rows


def write_v1(path: Path, rows: dict[str, list[dict[str, Value]]] | None = None) -> Path:
    """The results.db of rocprof."""
    return write_sqlite(path, V1_COLUMNS, v1_rows() if rows is None else rows)


def v1_events(rows: dict[str, list[dict[str, Value]]] | None = None) -> list[dict[str, Any]]:
    """The same as events of its results.json: all numbers are text, and arrows lead from calls to what they started."""
    rows = v1_rows() if rows is None else rows
    pids = {"rocTX": 0, "COPY": 1, "HIP": 2, "OPS": 6}
    names = {"rocTX": "Markers and Ranges", "COPY": "COPY", "HIP": "CPU HIP API", "OPS": "GPU0"}
    events: list[dict[str, Any]] = [{}]
    events += [{"ph": "M", "name": "process_name", "pid": pids[t], "args": {"name": names[t]}} for t in names]
    arrows = 0
    for table in pids:
        for row in rows[table]:
            lane = row["tid"] if table in ("HIP", "rocTX") else row["stream-id"]
            args = {key: str(value) for key, value in row.items() if key not in ("Name", "Index")}
            # The drawing counts in microseconds.
            place = {"pid": str(pids[table]), "tid": str(lane), "ts": str(row["BeginNs"]), "dur": "1"}
            events.append({"ph": "X", "name": row["Name"], **place, "args": args | {"Name": row["Name"]}})
            if table in ("COPY", "OPS"):
                drawn = {"ts": row["BeginNs"], "cat": "DataFlow", "id": arrows, "name": "dep"}
                events.append(drawn | {"ph": "s", "pid": 2, "tid": row["tid"]})
                events.append(drawn | {"ph": "t", "pid": pids[table], "tid": lane})
                arrows += 1
    return events


def write_v1_json(path: Path, events: list[dict[str, Any]] | None = None) -> Path:
    events = v1_events() if events is None else events
    path.write_text(json.dumps({"traceEvents": events, "otherData": {"CMD": "rocminfo"}}, indent=1))
    return path
