"""Answers that were wrong once are right, and docs/cases.md lists them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_case_is_answered_as_it_should_be_and_in_the_docs() -> None:
    command = [sys.executable, str(ROOT / "validation" / "cases.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.rpartition(": ")[0] for line in done.stdout.splitlines()[:-1]]
    assert len(names) >= 19
    docs = (ROOT / "docs" / "cases.md").read_text("utf-8")
    assert docs.count("\n| ") == len(names) + 2
