"""Which traces paths, globs and folders name; the content decides what a directory is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.job import one_trace
from busfare.job.parts import find_parts
from busfare.trace.readers.recorded.files import MAGIC
from tests.job.build_job import write_rank
from tests.trace.build_directory import export_directory
from tests.trace.build_nsys import small_export


def names(folder: Path, *paths: Path) -> list[str]:
    found = find_parts(list(paths) or [folder])
    return [os.path.relpath(part.path, folder) for part in found.parts]


def export(folder: Path) -> Path:
    """An export of nsys as a directory of Parquet tables."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sqlite = folder.with_suffix(".sqlite")
    small_export().write(sqlite)
    made = export_directory(sqlite, folder, ".parquet")
    sqlite.unlink()
    return made


def test_a_file_and_an_export_and_a_folder_of_recordings_are_one_trace_each(tmp_path: Path) -> None:
    file = write_rank(tmp_path / "a.json")
    tables = export(tmp_path / "tables")
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "host-1.bf").write_bytes(MAGIC)
    for path in (file, tables, tmp_path / "recordings", tmp_path / "not-there"):
        assert one_trace([path]) == path


def test_several_paths_and_other_folders_are_a_job(tmp_path: Path) -> None:
    first, second = write_rank(tmp_path / "a.json"), write_rank(tmp_path / "b.json")
    assert one_trace([first, second]) is None
    assert one_trace([tmp_path]) is None
    (tmp_path / "empty").mkdir()
    assert one_trace([tmp_path / "empty"]) is None


def test_a_glob_with_one_match_is_that_file(tmp_path: Path) -> None:
    file = write_rank(tmp_path / "a.json")
    assert one_trace([tmp_path / "*.json"]) == file
    write_rank(tmp_path / "b.json")
    assert one_trace([tmp_path / "*.json"]) is None


def test_a_name_with_brackets_that_is_there_is_no_glob(tmp_path: Path) -> None:
    file = write_rank(tmp_path / "run[1].json")
    assert one_trace([file]) == file


def test_folders_are_searched_all_the_way_down(tmp_path: Path) -> None:
    write_rank(tmp_path / "b" / "deep" / "one.json")
    write_rank(tmp_path / "a.json")
    export(tmp_path / "tables")
    assert names(tmp_path) == ["a.json", "b/deep/one.json", "tables"]


def test_in_a_job_each_recording_is_a_part(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("h-1.bf", "h-2.bf", "other.parquet"):
        (tmp_path / "run" / name).write_bytes(MAGIC)
    assert names(tmp_path) == ["run/h-1.bf", "run/h-2.bf", "run/other.parquet"]


def test_globs_match_through_folders(tmp_path: Path) -> None:
    write_rank(tmp_path / "x" / "y" / "one.json")
    write_rank(tmp_path / "two.json")
    assert names(tmp_path, tmp_path / "**" / "*.json") == ["two.json", "x/y/one.json"]


def test_links_in_circles_and_second_names_are_seen_through(tmp_path: Path) -> None:
    file = write_rank(tmp_path / "a" / "one.json")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    (tmp_path / "second").symlink_to(file)
    os.link(file, tmp_path / "third")
    found = find_parts([tmp_path, file, file])
    assert [Path(part.path).name for part in found.parts] == ["self", "second"]
    assert found.duplicates == 4


@pytest.mark.parametrize("what", ["not-there", "*.nothing", "a\0b"])
def test_what_names_nothing_is_encoded(tmp_path: Path, what: str) -> None:
    with pytest.raises(InputError, match=r"check|usable"):
        find_parts([tmp_path / what])


def test_a_name_that_a_terminal_would_obey_is_told_as_text(tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        find_parts([tmp_path / "\x1b[31mred"])
    assert str(told.value).isprintable()


def test_ten_thousand_paths_are_found_in_order(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"{number:05}.json").touch()
    assert names(tmp_path) == [f"{number:05}.json" for number in range(10_000)]
