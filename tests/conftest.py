"""One choice for all tests: where a run must give the same answer twice, Hypothesis draws the same examples. And the
command, run in a process of its own or in the tests'.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import settings

from busfare.cli import app, main
from busfare.errors import InputError
from tests.processes import finished

Run = Callable[..., subprocess.CompletedProcess[str]]
Ask = Callable[..., Any]
BUSFARE = [sys.executable, "-m", "busfare"]

# No test is timed: on a busy machine an example may take any time.
settings.register_profile("untimed", deadline=None)
settings.register_profile("same-each-time", deadline=None, derandomize=True)
settings.load_profile("same-each-time" if os.environ.get("CI") else "untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="A test that is skipped fails.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("no_skips"):
        report.outcome, report.longrepr = "failed", f"skipped, but nothing may be: {report.longrepr}"
    return report


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


@pytest.fixture
def ask(run_here: Run) -> Ask:
    """What a command answers as JSON; its message where it refuses."""

    def answered(*arguments: object) -> Any:
        done = run_here(*map(str, arguments), "--json")
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return answered


def answer(*words: object) -> Any:
    """What a command answers as JSON, in this process."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"], standalone_mode=False)
    assert done.exception is None, done.output
    return json.loads(done.stdout)


def shown(*words: object) -> str:
    """All that a command writes, as a line."""
    return " ".join(CliRunner().invoke(app, [*map(str, words)], standalone_mode=False).output.split())


def refused(*words: object) -> str:
    """Why a command gives no answer."""
    error = CliRunner().invoke(app, [*map(str, words)], standalone_mode=False).exception
    assert isinstance(error, InputError | click.UsageError), error  # of which status 2 is
    return str(error)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `busfare` in a process of its own, whose standard output is as wide as a pipe."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | variables
    return finished([*BUSFARE, *arguments], env=environment)
