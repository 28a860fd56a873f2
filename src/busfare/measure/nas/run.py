"""One run of a program of `hybrid/`: started, watched, and its result read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from busfare.errors import BusfareError
from busfare.measure.nas.case import Case
from busfare.measure.nas.machine import mps_daemon
from busfare.measure.nas.programs import Programs, environment

__all__ = ["measure_limits", "run_case"]

#: What the programs end with where the result is there but is not the official one.
_NOT_VERIFIED = 1
_ENDS_S = 10


def run_case(programs: Programs, case: Case, size: str, timed: bool, timeout_s: float) -> dict[str, Any]:
    """The program's own JSON, beside the command: `{command, status, result}`.

    `timed` has the device's part of the breakdown measured, a few microseconds a task. Raises BusfareError with the
    program's own words where it ended without a result, or took longer than `timeout_s`.
    """
    with (
        TemporaryDirectory(prefix="busfare-nas-") as folder,
        _led_to_mps(programs, case) as led,
    ):
        result = Path(folder, "result.json")
        options = ["--class", size, "--mode", case.mode]
        options += ["--algorithm", case.algorithm] if case.algorithm else []
        options += ["--timed"] if timed else []
        start = [str(programs.launcher), "-n", str(case.ranks), str(programs.benchmark), *options]
        status, said = _ended([*start, "--json", str(result)], environment() | led, timeout_s)
        shown = " ".join(["mpirun", "-n", str(case.ranks), programs.benchmark.name, *options])
        if status not in (0, _NOT_VERIFIED) or not result.is_file():
            raise BusfareError(f"{shown}: ended with {status}: {_reason(said)}")
        return {"command": shown, "status": status, "result": _object(result.read_text("utf-8"), shown)}


def _led_to_mps(programs: Programs, case: Case) -> AbstractContextManager[dict[str, str]]:
    return mps_daemon(programs.mps_probe) if case.mode == "multiple-mps" else nullcontext({})


def measure_limits(programs: Programs, timeout_s: float, link_only: bool = False) -> dict[str, Any]:
    """What `device_limits` measures of the first GPU and its link, in about 20 s; `link_only`: both directions, in 2."""
    with TemporaryDirectory(prefix="busfare-nas-") as folder:
        result = Path(folder, "limits.json")
        with result.open("wb") as written:
            command = [str(programs.limits), *(["--link"] if link_only else [])]
            status, said = _ended(command, dict(os.environ), timeout_s, written)
        if status != 0:
            raise BusfareError(f"device_limits: ended with {status}: {_reason(said)}")
        return _object(result.read_text("utf-8"), "device_limits")


def _ended(
    command: Sequence[str], variables: dict[str, str], timeout_s: float, output: Any = subprocess.DEVNULL
) -> tuple[int, str]:
    """The exit status, and what it wrote to standard error. All its processes end with it, or with us."""
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
        start_new_session=True, text=True, errors="replace",
    ) as process:  # fmt: skip
        try:
            _, said = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end_group(process)
            raise BusfareError(f"took longer than {timeout_s:g} s (--timeout) and was ended") from None
        except BaseException:
            _end_group(process)
            raise
        return process.returncode, said


def _end_group(process: subprocess.Popen[str]) -> None:
    """First kindly, for a launcher then ends its ranks, on other nodes too."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BusfareError(f"{source}: its result is no JSON object")
    return found


def _reason(said: str) -> str:
    """The program's own line among the launcher's."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip(" -\n")]
    own = [line for line in lines if ": rank " in line]
    return (own or lines or ["it said nothing"])[0][:300]
