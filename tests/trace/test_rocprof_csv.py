"""CSV files of rocprofv3, of ROCm 6.2 to 7, and the one of rocprof before it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.trace import is_trace_directory, may_be_trace, read
from tests.trace.build_kineto import gzipped
from tests.trace.build_rocprof import PROCESS, small_process, write_rocpd
from tests.trace.build_rocprof_files import QUEUE, small_csv, write_csv
from tests.traces import omitted

Files = dict[str, tuple[list[str], list[list[object]]]]


def without(files: Files, kind: str, *columns: str) -> None:
    """Takes columns away from a file."""
    names, rows = files[kind]
    kept = [at for at, name in enumerate(names) if name not in columns]
    files[kind] = ([names[at] for at in kept], [[row[at] for at in kept] for row in rows])


def test_the_files_of_a_run_say_what_its_database_says_but_for_sizes(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "host", small_csv())
    wanted = read(write_rocpd(tmp_path / "results.db", small_process()))
    for path in (folder, folder / "3131_kernel_trace.csv", folder / "3131_memory_copy_trace.csv"):
        trace = read(path)
        assert trace.operations.drop("bytes").equals(wanted.operations.drop("bytes"))
        assert trace.calls.equals(wanted.calls) and trace.markers.equals(wanted.markers)
        assert trace.devices["name"].to_list() == ["GPU 0", "GPU 1"]
        assert set(omitted(trace)) == {"unknown-sizes", "unknown-memory"}
    launches = read(folder, launches=True).launches
    assert launches.select("grid_x", "block_x", "registers", "shared_bytes").rows() == [(2, 64, 12, 512)]
    assert is_trace_directory(folder)


def as_of_6_2(files: Files) -> None:
    """No streams, agents by bare numbers, other names of what a group shares."""
    for kind in ("kernel_trace", "memory_copy_trace"):
        without(files, kind, "Stream_Id")
    without(files, "kernel_trace", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Scratch_Size")
    names, rows = files["kernel_trace"]
    files["kernel_trace"] = ([{"LDS_Block_Size": "Group_Segment_Size"}.get(n, n) for n in names], rows)
    for kind in ("kernel_trace", "memory_copy_trace"):
        for row in files[kind][1]:
            row[:] = [int(v.removeprefix("Agent ")) if str(v).startswith("Agent ") else v for v in row]


def by_type(files: Files) -> None:
    """Of `--agent-index=type-relative`."""
    names = {"Agent 0": "CPU 0", "Agent 1": "GPU 0"}
    for kind in ("kernel_trace", "memory_copy_trace"):
        for row in files[kind][1]:
            row[:] = [names.get(str(value), value) for value in row]


def of_rocpd(files: Files) -> None:
    """As rocpd's converter writes them: with the run's id, words in another case, and all calls in one file."""
    names, rows = files["kernel_trace"]
    files["kernel_trace"] = (["Guid", *(name.title() for name in names)], [["0000-1", *row] for row in rows])
    names, calls = files.pop("hip_api_trace")
    calls = calls + files.pop("marker_api_trace")[1]
    files["regions_trace"] = (["Guid", *names], [["0000-1", *row] for row in calls])


@pytest.mark.parametrize("version", [as_of_6_2, by_type, of_rocpd])
def test_columns_and_agents_differ_by_version(version: Callable[[Files], None], tmp_path: Path) -> None:
    files = small_csv()
    version(files)
    trace = read(write_csv(tmp_path / "host", files))
    wanted = ["kind", "direction", "start_ns", "end_ns", "device", "correlation", "process"]
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 100, 200, 0, 11, PROCESS),
        ("kernel", None, 210, 310, 0, 12, PROCESS),
        ("copy", "d2h", 340, 490, 0, 13, PROCESS),
    ]
    assert (trace.calls.height, trace.markers["name"].to_list()) == (3, ["step"])
    streams = trace.operations.filter(kind="kernel")["stream"].to_list()
    assert streams == ([QUEUE] if version is as_of_6_2 else [4])


def test_without_a_list_of_agents_those_that_work_are_the_gpus(tmp_path: Path) -> None:
    files = small_csv()
    del files["agent_info"]
    files["kernel_trace"][1].append([*files["kernel_trace"][1][0]])
    files["kernel_trace"][1][1][1] = "Agent 5"
    trace = read(write_csv(tmp_path / "host", files))
    assert trace.operations["device"].to_list() == [0, 0, 1, 0]
    assert omitted(trace)["unknown-agents"] == 2


def test_several_processes_in_a_directory(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "host", small_csv())
    write_csv(folder, small_csv(), "4141_")
    with pytest.raises(InputError, match=r"files of 2 processes .3131, 4141.*give one file of the process"):
        read(folder)
    assert read(folder / "4141_hip_api_trace.csv").operations.height == 3
    assert not is_trace_directory(folder)  # a job: of each process the file of kernels is the trace
    expected = {"3131_kernel_trace.csv", "4141_kernel_trace.csv"}
    assert {file.name for file in folder.iterdir() if may_be_trace(file)} == expected
    files = small_csv()
    of_rocpd(files)
    files["kernel_trace"][1].append(["0000-2", *files["kernel_trace"][1][0][1:]])
    with pytest.raises(InputError, match=r"2 processes in one file; give the \.db"):
        read(write_csv(tmp_path / "one", files))


STATISTICS = b'"Name","Calls","TotalDurationNs","AverageNs"\n"hipFree",1,2,2\n'
COUNTERS = (
    b'"Correlation_Id","Dispatch_Id","Kernel_Name","Counter_Name","Counter_Value"\n1,1,"k","SQ_WAVES",9\n'
)
AGENTS = b'"Node_Id","Agent_Type"\n0,"CPU"\n'
V1_COUNTERS = b"Index,KernelName,gpu-id,queue-id,GPUBusy\n0,k,4,0,100\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.hip_stats.csv", STATISTICS, "not a trace but statistics.*rocprofv3 --runtime-trace"),
        ("3131_counter_collection.csv", COUNTERS, "not a trace but counters"),
        ("results.csv", V1_COUNTERS, "not a trace but counters"),
        ("3131_agent_info.csv", AGENTS, "not a trace but a list of the machine's agents"),
        ("table.csv", b"start,end\n1,2\n", "not a trace that busfare knows"),
    ],
)
def test_csv_without_times_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)
    assert not may_be_trace(tmp_path / name)


V1 = b"""Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,BeginNs,EndNs
0,"axpy(float*) [clone .kd]",8,0,0,77,78,512,64,0,0,16,4,100,200
1,"fill.kd",8,1,0,77,78,512,64,0,0,16,4,210,230
"""


def test_kernels_of_rocprof(tmp_path: Path) -> None:
    (tmp_path / "results.csv.gz").write_bytes(gzipped(V1))
    trace = read(tmp_path / "results.csv.gz")
    wanted = ["kind", "name", "start_ns", "end_ns", "stream", "process"]
    expected = [("kernel", "axpy(float*)", 0, 100, 0, 77), ("kernel", "fill", 110, 130, 1, 77)]
    assert trace.operations.select(wanted).rows() == expected
    assert "no-calls" in omitted(trace)


def test_an_empty_line_is_no_kernel(tmp_path: Path) -> None:
    path = tmp_path / "results_3131.csv"  # of rocprofv2
    columns = "Dispatch_ID,GPU_ID,Queue_ID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID"
    path.write_text(f'{columns}\n\n1,35146,1,"copy(float*, int)",1000,1100,0\n')
    trace = read(path)
    wanted = [("copy(float*, int)", 0, 100, 0)]
    assert trace.operations.select("name", "start_ns", "end_ns", "device").rows() == wanted
    assert set(omitted(trace)) == {"unknown-agents", "no-calls"}


def test_columns_that_stand_apart_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text('"Index", "KernelName", "BeginNs", "EndNs"\n0,"k",1000,1100\n')
    assert read(path).operations.height == 1


def test_a_file_that_ends_in_a_line_leaves_that_line_out(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "host", small_csv())
    file = folder / "3131_hip_api_trace.csv"
    file.write_bytes(file.read_bytes()[:-2])
    trace = read(folder)
    assert trace.calls.height == 2
    assert "truncated" in omitted(trace)


def test_what_a_line_lacks_is_not_made_up(tmp_path: Path) -> None:
    files: Any = small_csv()
    files["kernel_trace"][1].append(["KERNEL_DISPATCH", "Agent 1"])
    files["memory_copy_trace"][1][0][1] = "SOMETHING_ELSE"
    files["memory_copy_trace"][1][0][3] = "who"
    trace = read(write_csv(tmp_path / "host", files))
    assert trace.operations.height == 3
    assert omitted(trace)["untimed"] == 1 and omitted(trace)["unknown-direction"] == 1
