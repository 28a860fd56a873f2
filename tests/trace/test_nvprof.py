"""nvprof files: CUPTI's numbering, calls by number, and the tables that only they have."""

from pathlib import Path

import polars as pl
import pytest

from busfare.show.words import text
from busfare.trace import Trace, read
from tests.trace.build_nvprof import EPOCH, PROCESS, NvprofFile, small_file
from tests.traces import omitted


def written(file: NvprofFile, folder: Path) -> Trace:
    return read(file.write(folder / "run.nvvp"))


def test_a_small_file(tmp_path: Path) -> None:
    trace = written(small_file(), tmp_path)
    wanted = [
        "kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory",
        "process",
    ]  # fmt: skip
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 100, 200, 4096, "pinned", "device", PROCESS),
        ("kernel", None, 210, 310, None, None, None, PROCESS),
        ("set", None, 320, 330, 512, None, "device", PROCESS),
        ("copy", "d2h", 340, 490, 8192, "device", "pageable", PROCESS),
    ]
    assert trace.calls.select("name", "start_ns", "end_ns", "waits_for", "thread").rows() == [
        ("cudaMemcpyAsync", 0, 50, "none", -139_872),
        ("cudaLaunchKernel", 60, 70, "none", -139_872),
        ("cudaMemsetAsync", 80, 90, "none", -139_872),
        ("cudaMemcpy", 95, 500, "operation", -139_872),
        ("cudaDeviceSynchronize", 510, 550, "device", -139_872),
    ]
    assert trace.format == "nvprof"
    assert trace.producer == "nvprof (file version 22)"
    assert trace.omissions == []


def test_memory_kinds_are_cuptis_numbers(tmp_path: Path) -> None:
    file = NvprofFile()
    for number in range(9):
        file.copy(8, (number, 8 - number), 1, 10 * number, 10 * number + 5, number + 1)
    trace = written(file, tmp_path)
    names = [None, "pageable", "pinned", "device", "array", "managed", "static", "managed", None]
    assert trace.operations["source_memory"].to_list() == names
    assert trace.operations["destination_memory"].to_list() == names[::-1]


def test_peer_copies_stand_in_a_separate_table(tmp_path: Path) -> None:
    file = small_file()
    file.copy(10, (3, 3), 64, 600, 700, 9, srcDeviceId=0, dstDeviceId=1)
    file.copy(8, (3, 3), 64, 710, 720, 10, srcDeviceId=0, dstDeviceId=1)
    trace = written(file, tmp_path)
    peers = trace.operations.filter(pl.col("direction") == "p2p")
    assert peers.select("bytes", "device", "peer_device").rows() == [(64, 0, 1), (64, 0, 1)]


def test_copies_of_unknown_kind_are_an_omission(tmp_path: Path) -> None:
    file = small_file()
    file.copy(0, (3, 3), 64, 600, 700, 9)
    assert omitted(written(file, tmp_path))["unknown-direction"] == 1


@pytest.mark.parametrize("table", ["CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL"])
def test_kernels_of_all_three_tables(table: str, tmp_path: Path) -> None:
    file = NvprofFile()
    file.kernel("_Z4axpyPf", 0, 10, 1, table)
    assert written(file, tmp_path).operations.select("kind", "name").rows() == [("kernel", "_Z4axpyPf")]


