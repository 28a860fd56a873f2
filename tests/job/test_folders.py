"""Folders that hold more than the traces of one job: files that cannot be read, and traces that nothing ties together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import busfare
from busfare import api
from busfare.cli import app
from busfare.errors import InputError
from busfare.trace.readers.recorded.file import HEADER, HEADER_BYTES, MAGIC, VERSION
from tests.job.kineto_job import write_ranks
from tests.traces import EXAMPLES

COMPUTE = [[800.0, 900.0]] * 3
CUT = b'{"schemaVersion": 1, "deviceProperties": [], "trace'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The traces of three ranks, and two files that end too early."""
    write_ranks(tmp_path / "job", COMPUTE, copy_us=300.0)
    for name in ("bad.json", "worse.json"):
        (tmp_path / "job" / name).write_bytes(CUT)
    return tmp_path / "job"


@pytest.mark.parametrize(
    ("least", "fit"), [(6, None), (1, None), (1, 3)], ids=["few", "many", "some do not fit"]
)
def test_what_if_names_what_it_left_out(
    folder: Path, least: int, fit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "LEAST_RANKS", least)
    monkeypatch.setattr(api, "ranks_that_fit", lambda _sample, _paths: fit)
    done = run("what-if", str(folder), "--remove", "h2d", "--json")
    assert done.exception is None
    omissions = {row["id"]: row for row in json.loads(done.stdout)["omissions"]}
    assert omissions["unreadable"]["count"] == 2
    assert omissions["unreadable"]["what"].startswith(
        f"files could not be read: skipped ({folder / 'bad.json'}: "
    )
    (folder / "worse.json").unlink()
    shown = run("what-if", str(folder), "--remove", "h2d").stdout
    assert "unreadable (1×): file could not be read: skipped" in " ".join(shown.split())


def test_a_folder_of_nothing_readable_is_an_error(folder: Path) -> None:
    for rank in range(3):
        (folder / f"rank{rank}.json.gz").unlink()
    for arguments in (("report",), ("what-if", "--remove", "h2d"), ("export", "--to", "chakra", "-o", "out")):
        done = run(arguments[0], str(folder), *arguments[1:])
        assert isinstance(done.exception, InputError) and done.exception.exit_status == 2
        assert f"none of 2 files could be read; the first, {folder / 'bad.json'}: " in str(done.exception)


def test_chakra_gets_the_ranks_that_can_be_read(folder: Path, tmp_path: Path) -> None:
    done = run("export", str(folder), "--to", "chakra", "-o", str(tmp_path / "out"))
    assert done.exception is None
    assert done.stderr.startswith("busfare: 2 files could not be read: skipped (")
    assert {file.name for file in (tmp_path / "out").glob("*.et")} == {f"rank.{n}.et" for n in range(3)}


def test_a_recording_that_ends_in_its_header_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "whole.bf").write_bytes(HEADER.pack(MAGIC, VERSION, HEADER_BYTES, 7, 0, 0, 0))
    (tmp_path / "empty.bf").write_bytes(MAGIC)
    (unreadable,) = (o for o in busfare.read(tmp_path).omissions if o.id == "unreadable")
    assert unreadable.count == 1 and "ends inside its header" in unreadable.what
    (tmp_path / "whole.bf").unlink()
    with pytest.raises(InputError, match="ends inside its header"):
        busfare.read(tmp_path)


def test_traces_that_nothing_ties_together_are_named(tmp_path: Path) -> None:
    def unrelated() -> int:
        rows = json.loads(run("report", str(tmp_path / "job"), "--json").stdout)["omissions"]
        return sum(row["count"] for row in rows if row["id"] == "unrelated-traces")

    for name in ("smooth-out-of-core-h100", "train-images-h100"):
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"{name}.json.gz").write_bytes((EXAMPLES / f"{name}.json.gz").read_bytes())
    assert unrelated() == 2
    for name in ("smooth-out-of-core-h100", "train-images-h100"):
        (tmp_path / "job" / f"{name}.json.gz").unlink()
    write_ranks(tmp_path / "job", COMPUTE)
    assert unrelated() == 0


@pytest.mark.parametrize(("later_s", "separate"), [(0.0, 0), (60.0, 1)])
def test_two_runs_of_a_rank_are_not_ranks_of_a_job(tmp_path: Path, later_s: float, separate: int) -> None:
    """The same process at the same time, as two windows may be, or a minute later."""
    for name, after_s in (("before", 0.0), ("after", later_s)):
        events = [
            {
                "ph": "X", "name": "work", "cat": category, "pid": process, "tid": 7, "dur": 60 + after_s,
                "ts": 1000 + number * 100 + after_s * 1e6, "args": {"correlation": number, "device": 0, "stream": 7},
            }
            for number in range(8)
            for category, process in (("kernel", 0), ("cuda_runtime", 12))
        ]  # fmt: skip
        rank = {"rank": 0, "world_size": 1}
        (tmp_path / f"{name}.json").write_text(json.dumps({"distributedInfo": rank, "traceEvents": events}))
    (shown, report) = (
        run("report", str(tmp_path)).stdout,
        json.loads(run("report", str(tmp_path), "--json").stdout),
    )
    counted = sum(row["count"] for row in report["omissions"] if row["id"] == "separate-runs")
    assert counted == separate and ("2 traces of separate runs" in shown) is bool(separate)
    assert ("busfare diff BEFORE AFTER" in shown.partition("Slowest")[0]) is bool(separate)
    assert len(report["ranks"]) <= (1 if separate else 2)
