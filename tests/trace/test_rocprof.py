"""Databases of rocprofv3, and what they tell of the host's memory."""

from pathlib import Path

import polars as pl
import pytest

from busfare.trace import Trace, read
from tests.trace import build_rocprof
from tests.trace.build_rocprof import CPU, GPU_0, GPU_1, PROCESS, ProcessTables, small_process, write_rocpd
from tests.trace.build_rocprof_files import ALLOCATION, D2H, H2D, JsonRun, write_json
from tests.trace.build_rocprof_files import CPU as CPU_HANDLE
from tests.trace.build_rocprof_files import GPU_0 as GPU_HANDLE
from tests.trace.sqlite_file import Value
from tests.traces import omitted

#: Columns of the table of allocations.
ALLOCATED = [
    "id", "guid", "nid", "pid", "tid", "agent_id", "type", "level", "start", "end", "address", "size", "queue_id",
    "stream_id", "event_id",
]  # fmt: skip


def written(folder: Path, *processes: ProcessTables) -> Trace:
    return read(write_rocpd(folder / "results.db", *processes))


@pytest.mark.parametrize("schema", [3, 4, 41])
@pytest.mark.parametrize("suffix", ["_00003fdc_2a1b", "_00003fdc-ffff-7000-a1b2-0123456789ab", ""])
def test_the_two_schemas_with_and_without_suffix(schema: int, suffix: str, tmp_path: Path) -> None:
    trace = written(tmp_path, small_process(suffix, schema=schema))
    wanted = [
        "kind", "direction", "start_ns", "end_ns", "bytes", "device", "stream", "process", "correlation",
    ]  # fmt: skip
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 100, 200, 4096, 0, 4, PROCESS, 11),
        ("kernel", None, 210, 310, None, 0, 4, PROCESS, 12),
        ("copy", "d2h", 340, 490, 8192, 0, 4, PROCESS, 13),
    ]
    assert trace.operations["name"].to_list() == [None, "axpy(float*)", None]
    assert trace.calls.select("name", "start_ns", "end_ns", "waits_for", "thread", "process").rows() == [
        ("hipMemcpyAsync", 0, 50, "none", 8080, PROCESS),
        ("hipLaunchKernel", 60, 70, "none", 8080, PROCESS),
        ("hipMemcpy", 95, 500, "operation", 8080, PROCESS),
    ]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("step", -10, 600)]
    assert trace.format == "rocpd"
    assert trace.producer == f"rocprofv3 (rocpd schema {schema})"
    assert list(omitted(trace)) == ["unknown-memory"]


@pytest.mark.parametrize("schema", [3, 4, 41])
def test_two_processes_in_a_file_share_no_ids(schema: int, tmp_path: Path) -> None:
    first, second = small_process("_0001", 3131, schema), ProcessTables("_0002", 4141, schema)
    second.text("something that shifts the ids of strings")
    second.kernel("gemm", 1400, 1450, 11, GPU_1)
    second.call("hipDeviceSynchronize", 1410, 1460, 12)
    trace = written(tmp_path, first, second)
    assert trace.operations.height == 4
    assert trace.operations.filter(process=4141).select("name", "device", "correlation").rows() == [
        ("gemm", 1, 11)
    ]
    assert trace.calls.filter(process=4141).select("name", "waits_for").rows() == [
        ("hipDeviceSynchronize", "device")
    ]


def test_views_are_never_run(tmp_path: Path) -> None:
    plain = write_rocpd(tmp_path / "plain.db", small_process(), views=False)
    trapped = write_rocpd(tmp_path / "trapped.db", small_process(), views=True)
    assert read(trapped).operations.equals(read(plain).operations)


