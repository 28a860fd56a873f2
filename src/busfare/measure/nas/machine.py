"""What this machine has for NAS FT and MG: processors, GPUs, NVIDIA's MPS."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory
from typing import Any

from busfare.errors import BusfareError

__all__ = ["Machine", "mps_daemon", "this_machine"]

_MPS_CONTROL = "nvidia-cuda-mps-control"
_MPS_STARTS_S = 20


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
def mps_daemon() -> Iterator[dict[str, str]]:
    """Starts a daemon of NVIDIA's MPS that only this run knows, gives the variables that lead programs to it, and stops
    it. Raises BusfareError where it does not start.
    """
    with (
        TemporaryDirectory(prefix="busfare-mps-") as pipes,
        TemporaryDirectory(prefix="busfare-mps-") as logs,
    ):
        led = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": logs}
        found = os.environ | led
        try:
            started = run(
                [_MPS_CONTROL, "-d"], env=found, stdout=DEVNULL, stderr=DEVNULL, timeout=_MPS_STARTS_S
            )
        except OSError as error:
            raise BusfareError(f"MPS did not start: {error.strerror}") from None
        if started.returncode != 0:
            raise BusfareError(f"MPS did not start: {_MPS_CONTROL} -d ended with {started.returncode}")
        try:
            yield led
        finally:
            run(
                [_MPS_CONTROL],
                env=found,
                input=b"quit\n",
                stdout=DEVNULL,
                stderr=DEVNULL,
                timeout=_MPS_STARTS_S,
            )
