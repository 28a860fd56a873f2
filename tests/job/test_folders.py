"""Folders that hold more than the traces of one job: files that cannot be read, and traces that nothing ties together."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import busfare
from busfare.answers import job as answers_job
from busfare.errors import InputError
from busfare.trace.readers.recorded.file import HEADER, HEADER_BYTES, MAGIC, VERSION
from tests.conftest import answer, refused, run, shown
from tests.job.kineto_job import write_ranks
from tests.trace.build_kineto import call, kernel, write_kineto
from tests.traces import EXAMPLES

COMPUTE = [[800.0, 900.0]] * 3
CUT = b'{"schemaVersion": 1, "deviceProperties": [], "trace'


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
    monkeypatch.setattr(answers_job, "LEAST_RANKS", least)
    monkeypatch.setattr(answers_job, "ranks_that_fit", lambda _sample, _paths: fit)
    left = {row["id"]: row for row in answer("what-if", folder, "--remove", "h2d")["omissions"]}
    assert left["unreadable"]["count"] == 2
    assert left["unreadable"]["what"].startswith(f"files could not be read: skipped ({folder / 'bad.json'}: ")
    (folder / "worse.json").unlink()
    assert "unreadable (1×): file could not be read: skipped" in shown("what-if", folder, "--remove", "h2d")


def test_a_folder_of_nothing_readable_is_an_error(folder: Path) -> None:
    for rank in range(3):
        (folder / f"rank{rank}.json.gz").unlink()
    for arguments in (("report",), ("what-if", "--remove", "h2d"), ("export", "--to", "chakra", "-o", "out")):
        why = refused(arguments[0], folder, *arguments[1:])
        assert f"none of 2 files could be read; the first, {folder / 'bad.json'}: " in why


def test_chakra_gets_the_ranks_that_can_be_read(folder: Path, tmp_path: Path) -> None:
    done = run("export", str(folder), "--to", "chakra", "-o", str(tmp_path / "out"))
    assert done.returncode == 0 and done.stderr.startswith("busfare: 2 files could not be read: skipped (")
    assert {file.name for file in (tmp_path / "out").glob("*.et")} == {f"rank.{n}.et" for n in range(3)}


def test_a_recording_that_ends_in_its_header_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "whole.bf").write_bytes(HEADER.pack(MAGIC, VERSION, HEADER_BYTES, 7, 0, 0, 0))
    (tmp_path / "empty.bf").write_bytes(MAGIC)
    (unreadable,) = (o for o in busfare.read(tmp_path).omissions if o.id == "unreadable")
    assert unreadable.count == 1 and "ends inside its header" in unreadable.what
    (tmp_path / "whole.bf").unlink()
    with pytest.raises(InputError, match="ends inside its header"):
        busfare.read(tmp_path)


def test_unrelated_traces_are_listed_as_files_and_gains_refer_to_their_runs(tmp_path: Path) -> None:
    def left_out() -> dict[str, int]:
        return {row["id"]: row["count"] for row in answer("report", tmp_path / "job")["omissions"]}

    runs = ("smooth-out-of-core-h100.json.gz", "train-images-h100.json.gz")
    (tmp_path / "job").mkdir()
    for name in runs:
        (tmp_path / "job" / name).write_bytes((EXAMPLES / name).read_bytes())
    assert left_out()["unrelated-traces"] == 2 and "separate-runs" not in left_out()
    text = run("report", str(tmp_path / "job")).stdout
    assert "2 traces of separate runs" in text and "Over all runs" not in text
    rows = {line.split()[0]: line.split()[1:3] for line in text.splitlines() if line.startswith(runs)}
    assert rows == {runs[0]: ["153", "ms"], runs[1]: ["166", "ms"]}
    (gain,) = re.findall(r"overlaps: about (\d+) ms \((\d+) %\)", text)
    assert int(gain[1]) == pytest.approx(int(gain[0]) / 152.5 * 100, abs=1)
    for name in runs:
        (tmp_path / "job" / name).unlink()
    write_ranks(tmp_path / "job", COMPUTE)
    assert left_out() == {"guessed-node": 3}


def write_run(folder: Path, ranks: dict[int, int], after_us: float = 0.0, **distributed: int) -> None:
    """Copies of ranks of one job (new number: number), recorded in 2023, and so much later."""
    write_ranks(folder / "made", [[800.0 + 7 * rank + step for step in range(6)] for rank in range(4)])
    for new, old in ranks.items():
        text = json.loads(gzip.decompress((folder / "made" / f"rank{old}.json.gz").read_bytes()))
        text["distributedInfo"] |= {"rank": new, **distributed}
        text["baseTimeNanoseconds"] = round((1.7e15 + after_us) * 1000)
        (folder / f"rank{new}.json").write_text(json.dumps(text))
    shutil.rmtree(folder / "made")


@pytest.mark.parametrize(
    ("ranks", "how"), [(4, {"after_us": 86_400e6}), (1, {"after_us": 4e6}), (2, {"world_size": 8})]
)
def test_ranks_of_two_runs_are_not_merged(tmp_path: Path, ranks: int, how: dict[str, Any]) -> None:
    write_run(tmp_path, {rank: rank for rank in range(4)})
    alone = answer("report", tmp_path)
    write_run(tmp_path, {4 + rank: rank for rank in range(ranks)}, **how)
    result = answer("report", tmp_path)
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1, 2, 3]
    assert result["collectives"] == alone["collectives"] and result["collectives"][0]["count"] == 6
    left_out = {row["id"]: row["count"] for row in result["omissions"]}
    assert left_out == {"separate-runs": ranks, "guessed-node": 4 + ranks, "unaligned-clocks": ranks}
    assert not result["gains_of_whole_job"] and alone["gains_of_whole_job"]
    assert "\nrank 4 (rank4.json) " in run("report", str(tmp_path)).stdout.partition("No rank's own work")[0]
    for command in (("what-if", "--remove", "h2d"), ("export", "--to", "chakra", "-o", "out")):
        why = refused(command[0], tmp_path, *command[1:])
        assert "rank4.json: belongs to a different run than rank0.json" in why


@pytest.mark.parametrize("apart_us", [5e5, 3e6])
def test_clocks_of_hosts_may_be_apart(tmp_path: Path, apart_us: float) -> None:
    write_run(tmp_path, {0: 0, 1: 1})
    write_run(tmp_path, {2: 2, 3: 3}, after_us=apart_us)
    result = answer("report", tmp_path)
    assert [row["id"] for row in result["omissions"]] == ["guessed-node"]
    assert result["collectives"][0]["ranks"] == 4 and result["gains_of_whole_job"]
    assert run("what-if", str(tmp_path), "--remove", "h2d").returncode == 0


@pytest.mark.parametrize(("kind", "apart_us"), [("broadcast", 3e6), ("allreduce", 86_400e6)])
def test_ranks_without_a_common_clock_or_collective_are_separate(
    tmp_path: Path, kind: str, apart_us: float
) -> None:
    write_run(tmp_path, {0: 0, 1: 1})
    write_run(tmp_path, {2: 2, 3: 3}, after_us=apart_us)
    for number in (2, 3):
        path = tmp_path / f"rank{number}.json"
        path.write_text(path.read_text().replace("allreduce", kind))
    why = refused("what-if", tmp_path, "--remove", "h2d")
    assert "rank2.json: belongs to a different run than rank0.json: " in why
    assert "or the clocks of their hosts differ" in why


def test_several_traces_of_a_rank_are_several_runs(tmp_path: Path) -> None:
    """Without a clock that counts from 1970: runs seem to begin at once."""
    for day, compute_us in enumerate((900.0, 800.0)):
        write_ranks(tmp_path / f"day{day}", [[compute_us] * 3] * 2)
    result = answer("report", tmp_path)
    assert [Path(rank["path"]).parent.name for rank in result["ranks"]] == ["day0", "day0"]
    assert {row["id"]: row["count"] for row in result["omissions"]}["separate-runs"] == 2
    alone = answer("report", tmp_path / "day0")
    assert result["collectives"] == alone["collectives"] and result["collectives"][0]["ranks"] == 2


def test_absent_and_incomplete_ranks_stand_first(tmp_path: Path) -> None:
    write_run(tmp_path, {0: 0, 1: 1, 3: 3})
    whole = (tmp_path / "rank1.json").read_bytes()
    (tmp_path / "rank1.json").write_bytes(whole[: len(whole) // 2])
    first = shown("report", tmp_path).partition("What to do")[0]
    assert "1 rank of 4 has no trace here (2): sums and waiting exclude it." in first
    assert f"1 trace is incomplete, first {tmp_path / 'rank1.json'}: the file is truncated" in first
    for number in (0, 3):
        (tmp_path / f"rank{number}.json").unlink()
    for command in (("report",), ("what-if", "--remove", "h2d"), ("project", "--to", "h200-sxm")):
        done = run(command[0], str(tmp_path / "rank1.json"), *command[1:])
        assert done.returncode == 0
        assert f"busfare: {tmp_path / 'rank1.json'}: incomplete: the file is truncated" in done.stderr


@pytest.mark.parametrize(("later_s", "separate"), [(0.0, 0), (60.0, 1)])
def test_two_runs_of_a_rank_are_not_ranks_of_a_job(tmp_path: Path, later_s: float, separate: int) -> None:
    """The same process at the same time, as two windows may be, or a minute later."""
    for name, after_s in (("before", 0.0), ("after", later_s)):
        starts = [1000 + number * 100 + after_s * 1e6 for number in range(8)]
        events = [kernel("work", at, 60 + after_s, number) for number, at in enumerate(starts)]
        events += [call("work", at, 60 + after_s, number) for number, at in enumerate(starts)]
        rank = {"rank": 0, "world_size": 1}
        write_kineto(tmp_path / f"{name}.json", events, {"distributedInfo": rank})
    text, report = shown("report", tmp_path), answer("report", tmp_path)
    counted = sum(row["count"] for row in report["omissions"] if row["id"] == "separate-runs")
    assert counted == separate and ("2 traces of separate runs" in text) is bool(separate)
    assert ("busfare diff BEFORE AFTER" in text.partition("Slowest")[0]) is bool(separate)
    assert len(report["ranks"]) <= (1 if separate else 2)
