"""RPD files, by roctracer and by ROCprofiler-SDK."""

from pathlib import Path

import pytest

from busfare.show.words import text
from busfare.trace import Trace, read
from tests.trace.build_rocprof import RPD_PROCESS, RpdFile, small_rpd
from tests.traces import omitted


def of_rpd(file: RpdFile, folder: Path) -> Trace:
    return read(file.write(folder / "trace.rpd"))


def test_a_small_rpd_file(tmp_path: Path) -> None:
    trace = of_rpd(small_rpd(), tmp_path)
    wanted = ["kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory"]
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 100, 200, 4096, "pinned", "device"),
        ("kernel", None, 210, 310, None, None, None),
        ("set", None, 320, 330, None, None, None),
        ("copy", "d2h", 340, 490, 8192, "device", "pageable"),
    ]
    assert trace.operations.select("device", "stream", "process").unique().rows() == [(1, 3, RPD_PROCESS)]
    assert trace.operations["name"].to_list() == [None, "axpy(float*)", "FillBuffer", None]
    assert trace.calls.select("name", "start_ns", "end_ns", "waits_for", "thread").rows() == [
        ("hipMemcpyAsync", 0, 50, "none", 77),
        ("hipLaunchKernel", 60, 70, "none", 77),
        ("hipMemsetAsync", 80, 90, "none", 77),
        ("hipMemcpy", 95, 500, "operation", 77),
    ]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("step", -10, 600)]
    assert trace.operations["correlation"].to_list() == trace.calls["correlation"].to_list()
    assert trace.format == "rpd"
    assert trace.producer == "rocmProfileData (schema 2)"
    assert trace.omissions == []


def of_sdk(*copies: tuple[str, int, int], gpus: int = 2) -> RpdFile:
    """Kernels of `gpus` and copies between nodes 0 and 1, CPUs, and 2 and on, as by ROCprofiler-SDK: on GPU 0, queue 0."""
    file = RpdFile()
    for gpu in range(gpus):
        launch = file.call("hipLaunchKernel", 10 * gpu, 10 * gpu + 5)
        file.operation("KernelExecution", 100 + gpu, 200, launch, "axpy(float*)", gpu=gpu)
    for at, (kind, source, destination) in enumerate(copies):
        launch = file.call("hipMemcpyAsync", 300 + 10 * at, 305 + 10 * at)
        file.copied(launch, 4096, file.text(kind), srcDevice=source, dstDevice=destination)
        file.operation(kind, 400 + at, 500 + at, launch, gpu=0, queue=0)
    return file


def test_copies_of_rpd_by_rocprofiler_sdk(tmp_path: Path) -> None:
    h2d, d2h, d2d = (f"MEMORY_COPY_{to}" for to in ("HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE"))
    trace = of_rpd(of_sdk((h2d, 0, 2), (h2d, 1, 3), (d2h, 3, 1), (d2d, 3, 2)), tmp_path)
    wanted = ["direction", "device", "peer_device", "stream", "bytes"]
    assert trace.operations.filter(kind="copy").select(wanted).rows() == [
        ("h2d", 0, None, None, 4096),
        ("h2d", 1, None, None, 4096),
        ("d2h", 1, None, None, 4096),
        ("p2p", 1, 0, None, 4096),
    ]
    assert omitted(trace) == {"unknown-memory": 0}


def test_copies_whose_gpu_nothing_tells_are_on_none(tmp_path: Path) -> None:
    trace = of_rpd(of_sdk(("HOST_TO_DEVICE", 0, 3)), tmp_path)
    assert trace.operations.filter(kind="copy").select("direction", "device").rows() == [("h2d", None)]
    assert omitted(trace)["unknown-gpus"] == 1


def test_copies_and_kernels_of_rpd_by_cupti(tmp_path: Path) -> None:
    file = RpdFile()
    launch = file.call("cudaMemcpyAsync", 0, 5)
    file.copied(launch, 64, 2)
    file.operation("Memcpy", 10, 20, launch)
    file.operation("ConcurrentKernel", 30, 40, file.call("cudaLaunchKernel", 21, 25), "axpy")
    trace = of_rpd(file, tmp_path)
    expected = [("copy", "d2h", 64), ("kernel", None, None)]
    assert trace.operations.select("kind", "direction", "bytes").rows() == expected
    assert set(omitted(trace)) == {"unknown-memory"}


def test_the_size_of_a_call_of_several_copies_in_rpd_is_nobodys(tmp_path: Path) -> None:
    file = RpdFile()
    launch = file.call("hipMemcpy", 0, 50)
    file.copied(launch, 4096, 1)
    for start in (10, 20):
        file.operation("CopyHostToDevice", start, start + 5, launch)
    trace = of_rpd(file, tmp_path)
    assert trace.operations["bytes"].to_list() == [None, None]
    assert omitted(trace)["unknown-sizes"] == 2


def test_markers_of_rpd_since_schema_3_have_their_texts_elsewhere(tmp_path: Path) -> None:
    file = small_rpd()
    file.columns["rocpd_ustring"] = ["id", "string"]
    file.add("rocpd_ustring", string="")
    marker = next(row for row in file.rows["rocpd_api"] if row["apiName_id"] == file.text("UserMarker"))
    marker["args_id"] = file.add("rocpd_ustring", string="layer 1")
    file.call("RocprofDataSource::buffer_callback", 1610, 1620)
    trace = of_rpd(file, tmp_path)
    assert trace.markers["name"].to_list() == ["layer 1"]
    assert omitted(trace) == {"tracer-calls": 1}