@pytest.mark.parametrize(
    ("name", "source", "destination", "expected"),
    [
        ("MEMORY_COPY_HOST_TO_DEVICE", CPU, GPU_1, ("h2d", None, "device", 1, None)),
        ("MEMORY_COPY_DEVICE_TO_HOST", GPU_1, CPU, ("d2h", "device", None, 1, None)),
        ("MEMORY_COPY_DEVICE_TO_DEVICE", GPU_0, GPU_0, ("d2d", "device", "device", 0, None)),
        ("MEMORY_COPY_DEVICE_TO_DEVICE", GPU_0, GPU_1, ("p2p", "device", "device", 0, 1)),
        ("MEMORY_COPY_HOST_TO_HOST", CPU, CPU, ("h2h", None, None, None, None)),
        (None, CPU, GPU_0, ("h2d", None, "device", 0, None)),
        (None, GPU_0, CPU, ("d2h", "device", None, 0, None)),
        (None, GPU_0, GPU_1, ("p2p", "device", "device", 0, 1)),
        (None, CPU, CPU, ("h2h", None, None, None, None)),
    ],
)
def test_direction_comes_from_name_or_agents(
    name: str | None, source: int, destination: int, expected: tuple[object, ...], tmp_path: Path
) -> None:
    process = ProcessTables("_0001")
    process.copy(name, source, destination, 64, 0, 10, 1)
    wanted = ["direction", "source_memory", "destination_memory", "device", "peer_device"]
    assert written(tmp_path, process).operations.select(wanted).row(0) == expected


def test_a_copy_between_unknown_agents_has_no_direction(tmp_path: Path) -> None:
    process = ProcessTables("_0001")
    process.copy(None, 77, 78, 64, 0, 10, 1)
    assert omitted(written(tmp_path, process))["unknown-direction"] == 1


def test_gpus_are_the_devices(tmp_path: Path) -> None:
    trace = written(tmp_path, small_process("_0001"), small_process("_0002", 4141))
    assert trace.devices.select("device", "name").rows() == [(0, "GPU 0"), (1, "GPU 1")]


def test_an_id_given_twice_does_not_double_rows(tmp_path: Path) -> None:
    process = small_process()
    tables = ("string", "event", "info_process", "info_thread", "info_agent", "info_kernel_symbol")
    process.twice(*(f"rocpd_{table}" for table in tables))
    trace = written(tmp_path, process)
    assert (trace.operations.height, trace.calls.height, trace.markers.height) == (3, 3, 1)
    process = small_process(schema=4)
    process.twice("rocpd_timestamp", "rocpd_track")
    assert written(tmp_path, process).operations.height == 3


def test_calls_without_a_name(tmp_path: Path) -> None:
    process = small_process()
    process.add("rocpd_region", **process.place(1600, 1610, 15, build_rocprof.HIP) | {"name_id": 9999})
    assert written(tmp_path, process).calls["name"].to_list()[-1] == "(unnamed call)"


@pytest.mark.parametrize("schema", [3, 4, 41])
def test_markers_have_the_name_that_the_program_gave(schema: int, tmp_path: Path) -> None:
    process = small_process(schema=schema)
    if schema != 4:
        process.marker("layer 1", 1000, 1300, 15)
        process.marker("here", 1310, 1310, 16)
        process.marker("", 1320, 1400, 17)
    else:  # as other programs write: nothing but a name
        process.call("layer 1", 1000, 1300, 15, "MARKER_CORE_RANGE_API")
    trace = written(tmp_path, process)
    markers = [("step", -10, 600), ("layer 1", 0, 300)]
    if schema != 4:
        markers += [("here", 310, None), ("roctxThreadRangeA", 320, 400)]
    assert trace.markers.sort("start_ns").select("name", "start_ns", "end_ns").rows() == markers
    assert trace.calls.height == 3


def test_a_marker_called_like_a_function_allocates_nothing(tmp_path: Path) -> None:
    process = small_process()
    of_copy = process.rows["rocpd_memory_copy"][0]
    of_copy |= {"src_address": 0x1000, "dst_address": 0x9000}
    process.columns["rocpd_memory_allocate"] = ALLOCATED
    for agent, address in ((CPU, 0x1000), (GPU_0, 0x9000)):
        place = process.place(900, 910, 20, "MEMORY_ALLOCATION")
        what: dict[str, Value] = {"agent_id": agent, "type": "ALLOC", "level": "REAL"}
        process.add("rocpd_memory_allocate", **place, **what, address=address, size=4096)
    process.call("hipHostMalloc of the input", 890, 920, 19, build_rocprof.MARKER)
    assert "pinned" not in written(tmp_path, process).operations["source_memory"].to_list()


