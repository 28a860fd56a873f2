"""One choice for all tests: where a run must give the same answer twice, Hypothesis draws the same examples. And the
command run in the tests' own process.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

from busfare.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]

# No test is timed: on a busy machine an example may take any time.
settings.register_profile("untimed", deadline=None)
settings.register_profile("same-each-time", deadline=None, derandomize=True)
settings.load_profile("same-each-time" if os.environ.get("CI") else "untimed")


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `busfare` with arguments, in this process: many times as fast as in one of its own."""

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["busfare", *arguments])
        threshold = gc.get_threshold()
        with pytest.raises(SystemExit) as end:
            main()
        gc.unfreeze()
        gc.set_threshold(*threshold)
        return subprocess.CompletedProcess(arguments, end.value.code, *capsys.readouterr())

    return called
