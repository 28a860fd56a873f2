"""What a machine must be able to do to be measured: one verb runs a case, one says what the machine is."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from busfare.errors import BusfareError, NoGpuError
from busfare.measure.cases import Case, Samples


class UnavailableError(Exception):
    """This case cannot be measured here; the message is the reason, for the list of what was left out."""


class StalledError(BusfareError):
    """The blocking kernel was not released in time: the samples would hold submission gaps."""


class WrongDataError(BusfareError):
    """A copy arrived changed."""


class GpuHost(Protocol):
    """A machine with GPUs: real, or virtual."""

    #: A virtual one is labelled wherever its figures appear.
    virtual: bool
    gpus: int

    def facts(self) -> dict[str, Any]:
        """What the machine is: driver, GPUs with their links, NUMA, IOMMU. JSON types only."""

    def state(self, gpu: int) -> dict[str, Any]:
        """What may change while it is measured: clocks, throttle reasons, link, replays, other programs."""

    def clock(self) -> float:
        """Seconds. A virtual machine has a time of its own, in which nobody waits."""

    def close(self) -> None:
        """Gives everything back."""


class Device(GpuHost, Protocol):
    """A machine that is probed."""

    def run(self, case: Case, repeats: int) -> Samples:
        """Runs `case` that many times.

        Raises UnavailableError where it cannot be run here, StalledError where the blocking kernel gave up,
        and WrongDataError where data arrived changed.
        """


def gpu_count(command: str) -> int:
    """How many GPUs the driver shows. Raises NoGpuError, with what was looked for, where there is none; `command` is
    what would run on a virtual node.
    """
    instead = f"try `busfare {command} --virtual h100-sxm`"
    try:
        from busfare.measure.cuda.driver import CudaError, checked, driver
    except ImportError as error:
        raise NoGpuError(
            f"no way to a GPU: looked for the package {error.name or 'cuda.bindings'}, which is not installed; "
            f"pip install 'busfare[gpu]', or {instead}"
        ) from None
    try:
        checked(driver.cuInit(0), "cuInit")
        count = int(checked(driver.cuDeviceGetCount(), "cuDeviceGetCount"))
    except (CudaError, RuntimeError) as error:
        raise NoGpuError(
            f"no GPU: looked for NVIDIA's driver (libcuda.so.1) and a device in it: {str(error).rstrip('.')}; {instead}"
        ) from None
    if count == 0:
        raise NoGpuError(
            "no GPU: NVIDIA's driver is there, but shows no device (is CUDA_VISIBLE_DEVICES empty?)"
        )
    return count


def command_line(command: str) -> str:
    """What was typed; `busfare COMMAND` where another program asked."""
    typed = sys.argv[1:] if sys.argv[1:2] == command.split()[:1] else [command]
    return " ".join(["busfare", *typed])
