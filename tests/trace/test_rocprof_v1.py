"""Traces of rocprof before rocprofv3: its database, and its JSON, which draws what the database says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.trace import Trace, read
from tests.trace.build_rocprof import PROCESS
from tests.trace.build_rocprof_files import STREAM, THREAD, v1_events, v1_rows, write_v1, write_v1_json
from tests.trace.sqlite_file import write_sqlite
from tests.traces import omitted

Rows = dict[str, list[dict[str, Any]]]


def forms(folder: Path, change: Callable[[Rows], None] = lambda _: None) -> tuple[Trace, Trace]:
    """The trace of the database, and that of the JSON."""
    rows = v1_rows()
    change(rows)
    database = read(write_v1(folder / "results.db", rows), launches=True)
    return database, read(write_v1_json(folder / "results.json", v1_events(rows)), launches=True)


def test_database_and_json_say_the_same(tmp_path: Path) -> None:
    for trace in forms(tmp_path):
        wanted = ["kind", "direction", "start_ns", "end_ns", "bytes", "device", "stream", "process", "name"]
        assert trace.operations.select(wanted).rows() == [
            ("copy", "h2d", 200, 300, 4096, 0, STREAM, PROCESS, None),
            ("kernel", None, 310, 410, None, 0, STREAM, PROCESS, "axpy(float*)"),
            ("copy", "d2h", 440, 590, 8192, 0, STREAM, PROCESS, None),
        ]
        memory = trace.operations.select("source_memory", "destination_memory").rows()
        assert memory == [("pinned", "device"), (None, None), ("device", "pageable")]
        assert trace.calls.select("name", "start_ns", "waits_for", "thread").rows() == [
            ("hipMalloc", 0, "none", THREAD),
            ("hipHostMalloc", 20, "none", THREAD),
            ("hipMemcpyAsync", 100, "none", THREAD),
            ("hipLaunchKernel", 160, "none", THREAD),
            ("hipMemcpy", 195, "operation", THREAD),
        ]
        of_calls = dict(trace.calls.select("correlation", "name").iter_rows())
        started = [of_calls[id] for id in trace.operations["correlation"]]
        assert started == ["hipMemcpyAsync", "hipLaunchKernel", "hipMemcpy"]
        assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("step", 90, 700)]
        assert trace.launches.select("grid_x", "grid_y", "block_x").rows() == [(2, 2, 64)]
        assert (trace.format, list(omitted(trace))) == ("rocprof", [])


def with_inner_call(rows: Rows) -> None:
    """A call of the program's that makes the copying call."""
    outer = dict(rows["HIP"][2])
    rows["HIP"].insert(2, outer | {"Name": "hipMemcpyToSymbol", "Index": 10, "EndNs": 1055})


def test_a_call_around_the_copying_call_has_no_copy(tmp_path: Path) -> None:
    for trace in forms(tmp_path, with_inner_call):
        of_calls = dict(trace.calls.select("correlation", "name").iter_rows())
        assert of_calls[trace.operations["correlation"][0]] == "hipMemcpyAsync"


def with_barrier(rows: Rows) -> None:
    barrier = {"Name": '"<barrier packet>"', "BeginNs": 1600, "EndNs": 9600, "__section": 518}
    rows["OPS"].append(rows["OPS"][0] | barrier)


def test_packets_that_wait_are_no_kernels(tmp_path: Path) -> None:
    for trace in forms(tmp_path, with_barrier):
        assert trace.operations.filter(kind="kernel")["name"].to_list() == ["axpy(float*)"]
        assert omitted(trace) == {"barriers": 1}
    rows = v1_rows()
    with_barrier(rows)
    rows["OPS"][1]["Name"] = "axpy(float*)"  # a kernel's name where both are of one call
    assert read(write_v1(tmp_path / "results.db", rows)).operations.filter(kind="kernel").height == 1


def with_commands_of_no_name(rows: Rows) -> None:
    """Markers in a stream stand among the kernels, taking no time."""
    marker = rows["OPS"][0] | {"Name": "Unknown command type", "BeginNs": 1320, "EndNs": 1320, "Index": 13}
    rows["OPS"].append(marker)


def test_commands_that_are_no_kernels_change_neither_counts_nor_links(tmp_path: Path) -> None:
    for trace in forms(tmp_path, with_commands_of_no_name):
        kernels = trace.operations.filter(kind="kernel")
        assert kernels.select("name").rows() == [("axpy(float*)",)]
        assert kernels["correlation"].null_count() == 0
        assert omitted(trace) == {"barriers": 1}