def test_what_is_neither_called_nor_marked_is_no_call(tmp_path: Path) -> None:
    process = small_process()
    process.call("rocm call", 1600, 1610, 15, "rocm_hip_api")
    process.call("main", 900, 2000, 0, "host")  # of ROCm Systems Profiler
    process.call("said", 1620, 1630, 16, "rocm_marker_api")
    process.call("KFD_PAGE_MIGRATE_PREFETCH", 1000, 1100, 0, "KFD_PAGE_MIGRATE")
    trace = written(tmp_path, process)
    assert trace.calls["name"].to_list() == ["hipMemcpyAsync", "hipLaunchKernel", "hipMemcpy", "rocm call"]
    assert trace.markers["name"].sort().to_list() == ["main", "said", "step"]
    assert omitted(trace)["driver-events"] == 1


def test_a_kernel_that_the_profiler_repeats_counts_once(tmp_path: Path) -> None:
    process = small_process()
    process.columns["rocpd_kernel_dispatch"].append("replay_pass")
    first = process.rows["rocpd_kernel_dispatch"][0] | {"dispatch_id": 1, "replay_pass": 0}
    again = [first | {"id": 2 + n, "start": 1600 + n, "end": 1700 + n, "replay_pass": n + 1} for n in (0, 1)]
    replayed = first | {"id": 5, "start": 1800, "end": 1900, "dispatch_id": 2, "replay_pass": None}
    process.rows["rocpd_kernel_dispatch"] = [first, *again, replayed]
    trace = written(tmp_path, process)
    assert trace.operations.filter(kind="kernel")["start_ns"].to_list() == [210, 800]
    assert omitted(trace)["repeated-kernels"] == 2


def test_a_run_without_copies_says_nothing_of_pinning(tmp_path: Path) -> None:
    process = ProcessTables("_0001")
    process.call("hipLaunchKernel", 0, 5, 1)
    process.kernel("axpy", 10, 20, 1)
    assert omitted(written(tmp_path, process)) == {}


def test_wrong_types_become_unknown(tmp_path: Path) -> None:
    process = small_process()
    process.copy("MEMORY_COPY_HOST_TO_DEVICE", CPU, GPU_0, "big", 1600, 1700, 15)
    process.kernel("untimed", "now", 1800, 16)
    trace = written(tmp_path, process)
    assert trace.operations.filter(kind="copy")["bytes"].to_list() == [4096, 8192, None]
    assert omitted(trace)["untimed"] == 1
    assert trace.operations.filter(pl.col("name").cast(pl.String) == "untimed").is_empty()


DEVICE, HOST, STACK = 0x7F0000000000, 0x7E0000000000, 0x7FFE00000000


