"""Programs that run with the library of `busfare try` on a stand-in for the CUDA driver."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from tests.processes import finished
from tests.recorder.conftest import Built, built

__all__ = ["built"]


@dataclass(frozen=True)
class Changed:
    """How a changed program ended, the counters of the library, and the calls that reached the driver."""

    status: int
    output: str
    error: str
    counts: dict[str, int]
    calls: list[str]


Run = Callable[..., Changed]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(built: Built) -> dict[str, str]:
    """The environment of a machine with the stand-in driver."""
    return {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(built.folder / "testing" / "trial"),
        "BUSFARE_RECORDER_LIBRARY": str(built.library),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }


@pytest.fixture
def run(built: Built, environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a scenario of the test program with changes."""

    def changed(changes: str, *scenario: str, **more: str) -> Changed:
        log, report = tmp_path / "log", tmp_path / "report"
        given = {"FAKE_LOG": str(log), "BUSFARE_TRY_CHANGES": changes, "BUSFARE_TRY_REPORT": str(report)}
        library = str(built.folder / "libbusfare_try.so")
        program = [str(built.folder / "testing" / "trial_program"), *scenario]
        done = finished(program, env=environment | given | {"LD_PRELOAD": library} | more)
        counts = dict[str, int]()
        for file in tmp_path.glob("report.*"):
            rows = np.fromfile(file, [("name", "S24"), ("value", "<u8")])
            for name, value in rows:
                counts[name.decode()] = counts.get(name.decode(), 0) + int(value)
        calls = log.read_text().splitlines() if log.exists() else []
        return Changed(done.returncode, done.stdout, done.stderr, counts, calls)

    return changed


@pytest.fixture
def command(environment: dict[str, str], tmp_path: Path) -> Command:
    """Runs `busfare try` with these arguments in `tmp_path`; `given`: its standard input."""

    def ended(*words: str, given: IO[Any] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "busfare", "try", *words]
        return finished(line, env=environment | more, cwd=tmp_path, stdin=given)

    return ended
