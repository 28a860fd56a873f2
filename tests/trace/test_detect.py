"""A format is found from the content of a file; a package among the readers is all that a format needs."""

import bz2
import io
import lzma
import os
import socket
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import NoReturn

import pytest
from backports import zstd

from busfare.errors import InputError
from busfare.printable import printable
from busfare.show.words import text
from busfare.trace import is_trace_directory, may_be_trace, read, readers
from busfare.trace.readers import RecordAgain, compressed, formats, record_again
from busfare.trace.readers.compressed import unpack
from tests.trace.build_kineto import document, gzipped, small_events, write_kineto
from tests.trace.build_nsys import small_export
from tests.trace.build_nvprof import small_file
from tests.trace.build_rocprof import small_process, small_rpd, write_rocpd
from tests.trace.build_rocprof_files import (
    small_csv,
    small_json,
    write_csv,
    write_json,
    write_v1,
    write_v1_json,
)
from tests.trace.sqlite_file import write_sqlite

WRONG_NAMES = [
    "trace", "trace.sqlite", "trace.json", "trace.json.gz", "trace.nvvp", "trace.db", "trace.txt",
    "x.nsys-rep",
]  # fmt: skip


def refused(path: Path | str) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    message = str(error.value)
    assert message.startswith(printable(str(path)))
    assert "\n" not in message
    assert error.value.exit_status == 2
    return message


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_the_content_tells_the_format_and_the_name_does_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert read(small_export().write(path)).format == "nsys-sqlite"
    assert read(small_file().write(path)).format == "nvprof"
    assert read(write_rocpd(path, small_process())).format == "rocpd"
    assert read(small_rpd().write(path)).format == "rpd"
    assert read(write_v1(path)).format == "rocprof"
    assert read(write_v1_json(path)).format == "rocprof"
    assert read(write_json(path, small_json())).format == "rocprofv3-json"
    (write_csv(tmp_path / "of a process", small_csv()) / "3131_kernel_trace.csv").rename(path)
    assert read(path).format == "rocprof-csv"
    path.write_text(document(small_events()))
    assert read(path).format == "kineto"
    path.write_bytes(gzipped(document(small_events()).encode()))
    assert read(str(path)).format == "kineto"


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("trace.json", "{}")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "help"),
    [
        (b"just some text\n", "not a trace that busfare knows"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a trace that busfare knows"),
        (bytes(1000), "not a trace that busfare knows"),
        (zipped(), "unpack it"),
        (b"PAR1....PAR1", "give the directory"),
        (b"<?xml version='1.0'?><session/>", "only a session"),
        (b"\x28\xb5\x2f\xfd....", "cannot unpack"),
        (b"BZh91AY", "cannot unpack"),
        (b"\xfd7zXZ\0", "cannot unpack"),
        (gzipped(b""), "cannot unpack this gzip file"),
        (b"\x1f\x8b", "cannot unpack this gzip file"),
        (b"\x1f\x8b\x08\x00garbage after the header", "cannot unpack this gzip file"),
        (b"NVR\0....", "Nsight Compute report"),
        (b"ARROW1\0\0....", "give the directory"),
        (bytes(257) + b"ustar" + bytes(250), "a tar archive"),
        (gzipped(bytes(257) + b"ustar" + bytes(250)), "a tar archive"),
        (gzipped(b"NVR\0...."), "Nsight Compute report"),
        (gzipped(b"\x89PNG not a trace"), "not a trace that busfare knows"),
        (b"QDSTRM\0\0", "unfinished Nsight Systems capture"),
        (
            b"\n\x0b\x50\x02....",
            "a Perfetto trace, as written by rocprofv3 and ROCm Systems Profiler; record with `rocprofv3",
        ),
        (b"the program's\n==77== NVPROF is profiling process 77\n", "record with `nvprof -o run.nvprof ./app`"),
        (b'"Start","Duration","Grid X"\nus,us,\n', "the printed output of nvprof"),
        (b"======== Profiling result:\n   Start  Duration\n", "the printed output of nvprof"),
        (b"# CUDA_DEVICE 0 Tesla\nmethod=[ memcpyHtoD ]\n", "with `busfare record -o run.bf -- ./app`"),
        (b"Start (ns),Duration (ns),CorrId\n1,2,3\n", "give the .nsys-rep or .sqlite"),
        (b'{"traceEvents": [{"ph": "X", "cat": "gpu_op"}]}', "unitrace; record with `torch.profiler`"),
        (b'{"metadata": {"inspector_output_format_version": "v4.0"}}\n', "NCCL Inspector; record each rank"),
        (b'[{"pid": "CUDA functions", "ph": "X"}]', "PyTorch's older profiler"),
        (b"SQLite format 3\0" + bytes(84), "damaged or unreadable SQLite file"),
        (b"SQLite format 3", "not a trace that busfare knows"),
        (b"   \n", "not a trace that busfare knows"),
    ],
)  # fmt: skip
def test_files_that_are_no_traces_are_refused_with_the_fix(content: bytes, help: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(content)
    assert help in refused(tmp_path / "trace")


@pytest.mark.parametrize(
    ("name", "help"),
    [("run.otf2", "OTF2 of rocprofv3; record with `--output-format rocpd`"), ("run.ncu-rep", "Nsight Compute")],
)  # fmt: skip
def test_reports_without_a_mark_are_refused_by_name(name: str, help: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\0\1\2 anything")
    assert help in refused(tmp_path / name)
    (tmp_path / name).write_text(document(small_events()))
    assert read(tmp_path / name).format == "kineto"


def test_paths_and_databases_that_are_no_trace(tmp_path: Path) -> None:
    (tmp_path / "t.sqlite").touch()
    assert "the file is empty" in refused(tmp_path / "t.sqlite")
    assert "No such file" in refused(tmp_path / "absent.sqlite")
    assert "not a usable path" in refused(f"{tmp_path}/a\0b")
    assert "too long" in refused(tmp_path / ("x" * 5000))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in refused(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("x")
    assert "this folder has no trace tables; name a trace in it" in refused(tmp_path / "folder")
    mail = write_sqlite(tmp_path / "mail.sqlite", {"messages": ["id"], "StringIds": ["id"]}, {})
    assert "no trace tables" in refused(mail)


def test_a_link_to_a_trace_is_followed(tmp_path: Path) -> None:
    small_export().write(tmp_path / "export.sqlite")
    (tmp_path / "latest").symlink_to("export.sqlite")
    assert read(tmp_path / "latest").operations.height == 4


def test_pipes_sockets_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe or device" in refused(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert "a pipe or device" in refused(tmp_path / "socket")
    assert "a pipe or device" in refused(Path(os.devnull))


def test_an_unreadable_file_is_refused_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text(document(small_events()))

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", forbidden)  # file modes do not bind the super-user
    assert "Permission denied" in refused(path)


def test_what_may_be_a_trace_is_seen_in_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    marks = (b"QDSTRM", b"\xef\xbb\xbf [", b"NVIDIA Tegra Profiler Report 1.")
    for content in (document(small_events()).encode(), gzipped(b"{}"), *marks, zipped()):
        path.write_bytes(content)
        assert may_be_trace(path), content
    assert may_be_trace(small_export().write(path))
    for content in (b"just text", b"\x89PNG\r\n", b""):
        path.write_bytes(content)
        assert not may_be_trace(path), content
    (tmp_path / "nothing.sqlite").touch()
    assert may_be_trace(tmp_path / "nothing.sqlite")
    os.mkfifo(tmp_path / "pipe.json")
    assert not may_be_trace(tmp_path / "pipe.json")


def write_small(path: Path) -> Path:
    return write_kineto(path, small_events())


PACKERS = {".gz": gzipped, ".zst": zstd.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_packed_traces_leave_no_files(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    plain, pack = tmp_path / "plain", PACKERS[suffix]
    for write in (small_export().write, small_rpd().write, small_file().write, write_small):
        write(plain)
        wanted = read(plain)
        packed = tmp_path / f"run{suffix}"
        packed.write_bytes(pack(plain.read_bytes()))
        plain.unlink()
        trace = read(packed)
        assert trace.operations.equals(wanted.operations) and trace.calls.equals(wanted.calls)
        assert (trace.path, trace.format) == (packed, wanted.format)
        assert may_be_trace(packed)
        packed.write_bytes(pack(bytes(100_000)))
        assert "not a trace that busfare knows" in refused(packed)
        packed.unlink()
    packed = tmp_path / "cut.sqlite.gz"
    with closing(sqlite3.connect(small_export().write(plain))) as database:
        database.executescript("CREATE TABLE B AS SELECT randomblob(2097152) AS b;")
    whole = pack(plain.read_bytes())
    packed.write_bytes(whole[: len(whole) // 2])
    assert "the compressed file is truncated" in refused(packed)
    packed.write_bytes(pack(b"SQLite format 3\0" + bytes(84)))
    assert "damaged or unreadable SQLite file" in refused(packed)
    plain.unlink()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["cut.sqlite.gz", "elsewhere"]


def test_a_copy_that_does_not_fit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_export().write(tmp_path / "plain")
    (tmp_path / "run.sqlite.gz").write_bytes(gzipped((tmp_path / "plain").read_bytes()))

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("busfare.trace.readers.compressed.unpack", full)
    assert "No space left on device); make room" in refused(tmp_path / "run.sqlite.gz")


@pytest.mark.parametrize(
    ("script", "suffix", "kernels"),
    [
        # Committed, but not yet moved into the file: it counts.
        ("PRAGMA journal_mode = WAL; DELETE FROM {0} WHERE rowid > 100;", "-wal", 100),
        # Half of a change that was never committed lies in the file already: it does not.
        (
            "PRAGMA cache_size = 1; BEGIN; UPDATE {0} SET start = 1, end = 2; DELETE FROM {0} WHERE rowid > 100;",
            "-journal",
            3001,
        ),
    ],
)
def test_what_a_killed_writer_left_is_undone(script: str, suffix: str, kernels: int, tmp_path: Path) -> None:
    export = small_export()
    for number in range(3000):
        export.kernel("more", 1000 + 10 * number, 1005 + 10 * number, 100 + number)
    path = export.write(tmp_path / "run.sqlite")
    whole = read(path).operations.filter(kind="kernel")
    left = tmp_path / "left"
    left.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript(script.format("CUPTI_ACTIVITY_KIND_KERNEL"))
        for name in ("run.sqlite", f"run.sqlite{suffix}"):
            (left / name).write_bytes((tmp_path / name).read_bytes())
    before = {file: file.read_bytes() for file in left.iterdir()}
    (tmp_path / "link").symlink_to(left / "run.sqlite")
    for given in (left / "run.sqlite", tmp_path / "link"):
        recorded = read(given).operations.filter(kind="kernel")
        assert recorded.height == kernels
        assert recorded["end_ns"].to_list() == whole["end_ns"].to_list()[:kernels]
    assert {file: file.read_bytes() for file in left.iterdir()} == before


PACKAGE = '''
    """A profiler that only this test has."""

    import re

    from busfare.trace.model import Trace
    from busfare.trace.omissions import omission
    from busfare.trace.readers import Format, RecordAgain, Source
    from busfare.trace.tables import CALLS, DEVICES, EVENTS, MARKERS, OPERATIONS, STREAMS, empty


    def _read(source: Source) -> Trace:
        with source.unpacked() as place:
            producer = (place / "content" if place.is_dir() else place).read_text().split()[1]
        return Trace(
            path=source.path, format="lines", producer=producer, operations=empty(OPERATIONS), calls=empty(CALLS),
            events=empty(EVENTS), markers=empty(MARKERS), devices=empty(DEVICES), streams=empty(STREAMS),
            omissions=[omission("blots", 2, ink="red")],
        )


    FORMATS = (
        Format(
            name="lines",
            title="Lines (.lines)",
            read=_read,
            begins=re.compile(b"LINES "),
            directory=lambda path: (path / "content").is_file(),
            suffixes=(".lines",),
            record_again=RecordAgain(gpu="`lines --gpu`"),
            sentences={"blots": "blots of {ink} ink: skipped"},
        ),
    )
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `lines` among the readers."""
    package = tmp_path / "more" / "lines"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(PACKAGE))
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(package.parent)])
    formats.cache_clear()
    yield
    formats.cache_clear()
    sys.modules.pop("busfare.trace.readers.lines", None)


@pytest.mark.usefixtures("added")
def test_a_package_is_all_that_a_format_needs(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("LINES 7.1")
    trace = read(path)
    assert (trace.format, trace.producer) == ("lines", "7.1")
    expected = [("blots", "blots of red ink: skipped"), ("no-gpu-records", "record with `lines --gpu`")]
    assert [(o.id, text(o.what).rpartition("; ")[2]) for o in trace.omissions] == expected
    assert may_be_trace(path)
    (tmp_path / "empty.lines").touch()
    assert may_be_trace(tmp_path / "empty.lines")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not is_trace_directory(folder)
    path.rename(folder / "content")
    assert is_trace_directory(folder) and read(folder).format == "lines"
    path.write_text("something else")
    with pytest.raises(InputError, match=r"it reads .*Lines \(\.lines\), "):
        read(path)


def test_formats_are_declared_in_order_with_ways_to_record_again() -> None:
    names = [format.name for format in formats()]
    assert names == [
        "kineto", "nsys-sqlite", "nsys-directory", "nvprof", "recorded", "rocpd", "rpd", "rocprofv3-json", "rocprof-csv",
        "rocprof", "xla", "xla",
    ]  # fmt: skip
    assert [format.name for format in formats() if format.any_json] == ["kineto"]
    assert record_again("nsys-directory").allocations == "nsys --cuda-memory-usage=true"
    assert record_again("of a job") == RecordAgain()


@pytest.mark.parametrize(
    ("text", "tool", "command"),
    [
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n50.0,9,1,9.0,f(int)\n", "`nsys stats`", "nsys profile"),
        ('"Time(%)","Total Time (ns)","Num Calls","Name"\n', "`nsys stats`", "nsys profile"),
        ("Total (MB),Count,Avg (MB),Operation\n", "`nsys stats`", "nsys profile"),
        ("Time(%),Time,Calls,Avg,Min,Max,Name\n47.79%,542.36ms,45,12.1ms,12.0ms,12.1ms,f\n", "nvprof", "nvprof -o"),
        ('"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n', "nvprof", "nvprof -o"),
    ],
)  # fmt: skip
def test_a_summary_is_named_and_how_to_record(text: str, tool: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "sums.csv").write_text(text)
    message = refused(tmp_path / "sums.csv")
    assert f"summary of {tool}" in message and f"record with `{command}" in message


def test_of_a_compressed_database_pages_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = written_export(tmp_path).read_bytes()
    path = tmp_path / "padded.sqlite.zst"
    path.write_bytes(zstd.compress(content + bytes(50 << 20)))
    sizes = []

    def noted(packed: Path, place: Path) -> None:
        unpack(packed, place)
        sizes.append(place.stat().st_size)

    monkeypatch.setattr(compressed, "unpack", noted)
    assert read(path).operations.equals(read(tmp_path / "t.sqlite").operations)
    assert sizes == [len(content)]


@pytest.mark.parametrize("beginning", [b"SQLite format 3\0" + bytes(84), b'{"traceEvents": [' + b" " * 99])
def test_packed_bombs_are_refused(beginning: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstd.compress(beginning + b" " * (8 << 20)))
    monkeypatch.setattr(compressed, "ANY_SIZE", 1 << 20)
    message = refused(path)
    assert "unpacks to more than 200 times its size" in message and "BUSFARE_MOST_GROWTH" in message
    monkeypatch.setenv("BUSFARE_MOST_GROWTH", "1000000")
    assert "unpacks to more" not in refused(path)


def written_export(folder: Path) -> Path:
    return small_export().write(folder / "t.sqlite")
