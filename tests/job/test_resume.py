"""What was done is not done again, unless the file, the version or the question changed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from busfare.errors import InputError, StoppedError
from busfare.job import How, Job, run_job
from busfare.job import run as run_module
from busfare.job.resume import FILE, Kept
from busfare.node import Node, load_node
from busfare.report.job_result import job_result
from tests.job.build_job import Told, write_job, write_rank


@pytest.fixture
def read_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, as they are."""
    read: list[str] = []
    do_part = run_module.do_part

    def noted(part: run_module.Part, node: Node | None) -> bytes:
        read.append(Path(part.path).name)
        return do_part(part, node)

    monkeypatch.setattr(run_module, "do_part", noted)
    return read


def run(folder: Path, kept: Path, node: Node | None = None) -> Job:
    return run_job([folder], node, How(resume=kept), Told())


def told(job: Job) -> bytes:
    return msgspec.json.encode(job_result(job))


def test_nothing_is_read_twice(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job"), tmp_path / "kept"
    first = told(run(folder, kept))
    assert len(read_paths) == 8
    assert told(run(folder, kept)) == first
    assert len(read_paths) == 8


def test_what_changed_or_came_is_read(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job"), tmp_path / "kept"
    run(folder, kept)
    read_paths.clear()
    write_rank(folder / "trace-3.json", 3, "node0", run_us=9999)
    write_rank(folder / "trace-9.json", 9, "node2")
    os.utime(folder / "trace-1.json", ns=(0, 12345))
    (folder / "trace-0.json").unlink()
    again = run(folder, kept)
    assert read_paths == ["trace-1.json", "trace-3.json", "trace-9.json"]
    assert told(again) == told(run_job([folder], None, How(), Told()))


def test_another_node_or_version_is_another_question(
    tmp_path: Path, read_paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = write_job(tmp_path / "job", 4), tmp_path / "kept"
    run(folder, kept)
    run(folder, kept, load_node("h100-sxm"))
    assert len(read_paths) == 8
    monkeypatch.setattr("busfare.job.resume.__version__", "99")
    run(folder, kept)
    assert len(read_paths) == 12


def test_failures_are_tried_again(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job", 2), tmp_path / "kept"
    (folder / "bad.json").write_text("[")
    for _ in range(2):
        assert run(folder, kept).failed == 1
    assert read_paths.count("bad.json") == 2
    assert read_paths.count("trace-0.json") == 1


@pytest.mark.parametrize("damage", [b'{"question": "torn', b"\xff\xfe\n", b"[]\n", b"\n"])
def test_a_damaged_line_costs_its_part_alone(tmp_path: Path, read_paths: list[str], damage: bytes) -> None:
    folder, kept = write_job(tmp_path / "job", 3), tmp_path / "kept"
    first = told(run(folder, kept))
    file = kept / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + damage + (b"" if not damage.endswith(b"\n") else lines[1]))
    read_paths.clear()
    assert told(run(folder, kept)) == first
    assert read_paths == (["trace-2.json"] if damage.endswith(b"\n") else ["trace-1.json", "trace-2.json"])
    read_paths.clear()
    run(folder, kept)
    assert read_paths == []


def test_a_partial_of_another_shape_is_read_again(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job", 1), tmp_path / "kept"
    first = told(run(folder, kept))
    file = kept / FILE
    file.write_bytes(file.read_bytes().replace(b'"makespan_ns"', b'"makespan_nt"'))
    assert told(run(folder, kept)) == first
    assert len(read_paths) == 2


def test_a_stopped_run_goes_on(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job"), tmp_path / "kept"

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match="after 3 of 8 files; the same command goes on"):
        run_job([folder], None, How(resume=kept), Told(stop))
    read_paths.clear()
    whole = told(run(folder, kept))
    assert len(read_paths) == 5
    assert whole == told(run_job([folder], None, How(), Told()))


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    with Kept(tmp_path, None), pytest.raises(InputError, match="another run"):
        Kept(tmp_path, None)
    with Kept(tmp_path, None):
        pass


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be used to resume"):
        Kept(tmp_path / "file", None)


def test_directories_are_known_by_their_files(tmp_path: Path, read_paths: list[str]) -> None:
    from tests.job.test_parts import export

    tables = export(tmp_path / "job" / "tables")
    write_rank(tmp_path / "job" / "a.json")
    run(tmp_path / "job", tmp_path / "kept")
    run(tmp_path / "job", tmp_path / "kept")
    assert read_paths == ["a.json", "tables"]
    os.utime(next(tables.glob("*.parquet")), ns=(0, 99))
    (tables / "StringIds.parquet").touch()
    run(tmp_path / "job", tmp_path / "kept")
    assert read_paths == ["a.json", "tables", "tables"]
