"""The scripts of validation/: they recompute, they judge, and they say what is missing."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.processes import finished
from tests.published import SHARED
from validation import stored

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "validation" / script), *arguments]
    return finished(command, cwd=ROOT, env=os.environ | variables)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("papers.py", "Not reproduced"),
        ("plan_papers.py", "Not in the paper"),
        ("hybrid.py", "times as fast as multiple-mps"),
    ],
)
def test_a_claim_that_needs_nothing_else_is_met(script: str, expected: str) -> None:
    done = run(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout and "MISSED" not in done.stdout


def test_a_probe_of_a_quiet_machine_is_near_on_sizes_that_were_held_out() -> None:
    done = run("probe.py", "h200-seventeenth")
    pinned = done.stdout.partition("pinned, held-out sizes")[2].splitlines()[1]
    assert float(pinned.split(": ")[1].split()[0]) <= 0.5


def test_goals_that_a_disturbed_machine_missed_are_named() -> None:
    done = run("probe.py", "h100-twelfth")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MISSED" in done.stdout


@pytest.mark.conformance
def test_the_data_sheet_model_meets_its_goals() -> None:
    done = run("datasheet.py", BUSFARE_SHARED=str(SHARED))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("datasheet.py",), ("ranges.py", "--write")])
def test_without_measurements_it_names_what_is_missing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*arguments, BUSFARE_SHARED=str(tmp_path))
    assert done.returncode != 0
    assert "BUSFARE_SHARED" in done.stderr and "Traceback" not in done.stderr


def test_every_recording_of_the_plans_is_there_and_packed_once() -> None:
    names = [path.relative_to(stored.RESULTS) for path in stored.RESULTS.rglob("*") if path.is_file()]
    assert sum((stored.RESULTS / name).stat().st_size for name in names) < 8e6
    assert len(stored.probe_names()) == 37 and len(stored.probe_names(run=2)) == 25


def test_a_script_with_nothing_to_judge_fails() -> None:
    code = "import claims; claims.judge(lambda: None)"
    done = finished([sys.executable, "-c", code], cwd=ROOT / "validation")
    assert done.returncode == 1 and "nothing to judge" in done.stderr


def test_an_archive_writes_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar.xz", "w:xz") as packed:
        member = tarfile.TarInfo("../../judged/../escaped.txt")
        member.size = 2
        packed.addfile(member, io.BytesIO(b"hi"))
    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    folder = stored.unpacked("evil")
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in written] == ["escaped.txt"]
    assert all(path.resolve().is_relative_to(folder) for path in written)


def test_recordings_of_ranks_are_a_job_for_a_change_to_all_of_them() -> None:
    # Rank 0 copies pageable memory, and rank 1 waits for it in every exchange.
    folder = stored.unpacked("jobs-h200-x2") / "routed.bf"
    answer = stored.busfare("what-if", str(folder), "--pin")
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1]
    assert answer["speedup"] > 3
