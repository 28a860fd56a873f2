"""JAX's and TensorFlow's profiles: XSpace files, and the timelines made of them."""

import json
from pathlib import Path

import pytest

from busfare.advise import guess_node
from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import Trace, may_be_trace, read
from busfare.trace.readers import xla
from busfare.trace.tables import DEVICES
from tests.trace import build_xla
from tests.trace.build_xla import KERNEL, Plane, small_planes, space, time_line, write_space, write_time_line
from tests.traces import omitted


def read_planes(folder: Path, *planes: Plane) -> Trace:
    return read(write_space(folder / "host.xplane.pb", *planes))


def test_operations_have_what_their_details_say(tmp_path: Path) -> None:
    trace = read_planes(tmp_path)
    columns = [
        "kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory", "stream",
    ]  # fmt: skip
    assert trace.operations.select(columns).rows() == [
        ("copy", "h2d", 500, 1000, 4096, "pageable", "device", 7),
        ("kernel", None, 1100, 2000, None, None, None, 13),
        ("set", None, 2100, 2110, 512, None, None, 7),
        ("copy", "d2h", 2500, 3500, 8192, "device", "pinned", 13),
    ]  # fmt: skip
    assert trace.operations["correlation"].to_list() == [1, 2, 3, 4]
    assert trace.operations["name"].to_list() == [None, "loop_fusion", "memset", None]
    assert trace.operations["process"].unique().to_list() == [4242]
    assert (trace.format, trace.producer, trace.host) == (
        "xla", "JAX 0.10.2 (XLA's profiler)", {"hostname": "n1"},
    )  # fmt: skip
    assert omitted(trace).keys() == set()


def test_events_with_a_correlation_are_calls_and_the_rest_are_ranges(tmp_path: Path) -> None:
    trace = read_planes(tmp_path)
    assert trace.calls.select("name", "correlation", "waits_for", "thread").rows() == [
        ("cuMemcpyHtoDAsync", 1, "none", 71),
        ("cuLaunchKernel", 2, "none", 71),
        ("cuMemsetD32Async", 3, "none", 71),
        ("cuMemcpyDtoH", 4, "operation", 71),
    ]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("train", -100, 3700)]


def test_launches_and_devices_are_read(tmp_path: Path) -> None:
    path = write_space(tmp_path / "host.xplane.pb")
    shape = read(path, launches=True).launches.select(
        "grid_x", "grid_y", "block_x", "registers", "shared_bytes"
    )
    assert shape.rows() == [(8, 2, 128, 32, 16)]
    device = read(path).devices.row(0, named=True)
    assert {name for name, value in device.items() if value is not None} == {
        "device", "name", "clock_hz", "multiprocessors", "memory_bytes", "compute_capability",
    }  # fmt: skip
    assert (device["clock_hz"], device["compute_capability"]) == (1.98e9, "9.0")