def test_a_pinned_flag_that_is_never_set_says_nothing(tmp_path: Path) -> None:
    file = small_rpd()
    for row in file.rows["rocpd_copyapi"]:
        row["pinned"] = 0
    trace = of_rpd(file, tmp_path)
    assert trace.operations.select("source_memory", "destination_memory").row(0) == (None, "device")
    assert omitted(trace) == {"unknown-memory": 0}


def test_operations_of_a_graph_launch_are_opaque(tmp_path: Path) -> None:
    file = small_rpd()
    launch = file.call("hipGraphLaunch", 1510, 1520)
    file.operation("KernelExecution", 1530, 1540, launch, "node")
    file.operation("CopyDeviceToDevice", 1550, 1560, launch)
    file.operation("Task", 1570, 1580, launch)
    trace = of_rpd(file, tmp_path)
    graphs = trace.operations.filter(kind="graph")
    expected = [(start, None, None) for start in (530, 550, 570)]
    assert graphs.select("start_ns", "bytes", "direction").rows() == expected
    assert graphs["graph_node"].drop_nulls().n_unique() == 3
    assert omitted(trace) == {"opaque-graphs": 3}
    assert "1 of them are copies" in next(text(o.what) for o in trace.omissions)


def test_a_copy_without_its_record_has_the_direction_of_its_type_and_no_size(tmp_path: Path) -> None:
    file = small_rpd()
    file.rows["rocpd_copyapi"] = []
    trace = of_rpd(file, tmp_path)
    copies = trace.operations.filter(kind="copy")
    assert copies.select("direction", "bytes").rows() == [("h2d", None), ("d2h", None)]
    assert omitted(trace)["unknown-sizes"] == 2


@pytest.mark.parametrize(
    ("kind", "direction"), [(0, "h2h"), (1, "h2d"), (2, "d2h"), (3, "d2d"), (4, None), (99, None)]
)
def test_unknown_copies_have_a_calls_direction(kind: int, direction: str | None, tmp_path: Path) -> None:
    file = RpdFile()
    launch = file.call("hipMemcpy", 0, 50)
    file.copied(launch, 64, kind)
    file.operation("Copy", 10, 20, launch)
    trace = of_rpd(file, tmp_path)
    assert trace.operations["direction"].to_list() == [direction]
    assert omitted(trace).get("unknown-direction", 0) == (direction is None)


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        (0, 1, ("p2p", 1)),
        *((source, gpu, ("d2d", None)) for source, gpu in ((1, 1), (0, 0), (None, None), (-1, 0))),
    ],
)
def test_a_copy_between_two_devices_is_peer_to_peer(
    source: int | None, destination: int | None, expected: tuple[str, int | None], tmp_path: Path
) -> None:
    file = RpdFile()
    launch = file.call("hipMemcpyPeerAsync", 0, 5)
    file.copied(launch, 64, 3, srcDevice=source, dstDevice=destination)
    file.operation("CopyDeviceToDevice", 10, 20, launch)
    assert of_rpd(file, tmp_path).operations.select("direction", "peer_device").row(0) == expected


@pytest.mark.parametrize(
    ("kind", "call", "name", "noted"),
    [
        ("Task", "hipLaunchHostFunc", "", "unknown-operations"),
        ("KernelExecution", "hipMemcpy", "__amd_rocclr_copyBuffer", "copying-kernels"),
        ("KernelExecution", None, "orphan", "cut-window"),
    ],
)
def test_odd_operations_are_kept_and_counted(
    kind: str, call: str | None, name: str, noted: str, tmp_path: Path
) -> None:
    file = small_rpd()
    file.operation(kind, 1600, 1700, file.call(call, 1590, 1595) if call else None, name)
    trace = of_rpd(file, tmp_path)
    assert trace.operations.select("kind", "name").row(-1) == ("kernel", name or kind)
    assert (trace.operations.height, omitted(trace)) == (5, {noted: 1})


def test_calls_of_the_tracer_are_left_out(tmp_path: Path) -> None:
    file = small_rpd()
    file.call("ApiTable::insertRoctx", 1600, 1610)
    file.call("hcc_activity_callback", 1620, 1630)
    trace = of_rpd(file, tmp_path)
    assert trace.calls.height == 4
    assert omitted(trace) == {"tracer-calls": 2}


def test_ids_given_twice_do_not_double_rows(tmp_path: Path) -> None:
    file = small_rpd()
    file.twice("rocpd_string", "rocpd_api_ops", "rocpd_copyapi", "rocpd_api")
    assert of_rpd(file, tmp_path).operations.height == 4


def test_wrong_types_in_rpd_become_unknown(tmp_path: Path) -> None:
    file = small_rpd()
    for row in file.rows["rocpd_copyapi"]:
        row["size"] = "4 KiB"
    trace = of_rpd(file, tmp_path)
    assert trace.operations["bytes"].null_count() == 4
    assert omitted(trace) == {"unknown-sizes": 2}
