"""Tables in directories of Parquet and Arrow files, and tables of any kind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import Trace, read
from busfare.trace.readers.tables import DirectoryTables
from tests.trace.build_directory import export_directory
from tests.trace.build_nsys import KERNEL, MEMCPY, NONE_32, VERSIONS, NsysExport, global_pid, small_export
from tests.trace.build_nvprof import PREFIX, small_file
from tests.trace.build_rocprof import small_process, small_rpd, write_rocpd

SUFFIXES = [".parquet", ".arrow"]
INT = pl.Int64()


def same(left: Trace, right: Trace) -> None:
    for table in ("operations", "calls", "events", "markers", "devices", "streams"):
        ours, theirs = getattr(left, table), getattr(right, table)
        assert ours.schema == theirs.schema, table
        assert ours.rows() == theirs.rows(), table
    assert left.omissions == right.omissions
    assert left.producer == right.producer
    assert left.host == right.host


def exported(folder: Path, suffix: str = ".parquet") -> Path:
    """A small export as a directory of tables."""
    return export_directory(small_export().write(folder / "export.sqlite"), folder / "tables", suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("generation", VERSIONS)
def test_a_directory_gives_the_trace_of_its_export(generation: str, suffix: str, tmp_path: Path) -> None:
    export = small_export(generation)
    export.call("cudaEventRecord_v3020", 700, 705, 6)
    export.record(4, 13, 6)
    export.call("cudaStreamWaitEvent_v3020", 710, 715, 7)
    export.wait(3, 711, 714, 7, streamId=14, eventId=4)
    export.call("cudaStreamSynchronize_v3020", 720, 750, 8)
    export.wait(3, 721, 749, 8, streamId=14)
    export.add("TARGET_INFO_CUDA_STREAM", streamId=14, processId=71, contextId=1, priority=4294967291, flag=2)
    export.kernel("of another machine", 800, 900, globalPid=global_pid(71, 0xFFFF))
    export.copy(1, (1, 2), 1, 910, 920, streamId=NONE_32)
    file = export.write(tmp_path / "export.sqlite")
    directory = read(export_directory(file, tmp_path / "tables", suffix))
    same(directory, read(file))
    assert directory.format == "nsys-directory"
    assert directory.operations.height == 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_a_missing_table(suffix: str, tmp_path: Path) -> None:
    folder = exported(tmp_path, suffix)
    (folder / f"{KERNEL}{suffix}").unlink()
    assert sorted(read(folder).operations["kind"].to_list()) == ["copy", "copy", "set"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"ARROW1\0\0", b"PAR1" + bytes(100) + b"PAR1", b"\xff" * 64]
)
def test_a_damaged_file_is_named(suffix: str, content: bytes, tmp_path: Path) -> None:
    folder = exported(tmp_path, suffix)
    (folder / f"{MEMCPY}{suffix}").write_bytes(content)
    with pytest.raises(InputError, match=MEMCPY) as refused:
        read(folder)
    assert "\n" not in str(refused.value)


def test_a_panic_of_polars_is_a_single_line_and_nothing_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = exported(tmp_path)

    def panics(*_: object, **__: object) -> None:
        os.write(2, b"thread panicked\n")
        raise pl.exceptions.PanicException("index out of bounds")

    with monkeypatch.context() as patched:
        patched.setattr(pl, "read_parquet", panics)
        with pytest.raises(InputError, match=r"damaged and unreadable \(index out of bounds\)"):
            read(folder)
    assert capfd.readouterr().err == ""


def test_what_libraries_print_while_a_table_is_read_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = exported(tmp_path)
    schema_of = pl.read_parquet_schema

    def talks(file: Path) -> object:
        os.write(2, b"a warning\n")
        return schema_of(file)

    monkeypatch.setattr(pl, "read_parquet_schema", talks)
    DirectoryTables(folder).columns(MEMCPY)
    assert capfd.readouterr().err == "a warning\n"


def test_files_and_folders_that_are_no_tables_are_ignored(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    (folder / "notes.txt").write_text("mine")
    (folder / "NVTX_EVENTS.parquet").unlink()
    (folder / "NVTX_EVENTS.parquet").mkdir()
    trace = read(folder)
    assert trace.operations.height == 4
    assert trace.markers.is_empty()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 3], pa.int8()), [1, None, 3]),
        (pa.array([4294967295, 0, 1], pa.uint32()), [4294967295, 0, 1]),
        (pa.array([(1 << 64) - 1, 5, None], pa.uint64()), [-1, 5, None]),
        (pa.array([1.5, 2.0, None], pa.float64()), [None, None, None]),
        (pa.array(["1", "x", None], pa.string()), [None, None, None]),
        (pa.array([True, False, None], pa.bool_()), [None, None, None]),
        (pa.array([[1], [2, 3], None], pa.list_(pa.int64())), [None, None, None]),
        (pa.nulls(3), [None, None, None]),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_integers_of_any_width_and_nothing_else(
    values: pa.Array, expected: list[int | None], suffix: str, tmp_path: Path
) -> None:
    frame = columns_of(tmp_path, suffix, {"start": values}, {"start": INT, "absent": INT})
    assert frame["start"].to_list() == expected
    assert frame["absent"].to_list() == [None, None, None]


def columns_of(
    folder: Path, suffix: str, columns: dict[str, pa.Array], wanted: dict[str, Any]
) -> pl.DataFrame:
    """What is read of a table with these columns."""
    table, path = pa.table(columns), folder / f"T{suffix}"
    parquet.write_table(table, path) if suffix == ".parquet" else feather.write_feather(table, path)
    return DirectoryTables(folder).read("T", wanted)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_may_be_dictionary_encoded(suffix: str, tmp_path: Path) -> None:
    columns = {"value": pa.array(["a", "b", "a"]).dictionary_encode(), "number": pa.array([1, 2, 3])}
    frame = columns_of(tmp_path, suffix, columns, {"value": pl.String(), "number": pl.String()})
    assert frame["value"].to_list() == ["a", "b", "a"]
    assert frame["number"].to_list() == [None, None, None]


def nsys(generation: str) -> NsysExport:
    export = small_export(generation)
    export.record(4, 13, 1)
    export.call("cuModuleGetLoadingMode", 60, 61, 9)
    export.allocation(70, 16384)
    export.add("TARGET_INFO_GPU", vmId=0, name="GPU", busLocation="0000:01:00.0")
    export.rows["StringIds"] = [{"id": id, "value": text} for text, id in export.strings.items()]
    export.strings.clear()
    return export


#: What makes a small file of each, how it is written, and how many operations it has.
MADE: dict[str, tuple[Callable[[], Any], Callable[[Path, Any], Path], int]] = {
    "nsys-2021": (lambda: nsys("2021"), lambda path, made: made.write(path), 4),
    "nsys-2025": (lambda: nsys("2025.1"), lambda path, made: made.write(path), 4),
    "nvprof": (small_file, lambda path, made: made.write(path), 4),
    "rocpd-3": (small_process, write_rocpd, 3),
    "rocpd-4": (lambda: small_process(schema=4), write_rocpd, 3),
    "rocpd-4.1": (lambda: small_process(schema=41), write_rocpd, 3),
    "rpd": (small_rpd, lambda path, made: made.write(path), 4),
}
#: Tables that hold operations, and how many; and those by which a format is known.
OPERATIONS = {KERNEL: 1, MEMCPY: 2, "CUPTI_ACTIVITY_KIND_MEMSET": 1, PREFIX + "CONCURRENT_KERNEL": 1}
OPERATIONS |= {"rocpd_memory_copy": 2, "rocpd_kernel_dispatch": 1}
DETECTED_BY = {
    "StringIds", "StringTable", "Version", "rocpd_op", "rocpd_api", "rocpd_string", "rocpd_kernel_dispatch",
}  # fmt: skip
NEWER = {"nsys-2021": "nsys-2025", "rocpd-3": "rocpd-4", "rocpd-4": "rocpd-4.1"}
NOT_DETECTED_BY = {("rocpd-3", "rocpd_string"), ("rocpd-4", "rocpd_string")}


@pytest.mark.parametrize("format", MADE)
def test_any_table_and_any_column_may_be_missing(format: str, tmp_path: Path) -> None:
    make, write, operations = MADE[format]
    tested = MADE[NEWER[format]][0]().columns if format in NEWER else {}
    for table, every in make().columns.items():
        columns = [column for column in every if column not in tested.get(table, ())]
        if table in ("StringTable", "Version"):  # by which nvprof's files are known
            continue
        detected_by = table in DETECTED_BY and (format, table) not in NOT_DETECTED_BY
        for column in [*(columns if len(every) > 1 else []), *([] if detected_by else [None])]:
            made = make()
            made.without(table, column)
            trace = read(write(tmp_path / "file", made), launches=True)
            wordings = [(text(omission.what), omission.count) for omission in trace.omissions]
            untimed = sum(count for words, count in wordings if words.startswith("GPU operations without"))
            lost = OPERATIONS.get(table, 0) if column is None else 0
            assert trace.operations.height + untimed >= operations - lost, (table, column)
