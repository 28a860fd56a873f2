"""Launches of kernels, their operators, and the memory that is allocated meanwhile."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.trace import Trace, read
from busfare.trace.launches import ALLOCATIONS, with_allocated
from busfare.trace.tables import LAUNCH_SHAPE, LAUNCHES, OPERATIONS, REACH, conform
from tests.published import published
from tests.trace.build_directory import export_directory
from tests.trace.build_kineto import call, event, kernel, small_events, write_kineto
from tests.trace.build_nsys import LAUNCH, PROCESS, NsysExport, global_pid, small_export
from tests.trace.build_nvprof import NvprofFile
from tests.trace.build_rocprof import ProcessTables, RpdFile, write_rocpd

NOTHING = (None,) * (len(LAUNCHES) - len(REACH))
SHAPE = (16, 2, 3, 128, 2, 1, 40, 3072)
CUDA = dict(zip(LAUNCH, (16, 2, 3, 128, 2, 1, 40, 1024, 2048), strict=True))


def of_kernels(trace: Trace) -> list[tuple[Any, ...]]:
    """What the trace tells of each kernel's launch, in order of time."""
    kernels = trace.operations.filter(kind="kernel").select("launch")
    launches = trace.launches.with_row_index("launch")
    launched = kernels.join(launches, on="launch", how="left", maintain_order="left")
    return launched.drop("launch", *REACH).rows()


def nsys(path: Path, launch: dict[str, Any]) -> Path:
    export = NsysExport()
    export.kernel("k", 0, 9, 1, **launch)
    return export.write(path)


def directory(path: Path, launch: dict[str, Any]) -> Path:
    return export_directory(nsys(path.with_suffix(".sqlite"), launch), path, ".parquet")


def nvprof(path: Path, launch: dict[str, Any]) -> Path:
    file = NvprofFile()
    file.kernel("k", 0, 9, 1, **launch)
    return file.write(path)


def kineto(path: Path, launch: dict[str, Any]) -> Path:
    args = {what: [launch.get(what + side) for side in "XYZ"] for what in ("grid", "block")}
    args["registers per thread"] = launch.get("registersPerThread")
    static, dynamic = launch.get("staticSharedMemory"), launch.get("dynamicSharedMemory")
    args["shared memory"] = static + dynamic if isinstance(static, int) and isinstance(dynamic, int) else None
    return write_kineto(path, [kernel("k", 0, 9, 1, **args)])


def rocpd(path: Path, launch: dict[str, Any]) -> Path:
    process = ProcessTables("")
    given: dict[str, Any] = {}
    for side in "xyz":
        blocks, threads = launch.get("grid" + side.upper()), launch.get("block" + side.upper())
        items = blocks * threads if isinstance(blocks, int) and isinstance(threads, int) else blocks
        given |= {f"grid_size_{side}": items, f"workgroup_size_{side}": threads}
    given |= {"arch_vgpr_count": launch.get("registersPerThread"), "accum_vgpr_count": 0}
    static, dynamic = launch.get("staticSharedMemory"), launch.get("dynamicSharedMemory")
    shared = static + dynamic if isinstance(static, int) and isinstance(dynamic, int) else None
    process.kernel("k", 0, 9, 1, **given, group_segment_size=shared)
    return write_rocpd(path, process)


FORMATS: list[Callable[[Path, dict[str, Any]], Path]] = [nsys, directory, nvprof, kineto, rocpd]


@pytest.mark.parametrize("write", FORMATS)
def test_grid_block_registers_memory(write: Callable[[Path, dict[str, Any]], Path], tmp_path: Path) -> None:
    trace = read(write(tmp_path / "trace", CUDA), launches=True)
    assert dict(trace.launches.schema) == dict(LAUNCHES)
    assert of_kernels(trace) == [(*SHAPE, None, None, None, None)]
    assert trace.operations["launch"].dtype == pl.UInt32
    without = read(tmp_path / "trace")
    assert without.launches.is_empty() and "launch" not in without.operations.columns
    assert without.operations.equals(trace.operations.drop("launch"))


GRID, BLOCK, REGISTERS, SHARED = slice(0, 3), slice(3, 6), slice(6, 7), slice(7, 8)
GRIDS = (
    {"gridX": 0},
    {"gridY": 65536},
    {"gridX": -5},
    {"gridX": 1 << 50},
    {"gridZ": "three"},
    {"gridX": None},
)
#: What no launch can have, and which columns it makes unknown.
IMPOSSIBLE: list[tuple[dict[str, Any], slice]] = [
    *((wrong, GRID) for wrong in GRIDS),
    *(({"blockX": threads}, BLOCK) for threads in (2048, 1024)),  # times 2
    ({"blockZ": -1}, BLOCK),
    *(({"registersPerThread": registers}, REGISTERS) for registers in (-1, 1 << 40, "many")),
    ({"staticSharedMemory": -4096}, SHARED),
    ({"dynamicSharedMemory": 1 << 62}, SHARED),
]


