"""Programs that tests start. Tests wait until a program ends, or until a condition holds, however busy the machine is."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

#: A program that runs for so long hangs: many times what any of them takes on a machine that others use.
HANGS_S = 600


def finished(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """How the program ended. If it hangs, the test fails with what the program wrote."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=HANGS_S, **options
        )
    except subprocess.TimeoutExpired as hung:
        pytest.fail(f"{command} hangs after {HANGS_S} s: {hung.stdout!r} {hung.stderr!r}")


def ended(process: subprocess.Popen[Any]) -> tuple[Any, Any]:
    """Standard output and error of a program that was started. If it hangs, the test fails with what it wrote."""
    try:
        return process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"{process.args} hangs after {HANGS_S} s: {process.communicate()}")


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    """Until `condition()` holds. If the program ends before, the test fails with its status and what it wrote."""
    while not condition():
        if process.poll() is not None and not condition():
            pytest.fail(f"{process.args} ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.005)
