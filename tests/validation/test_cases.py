"""Answers that were wrong once are right, and docs/cases.md says what is answered now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_case_is_answered_as_it_should_be_and_as_the_docs_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "validation" / "cases.py"), "--markdown"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in done.stdout.splitlines()]
    assert len(rows) >= 19
    docs = (ROOT / "docs" / "cases.md").read_text()
    for name, command, answer in rows:
        (line,) = [line for line in docs.splitlines() if line.startswith(f"| {name} | {command} |")]
        assert line.endswith(f"| {answer} |")
        assert line.split(" | ")[2] != answer