class Run:
    """Allocations, calls and copies, for a database or for JSON."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int]] = []
        self.memory: list[tuple[int, bool, int | None, int]] = []  # address, of the GPU, size, when
        self.copied: list[tuple[int, int, int, int]] = []  # source, destination, when, id

    def allocate(self, call: str, address: int, at: int, size: int = 1 << 20) -> None:
        self.calls.append((call, at, at + 9, at))
        self.memory.append((address, call == "hipMalloc", size, at + 2))

    def free(self, call: str, address: int, at: int) -> None:
        self.calls.append((call, at, at + 9, at))
        self.memory.append((address, False, None, at + 2))

    def copy(self, source: int, destination: int, at: int) -> None:
        self.calls.append(("hipMemcpyAsync", at, at + 5, at))
        self.copied.append((source, destination, at + 20, at))

    def database(self, path: Path) -> Trace:
        tables = ProcessTables("_0001")
        tables.columns["rocpd_memory_allocate"] = ALLOCATED
        for name, start, end, id in self.calls:
            tables.call(name, start, end, id)
        for number, (address, on_gpu, size, at) in enumerate(self.memory):
            place = tables.place(at, at + 2, 5000 + number, build_rocprof.MEMORY)
            kind, agent = "FREE" if size is None else "ALLOC", GPU_0 if on_gpu else CPU
            what = {"type": kind, "level": "REAL", "agent_id": agent, "address": address, "size": size}
            tables.add("rocpd_memory_allocate", **place | what)
        for source, destination, at, id in self.copied:
            ends = (CPU, GPU_0) if destination >> 40 == DEVICE >> 40 else (GPU_0, CPU)
            tables.copy(None, *ends, 64, at, at + 5, id)
            tables.rows["rocpd_memory_copy"][-1] |= {"src_address": source, "dst_address": destination}
        return read(write_rocpd(path, tables))

    def json(self, path: Path) -> Trace:
        run = JsonRun()
        for name, start, end, id in self.calls:
            run.call(name, start, end, id)
        for number, (address, on_gpu, size, at) in enumerate(self.memory):
            agent = {"handle": GPU_HANDLE if on_gpu else CPU_HANDLE}
            what = {"agent_id": agent, "address": hex(address), "allocation_size": size or 0}
            run.add("memory_allocation", ALLOCATION, int(size is None), at, at + 2, 5000 + number, **what)
        for source, destination, at, id in self.copied:
            to_gpu = destination >> 40 == DEVICE >> 40
            ends = (CPU_HANDLE, GPU_HANDLE) if to_gpu else (GPU_HANDLE, CPU_HANDLE)
            addresses = {"src_address": {"handle": source}, "dst_address": {"handle": destination}}
            run.copy(H2D if to_gpu else D2H, *ends, 64, at, at + 5, id, **addresses)
        return read(write_json(path, run))

    def host_memory(self, folder: Path) -> list[str | None]:
        """Of each copy; the database and the JSON say the same."""
        memory = []
        for trace in (self.database(folder / "results.db"), self.json(folder / "results.json")):
            operations = trace.operations
            columns = zip(operations["source_memory"], operations["destination_memory"], strict=True)
            memory.append([next((kind for kind in ends if kind != "device"), None) for ends in columns])
            assert ("unknown-memory" in omitted(trace)) == (None in memory[-1])
        assert memory[0] == memory[1]
        return memory[0]


def ordinary() -> Run:
    run = Run()
    run.allocate("hipMalloc", DEVICE, 10)
    run.allocate("hipHostMalloc", HOST, 30)
    run.copy(HOST + 4096, DEVICE, 100)
    run.copy(STACK, DEVICE + 64, 200)
    run.copy(DEVICE, HOST, 300)
    return run


def test_the_call_that_allocated_memory_gives_its_kind(tmp_path: Path) -> None:
    assert ordinary().host_memory(tmp_path) == ["pinned", "pageable", "pinned"]


def test_memory_that_was_given_back_is_not_pinned_any_more(tmp_path: Path) -> None:
    run = ordinary()
    run.free("hipHostFree", HOST, 400)
    run.copy(HOST, DEVICE, 500)
    run.allocate("hipMallocManaged", HOST, 600, size=100)
    run.copy(HOST + 50, DEVICE, 700)
    run.copy(HOST + 100, DEVICE, 800)
    assert run.host_memory(tmp_path)[3:] == ["pageable", "managed", "pageable"]


def test_memory_of_the_runtime_is_where_pageable_copies_are_staged(tmp_path: Path) -> None:
    run = ordinary()
    run.memory.append((STACK, False, 1 << 20, 60))  # no call of the program's around it
    assert run.host_memory(tmp_path) == ["pinned", "pageable", "pinned"]


@pytest.mark.parametrize(
    "what", ["registered", "unknown device memory", "no calls", "no allocations", "no addresses"]
)
def test_pageable_is_unknown_where_something_may_be_missing(what: str, tmp_path: Path) -> None:
    run = ordinary()
    if what == "registered":
        run.calls.append(("hipHostRegister", 60, 65, 60))
    elif what == "unknown device memory":
        run.copy(HOST, DEVICE + (1 << 30), 900)
    elif what == "no calls":
        run.calls.clear()
    elif what == "no allocations":
        run.memory.clear()
    else:
        run.copied = [(0, DEVICE, at, id) for _, _, at, id in run.copied]
    memory = ["pinned", None, "pinned"] if what in ("registered", "unknown device memory") else [None] * 3
    assert run.host_memory(tmp_path)[:3] == memory
