"""A whole job: read here or by processes, with bad, mutated and hostile files."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.errors import InputError, StoppedError
from busfare.jobs import run as run_module
from busfare.jobs.partial import Partial, partial_of
from busfare.jobs.parts import Part
from busfare.jobs.reduce import Job
from busfare.jobs.run import Outcome, decoded, do_part, run_job
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
        path = os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".json")
        write_rank(tmp_path / "a", None, None).rename(path)
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
    with pytest.raises(InputError, match="no trace found; files that are not traces: 1"):
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


def test_a_directory_of_tables_is_read_as_a_trace(tmp_path: Path, read_paths: list[str]) -> None:
    export(tmp_path / "job" / "tables")
    write_rank(tmp_path / "job" / "a.json")
    run(tmp_path / "job")
    assert read_paths == ["a.json", "tables"]


def test_a_stopped_job_says_how_far_it_came(tmp_path: Path) -> None:
    write_job(tmp_path, 8)

    def stop(done: int) -> None:
        if done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StoppedError, match=r"^stopped after 3 of 8 files$"):
        run(tmp_path, progress=Noted(stop))


SEED = 11


@pytest.mark.parametrize("reader", [reader for reader in CORPUS if reader != "node"])
def test_mutated_traces_are_reduced_or_reported(
    reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = CORPUS[reader](tmp_path / "corpus")
    job = Job()
    surprises = []
    for number in range(20):
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
