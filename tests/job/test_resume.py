"""What was done is not done again, unless the file, the version or the question changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.jobs import How
from busfare.jobs import run as run_module
from busfare.jobs.reduce import Job
from busfare.jobs.run import FILE, keeping, run_job
from busfare.nodes import Node, load_node
from tests.job.build_job import Noted, encoded, write_job, write_rank
from tests.job.test_parts import export


@pytest.fixture
def read_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, as they are."""
    read: list[str] = []
    do_part = run_module.do_part

    def noted(part: run_module.Part, *arguments: object, **options: object) -> bytes:
        read.append(Path(part.path).name)
        return do_part(part, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "do_part", noted)
    return read


def run(folder: Path, kept: Path, node: Node | None = None) -> Job:
    return run_job([folder], node, How(resume=kept), Noted())


def test_only_what_changed_or_came_is_read(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job"), tmp_path / "kept"
    first = encoded(run(folder, kept))
    assert len(read_paths) == 8
    assert encoded(run(folder, kept)) == first and len(read_paths) == 8
    read_paths.clear()
    write_rank(folder / "trace-3.json", 3, "node0", run_us=9999)
    write_rank(folder / "trace-9.json", 9, "node2")
    os.utime(folder / "trace-1.json", ns=(0, 12345))
    (folder / "trace-0.json").unlink()
    again = run(folder, kept)
    assert read_paths == ["trace-1.json", "trace-3.json", "trace-9.json"]
    assert encoded(again) == encoded(run_job([folder], None, How(), Noted()))


def test_another_node_or_version_is_another_question(
    tmp_path: Path, read_paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = write_job(tmp_path / "job", 4), tmp_path / "kept"
    run(folder, kept)
    run(folder, kept, load_node("h100-sxm"))
    assert len(read_paths) == 8
    monkeypatch.setattr("busfare.jobs.run.__version__", "99")
    run(folder, kept)
    assert len(read_paths) == 12


def test_failures_are_tried_again(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job", 2), tmp_path / "kept"
    (folder / "bad.json").write_text("[")
    for _ in range(2):
        assert len(run(folder, kept).failures) == 1
    assert (read_paths.count("bad.json"), read_paths.count("trace-0.json")) == (2, 1)


@pytest.mark.parametrize(
    ("damage", "by"),
    [
        ("torn in the middle", lambda text: text[: len(text) - 40]),
        ("no text", lambda text: b"\xff\xfe\n"),
        ("another object", lambda text: b"[]\n"),
        ("a partial of another shape", lambda text: text.replace(b'"format"', b'"formal"')),
    ],
)
def test_a_damaged_line_costs_its_part_alone(
    damage: str, by: object, tmp_path: Path, read_paths: list[str]
) -> None:
    folder, kept = write_job(tmp_path / "job", 3), tmp_path / "kept"
    first = encoded(run(folder, kept))
    file = kept / FILE
    lines = [line for line in file.read_bytes().splitlines(keepends=True) if line.strip()]
    file.write_bytes(b"".join(lines[:2]) + by(lines[2]))  # type: ignore[operator]
    read_paths.clear()
    for _ in range(2):
        assert encoded(run(folder, kept)) == first
        assert read_paths == ["trace-2.json"]


def test_a_folder_in_use_or_that_is_none_is_refused(tmp_path: Path) -> None:
    with keeping(tmp_path), pytest.raises(InputError, match="another run"), keeping(tmp_path):
        pass
    with keeping(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be used to resume"), keeping(tmp_path / "file"):
        pass


def test_directories_are_known_by_their_files(tmp_path: Path, read_paths: list[str]) -> None:
    tables = export(tmp_path / "job" / "tables")
    write_rank(tmp_path / "job" / "a.json")
    for _ in range(2):
        run(tmp_path / "job", tmp_path / "kept")
        assert read_paths == ["a.json", "tables"]
    (tables / "StringIds.parquet").touch()
    run(tmp_path / "job", tmp_path / "kept")
    assert read_paths == ["a.json", "tables", "tables"]