@pytest.mark.parametrize("write", [nsys, directory, nvprof, kineto])
@pytest.mark.parametrize(("wrong", "unknown"), IMPOSSIBLE, ids=str)
def test_what_no_launch_can_have_is_unknown(
    write: Callable[[Path, dict[str, Any]], Path], wrong: dict[str, Any], unknown: slice, tmp_path: Path
) -> None:
    expected = list(SHAPE)
    expected[unknown] = [None] * (unknown.stop - unknown.start)
    kernels = of_kernels(read(write(tmp_path / "trace", CUDA | wrong), launches=True))
    assert kernels == [(*expected, None, None, None, None)]


@pytest.mark.parametrize("column", LAUNCH)
def test_a_column_that_is_missing_is_unknown(column: str, tmp_path: Path) -> None:
    given = {name: value for name, value in CUDA.items() if name != column}
    assert None in of_kernels(read(nsys(tmp_path / "trace", given), launches=True))[0][:8]
    export = NsysExport()
    export.kernel("k", 0, 9, 1, **given)
    export.columns["CUPTI_ACTIVITY_KIND_KERNEL"].remove(column)
    kernels = of_kernels(read(export.write(tmp_path / "without"), launches=True))
    assert kernels == of_kernels(read(tmp_path / "trace", launches=True))


def test_a_launch_stands_once_and_only_kernels_have_launches(tmp_path: Path) -> None:
    export = small_export()
    for at in range(6):
        export.kernel("k", 1000 + at * 10, 1005 + at * 10, None, **CUDA | {"gridX": 1 + at % 2})
    trace = read(export.write(tmp_path / "trace"), launches=True)
    assert trace.launches["grid_x"].to_list() == [1, 2]
    expected = {"copy": [None, None], "set": [None], "kernel": [None, 0, 1, 0, 1, 0, 1]}
    for kind, launches in expected.items():
        assert trace.operations.filter(kind=kind)["launch"].to_list() == launches


@pytest.mark.parametrize(
    ("grid", "call_name", "expected"),
    [
        ([(64, 1, 1), (1, 1, 1)], "hipLaunchKernel", [(64, 1, 1, 256, None), (1, 1, 1, 256, None)]),
        ([(512, 1, 1), (256, 3, 1)], "hipLaunchKernel", [(2, 1, 1, 256, 512), (1, 3, 1, 256, 512)]),
        ([(512, 1, 1), (1, 1, 1)], "hipExtModuleLaunchKernel", [(2, 1, 1, 256, 512), (1, 1, 1, 256, 512)]),
    ],
)
def test_rpd_counts_blocks_or_work_items(
    grid: list[tuple[int, ...]], call_name: str, expected: list[tuple[int | None, ...]], tmp_path: Path
) -> None:
    file = RpdFile()
    for at, sides in enumerate(grid):
        launch = file.call(call_name, at * 10, at * 10 + 5)
        file.operation("KernelExecution", at * 10 + 1, at * 10 + 6, launch, "k")
        sized = dict(zip(("gridX", "gridY", "gridZ"), sides, strict=True))
        group = {"workgroupX": 256, "workgroupY": 1, "workgroupZ": 1, "groupSegmentSize": 512}
        file.add("rocpd_kernelapi", api_ptr_id=launch, **sized | group)
    launches = read(file.write(tmp_path / "trace"), launches=True).launches
    assert launches.select("grid_x", "grid_y", "grid_z", "block_x", "shared_bytes").rows() == expected


def operator(name: str, start: float, duration: float, external: int, **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, start, duration, args={"External id": external} | args)


MM = {
    "Input Dims": [[64, 128], [128, 32]],
    "Input type": ["float", "c10::BFloat16"],
    "Concrete Inputs": ["", ""],
}
OF_MM = ("aten::mm", "[[64,128],[128,32]]", '["float","c10::BFloat16"]', '["",""]')


