"""JSON of rocprofv3."""

import json
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.trace import Trace, read
from tests.trace.build_rocprof import PROCESS, small_process, write_rocpd
from tests.trace.build_rocprof_files import (
    CPU,
    D2D,
    GPU_0,
    GPU_1,
    HSA,
    QUEUE,
    JsonRun,
    small_json,
    write_json,
    write_v1_json,
)
from tests.traces import omitted


def written(folder: Path, *runs: JsonRun, launches: bool = False) -> Trace:
    return read(write_json(folder / "908_results.json", *runs), launches=launches)


def test_the_json_of_a_run_says_what_its_database_says(tmp_path: Path) -> None:
    trace, wanted = (
        written(tmp_path, small_json()),
        read(write_rocpd(tmp_path / "results.db", small_process())),
    )
    assert trace.operations.equals(wanted.operations)
    assert trace.calls.equals(wanted.calls)
    assert trace.markers.equals(wanted.markers)
    assert trace.devices["name"].to_list() == wanted.devices["name"].to_list()
    assert trace.devices.select("copy_engines", "multiprocessors").row(0) == (2, 304)
    assert (trace.format, list(omitted(trace))) == ("rocprofv3-json", ["unknown-memory"])


def test_grids_are_counted_in_work_groups(tmp_path: Path) -> None:
    launches = written(tmp_path, small_json(), launches=True).launches
    shape = ("grid_x", "grid_y", "grid_z", "block_x", "registers", "shared_bytes")
    assert launches.select(shape).rows() == [(2, 2, 1, 64, 12, 512)]


def test_processes_share_no_ids(tmp_path: Path) -> None:
    trace = written(tmp_path, small_json(), small_json(4141))
    assert trace.operations["process"].value_counts().sort("process").rows() == [(PROCESS, 3), (4141, 3)]
    assert trace.devices.height == 2
    assert "cut-window" not in omitted(trace)


def test_the_queue_stands_for_streams_in_older_files(tmp_path: Path) -> None:
    run = small_json()
    for record in run.records["kernel_dispatch"]:
        del record["stream_id"]
    assert written(tmp_path, run).operations.filter(kind="kernel")["stream"].to_list() == [QUEUE]


def test_work_that_a_call_of_hsa_started_is_that_of_hips_call_around_it(tmp_path: Path) -> None:
    run = small_json()
    run.add("hsa_api", HSA, 0, 1062, 1064, 50, ancestor=12)
    run.kernel("of HSA", 1320, 1330, 50)
    assert written(tmp_path, run).operations.filter(name="of HSA")["correlation"].to_list() == [12]


def test_copies_between_gpus_and_gpus_without_a_number(tmp_path: Path) -> None:
    run = small_json()
    run.copy(D2D, GPU_0, GPU_1, 64, 1600, 1610, 0)
    for agent in run.agents:
        del agent["logical_node_type_id"]
    row = written(tmp_path, run).operations[-1]
    assert row.select("direction", "device", "peer_device", "correlation").row(0) == ("p2p", 0, 1, None)


def test_kernels_inside_a_graph_launch_are_its_nodes(tmp_path: Path) -> None:
    run = small_json()
    run.call("hipGraphLaunch", 1600, 1610, 20)
    run.kernel("first", 1620, 1630, 20)
    run.kernel("second", 1630, 1640, 20)
    trace = written(tmp_path, run)
    assert trace.operations["graph_node"].to_list() == [None, None, None, -1, -2]
    assert omitted(trace)["graph-nodes"] == 2


def test_copies_that_kernels_make_count_as_kernels(tmp_path: Path) -> None:
    run = small_json()
    run.kernel("__amd_rocclr_copyBuffer", 1600, 1610, 20)
    assert omitted(written(tmp_path, run))["copying-kernels"] == 1


def test_impossible_records_are_noted(tmp_path: Path) -> None:
    run = small_json()
    run.kernel("never timed", 0, 0, 30)
    run.kernel("backwards", 1700, 1690, 31)
    run.kernel("of an unknown agent", 1720, 1730, 32, agent=CPU + 99)
    run.records["memory_copy"][0]["operation"] = 77
    run.symbols.clear()
    trace = written(tmp_path, run)
    assert omitted(trace)["untimed"] == 1 and omitted(trace)["clock-backwards"] == 1
    assert trace.operations["direction"].to_list()[:1] == ["h2d"]  # the agents tell it
    assert trace.operations.filter(kind="kernel")["name"].unique().to_list() == ["(unnamed kernel)"]
    assert trace.operations.filter(kind="kernel")["device"].to_list() == [0, 0, None]


@pytest.mark.parametrize("cut", [0.2, 0.9])
def test_a_cut_file_is_refused_in_a_line(cut: float, tmp_path: Path) -> None:
    path = write_json(tmp_path / "cut.json", small_json())
    path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
    with pytest.raises(InputError, match=r"damaged or cut JSON of rocprofv3 .*copy it again"):
        read(path)


def test_a_field_of_another_type_is_refused_by_its_name(tmp_path: Path) -> None:
    document = small_json().document()
    document["buffer_records"]["kernel_dispatch"][0]["start_timestamp"] = "soon"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [document]}))
    with pytest.raises(InputError, match="start_timestamp"):
        read(path)


def test_an_editors_mark_of_its_encoding_is_no_damage(tmp_path: Path) -> None:
    for path in (write_json(tmp_path / "v3.json", small_json()), write_v1_json(tmp_path / "v1.json")):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert read(path).operations.height == 3
