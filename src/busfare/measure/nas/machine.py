"""What this machine has for NAS FT and MG: processors, GPUs, NVIDIA's MPS."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired, run
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from busfare.errors import BusfareError

__all__ = ["Machine", "mps_daemon", "this_machine"]

_MPS_CONTROL = "nvidia-cuda-mps-control"
#: Seconds that the daemon has to start and to end, and a first process to get its work done under it.
_MPS_STARTS_S, _MPS_STOPS_S, _MPS_PROBE_S = 10.0, 6.0, 20.0


@dataclass(frozen=True, slots=True)
class Machine:
    """`gpus` are the names of the GPUs that CUDA programs see here."""

    cores: int
    gpus: tuple[str, ...]
    has_mps: bool

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "processor": _processor(),
            "cores": self.cores,
            "system": platform.platform(),
            "mps": self.has_mps,
            "gpus": [{"name": name} for name in self.gpus],
        }


def this_machine() -> Machine:
    """As it is now, for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, _gpus(), shutil.which(_MPS_CONTROL) is not None)


def _gpus() -> tuple[str, ...]:
    """By the driver itself, which every machine with a GPU has: the programs need no Python package."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    names = []
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(128)
        told = driver.cuDeviceGetName(name, len(name), ordinal) == 0
        names.append(name.value.decode(errors="replace") if told else "a GPU without a name")
    return tuple(names)


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            told = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        told = ""
    return told.partition(":")[2].strip() or platform.machine()


@contextmanager
def mps_daemon(probe: Path | None) -> Iterator[dict[str, str]]:
    """Starts a daemon of NVIDIA's MPS that only this run knows, gives the variables that lead programs to it, and stops
    it.

    `probe`, a program that uses the GPU for a moment (None: not built), runs under it first: a daemon that cannot serve
    lets its clients wait without end. Raises BusfareError with the reason where either does not work.
    """
    # A short path: the daemon's pipes are sockets, whose names are short.
    with TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        led = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in led.values():
            Path(path).mkdir()
        found = os.environ | led
        _prove([_MPS_CONTROL, "-d"], found, _MPS_STARTS_S, "the daemon")
        try:
            if probe is not None:
                _prove([str(probe)], found, _MPS_PROBE_S, "a first process under it")
            yield led
        finally:
            _stop_mps(found, Path(folder))


def _prove(command: list[str], variables: dict[str, str], limit_s: float, what: str) -> None:
    with TemporaryFile() as said:
        try:
            status = run(
                command, env=variables, stdin=DEVNULL, stdout=DEVNULL, stderr=said, timeout=limit_s
            ).returncode
        except OSError as error:
            raise BusfareError(f"MPS was left out: {what}: {error.strerror}") from None
        except TimeoutExpired:
            raise BusfareError(f"MPS was left out: {what} did not get done within {limit_s:g} s") from None
        if status != 0:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise BusfareError(": ".join([f"MPS was left out: {what} ended with {status}", *last]))


def _stop_mps(variables: dict[str, str], folder: Path) -> None:
    """Asks the daemon to end within seconds, whatever its clients do, and kills it where it does not."""
    try:
        number = int((folder / "pipe" / f"{_MPS_CONTROL}.pid").read_bytes().strip(b"\0 \n"))
    except (OSError, ValueError):
        number = None
    with suppress(OSError, TimeoutExpired):
        run(
            [_MPS_CONTROL], env=variables, input=b"quit -t 2\n", stdout=DEVNULL, stderr=DEVNULL,
            timeout=_MPS_STOPS_S,
        )  # fmt: skip
    with suppress(OSError):
        if number is not None and Path(f"/proc/{number}/comm").read_text().startswith("nvidia-cuda-mps"):
            os.kill(number, signal.SIGKILL)
