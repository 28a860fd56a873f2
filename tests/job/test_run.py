"""A whole job: read here or by processes, with bad, mutated and hostile files; what was read once is not read again unless
the file, the version or the question changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.errors import InputError
from busfare.jobs import run as run_module
from busfare.jobs.partial import Partial, partial_of
from busfare.jobs.parts import Part
from busfare.jobs.reduce import Job
from busfare.jobs.run import FILE, Outcome, decoded, do_part, keeping, run_job
from busfare.nodes import Node, load_node
from busfare.questions import Report
from busfare.show.job import job_document
from busfare.show.terminal import show
from busfare.trace import Trace
from tests.fuzz.corpus import CORPUS
from tests.fuzz.run import input_number
from tests.job.build_job import Noted, encoded, write_job, write_rank
from tests.job.test_parts import export
from tests.traces import as_json, copy, kernel, trace


def run(*paths: Path, jobs: int | None = None, progress: Noted | None = None) -> Job:
    return run_job(list(paths), None, Report(jobs=jobs), progress or Noted(), advised)


def test_the_planted_faults_are_named(tmp_path: Path) -> None:
    result = as_json(job_report(run(write_job(tmp_path, 8))))
    slowest = result["spread"][0]["largest"][0]
    assert (slowest["rank"], slowest["host"]) == (5, "node1")
    makespan = next(row for row in result["spread"] if row["figure"] == "makespan_seconds")
    assert [outlier["rank"] for outlier in makespan["outliers"]["listed"]] == [5]
    (slow,) = result["link_health"]["slow"]
    assert (slow["rank"], slow["host"], slow["direction"]) == (2, "node0", "h2d")
    assert slow["share_of_peers"] == pytest.approx(0.5)
    assert (result["hosts"], result["ranks_seen"]) == (2, 8)


def job_of(rank: Callable[[int], Trace], ranks: int) -> tuple[Job, list[Partial]]:
    job, parts = Job(), [partial_of(rank(n), Path(f"rank{n}"), advise=advised) for n in range(ranks)]
    for number, part in enumerate(parts):
        job.add(f"rank{number}", msgspec.json.decode(msgspec.json.encode(part), type=Partial))
    return job, parts


def test_a_gain_is_of_the_job_and_no_sum_over_its_ranks() -> None:
    def rank(number: int) -> Trace:
        # 64 MiB from pageable memory, of 16 ms and more where pinned memory takes a few.
        end = 16_000.0 + 1000 * number
        return trace(copy(0, end, 64 << 20, memory="pageable"), kernel(end, end + 1000), gpu="Tesla T4")

    job, parts = job_of(rank, 8)
    gains = [f.predicted_gain_seconds for part in parts for f in part.findings if f.id == "pageable-copies"]
    result = as_json(job_report(job))
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "pageable-copies"]
    assert (finding["traces"], finding["largest"]["path"]) == (8, "rank7")
    assert finding["predicted_gain_seconds"] == max(gains)
    assert finding["predicted_gain_seconds"] < result["makespan_seconds"]["most"]
    assert finding["overlaps_with"] == ["exposed-copies"]


def test_communication_of_ranks_is_apart_from_their_kernels() -> None:
    job, _ = job_of(lambda _: trace(kernel(0, 10), kernel(10, 40, "ncclDevKernel_SendRecv()")), 2)
    result = as_json(job_report(job))
    assert result["kernels"] == {"count": 2, "seconds": pytest.approx(20e-6)}
    assert result["communication"] == {"count": 2, "seconds": pytest.approx(60e-6)}
    spread = {row["figure"]: row["largest"][0]["value"] for row in result["spread"]}
    assert spread["communication_seconds"] == pytest.approx(30e-6)


@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_files_are_reported_and_skipped_and_hostile_names_do_no_harm(tmp_path: Path, jobs: int) -> None:
    write_job(tmp_path, 3)
    for name in (b"\x1b]0;owned\x07", b"<img src=x>", b"\xff\xfe", b"new\nline", b"--help"):
        write_rank(tmp_path / "a", None, None).rename(
            os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".json")
        )
    (tmp_path / "\x1b[2J.json").write_text("{")
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8b\x08\0torn")
    (tmp_path / "torn.sqlite").write_bytes(b"SQLite format 3\0")
    (tmp_path / "nothing.json").touch()
    (tmp_path / "run.nsys-rep").write_bytes(b"NSYS")
    (tmp_path / "notes.txt").write_text("no trace")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone.json").symlink_to(tmp_path / "not-there")
    result = msgspec.json.decode(encoded(run(tmp_path, jobs=jobs)))
    del result["traces"]["formats"]
    assert result["traces"] == {"read": 8, "failed": 6, "not_traces": 2}
    failures = {Path(failure["path"]).name: failure["why"] for failure in result["failures"]}
    assert "nsys export" in failures["run.nsys-rep"]
    assert "cannot be read" in failures["gone.json"]
    assert "empty" in failures["nothing.json"]
    assert {omission["id"] for omission in result["omissions"]} >= {"unreadable", "not-traces"}


def test_a_file_that_was_named_must_be_a_trace(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no trace")
    assert len(run(write_rank(tmp_path / "a.json"), notes).failures) == 1
    with pytest.raises(
        InputError, match=r"none of 1 files could be read; the first, .*notes.txt: not a trace"
    ):
        run(notes, jobs=1)


def test_a_folder_with_no_trace_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace found; the folder is empty"):
        run(tmp_path)
    (tmp_path / "notes.txt").write_text("no trace")
    with pytest.raises(InputError, match="none of the 1 files there is a trace"):
        run(tmp_path)


def test_a_file_that_vanishes_is_reported(tmp_path: Path) -> None:
    write_job(tmp_path, 4)
    job = run(tmp_path, progress=Noted(lambda _: (tmp_path / "trace-3.json").unlink(missing_ok=True)))
    assert (job.traces, len(job.failures)) == (3, 1)
    assert "No such file" in job.failures[0][1]


def test_a_closed_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path, 1)
    (tmp_path / "closed").mkdir()
    listed = os.scandir

    def scandir(path: str) -> object:  # for root, no folder is closed
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    job = run(tmp_path)
    assert (job.traces, len(job.failures)) == (1, 1)
    assert "cannot list the directory (Permission denied)" in job.failures[0][1]


@pytest.mark.parametrize(("made", "version"), [(Outcome("99"), "busfare 99"), ({}, "another busfare")])
def test_a_worker_of_another_version_is_refused(made: object, version: str) -> None:
    with pytest.raises(InputError, match=f"a worker runs {version}"):
        decoded(msgspec.json.encode(made))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"jobs": 0}, "from 1 to"),
        ({"jobs": 100_000}, "from 1 to"),
        ({"scheduler": "tcp://x:1", "jobs": 2}, "leave out `jobs`"),
    ],
)
def test_options_that_do_not_go_together_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Report.of(**how)


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


def resumed(folder: Path, kept: Path, node: Node | None = None) -> Job:
    return run_job([folder], node, Report(resume=kept), Noted())


def test_only_what_changed_or_came_is_read(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job"), tmp_path / "kept"
    first = encoded(resumed(folder, kept))
    assert len(read_paths) == 8
    assert encoded(resumed(folder, kept)) == first and len(read_paths) == 8
    read_paths.clear()
    write_rank(folder / "trace-3.json", 3, "node0", run_us=9999)
    write_rank(folder / "trace-9.json", 9, "node2")
    os.utime(folder / "trace-1.json", ns=(0, 12345))
    (folder / "trace-0.json").unlink()
    again = resumed(folder, kept)
    assert read_paths == ["trace-1.json", "trace-3.json", "trace-9.json"]
    assert encoded(again) == encoded(run_job([folder], None, Report(), Noted()))


def test_another_node_or_version_is_another_question(
    tmp_path: Path, read_paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = write_job(tmp_path / "job", 4), tmp_path / "kept"
    resumed(folder, kept)
    resumed(folder, kept, load_node("h100-sxm"))
    assert len(read_paths) == 8
    monkeypatch.setattr("busfare.jobs.run.__version__", "99")
    resumed(folder, kept)
    assert len(read_paths) == 12


def test_failures_are_tried_again(tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job", 2), tmp_path / "kept"
    (folder / "bad.json").write_text("[")
    for _ in range(2):
        assert len(resumed(folder, kept).failures) == 1
    assert (read_paths.count("bad.json"), read_paths.count("trace-0.json")) == (2, 1)


@pytest.mark.parametrize(
    ("damage", "by"),
    [
        ("torn in the middle", lambda text: text[: len(text) - 40]),
        ("not text", lambda text: b"\xff\xfe\n"),
        ("another object", lambda text: b"[]\n"),
        ("a partial of another shape", lambda text: text.replace(b'"format"', b'"formal"')),
    ],
)
def test_damaged_lines_cost_a_part(damage: str, by: object, tmp_path: Path, read_paths: list[str]) -> None:
    folder, kept = write_job(tmp_path / "job", 3), tmp_path / "kept"
    first = encoded(resumed(folder, kept))
    file = kept / FILE
    lines = [line for line in file.read_bytes().splitlines(keepends=True) if line.strip()]
    file.write_bytes(b"".join(lines[:2]) + by(lines[2]))  # type: ignore[operator]
    read_paths.clear()
    for _ in range(2):
        assert encoded(resumed(folder, kept)) == first
        assert read_paths == ["trace-2.json"]


def test_a_folder_in_use_or_that_is_none_is_refused(tmp_path: Path) -> None:
    with keeping(tmp_path), pytest.raises(InputError, match="another run"), keeping(tmp_path):
        pass
    with keeping(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be used to resume"), keeping(tmp_path / "file"):
        pass


def test_directories_are_recognised_by_their_files(tmp_path: Path, read_paths: list[str]) -> None:
    tables = export(tmp_path / "job" / "tables")
    write_rank(tmp_path / "job" / "a.json")
    for _ in range(2):
        resumed(tmp_path / "job", tmp_path / "kept")
        assert read_paths == ["a.json", "tables"]
    (tables / "StringIds.parquet").touch()
    resumed(tmp_path / "job", tmp_path / "kept")
    assert read_paths == ["a.json", "tables", "tables"]


SEED = 11


@pytest.mark.parametrize("reader", [reader for reader in CORPUS if reader != "node"])
def test_mutated_traces_are_reduced_or_reported(
    reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = CORPUS[reader](tmp_path / "corpus")
    job = Job()
    surprises = []
    for number in range(40):
        path = input_number(number, SEED, corpus, tmp_path)
        outcome = decoded(do_part(Part(str(path), True), None, advised))
        assert (outcome.partial is None) != (outcome.failure is None)
        if outcome.partial is not None:
            job.add(f"{number}", outcome.partial)
        elif "could not be reported" in (outcome.failure or ""):
            surprises.append(outcome.failure)
        else:
            job.failures.append((f"{number}", outcome.failure or ""))
    assert surprises == []
    assert job.traces and len(job.failures)
    assert encoded(job)
    show(job_document(job_report(job)))
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 160
