"""The accuracy claims, recomputed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "validation" / script)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False
    )


def test_what_follows_from_the_papers_own_formulas_follows() -> None:
    done = run("papers.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout
    assert "Not reproduced" in done.stdout


def test_the_probes_medians_and_bandwidths_meet_their_goals() -> None:
    done = run("probe.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("nvbandwidth's method") >= 4


def test_w14s_best_strategies_are_the_predicted_ones() -> None:
    done = run("plan_papers.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout
    assert done.stdout.count("determined, whatever t_E") == 6
    assert "Not in the paper" in done.stdout


@pytest.mark.conformance
@pytest.mark.skipif("BUSFARE_SHARED" not in os.environ, reason="needs the published measurements")
def test_the_data_sheet_model_meets_its_goals() -> None:
    done = run("datasheet.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held-out machines" in done.stdout


def test_without_the_measurements_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSFARE_SHARED", str(tmp_path))
    done = run("datasheet.py")
    assert done.returncode != 0
    assert "BUSFARE_SHARED" in done.stderr
    assert "Traceback" not in done.stderr