#: A product, and kernels of an external id or of none.
PRODUCT = operator("aten::mm", 1, 9, 7, **MM)
ALONE = kernel("k", 20, 5, 1)
OF_7, OF_8 = (kernel("k", 20, 5, 1, **{"External id": id}) for id in (7, 8))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # The operator of the id.
        ([PRODUCT, OF_7], OF_MM),
        ([PRODUCT, kernel("k", 20, 5, 1, **{"external id": 7})], OF_MM),
        # Until 2023 the id is the correlation: the innermost one around the call.
        (
            [
                operator("aten::add", 30, 9, 1), operator("aten::linear", 0, 20, 6), PRODUCT,
                call("cudaLaunchKernel", 5, 1, 1), operator("aten::t", 12, 3, 8),
                kernel("k", 20, 5, 1, **{"External id": 1}),
            ],
            OF_MM,
        ),
        # Another library's that has no shapes gives way to one around it that has.
        ([PRODUCT, operator("mine::mm", 2, 3, 8), OF_8], OF_MM),
        ([operator("mine::mm", 2, 3, 8), OF_8], ("mine::mm", None, None, None)),
        ([operator("aten::linear", 1, 9, 7, **MM), operator("aten::mm", 2, 3, 8), OF_8], ("aten::mm", None, None, None)),
        # Nothing known of who launched it.
        ([PRODUCT, ALONE], NOTHING[8:]),
        ([PRODUCT, call("cudaLaunchKernel", 5, 1, 1, tid=9), ALONE], NOTHING[8:]),
        # A graph's launch is not the operator that was captured.
        ([PRODUCT, call("cudaGraphLaunch", 5, 1, 1), OF_7], NOTHING[8:]),
    ],
)  # fmt: skip
def test_the_operator_that_launched_a_kernel(
    events: list[dict[str, Any]], expected: tuple[str | None, ...], tmp_path: Path
) -> None:
    trace = read(write_kineto(tmp_path / "trace", events), launches=True)
    assert [row[8:] for row in of_kernels(trace)] == [expected]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"Input Dims": "64, 128"}, (None, None, None)),
        ({"Input Dims": [64, 128]}, (None, None, None)),
        ({"Input Dims": {"0": [1]}, "Input type": 5, "Concrete Inputs": None}, (None, None, None)),
        ({"Input Dims": [], "Input type": []}, ("[]", "[]", None)),
        ({"Input Dims": [[[2, 3], [4]], []]}, ("[[[2,3],[4]],[]]", None, None)),
        ({"Input type": ["a\x1b[31mb \U0001f600"]}, (None, '["a\\u001b[31mb \U0001f600"]', None)),
    ],
)
def test_inputs_that_are_no_lists_are_unknown(
    args: dict[str, Any], expected: tuple[str | None, ...], tmp_path: Path
) -> None:
    events = [operator("aten::x", 0, 9, 7, **args), kernel("k", 20, 5, 1, **{"External id": 7})]
    trace = read(write_kineto(tmp_path / "trace", events), launches=True)
    assert [row[8:] for row in of_kernels(trace)] == [("aten::x", *expected)]


def test_operators_change_nothing_else(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "trace", [*small_events(), {"ph": "B", "cat": "cpu_op", "ts": 1}])
    plain, trace = read(path), read(path, launches=True)
    assert trace.omissions == plain.omissions
    assert trace.calls.equals(plain.calls) and trace.markers.equals(plain.markers)


def test_ranges_of_emit_nvtx_name_the_operator(tmp_path: Path) -> None:
    export = NsysExport()
    texts = {
        (0, 100): "step",
        (10, 50): "aten::linear, seq = 4, op_id = 8, sizes = [[2, 3]], input_op_ids = [(1,0)]",
        (12, 40): "aten::mm, op_id = 9, sizes = [[64, 128], [128, 32]]",
        (60, 70): "aten::add, seq = 5",
    }
    for (start, end), text in texts.items():
        export.add("NVTX_EVENTS", start=start, end=end, eventType=59, text=text, globalTid=global_pid() + 5)
    for number, at in enumerate((20, 45, 65, 80), 1):
        export.call("cudaLaunchKernel_v7000", at, at + 2, number)
        export.kernel("k", 200 + at, 201 + at, number)
    export.call("cudaLaunchKernel_v7000", 21, 22, 9, thread=6)
    export.kernel("k", 400, 401, 9)
    trace = read(export.write(tmp_path / "trace"), launches=True)
    assert [row[8:10] for row in of_kernels(trace)] == [
        ("aten::mm", "[[64,128],[128,32]]"),
        ("aten::linear", "[[2,3]]"),
        ("aten::add", None),
        (None, None),
        (None, None),
    ]


SQL = "SELECT {}, staticSharedMemory + dynamicSharedMemory, count(*) FROM {} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"