def with_a_fill_in_two_parts(rows: Rows) -> None:
    fill = rows["COPY"][0] | {"Name": "FillBuffer", "Index": 14}
    rows["COPY"] += [fill | {"BeginNs": begin, "EndNs": begin + 4} for begin in (1550, 1560)]
    call = rows["HIP"][2] | {"Name": "hipMemset", "BeginNs": 1540, "EndNs": 1570, "args": "( )", "Index": 14}
    rows["HIP"].append(call)


def test_a_fill_in_parts_is_of_a_single_call(tmp_path: Path) -> None:
    rows = v1_rows()
    with_a_fill_in_two_parts(rows)
    events = v1_events(rows)
    # The drawing has an arrow to the last part only.
    first = {event["id"] for event in events if event.get("cat") == "DataFlow" and str(event["ts"]) == "1550"}
    events = [event for event in events if event.get("id") not in first or event.get("cat") != "DataFlow"]
    drawn = read(write_v1_json(tmp_path / "results.json", events))
    for trace in (read(write_v1(tmp_path / "results.db", rows)), drawn):
        fills = trace.operations.filter(kind="set")["correlation"]
        assert fills.null_count() == 0 and fills.n_unique() == 1


def test_copies_without_a_stream_show_the_null_stream(tmp_path: Path) -> None:
    def to_stream_2(rows: Rows) -> None:
        rows["OPS"][0]["stream-id"] = 5

    def with_flags(rows: Rows) -> None:
        to_stream_2(rows)
        rows["HIP"].append(rows["HIP"][0] | {"Name": "hipStreamCreateWithFlags", "Index": 15})

    for trace in forms(tmp_path, to_stream_2):
        assert dict(trace.streams.select("stream", "kind").iter_rows()) == {STREAM: "null", 5: "blocking"}
    for trace in forms(tmp_path, with_flags):
        assert dict(trace.streams.select("stream", "kind").iter_rows()) == {STREAM: "null", 5: None}


def with_rectangle(rows: Rows) -> None:
    rows["COPY"][0]["Name"] = "CopyHostToDevice2D"


def test_a_rectangle_is_a_copy_of_its_kind(tmp_path: Path) -> None:
    for trace in forms(tmp_path, with_rectangle):
        assert trace.operations.select("direction", "bytes").row(0) == ("h2d", 4096)


def test_events_drawn_elsewhere_are_counted(tmp_path: Path) -> None:
    events = v1_events()
    for event in events:
        if event.get("ph") == "M" and event["args"]["name"] == "GPU0":
            event["args"]["name"] = "Others"
    assert omitted(read(write_v1_json(tmp_path / "results.json", events)))["unknown-events"] == 1


def with_two_copies_of_a_call(rows: Rows) -> None:
    rows["COPY"].append(rows["COPY"][1] | {"BeginNs": 1491, "EndNs": 1499})


def test_the_size_of_a_call_of_several_copies_is_nobodys(tmp_path: Path) -> None:
    database, drawn = forms(tmp_path, with_two_copies_of_a_call)
    assert database.operations["bytes"].to_list() == [4096, None, None, None]
    assert omitted(database)["unknown-sizes"] == 2
    # More copies than calls: none is known.
    assert drawn.operations.filter(kind="copy")["bytes"].null_count() == 3
    assert drawn.operations.filter(kind="kernel")["correlation"].null_count() == 0


def renamed(events: list[dict[str, Any]]) -> None:
    next(e for e in events if e.get("name") == "axpy(float*)")["name"] = "other"


def without_arrows(events: list[dict[str, Any]]) -> None:
    events[:] = [e for e in events if e.get("cat") != "DataFlow"]


@pytest.mark.parametrize("change", [renamed, without_arrows])
def test_unfit_arrows_link_nothing(change: Callable[[list[dict[str, Any]]], None], tmp_path: Path) -> None:
    events = v1_events()
    change(events)
    trace = read(write_v1_json(tmp_path / "results.json", events))
    assert trace.operations.filter(kind="kernel")["correlation"].null_count() == 1
    assert omitted(trace)["cut-window"] == (1 if change is renamed else 3)


def as_before_2022(rows: Rows) -> None:
    """The process of operations has a column of its own; pid says what kind a row is."""
    for table, number in (("HIP", 2), ("COPY", 1), ("OPS", 6), ("rocTX", 0)):
        for row in rows[table]:
            if table in ("COPY", "OPS"):
                row |= {"proc-id": row["pid"]}
            row["pid"] = number


