"""What nvprof prints as CSV, and what else it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.trace import Trace, may_be_trace, read

COLUMNS = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",'
    '"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Name","Correlation_ID"'
)
ABOUT = "==77== NVPROF is profiling process 77, command: ./app\n==77== Profiling application: ./app\n"
GPU = '"Tesla P100-PCIE-16GB (1)","1","7"'
ROWS = [
    f'0.000000,1.888000,,,,,,,,,,1.003906,0.507097,"Device",,{GPU},"[CUDA memset]",272',
    f'10.000000,2.5,,,,,,,,,,4.000000,1.6,"Pageable","Device",{GPU},"[CUDA memcpy HtoD]",273',
    f'15.000000,4.000000,8,2,1,128,1,1,32,0.500000,1.500000,,,,,{GPU},"void k<a, b>(float*)",274',
    f'20.000000,3.000000,,,,,,,,,,0.125000,0.077610,"Device","Pinned",{GPU},"[CUDA memcpy DtoH]",275',
]  # fmt: skip
CALLS = [
    f'{at:.6f},1.500000{"," * 17}"{name}",{number}'
    for at, name, number in (
        (1, "cudaMemsetAsync", 272), (9, "cudaMemcpy", 273), (12, "cudaLaunchKernel_v7000", 274),
        (18, "cudaMemcpyAsync", 275), (22, "cudaDeviceSynchronize", 276),
    )
]  # fmt: skip
UNITS = "us,us,,,,,,,,KB,KB,KB,GB/s,,,,,,,"


def printed(*rows: str, columns: str = COLUMNS, units: str = UNITS) -> str:
    return (
        ABOUT
        + "the program's own, text\n==77== Profiling result:\n"
        + "\n".join([columns, units, *rows])
        + "\n"
    )


def read_text(folder: Path, text: str) -> Trace:
    (folder / "trace.csv").write_text(text)
    return read(folder / "trace.csv")


def test_operations_have_what_their_row_says(tmp_path: Path) -> None:
    trace = read_text(tmp_path, printed(*ROWS))
    columns = [
        "kind",
        "direction",
        "start_ns",
        "end_ns",
        "bytes",
        "source_memory",
        "destination_memory",
        "correlation",
    ]
    assert trace.operations.select(columns).rows() == [
        ("set", None, 0, 1888, 1028, None, "device", 272),
        ("copy", "h2d", 10000, 12500, 4096, "pageable", "device", 273),
        ("kernel", None, 15000, 19000, None, None, None, 274),
        ("copy", "d2h", 20000, 23000, 128, "device", "pinned", 275),
    ]
    assert trace.operations.select("device", "context", "stream").unique().rows() == [(1, 1, 7)]
    assert trace.operations["name"].to_list() == ["memset", None, "void k<a, b>(float*)", None]
    assert trace.devices.select("device", "name").rows() == [(1, "Tesla P100-PCIE-16GB")]
    assert (trace.format, trace.producer) == ("nvprof", "nvprof (CSV)")
    assert [omission.id for omission in trace.omissions] == ["no-calls"]


def test_launches_are_told(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(printed(*ROWS))
    launch = read(tmp_path / "t", launches=True).launches
    assert launch.select("grid_x", "grid_y", "block_x", "registers", "shared_bytes").rows() == [
        (8, 2, 128, 32, 2048)
    ]


def test_calls_stand_in_the_same_table_or_alone(tmp_path: Path) -> None:
    trace = read_text(tmp_path, printed(*ROWS, *CALLS))
    assert trace.calls.select("name", "waits_for", "correlation", "start_ns").rows() == [
        ("cudaMemsetAsync", "none", 272, 1000),
        ("cudaMemcpy", "operation", 273, 9000),
        ("cudaLaunchKernel", "none", 274, 12000),
        ("cudaMemcpyAsync", "none", 275, 18000),
        ("cudaDeviceSynchronize", "device", 276, 22000),
    ]
    assert not trace.omissions
    assert trace.operations.height == 4
    alone = printed(
        '0.0,2.866000,"cuInit",1', columns='"Start","Duration","Name","Correlation_ID"', units="us,us,,"
    )
    trace = read_text(tmp_path, alone)
    assert trace.calls.select("name", "end_ns").rows() == [("cuInit", 2866)]
    assert [omission.id for omission in trace.omissions] == ["no-gpu-records"]


def test_units_are_those_of_the_table(tmp_path: Path) -> None:
    row = f'1.25,3,,,,,,,,,,2,1,"Pinned","Device",{GPU},"[CUDA memcpy HtoD]",1'
    for time, size, end_ns, count in (("ms", "MB", 3_000_000, 2 << 20), ("ns", "B", 3, 2)):
        trace = read_text(tmp_path, printed(row, units=f"{time},{time},,,,,,,,B,B,{size},GB/s,,,,,,,"))
        assert trace.operations.select("end_ns", "bytes").row(0) == (end_ns, count)
    trace = read_text(tmp_path, printed(row, units="s,ms,,,,,,,,B,B,GB,GB/s,,,,,,,"))
    assert trace.operations.select("end_ns", "bytes").row(0) == (3_000_000, 2 << 30)
    assert [omission.id for omission in trace.omissions] == ["coarse-times", "coarse-sizes", "no-calls"]
    trace = read_text(tmp_path, printed(row, units="h,h,,,,,,,,,,,,,,,,,,"))
    assert [omission.id for omission in trace.omissions] == ["untimed", "no-gpu-records"]


def test_older_tables_number_a_kernel_behind_its_name(tmp_path: Path) -> None:
    columns = '"Start","Duration","Grid X","Size","Device","Context","Stream","Name"'
    row = '1,2,8,,"GeForce GTX 680 (0)","1","2","k(int) [108]"'
    trace = read_text(tmp_path, printed(row, columns=columns, units="us,us,,KB,,,,"))
    assert trace.operations.select("name", "correlation").rows() == [("k(int)", 108)]


def test_managed_memory_and_peers(tmp_path: Path) -> None:
    columns = '"Start","Duration","Size","Device","Src Dev","Dst Dev","Unified Memory","Name"'
    trace = read_text(tmp_path, printed(
        '1,2,4,"T4 (0)","T4 (0)","T4 (3)",,"[CUDA memcpy PtoP]"',
        '3,2,,"T4 (0)",,,64.000000KB,"[Unified Memory Memcpy HtoD]"',
        '5,2,,"T4 (0)",,,7,"[Unified Memory GPU page faults]"',
        '7,2,1,"T4 (0)",,,,"[CUDA memcpy XtoY]"',
        columns=columns, units="us,us,KB,,,,,",
    ))  # fmt: skip
    assert trace.operations.select("kind", "direction", "bytes", "peer_device", "source_memory").rows() == [
        ("copy", "p2p", 4096, 3, None),
        ("migration", "h2d", 65536, None, "managed"),
        ("copy", None, 1024, None, None),
    ]
    assert {"managed-memory-events", "unknown-direction"} < {omission.id for omission in trace.omissions}


def test_each_process_has_its_table(tmp_path: Path) -> None:
    trace = read_text(tmp_path, printed(*ROWS, *CALLS) + printed(*ROWS, *CALLS).replace("==77==", "==78=="))
    assert trace.operations.group_by("process").len().sort("process").rows() == [(77, 4), (78, 4)]
    assert trace.calls["process"].unique().sort().to_list() == [77, 78]


def test_a_table_that_ends_in_the_middle(tmp_path: Path) -> None:
    trace = read_text(tmp_path, printed(*ROWS)[:-30])
    assert trace.operations.height == 3
    assert "truncated" in {omission.id for omission in trace.omissions}


SUMMARY = (
    ABOUT
    + "==77== Profiling result:\n Type  Time(%)  Time  Calls  Avg\n GPU activities:  41.38%  95.263us 1\n"
)
PLAIN = "======== Profiling result:\n   Start  Duration   Grid Size\n0.1ms 2us (1 1 1)\n"


@pytest.mark.parametrize("text", [SUMMARY, PLAIN, ABOUT, ABOUT.splitlines()[0] + "\n"])
def test_other_output_is_refused_with_what_to_give(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--csv --print-gpu-trace --print-api-trace"):
        read_text(tmp_path, text)
    assert may_be_trace(tmp_path / "trace.csv")


def test_tables_of_nsys_stats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nsys stats.*give the \.nsys-rep"):
        read_text(tmp_path, "Start (ns),Duration (ns),CorrId\n1,2,3\n")


def test_a_header_that_is_no_csv_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(printed(*ROWS, columns=COLUMNS + "\ra,b").encode())
    with pytest.raises(InputError, match="without a table"):
        read(tmp_path / "t")
