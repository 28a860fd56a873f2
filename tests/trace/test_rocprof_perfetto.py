"""Perfetto files of rocprofv3."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.trace import may_be_trace, read
from tests.trace.build_kineto import gzipped
from tests.trace.build_perfetto import GPU, HOST, PerfettoFile, framed, small_perfetto
from tests.trace.build_rocprof import PROCESS, small_process, write_rocpd
from tests.trace.build_rocprof_files import THREAD
from tests.traces import omitted


def test_the_slices_of_a_run_say_what_its_database_says(tmp_path: Path) -> None:
    path = small_perfetto().write(tmp_path / "3131_results.pftrace")
    trace, wanted = read(path), read(write_rocpd(tmp_path / "results.db", small_process()))
    assert trace.operations.equals(wanted.operations)
    assert trace.calls.equals(wanted.calls) and trace.markers.equals(wanted.markers)
    assert (trace.format, set(omitted(trace))) == ("rocprofv3-perfetto", {"unknown-memory", "unknown-agents"})
    assert may_be_trace(path)
    launches = read(path, launches=True).launches  # of grids only the product is there
    assert launches.select("grid_x", "registers", "shared_bytes").rows() == [(None, 12, 512)]


def test_files_of_processes_behind_one_another(tmp_path: Path) -> None:
    path = tmp_path / "all.pftrace.gz"
    path.write_bytes(gzipped(small_perfetto().content() + small_perfetto(4141).content()))
    trace = read(path)
    assert trace.operations["process"].value_counts().sort("process").rows() == [(PROCESS, 3), (4141, 3)]
    assert trace.calls["process"].unique().sort().to_list() == [PROCESS, 4141]


def test_gpus_are_numbered_in_order_of_the_agents_that_work(tmp_path: Path) -> None:
    file = small_perfetto()
    file.kernel("of another", 1700, 1710, 20, agent=7)
    file.copy("MEMORY_COPY_DEVICE_TO_DEVICE", ("Agent-1", "Agent-7"), 64, 1720, 1730, 21)
    trace = read(file.write(tmp_path / "run.pftrace"))
    assert trace.operations[-2:].select("device", "peer_device", "direction").rows() == [
        (1, None, None),
        (0, 1, "p2p"),
    ]


def test_what_perfetto_dropped_is_missing(tmp_path: Path) -> None:
    file = small_perfetto()
    file.packet().stats.buffers.add(discarded=3, overwritten=2)
    assert omitted(read(file.write(tmp_path / "run.pftrace")))["missing"] == 5


def test_slices_without_times_and_of_other_programs_are_no_trace(tmp_path: Path) -> None:
    file = PerfettoFile()
    packet = file.packet(timestamp=5)
    packet.event.type, packet.event.name, packet.event.track_uuid = 1, "frame", GPU
    with pytest.raises(InputError, match="without anything of rocprofv3"):
        read(file.write(tmp_path / "android.pftrace"))
    file = PerfettoFile()  # as ROCm Systems Profiler and Omnitrace write: the same times, of other categories
    for category in ("rocm_kernel_dispatch", "device_hip", "rocm_hip_api"):
        file.slice(category, "axpy(float*)", 1210, 1310, GPU, corr_id=12, queue=1, stream_id=2)
    with pytest.raises(InputError, match="without anything of rocprofv3"):
        read(file.write(tmp_path / "perfetto-trace.proto"))


def test_what_rocpd_converts_has_the_stream_by_another_name(tmp_path: Path) -> None:
    file = PerfettoFile()
    file.slice("kernel_dispatch", "axpy(float*)", 1210, 1310, GPU, agent="Agent-1", queue=9, stream_id=2)
    assert read(file.write(tmp_path / "out.pftrace")).operations["stream"].to_list() == [2]


def test_a_file_that_is_cut_or_damaged_gives_what_it_holds(tmp_path: Path) -> None:
    content = small_perfetto().content()
    path = tmp_path / "cut.pftrace"
    path.write_bytes(content[:-40])
    trace = read(path)
    assert trace.operations.filter(kind="copy").height == 2
    assert "truncated" in omitted(trace)
    path.write_bytes(content + framed(b"\xff\xff\xff"))
    assert (read(path).operations.height, omitted(read(path))["damaged"]) == (3, 1)
    path.write_bytes(content + b"\x99\x99")
    assert (read(path).operations.height, omitted(read(path))["damaged"]) == (3, 0)
    path.write_bytes(content + b"\x0a")
    assert "truncated" in omitted(read(path))


def test_texts_that_were_never_written_are_not_made_up(tmp_path: Path) -> None:
    file = small_perfetto()
    file.packets.append(file._packet(flags=1))  # the writer begins anew, and forgets its texts
    file.packets.append(next(packet for packet in file.packets if packet.event.type == 1))
    for text in (text for packet in file.packets for text in packet.interned.names):
        if text.text.startswith(b"axpy"):
            text.iid = 9999
    trace = read(file.write(tmp_path / "run.pftrace"))
    assert trace.operations.filter(kind="kernel")["name"].to_list() == ["(unnamed kernel)"]
    assert trace.calls.height == 4  # the packet came with its own texts


def test_otf2_is_refused_with_what_to_record(tmp_path: Path) -> None:
    (tmp_path / "out_results.otf2").write_bytes(b"\0\1\2 anything")
    with pytest.raises(InputError, match="OTF2 of rocprofv3; record with `--output-format rocpd`"):
        read(tmp_path / "out_results.otf2")


def test_work_that_a_call_of_hsa_started_is_that_of_hips_call_around_it(tmp_path: Path) -> None:
    file = small_perfetto()
    file.slice(
        "hsa_api", "hsa_amd_memory_async_copy", 1001, 1009, HOST, tid=THREAD, corr_id=50, ancestor_id=11
    )
    file.copy("MEMORY_COPY_HOST_TO_DEVICE", ("Agent-0", "Agent-1"), 64, 1600, 1610, 50)
    trace = read(file.write(tmp_path / "run.pftrace"))
    assert trace.operations.filter(bytes=64)["correlation"].to_list() == [11]
