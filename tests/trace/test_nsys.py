"""Nsight Systems exports: every generation, the traps that their real files set, and what they say of GPUs and the host."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import Trace, read
from tests.trace import build_nsys
from tests.trace.build_nsys import KERNEL, MEMCPY, NONE_32, PROCESS, NsysExport, global_pid, small_export
from tests.traces import omitted


def written(export: NsysExport, folder: Path, after: str = "") -> Trace:
    return read(export.write(folder / "export.sqlite", after))


@pytest.mark.parametrize("generation", build_nsys.VERSIONS)
def test_every_generation_gives_the_same_operations_and_calls(generation: str, tmp_path: Path) -> None:
    trace = written(small_export(generation), tmp_path)
    wanted = [
        "kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory",
        "stream",
    ]  # fmt: skip
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 100, 200, 4096, "pinned", "device", 7),
        ("set", None, 210, 220, 512, None, "device", 7),
        ("kernel", None, 230, 330, None, None, None, 7),
        ("copy", "d2h", 340, 490, 8192, "device", "pageable", 7),
    ]
    assert trace.operations["process"].unique().to_list() == [PROCESS]
    assert trace.calls.select("name", "start_ns", "end_ns", "waits_for", "thread").rows() == [
        ("cudaMemcpyAsync", 0, 50, "none", 5),
        ("cudaMemsetAsync", 60, 70, "none", 5),
        ("cudaLaunchKernel", 80, 90, "none", 5),
        ("cudaMemcpy", 95, 500, "operation", 5),
        ("cudaDeviceSynchronize", 510, 550, "device", 5),
    ]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("step", -10, 600)]
    assert trace.format == "nsys-sqlite"
    assert trace.omissions == []


@pytest.mark.parametrize(
    ("generation", "producer"),
    [
        ("2021", "Nsight Systems"),
        ("2022", "Nsight Systems 2022.2.1.31 (schema 2.9.1)"),
        ("2023.2", "Nsight Systems 2023.2.3.1004 (schema 3.1.7)"),
        ("2026.2", "Nsight Systems 2026.2.1.210 (schema 3.25.0)"),
    ],
)
def test_the_version_stands_in_3_places_or_nowhere(generation: str, producer: str, tmp_path: Path) -> None:
    assert written(small_export(generation), tmp_path).producer == producer


def test_memory_kinds_are_cuptis_number_minus_1(tmp_path: Path) -> None:
    export = NsysExport()
    for number in range(8):
        export.copy(8, (number, 7 - number), 1, 10 * number, 10 * number + 5)
    trace = written(export, tmp_path)
    names = ["pageable", "pinned", "device", "array", "managed", "static", "managed", None]
    assert trace.operations["source_memory"].to_list() == names
    assert trace.operations["destination_memory"].to_list() == names[::-1]


def test_directions_of_all_copy_kinds(tmp_path: Path) -> None:
    export = NsysExport()
    for number in range(15):
        export.copy(number, (2, 2), 1, 10 * number, 10 * number + 5)
    trace = written(export, tmp_path)
    directions = [
        None, "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p", "h2d", "d2h", "d2d",
        None,
    ]  # fmt: skip
    assert trace.operations["direction"].to_list() == directions
    assert trace.operations["kind"].to_list() == ["copy"] * 11 + ["migration"] * 3 + ["copy"]
    assert omitted(trace)["unknown-direction"] == 2


def test_a_peer_copy_names_the_peer_device(tmp_path: Path) -> None:
    export = NsysExport()
    export.copy(10, (2, 2), 64, 0, 10, deviceId=0, srcDeviceId=0, dstDeviceId=3)
    export.copy(8, (2, 2), 64, 20, 30, deviceId=0, srcDeviceId=0, dstDeviceId=0)
    export.copy(10, (2, 2), 64, 40, 50, deviceId=0, srcDeviceId=0, dstDeviceId=0)
    export.copy(10, (2, 2), 64, 60, 70, deviceId=0, srcDeviceId=3, dstDeviceId=0)
    operations = written(export, tmp_path).operations
    assert operations["peer_device"].to_list() == [3, None, None, 0]
    assert operations["direction"].to_list() == ["p2p", "d2d", "d2d", "p2p"]


def test_migrations_have_no_correlation_and_managed_memory(tmp_path: Path) -> None:
    export = NsysExport()
    export.call("cudaLaunchKernel_v7000", 0, 5, 1)
    export.kernel("touch", 10, 900, 1)
    export.copy(11, (7, 7), 65536, 20, 30, 0, streamId=0)
    export.copy(12, (7, 7), 4096, 40, 45, None, streamId=0)
    trace = written(export, tmp_path)
    migrations = trace.operations.filter(pl.col("kind") == "migration")
    wanted = ["direction", "bytes", "source_memory", "destination_memory", "correlation"]
    expected = [("h2d", 65536, "managed", "managed", None), ("d2h", 4096, "managed", "managed", None)]
    assert migrations.select(wanted).rows() == expected
    assert "cut-window" not in omitted(trace)  # a migration never had a call


def test_correlation_ids_are_unique_per_process_only(tmp_path: Path) -> None:
    export = NsysExport()
    for process, name in ((71, "cudaStreamSynchronize_v3020"), (72, "cudaStreamWaitEvent_v3020")):
        export.call(name, 0, 10, 9, process)
        export.wait(2, 1, 9, 9, process, streamId=13, eventId=4)
    trace = written(export, tmp_path)
    expected = [(71, "stream", 13), (72, "none", None)]
    assert trace.calls.select("process", "waits_for", "stream").sort("process").rows() == expected
    assert trace.events.select("process", "kind", "stream", "event").rows() == [(72, "wait", 13, 4)]


@pytest.mark.parametrize(
    ("call", "sync_type", "waits_for"),
    [
        # the numbers that versions before 2024.5, from then, from 2025 and from 2026.2 give to one call
        ("cudaDeviceSynchronize_v3020", 1, "device"),
        ("cudaDeviceSynchronize_v3020", 0, "device"),
        ("cudaDeviceSynchronize_v3020", 4, "device"),
        ("cuCtxSynchronize", 1, "device"),
        ("cudaStreamSynchronize_v3020", 3, "stream"),
        ("cudaStreamSynchronize_v3020", 2, "stream"),
        ("cudaEventSynchronize_v3020", 2, "event"),
        ("cudaEventSynchronize_v3020", 1, "event"),
        ("cudaEventQuery_v3020", 1, "none"),
    ],
)
def test_the_calls_name_decides_what_it_waits_for_and_not_sync_type(
    call: str, sync_type: int, waits_for: str, tmp_path: Path
) -> None:
    export = NsysExport()
    export.call(call, 0, 100, 1)
    ids = {"stream": {"streamId": 13}, "event": {"eventId": 21}}.get(waits_for, {})
    export.wait(sync_type, 1, 99, 1, **ids)
    trace = written(export, tmp_path)
    expected = (waits_for, 13 if waits_for == "stream" else None, 21 if waits_for == "event" else None)
    assert trace.calls.select("waits_for", "stream", "event").row(0) == expected
    assert trace.events.is_empty()


def test_a_synchronisation_names_the_context_that_it_waits_for(tmp_path: Path) -> None:
    export = NsysExport()
    for correlation, name in enumerate(("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaMemcpy"), 1):
        export.call(f"{name}_v3020", 100 * correlation, 100 * correlation + 90, correlation)
        export.wait(3, 100 * correlation, 100 * correlation + 80, correlation, contextId=correlation + 4)
    assert written(export, tmp_path).calls["context"].to_list() == [5, 6, None]


def test_the_call_identifies_a_stream_wait_whatever_its_sync_type(tmp_path: Path) -> None:
    export = NsysExport("2022")
    export.call("cudaEventRecord_v3020", 0, 5, 1)
    export.record(4, 13, 1)
    export.call("cudaStreamWaitEvent_v3020", 10, 15, 2)
    export.wait(3, 11, 14, 2, streamId=14, eventId=4)  # 3 was `stream synchronise` then
    trace = written(export, tmp_path)
    expected = [("record", 0, 13, 4), ("wait", 11, 14, 4)]
    assert trace.events.select("kind", "start_ns", "stream", "event").rows() == expected


def test_a_wait_without_its_call_is_counted_and_not_guessed(tmp_path: Path) -> None:
    export = small_export()
    export.wait(3, 660, 670, 99, streamId=14, eventId=4)
    trace = written(export, tmp_path)
    assert trace.events.is_empty()
    assert omitted(trace)["unknown-wait"] == 1


def test_waits_without_records_are_counted(tmp_path: Path) -> None:
    export = small_export("2026.2")
    export.call("cudaStreamWaitEvent_v3020", 660, 670, 6)
    export.wait(2, 661, 669, 6, streamId=14, eventId=4, eventSyncId=88)
    export.tables.add(build_nsys.EVENT)
    trace = written(export, tmp_path)
    assert trace.events.select("kind", "event", "event_sync").rows() == [("wait", 4, 88)]
    assert omitted(trace)["waits-without-records"] == 1


def test_records_whose_call_is_cut_off_are_counted(tmp_path: Path) -> None:
    export = small_export()
    export.record(4, 13, 77)
    trace = written(export, tmp_path)
    assert trace.events.is_empty()
    assert omitted(trace)["records-without-call"] == 1


def test_event_ids_of_zero_and_minus_1_are_no_event(tmp_path: Path) -> None:
    export = NsysExport("2026.2")
    for correlation, event in ((1, 0), (2, NONE_32), (3, 5)):
        export.call("cudaEventRecord_v3020", 10 * correlation, 10 * correlation + 5, correlation)
        export.record(event, 7, correlation, eventSyncId=0 if event == 0 else 9)
    trace = written(export, tmp_path)
    assert trace.events.select("event", "event_sync").rows() == [(None, None), (None, 9), (5, 9)]


def test_graphs_traced_as_a_whole_are_opaque_and_an_omission(tmp_path: Path) -> None:
    export = small_export()
    for start in (700, 800, 900):
        export.add(
            build_nsys.GRAPH, **export.place(start, start + 50, 6, PROCESS) | {"graphId": 3, "graphExecId": 4}
        )
    export.call("cudaGraphLaunch_v10000", 690, 695, 6)
    trace = written(export, tmp_path)
    graphs = trace.operations.filter(pl.col("kind") == "graph")
    assert graphs.select("start_ns", "end_ns", "name").row(0) == (600, 650, "CUDA graph 3")
    assert graphs.height == omitted(trace)["opaque-graphs"] == 3


def test_a_trace_of_opaque_graphs_alone_was_traced(tmp_path: Path) -> None:
    export = NsysExport()
    export.add(build_nsys.GRAPH, **export.place(700, 750, 6, PROCESS) | {"graphId": 3})
    trace = written(export, tmp_path)
    assert trace.operations["kind"].to_list() == ["graph"]
    assert "no-gpu-records" not in omitted(trace)


def test_graph_nodes_share_a_launch(tmp_path: Path) -> None:
    export = NsysExport()
    export.call("cudaGraphLaunch_v10000", 0, 5, 6)
    for node in (0, 41, 42):
        export.kernel("node", 10 * node + 10, 10 * node + 15, 6, graphNodeId=node)
    trace = written(export, tmp_path)
    assert trace.operations.select("correlation", "graph_node").rows() == [(6, None), (6, 41), (6, 42)]


@pytest.mark.parametrize("empty_tables", [set(), {KERNEL, MEMCPY}], ids=["no trace tables", "empty tables"])
def test_no_gpu_rows_at_all_is_an_omission_and_no_idle_gpu(empty_tables: set[str], tmp_path: Path) -> None:
    export = NsysExport()
    export.call("cudaMemcpyAsync_v3020", 100, 150, 1)
    export.tables |= empty_tables
    trace = written(export, tmp_path)
    assert trace.operations.is_empty()
    assert trace.calls.height == 1
    assert omitted(trace)["no-gpu-records"] == 1
    assert "Likely causes" in next(text(o.what) for o in trace.omissions if o.id == "no-gpu-records")


def test_what_calls_returned_is_read(tmp_path: Path) -> None:
    export = NsysExport()
    for number, result in enumerate((0, 719, None)):
        at = 100 * number
        export.call("cudaDeviceSynchronize_v3020", at, at + 9, number + 1, returnValue=result)
    export.kernel("work", 10, 20, 9)
    trace = written(export, tmp_path)
    assert omitted(trace)["failed-calls"] == 1
    assert trace.calls["waits_for"].to_list() == ["device", "none", "device"]


def test_batched_copies_keep_their_count(tmp_path: Path) -> None:
    export = NsysExport("2025.6")
    export.copy(1, (1, 2), 4096, 0, 10, copyCount=64)
    export.copy(1, (1, 2), 4096, 20, 30, copyCount=0)
    export.copy(1, (1, 2), 4096, 40, 50, copyCount=None)
    export.kernel("none", 60, 70)
    assert written(export, tmp_path).operations["copy_count"].to_list() == [64, 1, 1, None]


def test_nvtx_text_stands_in_the_row_or_in_the_strings(tmp_path: Path) -> None:
    export = NsysExport()
    thread = global_pid() + 5
    export.add("NVTX_EVENTS", start=0, end=10, eventType=59, text="spelled", globalTid=thread, domainId=1)
    export.add("NVTX_EVENTS", start=5, end=9, eventType=60, textId=export.text("noted"), globalTid=thread)
    export.add("NVTX_EVENTS", start=7, end=None, eventType=34, text="mark", globalTid=thread)
    export.add("NVTX_EVENTS", start=8, end=None, eventType=59, text="never popped", globalTid=thread)
    export.add("NVTX_EVENTS", start=9, end=None, eventType=75, text="a domain's name", globalTid=thread)
    trace = written(export, tmp_path)
    assert trace.markers.select("name", "start_ns", "end_ns", "thread", "domain").rows() == [
        ("spelled", 0, 10, 5, 1),
        ("noted", 5, 9, 5, None),
        ("mark", 7, None, 5, None),
        ("never popped", 8, None, 5, None),
    ]
    assert omitted(trace)["open-ranges"] == 1


def test_a_newer_nvtx_table_is_named(tmp_path: Path) -> None:
    export = small_export()
    export.rows["NVTX_EVENTS_V3"] = export.rows.pop("NVTX_EVENTS")
    export.columns["NVTX_EVENTS_V3"] = export.columns.pop("NVTX_EVENTS")
    trace = written(export, tmp_path)
    assert trace.markers.is_empty()
    assert "NVTX_EVENTS_V3" in next(text(o.what) for o in trace.omissions if o.id == "unknown-nvtx")


def test_a_name_column_that_third_parties_added_changes_nothing(tmp_path: Path) -> None:
    export = small_export()
    export.columns[MEMCPY].insert(3, "name")
    export.columns[build_nsys.RUNTIME].insert(0, "name")
    for row in export.rows[MEMCPY] + export.rows[build_nsys.RUNTIME]:
        row["name"] = "somebody's own"
    trace = written(export, tmp_path, after=f"CREATE INDEX mine ON {MEMCPY}(start);")
    assert trace.operations["bytes"].to_list() == [4096, 512, None, 8192]
    assert trace.calls["name"].to_list()[0] == "cudaMemcpyAsync"


def test_kernels_without_a_name_keep_their_time(tmp_path: Path) -> None:
    export = NsysExport()
    export.kernel("axpy", 0, 10)
    export.kernel("lost", 20, 30, demangledName=999, shortName=998)
    export.kernel("short only", 40, 50, demangledName=None)
    assert written(export, tmp_path).operations["name"].to_list() == ["axpy", "(unnamed kernel)", "shor"]


@pytest.mark.parametrize("machine", [0, 1, 0xFFFF])
def test_process_and_thread_are_24_bits_whatever_the_machine_id(machine: int, tmp_path: Path) -> None:
    export = NsysExport()
    export.kernel("axpy", 0, 10, globalPid=global_pid(0xABCDEF, machine))
    export.call("cudaLaunchKernel_v7000", 0, 5, 1, globalTid=global_pid(0xABCDEF, machine) + 0x123456)
    trace = written(export, tmp_path)
    assert trace.operations["process"].to_list() == [0xABCDEF]
    assert trace.calls.select("process", "thread").row(0) == (0xABCDEF, 0x123456)


def test_wrong_types_become_unknown_and_the_rest_is_kept(tmp_path: Path) -> None:
    export = NsysExport()
    export.copy(1, (1, 2), "many", 0, 10)
    export.copy(1, (1, 2), 3.5, 20, 30)
    export.copy(1, (1, 2), b"\x00\x01", 40, 50, streamId="seven")
    export.copy(1, (1, 2), 64, 60, 70)
    export.kernel("axpy", 80, 90, demangledName="not an id", shortName="nor this")
    trace = written(export, tmp_path)
    assert trace.operations["bytes"].to_list() == [None, None, None, 64, None]
    assert trace.operations["stream"].to_list() == [7, 7, None, 7, 7]
    assert omitted(trace)["unknown-sizes"] == 3


def test_names_that_are_no_text_are_unknown(tmp_path: Path) -> None:
    export = NsysExport()
    export.kernel("axpy", 0, 10)
    export.strings.clear()
    export.rows["StringIds"] = [{"id": 1, "value": 5}, {"id": "x", "value": "y"}, {"id": 2, "value": b"\xff"}]
    assert written(export, tmp_path).operations["name"].to_list() == ["(unnamed kernel)"]


def test_calls_without_a_name_wait_for_nothing_and_are_counted(tmp_path: Path) -> None:
    export = small_export()
    export.call("cudaFree_v3020", 660, 670, 6, nameId=999)
    trace = written(export, tmp_path)
    assert trace.calls.select("name", "waits_for").row(-1) == ("(unnamed call)", "none")
    assert omitted(trace) == {"unnamed-calls": 1}


def test_a_string_id_given_twice_does_not_double_rows(tmp_path: Path) -> None:
    export = small_export()
    export.rows["StringIds"] = [{"id": 1, "value": "again"}, {"id": 1, "value": "and again"}]
    trace = written(export, tmp_path)
    assert (trace.operations.height, trace.calls.height) == (4, 5)


def test_warnings_and_errors_of_the_profiler_reach_the_user(tmp_path: Path) -> None:
    export = small_export()
    export.add("DIAGNOSTIC_EVENT", severity=1, text="Profiling has started.")
    for number in range(4):
        export.add("DIAGNOSTIC_EVENT", severity=2, text=f"No OpenGL events collected ({number}).")
    export.add("DIAGNOSTIC_EVENT", severity=2, text="CUDA device 0: Unified Memory cannot be traced")
    for _ in range(3):
        export.add("DIAGNOSTIC_EVENT", severity=3, text="CUDA profiling could not be started.")
    export.add("DIAGNOSTIC_EVENT", severity=4, text="Verbose.")
    export.add("DIAGNOSTIC_EVENT", text="Of a version without levels.")
    export.add("DIAGNOSTIC_EVENT", timestamp=1, text="12 CUDA events were dropped.")
    warnings = [
        (o.count, text(o.what)) for o in written(export, tmp_path).omissions if o.id == "profiler-warning"
    ]
    assert warnings[:3] == [
        (1, "12 CUDA events were dropped."),
        (3, "CUDA profiling could not be started."),
        (1, "CUDA device 0: Unified Memory cannot be traced"),
    ]
    assert [t for _, t in warnings[3:5]] == [f"No OpenGL events collected ({number})." for number in range(2)]
    assert warnings[5:] == [(2, "more profiler warnings; see DIAGNOSTIC_EVENT in the file")]


def test_a_view_in_place_of_a_table_is_read_and_a_virtual_table_refused(tmp_path: Path) -> None:
    table, wanted = "CUPTI_ACTIVITY_KIND_KERNEL", written(small_export(), tmp_path)
    script = f'ALTER TABLE "{table}" RENAME TO kept; CREATE VIEW "{table}" AS SELECT * FROM kept'
    assert written(small_export(), tmp_path, script).operations.equals(wanted.operations)
    script = f'DROP TABLE "{table}"; CREATE VIRTUAL TABLE "{table}" USING fts5(start)'
    with pytest.raises(InputError, match=f"{table} is a virtual table"):
        written(small_export(), tmp_path, script)
    # Those that a profiler makes beside its tables do no harm.
    script = f'CREATE VIEW top AS SELECT * FROM "{table}"'
    assert written(small_export(), tmp_path, script).operations.height == 4


def gpu(number: int, cuda: int | None, engines: int = 5) -> dict[str, int | str | None]:
    return {
        "vmId": 0, "id": number, "name": f"GPU {number}", "busLocation": f"0000:0{number}:00.0",
        "totalMemory": 80 << 30, "memoryBandwidth": 2039040000000, "clockRate": 1410000000, "smCount": 108,
        "uuid": f"uuid-{number}", "isDiscrete": 1, "cuDevice": cuda, "asyncEngines": engines,
        "computeMajor": 8, "computeMinor": 0,
    }  # fmt: skip


def test_gpus_of_2022_and_later_count_in_bytes_and_hertz(tmp_path: Path) -> None:
    export = small_export("2022")
    export.add("TARGET_INFO_GPU", **gpu(0, 0))
    assert written(export, tmp_path).devices.rows(named=True) == [
        {
            "device": 0, "process": None, "name": "GPU 0", "integrated": False, "uuid": "uuid-0",
            "bus_id": "0000:00:00.0", "memory_bytes": 80 << 30,
            "memory_bandwidth_bytes_per_s": 2039040000000.0, "clock_hz": 1410000000.0, "multiprocessors": 108,
            "compute_capability": "8.0", "copy_engines": 5, "pcie_generation": None, "pcie_lanes": None,
        }
    ]  # fmt: skip


def test_gpus_of_2021_count_in_kilobytes_and_kilohertz(tmp_path: Path) -> None:
    export = small_export("2021")
    export.add(
        "TARGET_INFO_GPU", vmId=0, deviceId=0, name="RTX 3080", busLocation="0000:01:00.0", isDiscrete=1
    )
    export.add(
        "TARGET_INFO_CUDA_GPU", deviceId=0, globalMemoryBandwidth=760080000, coreClockRate=1710000,
        numMemcpyEngines=2, numMultiprocessors=68, computeCapabilityMajor=8, computeCapabilityMinor=6,
    )  # fmt: skip
    (device,) = written(export, tmp_path).devices.rows(named=True)
    assert device["memory_bandwidth_bytes_per_s"] == 760080000000
    assert device["clock_hz"] == 1710000000
    assert (device["copy_engines"], device["multiprocessors"], device["compute_capability"]) == (2, 68, "8.6")
    assert (device["name"], device["bus_id"]) == ("RTX 3080", "0000:01:00.0")


def test_gpus_of_2021_without_their_cuda_facts(tmp_path: Path) -> None:
    export = small_export("2021")
    export.add("TARGET_INFO_GPU", deviceId=1, name="RTX 3080")
    assert written(export, tmp_path).devices.select("device", "name", "clock_hz").rows() == [
        (1, "RTX 3080", None)
    ]


@pytest.mark.parametrize(
    ("gpus", "shown", "expected"),
    [
        # The ordinal of CUDA names a GPU, and not the number of nsys.
        ([(0, 3), (1, 2), (2, 1), (3, 0)], [], [(None, number, f"uuid-{3 - number}") for number in range(4)]),
        # The map of a process wins over the ordinal: each process was shown one GPU, which it calls 0.
        ([(0, 0), (1, 1)], [(71, 1), (72, 0)], [(71, 0, "uuid-1"), (72, 0, "uuid-0")]),
        # GPUs that CUDA does not see are left out, unless it sees none.
        ([(0, -1), (1, 0)], [], [(None, 0, "uuid-1")]),
        ([(0, None), (1, 0)], [], [(None, 0, "uuid-1")]),
        ([(1, None)], [], [(None, 1, "uuid-1")]),
    ],
)
def test_numbers_of_gpus(
    gpus: list[tuple[int, int | None]], shown: list[tuple[int, int]], expected: list[Any], tmp_path: Path
) -> None:
    export = small_export("2025.6" if shown else "2024.5")
    for number, ordinal in gpus:
        export.add("TARGET_INFO_GPU", **gpu(number, ordinal))
    for process, number in shown:
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=process)
    devices = written(export, tmp_path).devices.sort("process", "device")
    assert devices.select("process", "device", "uuid").rows() == expected


def test_streams_have_signed_priorities_though_stored_unsigned_and_kinds(tmp_path: Path) -> None:
    export = small_export()
    for flag, priority in enumerate((4294967291, 0, 5, 0, 0)):
        place = {"streamId": flag, "processId": 71, "contextId": 1}
        export.add("TARGET_INFO_CUDA_STREAM", **place, priority=priority, flag=flag)
    kinds = [None, "blocking", "non-blocking", "null", None]
    assert written(export, tmp_path).streams["kind"].to_list() == kinds
    assert written(export, tmp_path).streams["priority"].to_list() == [-5, 0, 5, 0, 0]


def test_the_host_is_named(tmp_path: Path) -> None:
    export = small_export()
    facts = {"CpuDescription": "EPYC", "Hostname": "n1", "CpuCores": "64", "NvDriverVersion": ""}
    for name, value in facts.items():
        export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name=name, value=value)
    assert written(export, tmp_path).host == {"cpu": "EPYC", "hostname": "n1"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        # mpirun in a batch script, whose rank is 0
        ("HOME=/root;OMPI_COMM_WORLD_RANK=7;SLURM_PROCID=0;", "7"),
        ("SLURM_NODEID=0 SLURM_PROCID=12 PATH=/bin", "12"),
        ("SLURM_PROCID=3", "3"),
        ("SLURM_PROCID=1;LOCAL_RANK=2;RANK=10;WORLD_SIZE=16", "10"),  # torchrun, once a node
        ("RANK=4;SLURM_PROCID=1", "1"),  # anybody's variable
        ("MY_SLURM_PROCID=3 PMI_RANK= SLURM_PROCID=x1", None),
        ("", None),
    ],
)
def test_the_rank_is_that_of_the_nearest_launcher(tmp_path: Path, environment: str, rank: str | None) -> None:
    export = small_export()
    export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name="DeviceEnvironment", value=environment)
    assert written(export, tmp_path).host.get("rank") == rank


def test_gpus_that_cuda_alone_names_and_memory_in_mib(tmp_path: Path) -> None:
    """Two columns more than other exports of 2021: the name and the memory, which counts MiB."""
    export = small_export("2021")
    export.without("TARGET_INFO_GPU", None)
    export.columns["TARGET_INFO_CUDA_GPU"] += ["name", "globalMemorySize"]
    facts = {"coreClockRate": 1380000, "numMultiprocessors": 80, "name": "Tesla V100-PCIE-32GB"}
    gpus = ((0, 32510, 0, "0000:05:00.0"), (1, 34 << 30, 900_000_000, "<UNKNOWN_BUS_ID>"))
    for number, memory, bandwidth, bus in gpus:
        sizes = {"globalMemorySize": memory, "globalMemoryBandwidth": bandwidth, "pciBusId": bus}
        export.add("TARGET_INFO_CUDA_GPU", deviceId=number, **sizes, **facts)
    columns = ("device", "name", "memory_bytes", "memory_bandwidth_bytes_per_s", "multiprocessors", "bus_id")
    assert written(export, tmp_path).devices.select(columns).rows() == [
        (0, "Tesla V100-PCIE-32GB", 32510 << 20, None, 80, "0000:05:00.0"),
        (1, "Tesla V100-PCIE-32GB", 34 << 30, 9e11, 80, None),
    ]