@pytest.mark.parametrize(
    ("table", "number", "name", "waits_for"),
    [
        ("RUNTIME", 31, "cudaMemcpy", "operation"),
        ("RUNTIME", 41, "cudaMemcpyAsync", "none"),
        ("RUNTIME", 131, "cudaStreamSynchronize", "stream"),
        ("RUNTIME", 137, "cudaEventSynchronize", "event"),
        ("RUNTIME", 147, "cudaStreamWaitEvent", "none"),
        ("RUNTIME", 165, "cudaDeviceSynchronize", "device"),
        ("RUNTIME", 211, "cudaLaunchKernel", "none"),
        ("DRIVER", 17, "cuCtxSynchronize", "device"),
        ("DRIVER", 119, "cuEventRecord", "none"),
        ("DRIVER", 120, "cuEventQuery", "none"),
        ("DRIVER", 121, "cuEventSynchronize", "event"),
        ("DRIVER", 126, "cuStreamSynchronize", "stream"),
        ("DRIVER", 295, "cuStreamWaitEvent", "none"),
        ("DRIVER", 307, "cuLaunchKernel", "none"),
    ],
)
def test_calls_have_numbers(table: str, number: int, name: str, waits_for: str, tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(number, 0, 10, 1, table)
    assert written(file, tmp_path).calls.select("name", "waits_for").row(0) == (name, waits_for)


def test_a_call_of_the_per_thread_stream_is_plainly_named(tmp_path: Path) -> None:
    file = NvprofFile()
    for number in (234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250):
        file.call(number, 10 * number, 10 * number + 5, number)
    assert written(file, tmp_path).calls["name"].cast(pl.String).str.contains("_pt[sd][sz]?$").sum() == 0


def test_calls_of_unknown_number_are_counted_and_wait_for_nothing(tmp_path: Path) -> None:
    file = small_file()
    file.call(99_999, 600, 610, 9)
    file.call(99_998, 620, 630, 10, "DRIVER")
    trace = written(file, tmp_path)
    expected = [("runtime call 99999", "none"), ("driver call 99998", "none")]
    assert trace.calls.select("name", "waits_for").rows()[-2:] == expected
    assert omitted(trace) == {"unnamed-calls": 2}


def test_waits_say_what_stream_and_event_a_call_waits_for(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(131, 0, 10, 1)
    file.wait(3, 1, 9, 1, stream=13)
    file.call(137, 20, 30, 2)
    file.wait(1, 21, 29, 2, event=5)
    file.call(165, 40, 50, 3)
    file.wait(4, 41, 49, 3)
    trace = written(file, tmp_path)
    expected = [("stream", 1, 13, None), ("event", 1, None, 5), ("device", 1, None, None)]
    assert trace.calls.select("waits_for", "context", "stream", "event").rows() == expected


def test_events_are_recorded_on_a_stream_and_awaited_by_another(tmp_path: Path) -> None:
    file = small_file()
    file.call(135, 600, 610, 6)
    file.add("CUDA_EVENT", correlationId=6, contextId=1, streamId=13, eventId=5)
    file.call(147, 620, 630, 7)
    file.wait(2, 621, 629, 7, stream=14, event=5)
    trace = written(file, tmp_path)
    expected = [("record", 600, 13, 5, PROCESS), ("wait", 621, 14, 5, PROCESS)]
    assert trace.events.select("kind", "start_ns", "stream", "event", "process").rows() == expected


def test_a_record_without_its_call_is_counted(tmp_path: Path) -> None:
    file = small_file()
    file.add("CUDA_EVENT", correlationId=99, contextId=1, streamId=13, eventId=5)
    trace = written(file, tmp_path)
    assert trace.events.is_empty()
    assert omitted(trace)["records-without-call"] == 1


def test_migrations_count_their_bytes_as_a_value(tmp_path: Path) -> None:
    file = small_file()
    for kind, source, destination in ((1, 4294967295, 0), (2, 0, 4294967295), (3, 0, 0)):
        times = {"start": EPOCH + 600 * kind, "end": EPOCH + 600 * kind + 10}
        file.add(
            "UNIFIED_MEMORY_COUNTER", counterKind=kind, value=65536, srcId=source, dstId=destination, **times
        )
    trace = written(file, tmp_path)
    migrations = trace.operations.filter(pl.col("kind") == "migration")
    expected = [("h2d", 65536, 0, "managed"), ("d2h", 65536, 0, "managed")]
    assert migrations.select("direction", "bytes", "device", "source_memory").rows() == expected


def test_markers_are_pairs_by_id(tmp_path: Path) -> None:
    file = small_file()
    name = file.text("step")
    file.add("MARKER", flags=2, timestamp=EPOCH + 10, id=1, name=name, domain=0)
    file.add("MARKER", flags=4, timestamp=EPOCH + 90, id=1, name=0, domain=0)
    file.add("MARKER", flags=1, timestamp=EPOCH + 50, id=2, name=file.text("mark"), domain=0)
    file.add("MARKER", flags=2, timestamp=EPOCH + 60, id=3, name=file.text("open"), domain=0)
    trace = written(file, tmp_path)
    expected = [("step", 10, 90), ("mark", 50, None), ("open", 60, None)]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == expected
    assert omitted(trace) == {"open-ranges": 1}


def device(file: NvprofFile, number: int = 0) -> None:
    file.add(
        "DEVICE", id=number, name=file.text("Tesla P100"), globalMemoryBandwidth=732_160_000,
        globalMemorySize=17_071_734_784, coreClockRate=1_328_500, numMemcpyEngines=2, numMultiprocessors=56,
        computeCapabilityMajor=6, computeCapabilityMinor=0,
    )  # fmt: skip


def test_devices_count_in_kilobytes_and_kilohertz(tmp_path: Path) -> None:
    file = small_file()
    device(file)
    (gpu,) = written(file, tmp_path).devices.rows(named=True)
    assert gpu["memory_bandwidth_bytes_per_s"] == 732_160_000_000
    assert gpu["clock_hz"] == 1_328_500_000
    assert (gpu["device"], gpu["name"], gpu["compute_capability"]) == (0, "Tesla P100", "6.0")
    assert (gpu["memory_bytes"], gpu["copy_engines"], gpu["multiprocessors"]) == (17_071_734_784, 2, 56)


def test_the_pcie_link_is_read(tmp_path: Path) -> None:
    file = small_file()
    device(file)
    file.add("PCIE", type=0, domain=0, pcieGeneration=3, linkRate=8000, linkWidth=16)
    file.add("PCIE", type=1, domain=0, pcieGeneration=4, linkRate=16000, linkWidth=8)  # a bridge
    assert written(file, tmp_path).devices.select("pcie_generation", "pcie_lanes").rows() == [(3, 16)]


@pytest.mark.parametrize("widths", [(16, 8), (4,)])
def test_unlike_links_and_a_single_link_of_two_gpus_are_nobodys(widths: tuple[int], tmp_path: Path) -> None:
    file = small_file()
    device(file, 0)
    device(file, 1)
    for width in widths:
        file.add("PCIE", type=0, domain=0, pcieGeneration=3, linkWidth=width)
    trace = written(file, tmp_path)
    assert trace.devices["pcie_lanes"].to_list() == [None, None]
    assert omitted(trace) == {"links-unlike": len(widths)}


def test_streams_have_kinds(tmp_path: Path) -> None:
    file = small_file()
    for stream, flag in ((7, 3), (13, 2), (14, 1), (15, 0)):
        file.add("STREAM", contextId=1, streamId=stream, priority=-5, flag=flag)
    assert written(file, tmp_path).streams.select("stream", "kind", "priority", "process").rows() == [
        (7, "null", -5, PROCESS),
        (13, "non-blocking", -5, PROCESS),
        (14, "blocking", -5, PROCESS),
        (15, None, -5, PROCESS),
    ]


def test_times_that_were_not_collected_make_no_run_of_decades(tmp_path: Path) -> None:
    file = small_file()
    for number in range(4):  # CUPTI gives such kernels zeros
        file.kernel("lost", -EPOCH, -EPOCH, 90 + number)
    file.call(41, -EPOCH, -EPOCH, 99)
    trace = written(file, tmp_path)
    whole = written(small_file(), tmp_path)
    assert trace.operations.height == whole.operations.height
    assert trace.operations["end_ns"].max() == whole.operations["end_ns"].max()
    untimed = [(o.count, text(o.what)) for o in trace.omissions if o.id == "untimed"]
    assert untimed == [
        (4, "GPU operations without usable timestamps: skipped"),
        (1, "API calls without usable timestamps: skipped"),
    ]


def test_wrong_types_become_unknown(tmp_path: Path) -> None:
    file = NvprofFile()
    file.copy(1, (2, 3), "lots", 0, 10, 1)
    file.copy(1, (2, 3), b"\1\2", 20, 30, 2, streamId=2.5)
    trace = written(file, tmp_path)
    assert trace.operations.select("bytes", "stream").rows() == [(None, 7), (None, None)]
    assert omitted(trace)["unknown-sizes"] == 2
