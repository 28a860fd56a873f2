"""Which traces paths, globs and folders name; the content decides what a directory is."""

import os
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.jobs import only_trace
from busfare.jobs.parts import find_parts, trace_paths
from busfare.trace.readers.recorded.file import MAGIC
from tests.job.build_job import write_rank
from tests.trace.build_directory import export_directory
from tests.trace.build_nsys import small_export
from tests.trace.build_rocprof import small_process, write_rocpd
from tests.trace.build_rocprof_files import small_csv, write_csv


def names(folder: Path, *paths: Path) -> list[str]:
    parts = find_parts(list(paths) or [folder])
    return [os.path.relpath(part.path, folder) for part in parts.parts]


def export(folder: Path) -> Path:
    """An export of nsys as a directory of Parquet tables."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sqlite = folder.with_suffix(".sqlite")
    small_export().write(sqlite)
    made = export_directory(sqlite, folder, ".parquet")
    sqlite.unlink()
    return made


def test_links_in_circles_and_second_names_are_seen_through(tmp_path: Path) -> None:
    file = write_rank(tmp_path / "a" / "one.json")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    (tmp_path / "second").symlink_to(file)
    os.link(file, tmp_path / "third")
    parts = find_parts([tmp_path, file, file])
    assert [Path(part.path).name for part in parts.parts] == ["self", "second"]
    assert parts.duplicates == 4


def test_a_run_in_two_forms_is_a_single_trace(tmp_path: Path) -> None:
    profiles = (
        "a.nsys-rep", "a.sqlite", "b.nsys-rep", "n1.xplane.pb", "n1.trace.json.gz", "n2.trace.json.gz",
    )  # fmt: skip
    for name in profiles:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "perfetto_trace.json.gz").write_bytes(b"x")
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "perfetto_trace.json.gz").write_bytes(b"x")
    parts = find_parts([tmp_path])
    kept = ["a.sqlite", "b.nsys-rep", "n1.xplane.pb", "n2.trace.json.gz", "z/perfetto_trace.json.gz"]
    assert [os.path.relpath(part.path, tmp_path) for part in parts.parts] == kept
    assert parts.duplicates == 3


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        (["results.csv", "results.db", "results.hip_stats.csv", "results.json"], ["results.db", "results.hip_stats.csv"]),
        (["1_results.db", "1_results.json", "1_results.pftrace", "1_kernel_trace.csv", "2_results.json"],
         ["1_results.db", "2_results.json"]),
        (["1_kernel_trace.csv", "1_results.json", "2_kernel_trace.csv", "2_results.pftrace"],
         ["1_results.json", "2_kernel_trace.csv"]),
        (["rank0.json", "rank1.json", "rank1.csv", "kernel_trace.csv"],
         ["kernel_trace.csv", "rank0.json", "rank1.csv", "rank1.json"]),
    ],
)  # fmt: skip
def test_an_amd_run_in_several_formats_is_a_trace(files: list[str], kept: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"x")
    parts = find_parts([tmp_path])
    assert [Path(part.path).name for part in parts.parts] == kept
    assert parts.duplicates == len(files) - len(kept)


def test_ten_thousand_paths_are_listed_in_order(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"{number:05}.json").touch()
    assert names(tmp_path) == [f"{number:05}.json" for number in range(10_000)]


def tree(folder: Path) -> Path:
    """A folder with traces of every kind: files, an export, recordings."""
    write_rank(folder / "a.json")
    write_rank(folder / "run[1].json")
    write_rank(folder / "b" / "deep" / "one.json")
    export(folder / "tables")
    (folder / "run").mkdir()
    for name in ("h-1.bf", "h-2.bf", "other.parquet"):
        (folder / "run" / name).write_bytes(MAGIC)
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("paths", "only"),
    [
        (["a.json"], "a.json"),
        (["tables"], "tables"),
        (["run"], "run"),
        (["not-there"], "not-there"),
        (["run[1].json"], "run[1].json"),  # there is a file of that very name
        (["a*.json"], "a.json"),
        (["*.json"], None),
        (["a.json", "run[1].json"], None),
        (["."], None),
        (["empty"], None),
    ],
)
def test_what_is_a_trace_and_what_a_job(tmp_path: Path, paths: list[str], only: str | None) -> None:
    folder = tree(tmp_path)
    assert only_trace([folder / path for path in paths]) == (None if only is None else folder / only)


def test_a_job_has_every_file_at_any_depth_and_a_directory_of_tables_as_a_trace(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    recordings = ["run/h-1.bf", "run/h-2.bf", "run/other.parquet"]
    assert names(folder) == ["a.json", "b/deep/one.json", *recordings, "run[1].json", "tables"]
    assert names(folder, folder / "**" / "*.json") == ["a.json", "b/deep/one.json", "run[1].json"]


def test_a_folder_of_rocprofv3_is_read_from_the_file_that_says_most(tmp_path: Path) -> None:
    write_csv(tmp_path, small_csv())
    assert only_trace([tmp_path]) == tmp_path
    database = write_rocpd(tmp_path / "3131_results.db", small_process())
    assert only_trace([tmp_path]) == database and trace_paths(tmp_path) == [database]
    # Of another process there is the CSV alone.
    write_csv(tmp_path, small_csv(), "77_")
    assert {"3131_results.db", "77_kernel_trace.csv"} <= {*names(tmp_path)}
    write_rocpd(tmp_path / "77_results.db", small_process("_0077", 77))
    listed = {*names(tmp_path)}
    assert only_trace([tmp_path]) is None and {"3131_results.db", "77_results.db"} <= listed
    assert not {"3131_kernel_trace.csv", "77_kernel_trace.csv"} & listed


@pytest.mark.parametrize("what", ["not-there", "*.nothing", "a\0b", "\x1b[31mred"])
def test_what_names_nothing_is_refused_in_plain_text(tmp_path: Path, what: str) -> None:
    with pytest.raises(InputError, match=r"check|usable") as refused:
        find_parts([tmp_path / what])
    assert str(refused.value).isprintable()
