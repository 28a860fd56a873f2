"""The script that holds `project` against programs run on another GPU, on the recordings in results/pairs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.validation.test_claims import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    return run("node_change.py", "--only", "denoise_volume,asian_options,matrix_tiles")


def test_every_program_is_listed_both_ways(done: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in done.stderr
    for program in ("denoise_volume", "asian_options", "matrix_tiles"):
        assert len(re.findall(rf"^  {program} .*%", done.stdout, re.MULTILINE)) == 2


def test_programs_with_pinned_or_tiny_copies_meet_both_goals(done: subprocess.CompletedProcess[str]) -> None:
    # Kernels that compute, and copies that no processor stages: what the nodes measured says it all.
    assert done.returncode == 0, done.stdout
    assert "MISSED" not in done.stdout


def test_the_same_recordings_again_are_no_second_measurement() -> None:
    folder = ROOT / "results" / "pairs"
    again = run("node_change.py", "--only", "denoise_volume", "--again", str(folder))
    before, found, _ = again.stdout.partition("recorded on h100, run on h200")
    assert found
    assert "recorded on h100 twice" in before
    assert "%" not in before