def grouped(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Launches of a file that are alike in these columns, and how many kernels they launched."""
    trace = read(path, launches=True)
    counted = trace.operations["launch"].drop_nulls().value_counts()
    launches = trace.launches.with_row_index("launch").join(counted, on="launch")
    return sorted(launches.group_by(*columns).agg(pl.col("count").sum()).rows())


def of_sqlite(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        return sorted(database.execute(query).fetchall())


@pytest.mark.conformance
@pytest.mark.parametrize(
    "path", [*published("nsys", "*.sqlite"), *published("nvprof", "*.nvvp")], ids=lambda p: p.name
)
def test_launches_of_published_files_equal_those_of_sqlite(path: Path) -> None:
    table = "CUPTI_ACTIVITY_KIND_" + ("KERNEL" if path.suffix == ".sqlite" else "CONCURRENT_KERNEL")
    assert grouped(path, *LAUNCH_SHAPE) == of_sqlite(path, SQL.format(", ".join(LAUNCH[:7]), table))


@pytest.mark.conformance
@pytest.mark.parametrize("path", published("amd", "*.rpd"), ids=lambda p: p.name)
def test_launches_of_a_published_rpd_file(path: Path) -> None:
    # hipExtModuleLaunchKernel takes work-items [HIP: module API].
    items = "CASE WHEN c.string = 'hipExtModuleLaunchKernel' THEN workgroup{0} ELSE 1 END"
    grid = ", ".join(f"grid{side} / {items.format(side)}" for side in "XYZ")
    sql = (
        f"SELECT {grid}, workgroupX, workgroupY, workgroupZ, count(*) "
        "FROM rocpd_op o JOIN rocpd_api_ops ON op_id = o.id JOIN rocpd_kernelapi ON api_id = api_ptr_id "
        "JOIN rocpd_api a ON a.id = api_id JOIN rocpd_string c ON c.id = apiName_id GROUP BY 1, 2, 3, 4, 5, 6"
    )
    assert grouped(path, *list(LAUNCH_SHAPE)[:6]) == of_sqlite(path, sql)


def examples() -> list[Path]:
    return sorted(Path(str(resources.files("busfare.examples"))).glob("*-h?00.json.gz"))


@pytest.mark.conformance
@pytest.mark.parametrize("path", [*published("kineto", "*.gz"), *examples()], ids=lambda p: p.name)
def test_launches_of_published_kineto_files_are_those_of_the_json(path: Path) -> None:
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    kernels, operators, in_items = [], {}, set()
    for logged in (logged for logged in events if logged.get("ph") == "X"):
        args = logged.get("args", {})
        if logged["name"] == "hipExtModuleLaunchKernel":  # takes work-items [HIP: module API]
            in_items.add(args["correlation"])
        if logged["cat"] == "cpu_op":
            operators.setdefault(args.get("External id"), logged)
        elif logged["cat"] == "kernel":
            kernels.append((logged["ts"], args))
    of_trace = of_kernels(read(path, launches=True))
    assert len(of_trace) == len(kernels)
    for row, (_, args) in zip(of_trace, sorted(kernels, key=lambda logged: logged[0]), strict=True):
        grid, block = (args.get(what, [None] * 3) for what in ("grid", "block"))
        if args.get("correlation") in in_items:
            grid = [items // group for items, group in zip(grid, block, strict=True)]
        sides = [*grid, *block]
        assert [*row[:8]] == [*sides, args.get("registers per thread"), args.get("shared memory")]
        # Older files name the call in place of the operator.
        named = operators.get(args.get("External id"))
        if named and args["External id"] != args["correlation"] and named["name"].startswith("aten::"):
            texts = [named["args"].get(key) for key in ("Input Dims", "Input type", "Concrete Inputs")]
            lists = [None if text is None else json.loads(text) for text in row[9:]]
            assert (row[8], lists) == (named["name"], texts)


#: A call by which a program begins to use CUDA.
BEGINS = "cuModuleGetLoadingMode"


def kernels(*rows: dict[str, Any]) -> pl.DataFrame:
    """Operations, kernels of process 1 on GPU 0 where nothing else is said."""
    usual = {"kind": "kernel", "name": "k", "process": 1, "device": 0, "grid_x": 8}
    frame = pl.DataFrame([usual | row for row in rows])
    return conform(frame, OPERATIONS, {"grid_x": pl.Int32()})


def allocations(*rows: tuple[int, int], **same: Any) -> pl.DataFrame:
    """Bytes allocated, below 0 where they are freed, at a time."""
    frame = pl.DataFrame(rows, schema=["start_ns", "bytes"], orient="row")
    usual = {"process": 1, "device": 0, "in_stream": False}
    return conform(
        frame.with_columns(pl.lit(value).alias(name) for name, value in (usual | same).items()), ALLOCATIONS
    )


def allocated(operations: pl.DataFrame, *parts: pl.DataFrame) -> list[int | None]:
    """Of each operation, in the order that they have."""
    made = with_allocated(operations, pl.concat(parts))
    assert made.drop("allocated_bytes", strict=False).equals(operations)
    if "allocated_bytes" not in made.columns:
        return [None] * operations.height
    return made["allocated_bytes"].to_list()


def test_it_is_what_is_held_when_a_kernel_ends() -> None:
    held = allocations((0, 100), (10, 50), (20, -100))
    ran = kernels(*({"name": f"k{end}", "end_ns": end} for end in (25, 5, 15)))
    assert allocated(ran, held) == [50, 100, 150]


def test_launches_of_a_kernel_can_reach_the_most_of_any() -> None:
    held = allocations((0, 100), (10, 900), (20, -900))
    ran = kernels({"end_ns": 5}, {"end_ns": 15}, {"end_ns": 25}, {"end_ns": 25, "grid_x": 9})
    assert allocated(ran, held) == [1000, 1000, 1000, 100]


def test_of_what_a_stream_frees_the_most_counts() -> None:
    """The host gives it back before the kernel has begun."""
    held = allocations((0, 100)), allocations((1, 700), (2, -700), (3, 50), in_stream=True)
    assert allocated(kernels({"end_ns": 9}), *held) == [800]


def test_memory_belongs_to_its_gpu_and_managed_memory_to_all() -> None:
    held = allocations((0, 100)), allocations((0, 7), device=1), allocations((0, 1000), device=None)
    ran = kernels({"end_ns": 5}, {"end_ns": 5, "device": 1}, {"end_ns": 5, "process": 2})
    assert allocated(ran, *held) == [1100, 1007, None]


@pytest.mark.parametrize(
    "held",
    [
        allocations((0, 100), (1, -200), (2, 500)),  # freed, never allocated
        allocations((0, 100)).clear(),
        allocations((0, 1 << 50)),  # no GPU has as much
    ],
)
def test_allocations_that_cannot_be_all_say_nothing(held: pl.DataFrame) -> None:
    assert allocated(kernels({"end_ns": 5}), held) == [None]


def test_what_is_copied_at_once_was_allocated() -> None:
    for copied, expected in ((100, 100), (101, None)):
        copy = {"kind": "copy", "bytes": copied, "destination_memory": "device", "end_ns": 3}
        assert allocated(kernels(copy, {"end_ns": 5}), allocations((0, 100)))[1] == expected


def export(path: Path, begins: bool = True, generation: str = "2025.1") -> Path:
    """A process that holds 4000 bytes of the GPU and 3000 of the host, and has freed 500."""
    made = NsysExport(generation)
    if begins:
        made.call(BEGINS, 1, 2, 1)
    for start, size, memory in ((10, 1500, 2), (11, 500, 3), (12, 2000, 5), (13, 3000, 1), (14, 500, 2)):
        made.allocation(start, size, memory)
    made.allocation(15, 500, freed=True)
    made.kernel("k", 100, 200, 2)
    return made.write(path / f"{generation}-{begins}.sqlite")


@pytest.mark.parametrize("generation", ["2022.4", "2025.1"])
def test_nsys_tells_what_is_allocated(tmp_path: Path, generation: str) -> None:
    launches = read(export(tmp_path, generation=generation), launches=True).launches
    assert launches["allocated_bytes"].to_list() == [4000]


def test_nsys_that_began_later_does_not(tmp_path: Path) -> None:
    assert read(export(tmp_path, begins=False), launches=True).launches.is_empty()


def test_pools_and_managed_memory_of_nsys(tmp_path: Path) -> None:
    made = NsysExport()
    made.call(BEGINS, 1, 2, 1)
    made.allocation(10, 300, localMemoryPoolAddress=4096)
    made.allocation(11, 300, freed=True, localMemoryPoolAddress=4096)
    made.allocation(11, 5000, localMemoryPoolSize=8192)
    made.allocation(11, 5000, freed=True, localMemoryPoolSize=8192)
    made.allocation(12, 20, memory=4, deviceId=1)
    made.allocation(13, 1, memory=9)  # of no known kind
    made.kernel("k", 100, 200, 2)
    assert PROCESS in read(path := made.write(tmp_path / "run.sqlite")).operations["process"]
    assert read(path, launches=True).launches["allocated_bytes"].to_list() == [5020]
