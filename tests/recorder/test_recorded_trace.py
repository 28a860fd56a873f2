"""Recordings as traces."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace import read
from busfare.trace.model import Trace
from busfare.trace.readers import recorded as reader
from busfare.trace.readers.recorded import is_recording, recordings_in
from busfare.trace.readers.recorded.file import Part, Recording, Table
from busfare.trace.readers.recorded.rows import held_up

from .conftest import Recorded


@pytest.fixture
def everything(recorded: Recorded) -> Path:
    return recorded("everything").files[0]


def ids(trace: Trace) -> set[str]:
    return {omission.id for omission in trace.omissions}


def test_migrations_outside_of_the_window_are_left_out(recorded: Recorded) -> None:
    run = recorded("profiler-calls", "4", capture="profiler-calls")
    assert len(run.only.table("managed")) == 2 * 3  # CUPTI went on counting
    moved = reader.read(run.files[0]).operations.filter(pl.col("kind") == "migration")
    assert moved["bytes"].to_list() == [65536 << 1]
    assert moved["start_ns"].min() > 0
    whole = recorded("profiler-calls", "4")
    moved = reader.read(whole.files[0]).operations.filter(pl.col("kind") == "migration")
    assert moved["bytes"].to_list() == [65536, 65536 << 1, 65536 << 2]


def test_a_recording_is_identified_by_its_content(everything: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "trace.json"
    shutil.copy(everything, renamed)
    Path(tmp_path, "empty.bf").touch()
    assert recordings_in(tmp_path) == [renamed]
    assert not is_recording(tmp_path / "nothing")


def test_operations(everything: Path) -> None:
    trace = reader.read(everything)
    columns = (
        "kind", "direction", "bytes", "source_memory", "destination_memory", "device", "peer_device", "stream",
        "graph_node",
    )  # fmt: skip
    assert trace.operations.select(columns).rows() == [
        ("kernel", None, None, None, None, 0, None, 13, None),
        ("kernel", None, None, None, None, 0, None, 13, 21),
        ("copy", "h2d", 1024, "pinned", "device", 0, None, 13, None),
        ("copy", "d2h", 1024, "device", "pageable", 0, None, 13, None),
        ("copy", "p2p", 4096, "device", "device", 0, 1, 13, None),
        ("set", None, 8192, None, "device", 0, None, 13, None),
        ("migration", "h2d", 65536, "managed", "managed", 0, None, None, None),
    ]
    assert trace.operations["name"].cast(pl.String).to_list()[:2] == ["scale(float*, int)"] * 2
    durations = (trace.operations["end_ns"] - trace.operations["start_ns"]).to_list()
    assert durations == [500, 500, 1000, 1000, 1000, 100, 600]
    assert trace.omissions == []
    assert trace.format == "recorded" and trace.producer.startswith("busfare record")


def test_kernels_know_how_they_were_launched(everything: Path) -> None:
    """The stand-in for CUPTI says 64 blocks of 256 threads, 24 registers each and no shared memory."""
    trace = read(everything, launches=True)
    assert trace.operations.filter(kind="kernel")["launch"].to_list() == [0, 0]
    assert trace.operations["launch"].null_count() == trace.operations.height - 2
    assert trace.launches.rows() == [(64, 1, 1, 256, 1, 1, 24, 0, 1 << 20, None, None, None, None)]


def test_copies_know_their_addresses(everything: Path) -> None:
    copies = reader.read(everything).operations.filter(pl.col("kind") == "copy")
    device = 0x7F0000000000
    assert copies["destination_address"].to_list()[0] == device
    assert copies["source_address"].to_list()[1:] == [device, None]


def test_calls_and_what_they_wait_for(everything: Path) -> None:
    calls = reader.read(everything).calls
    assert calls.select(pl.col("name").cast(pl.String), "waits_for", "context", "stream").rows()[4:] == [
        ("cuEventRecord", "none", None, None),
        ("cuStreamWaitEvent", "none", None, None),
        ("cuStreamSynchronize", "stream", 1, 13),
        ("cuCtxSynchronize", "device", 1, None),
    ]
    assert calls["thread"].n_unique() == 1 and calls["thread"][0] > 0


def test_events_join_records_to_waits(everything: Path) -> None:
    events = reader.read(everything).events
    expected = [("record", 13, 1, 1, 0), ("wait", 13, 1, 1, 0)]
    assert events.select("kind", "stream", "event", "event_sync", "device").rows() == expected


def test_devices_streams_markers_and_host(everything: Path) -> None:
    trace = reader.read(everything)
    device = trace.devices.row(0, named=True)
    assert device["name"] == "Fake GPU" and device["uuid"] == "GPU-00112233-4455-6677-8899-aabbccddeeff"
    assert (device["pcie_generation"], device["pcie_lanes"], device["bus_id"]) == (5, 16, "0000:1B:00.0")
    assert (device["copy_engines"], device["compute_capability"]) == (3, "9.0")
    assert device["memory_bytes"] == 80 << 30
    assert device["memory_bandwidth_bytes_per_s"] == 3352320000 * 1000
    stream = trace.streams.row(0, named=True)
    assert (stream["kind"], stream["priority"], stream["device"]) == ("non-blocking", -5, 0)
    marker = trace.markers.row(0, named=True)
    assert (marker["name"], marker["thread"], marker["start_ns"]) == ("step", 77, 0)
    assert marker["end_ns"] > trace.operations["end_ns"][0]
    assert trace.host["cuda"] == "13.0" and trace.host["hostname"]


def test_a_directory_is_a_single_trace(recorded: Recorded, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        shutil.copy(recorded("rounds", "5").files[0], folder / f"{rank}.bf")
    (folder / "notes.txt").write_text("not a recording")
    trace = reader.read(folder)
    assert trace.operations.height == 3 * 15
    assert trace.operations["process"].n_unique() == trace.calls["process"].n_unique() == 3
    assert trace.operations["start_ns"].min() >= 0


def test_two_files_of_the_same_process_number_are_two_processes(recorded: Recorded) -> None:
    run = recorded("exec", "5", flush_every=0.05)
    again = run.files[0].parent / "copy.bf"
    shutil.copy(next(file for file in run.files if "-2" in file.name), again)
    assert reader.read(run.files[0].parent).operations["process"].n_unique() >= 2


def test_what_is_wrong_with_a_recording_reaches_the_user(recorded: Recorded, tmp_path: Path) -> None:
    run = recorded("rounds", "2000", extra={"FAKE_CUPTI_DROPS": "3"})
    data = run.files[0].read_bytes()
    assert ids(reader.read(run.files[0])) == {"dropped"}
    torn = tmp_path / "torn.bf"
    torn.write_bytes(data[:-5])
    assert {"cut", "torn"} <= ids(reader.read(torn))
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    torn.write_bytes(damaged)
    assert "damaged" in ids(reader.read(torn))
    assert "window" in ids(reader.read(recorded("slow", "5", duration=10.0).files[0]))


def test_a_directory_without_recordings_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no recording"):
        reader.read(tmp_path)


def table_of(rows: list[tuple[int, int, int, int]]) -> Table:
    """Allocations: (time, operation, address, bytes)."""
    table = Table(("time", "operation", "memory_kind", "address", "bytes"))
    columns = np.array(rows, np.uint64).reshape(-1, 4).T
    parts = {number: Part(0, column) for number, column in zip((0, 1, 3, 4), columns, strict=True)}
    table.chunks.append((len(rows), parts))
    return table


CALLED = ("start", "correlation", "thread")
HASHED = ("correlation", "fingerprint_start", "fingerprint_duration")


def test_what_fingerprints_took_is_the_recorders_time_not_the_programs() -> None:
    tables = {
        "calls": (CALLED, [(1000, 1, 5), (9000, 4, 6), (5000, 3, 5), (3000, 2, 5)]),
        # Before its call; none; after it, before the next one; where the thread calls no more; of a call that is not here.
        "copy_addresses": (HASHED, [(2, 2100, 800), (2, 0, 0), (2, 3500, 70), (3, 6000, 99), (77, 10, 5)]),
    }
    made = {name: np.array(rows, [(column, np.uint64) for column in c]) for name, (c, rows) in tables.items()}
    assert held_up(cast(Recording, SimpleNamespace(table=made.__getitem__))).tolist() == [0, 0, 70, 800]