@pytest.mark.parametrize(
    ("name", "details", "expected"),
    [
        ("MemcpyH2D", "size:4 dest:1 async:1", ("h2d", 4, None, None, None)),
        ("MemcpyH2D", "kind:pinned size:4 dest:1 async:1", ("h2d", 4, "pinned", None, None)),
        ("MemcpyD2H", "kind:pageable size:4 dest:1 async:0", ("d2h", 4, None, "pageable", None)),
        ("MemcpyD2H", "kind:device size:4 dest:1 async:0", ("d2h", 4, "device", None, None)),
        ("MemcpyP2P", "kind_src:device kind_dst:device size:9 dest:3 async:1", ("p2p", 9, "device", "device", 3)),
        ("MemcpyOther", "kind_src:pageable kind_dst:array size:9 dest:0 async:1", ("h2d", 9, "pageable", "array", None)),
        ("MemcpyOther", "kind_src:managed kind_dst:device size:9", (None, 9, "managed", "device", None)),
        ("CopyDeviceToDevice", "kind:Unknown size:6553 dest:2 async:1", ("d2d", 6553, None, None, None)),
        ("MEMORY_COPY_HOST_TO_DEVICE", "kind:Unknown size:1", ("h2d", 1, None, None, None)),
        ("MemcpyH2D", "size:99999999999999999999", ("h2d", None, None, None, None)),
    ],
)  # fmt: skip
def test_copies_of_versions(name: str, details: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:2").line(1, "Stream #1", [(name, 2000, 5, {"memcpy_details": details})])
    copy = read_planes(tmp_path, gpu).operations
    copied = copy.select("direction", "bytes", "source_memory", "destination_memory", "peer_device").row(0)
    assert copied == expected
    assert copy["device"].to_list() == [2]


def test_what_rocm_never_looked_up_is_not_believed(tmp_path: Path) -> None:
    details = "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:4,1,1 block:256,1,1 occ_pct:0"
    stats = {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4, "core_count": 304}
    gpu = Plane("/device:GPU:0", **stats, memory_size=206_141_652_992)
    gpu.line(1, "Stream #1(Kernel)", [
        ("old", 2000, 5, {"correlation_id": 1, "kernel_details": details}),
        ("new.kd", 2010, 5, {"correlation_id": 2, "kernel_details": " grid:4,1,1 block:64,1,1 group_mem:2112"}),
    ])  # fmt: skip
    host = Plane("/host:CPU").line(3, "py_xla_execute/3", [("old", 1900, 105, {"correlation_id": 1})])
    trace = read(write_space(tmp_path / "x", gpu, host), launches=True)
    assert trace.launches.select("grid_x", "block_x", "registers", "shared_bytes").rows() == [
        (4, 256, None, None), (4, 64, None, 2112),
    ]  # fmt: skip
    assert trace.calls["name"].to_list() == ["hipLaunchKernel"]
    node = guess_node(trace)
    assert node is not None and node.name == "mi300x"
    assert omitted(trace).keys() == {"calls-named-by-work", "cut-window"}


def test_calls_named_as_their_work_have_the_drivers_names(tmp_path: Path) -> None:
    _, gpu, _ = small_planes()
    host = Plane("/host:CPU").line(3, "tf_gpu_private_4/3", [
        ("MemcpyH2D", 1500, 5, {"correlation_id": 1, "memcpy_details": "size:4 dest:4 async:0"}),
        ("void fill<float>()", 1600, 5, {"correlation_id": 2, "kernel_details": KERNEL}),
        ("MemoryFree", 1650, 5, {"correlation_id": 9}),
        ("MemcpyD2H", 1700, 5, {"correlation_id": 4, "memcpy_details": "size:4 dest:4 async:1"}),
    ])  # fmt: skip
    calls = read_planes(tmp_path, gpu, host).calls
    assert calls.select("name", "waits_for").rows() == [
        ("cuMemcpyHtoD", "operation"),
        ("cuLaunchKernel", "none"),
        ("MemoryFree", "none"),
        ("cuMemcpyDtoHAsync", "none"),
    ]


def test_graphs_are_seen_whole_or_node_by_node(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0").line(1, "Stream #1", [
        ("a", 2000, 5, {"correlation_id": 1, "kernel_details": KERNEL}),
        ("b", 2010, 5, {"correlation_id": 1, "kernel_details": KERNEL}),
        ("c", 2020, 5, {"correlation_id": 2, "kernel_details": KERNEL, "cuda_graph_node_id": 77}),
        ("CudaGraphExec:9", 2030, 50, {"correlation_id": 3, "cuda_graph_exec_id": 9}),
    ])  # fmt: skip
    host = Plane("/host:CUPTI").line(3, "Host Threads/3", [
        ("cuGraphLaunch (CudaGraph:9)", 1900 + number, 100, {"correlation_id": number}) for number in (1, 2, 3)
    ])  # fmt: skip
    trace = read_planes(tmp_path, gpu, host)
    assert trace.operations.select("kind", "graph_node").rows() == [
        ("kernel", -1), ("kernel", -2), ("kernel", 77), ("graph", None),
    ]  # fmt: skip
    assert trace.calls["name"].unique().to_list() == ["cuGraphLaunch"]
    assert omitted(trace).keys() == {"graph-nodes", "opaque-graphs"}


def test_times_of_lines_that_begin_at_different_moments_share_a_clock(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0")
    for number, begun in enumerate((1000, 1_000_000)):
        events = [("k", 2_000_000 + number, 7, {"correlation_id": 1, "kernel_details": KERNEL})]
        gpu.line(number, f"Stream #{number}", events, begun_ns=begun)
    assert read_planes(tmp_path, gpu).operations.select("start_ns", "end_ns").rows() == [(0, 7), (1, 8)]


def test_profiles_without_gpus_say_so(tmp_path: Path) -> None:
    trace = read_planes(tmp_path, Plane("/host:CPU").line(1, "python", [("step", 2000, 5, {})]))
    [lacking] = trace.omissions
    assert lacking.id == "no-gpu-records" and "jax.profiler" in text(lacking.what)
    tpu = Plane("/device:TPU:0").line(1, "XLA Ops", [("fusion", 2000, 5, {})])
    with pytest.raises(InputError, match="a profile of 1 TPU cores and no GPU"):
        read_planes(tmp_path, tpu)


def test_a_plane_that_is_cut_or_damaged_is_left_out(tmp_path: Path) -> None:
    metadata, gpu, host = small_planes()
    path = tmp_path / "host.xplane.pb"
    whole = space(metadata, gpu, host)
    path.write_bytes(whole[:-40])
    trace = read(path)
    assert (trace.operations.height, trace.calls.height) == (4, 0)
    assert omitted(trace).keys() == {"truncated", "no-calls"}
    path.write_bytes(
        space(metadata, gpu)
        + build_xla.field(1, b"\x12\xff")
        + build_xla.field(1, host.content())
        + build_xla.field(3, "dropped")
    )
    trace = read(path)
    assert (trace.operations.height, trace.calls.height) == (4, 4)
    assert omitted(trace).keys() == {"damaged", "profiler-warning"}
    path.write_bytes(space(metadata)[:20])
    with pytest.raises(InputError, match="unreadable profile"):
        read(path)
    path.write_bytes(whole + b"\x08\x01")
    assert omitted(read(path)).keys() == {"damaged"}


def test_events_of_unknown_kind_are_left_out(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0").line(1, "Stream #1", [
        ("odd", 2000, 5, {"correlation_id": 1}),
        ("MemcpyH2D", 2010, 5, {"correlation_id": 2, "memcpy_details": build_xla.COPY_IN}),
    ])  # fmt: skip
    trace = read_planes(tmp_path, gpu)
    assert trace.operations.height == 1
    assert "unknown-operations" in omitted(trace)


