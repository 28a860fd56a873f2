"""The blocking kernel: it holds a stream until everything is submitted, so that submission gaps are not
measured.
"""

from __future__ import annotations

import ctypes
from typing import Any

from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.kernels import Kernels
from busfare.measure.device import StalledError

__all__ = ["LIMIT_S", "Flags"]

#: No submission of ours takes a tenth of this; a queue that is full never ends, and must not hang the GPU.
LIMIT_S = 3.0
_MAPPED = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP


class Flags:
    """A few words of pinned memory through which the host and a running kernel speak."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self.address = int(checked(driver.cuMemHostAlloc(64, _MAPPED), "cuMemHostAlloc"))
        self._words = (ctypes.c_uint32 * 16).from_address(self.address)

    def hold(self, stream: Any) -> None:
        """From here on `stream` waits for `release`."""
        self._words[0] = self._words[1] = 0
        arguments = (self.address, self.address + 4, int(LIMIT_S * 1e9))
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong)
        self._kernels.launch("block", stream, arguments, kinds)

    def release(self) -> None:
        """Lets the held stream go."""
        self._words[0] = 1

    def hold_with(self, other: Flags, stream: Any) -> None:
        """From here on `stream`, of another GPU than `other`'s, waits for `other`'s release: both go at once."""
        self._words[1] = 0
        arguments = (other.address, self.address + 4, int(LIMIT_S * 1e9))
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong)
        self._kernels.launch("block", stream, arguments, kinds)

    def verify(self) -> None:
        """Raises StalledError where the kernel gave up before `release`. Call it after synchronising."""
        if self._words[1]:
            raise StalledError(
                f"the blocking kernel waited {LIMIT_S:g} s and gave up: a launch queue was full or the host "
                "stalled; this case was thrown away"
            )

    def start_traffic(self, stream: Any, mapped: int, size: int, reads: bool, threads: int) -> None:
        """A kernel of `threads` a processor that reads or writes mapped memory until `stop_traffic`."""
        self._words[2] = 0
        arguments = (mapped, size // 16, self.address + 8, int(LIMIT_S * 1e9), int(reads))
        pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
        kinds = (pointer, long, pointer, long, ctypes.c_uint)
        self._kernels.launch("stream16", stream, arguments, kinds, self._kernels.processors, threads)

    def stop_traffic(self) -> None:
        """Ends the traffic after its pass."""
        self._words[2] = 1

    def close(self) -> None:
        checked(driver.cuMemFreeHost(self.address), "cuMemFreeHost")