def test_processes_of_older_versions(tmp_path: Path) -> None:
    rows = v1_rows()
    as_before_2022(rows)
    columns = {table: [*rows_of[0]] for table, rows_of in rows.items()}
    database = read(write_sqlite(tmp_path / "results.db", columns, rows))
    drawn = read(write_v1_json(tmp_path / "results.json", v1_events(rows)))
    for trace in (database, drawn):
        assert trace.operations["process"].to_list() == [PROCESS] * 3
        assert trace.calls["process"].unique().to_list() == [PROCESS]
        assert "cut-window" not in omitted(trace)


MEASURED = {
    "Index": 0, "KernelName": '"axpy.kd"', "gpu-id": 1, "queue-id": 2, "pid": PROCESS, "tid": THREAD, "grd": 4096,
    "wgr": 256, "DispatchNs": 1000, "BeginNs": 1310, "EndNs": 1410,
}  # fmt: skip


@pytest.mark.parametrize("name", ["KERN", "A"])
def test_kernels_of_a_program_without_hip(name: str, tmp_path: Path) -> None:
    """OpenMP's, say: rocprof measured them by itself, and names the dispatches as calls of HSA."""
    call = {
        "BeginNs": 1000, "EndNs": 1000, "pid": 3, "tid": THREAD, "Name": "hsa_dispatch", "args": "",
        "Index": 1,
    }  # fmt: skip
    copies = ["BeginNs", "EndNs", "Name", "pid", "tid", "Index", "proc-id"]
    columns = {name: [*MEASURED], "HSA": [*call], "COPY": copies}
    database = write_sqlite(tmp_path / "results.db", columns, {name: [MEASURED], "HSA": [call], "COPY": []})
    drawn = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": section}}
        for pid, section in ((3, "CPU HSA API"), (7, "GPU1"))
    ]
    for pid, lane, label, row in ((7, 2, "axpy.kd", MEASURED), (3, THREAD, "hsa_dispatch", call)):
        args = {key: str(value) for key, value in row.items()}
        drawn.append({"ph": "X", "pid": str(pid), "tid": str(lane), "ts": "1", "name": label, "args": args})
    for path in (database, write_v1_json(tmp_path / "results.json", drawn)):
        trace = read(path, launches=True)
        wanted = ["kind", "start_ns", "end_ns", "device", "stream", "process", "name"]
        assert trace.operations.select(wanted).rows() == [("kernel", 310, 410, 1, 2, PROCESS, "axpy")]
        assert trace.calls.select("name", "process").rows() == [("hsa_dispatch", PROCESS)]
        assert trace.launches.select("grid_x", "block_x").rows() == [(16, 256)]


def test_kernels_that_stand_in_two_tables_count_once(tmp_path: Path) -> None:
    rows = v1_rows()
    columns = {table: [*rows_of[0]] for table, rows_of in rows.items()}
    columns, rows = columns | {"KERN": [*MEASURED]}, rows | {"KERN": [MEASURED]}
    trace = read(write_sqlite(tmp_path / "results.db", columns, rows))
    assert trace.operations.filter(kind="kernel")["name"].to_list() == ["axpy(float*)"]


def with_fills(rows: Rows) -> None:
    rows["HIP"].append(rows["HIP"][4] | {"Name": "hipMemset", "BeginNs": 1510, "EndNs": 1520, "Index": 15,
                                        "args": "( dst(0x7f0000000000) value(0) sizeBytes(64))"})  # fmt: skip
    rows["COPY"].append(rows["COPY"][0] | {"Name": "FillBuffer", "BeginNs": 1512, "EndNs": 1516, "Index": 15})


def test_fills_are_sets(tmp_path: Path) -> None:
    for trace in forms(tmp_path, with_fills):
        assert trace.operations["kind"].to_list() == ["copy", "kernel", "copy", "set"]
        assert trace.operations["bytes"].to_list() == [4096, None, 8192, None]


def test_numbers_beyond_all_bounds_are_unknown(tmp_path: Path) -> None:
    rows = v1_rows()
    rows["OPS"][0] |= {"BeginNs": 10**30, "dev-id": -(10**30)}
    trace = read(write_v1_json(tmp_path / "results.json", v1_events(rows)))
    assert (trace.operations.height, omitted(trace)["untimed"]) == (2, 1)
    assert read(write_v1_json(tmp_path / "none.json", v1_events({t: [] for t in rows}))).operations.is_empty()


@pytest.mark.parametrize("cut", [0.4, 0.95])
def test_a_cut_file_is_refused_in_a_line(cut: float, tmp_path: Path) -> None:
    path = write_v1_json(tmp_path / "results.json")
    path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
    with pytest.raises(InputError, match=r"damaged or cut JSON of rocprof .*give the results\.db"):
        read(path)