def test_texts_that_are_no_utf8_and_numbers_out_of_range(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0", core_count="many", clock_rate=1 << 63)
    gpu.line(1, "Stream #1", [
        ("k", 2000, 5, {"correlation_id": "one", "kernel_details": "grid:99999999999999999999,1,1"}),
    ])  # fmt: skip
    content = space(gpu).replace(b"\x01k", b"\x01\xff")
    (tmp_path / "x").write_bytes(content)
    trace = read(tmp_path / "x", launches=True)
    assert trace.operations["name"].to_list() == ["�"]
    assert trace.operations["correlation"].to_list() == [None]
    assert trace.launches.is_empty()
    assert trace.devices.schema == dict(DEVICES)


def test_a_profile_is_detected_by_its_content(tmp_path: Path) -> None:
    for plane in (Plane("/host:CPU"), Plane("/device:GPU:0"), Plane("Task Environment")):
        assert may_be_trace(write_space(tmp_path / "any", plane, *small_planes()))
        assert read(tmp_path / "any").operations.height == 4
    (tmp_path / "any").write_bytes(b"\n\x05hello")
    assert not may_be_trace(tmp_path / "any")


def test_it_tells_what_the_profile_tells(tmp_path: Path) -> None:
    path = write_time_line(tmp_path / "host.trace.json.gz")
    assert may_be_trace(path)
    made, profile = read(path), read(write_space(tmp_path / "host.xplane.pb"))
    assert made.format == "xla" and not made.omissions
    for table in ("operations", "calls", "markers"):
        shown, plane = getattr(made, table).drop("process"), getattr(profile, table).drop("process")
        assert shown.equals(plane), table


def test_streams_of_older_versions(tmp_path: Path) -> None:
    events = json.loads(time_line(*small_planes()))
    text = json.dumps(events).replace("Stream #", "#").replace('"/device:GPU:0"', '"/device:GPU:0 (pid 1)"')
    (tmp_path / "t.json").write_text(text)
    assert read(tmp_path / "t.json").operations["stream"].to_list() == [7, 13, 7, 13]


def test_a_time_line_of_a_million_events_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_time_line(tmp_path / "host.trace.json.gz")
    monkeypatch.setattr(xla, "MOST_EVENTS", 13)
    [cut] = read(path).omissions
    assert cut.id == "cut" and "pass the .xplane.pb" in text(cut.what)
    monkeypatch.setattr(xla, "MOST_EVENTS", 14)
    assert read(path).omissions == []


def test_a_file_that_ends_in_the_middle_gives_what_stands_before(tmp_path: Path) -> None:
    _, gpu, host = small_planes()
    whole = time_line(gpu, host)
    path = tmp_path / "t.json"
    path.write_text(whole[: whole.index("cuLaunchKernel")])
    trace = read(path)
    assert (trace.operations.height, trace.calls.height) == (4, 1)
    assert omitted(trace).keys() == {"truncated", "cut-window"}
    path.write_text(whole.replace(", {}]", ', {"ph": ]'))
    assert read(path).calls.height == 4
    path.write_text(whole.replace(", {}]", ', "text", 7]'))
    assert (read(path).calls.height, read(path).omissions) == (4, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"ts": "soon"}, {"ts": None}, {"dur": 1e300}, {"tid": {}}, {"pid": [1]}, {"name": 7}, {"args": 3},
        {"args": {"correlation_id": {}, "memcpy_details": 4}},
    ],
)  # fmt: skip
def test_events_of_wrong_types_are_no_crash(wrong: dict[str, object], tmp_path: Path) -> None:
    document = json.loads(time_line(*small_planes()))
    events = document["traceEvents"]
    events.append(next(event for event in events if event.get("name") == "MemcpyH2D") | wrong)
    (tmp_path / "t.json").write_text(json.dumps(document))
    trace = read(tmp_path / "t.json")
    assert trace.operations.height in (4, 5)
    assert trace.operations.height == 5 or trace.omissions or "args" in wrong


def test_foreign_time_lines_are_refused(tmp_path: Path) -> None:
    path = write_time_line(tmp_path / "t", Plane("/device:TPU:0"))
    with pytest.raises(InputError, match="1 TPU cores and no GPU"):
        read(path)
    named = {
        "ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/job:localhost/device:CPU:0 Compute"},
    }  # fmt: skip
    path.write_text(json.dumps({"traceEvents": [named]}))
    with pytest.raises(InputError, match=r"TensorFlow 1; record .* give the .xplane.pb"):
        read(path)
