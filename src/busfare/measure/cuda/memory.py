"""Memory of every kind, and giving it back: an address, a size, and what it takes to free it."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.device import UnavailableError

__all__ = ["Buffer", "allocate", "register"]

_PORTABLE = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
_REGISTER = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
_REFUSED = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OPERATING_SYSTEM", "CUDA_ERROR_NOT_PERMITTED"}


@dataclass(frozen=True)
class Buffer:
    """`size` bytes at `address`; `free` gives them back. `pages` keeps those of the process itself alive."""

    address: int
    size: int
    free: Callable[[], None]
    pages: Any = None


def allocate(kind: str, size: int) -> Buffer:
    """Memory of a kind in the current context. Raises UnavailableError where it is refused."""
    if kind in ("pageable", "registered"):
        pages, address = _pages(size)
        if kind == "pageable":
            return Buffer(address, size, lambda: None, pages)
        register(address, size)
        return Buffer(address, size, lambda: checked(driver.cuMemHostUnregister(address)), pages)
    try:
        if kind == "device":
            at = int(checked(driver.cuMemAlloc(size), "cuMemAlloc"))
            return Buffer(at, size, lambda: checked(driver.cuMemFree(at), "cuMemFree"))
        if kind == "managed":
            attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
            at = int(checked(driver.cuMemAllocManaged(size, attach), "cuMemAllocManaged"))
            return Buffer(at, size, lambda: checked(driver.cuMemFree(at), "cuMemFree"))
        flags = _PORTABLE | (driver.CU_MEMHOSTALLOC_WRITECOMBINED if kind == "write-combined" else 0)
        host = int(checked(driver.cuMemHostAlloc(size, flags), "cuMemHostAlloc"))
        return Buffer(host, size, lambda: checked(driver.cuMemFreeHost(host), "cuMemFreeHost"))
    except CudaError as error:
        if error.code in _REFUSED:
            raise UnavailableError(f"{size} bytes of {kind} memory were refused ({error.code})") from None
        raise


def register(address: int, size: int) -> None:
    """Pins pages that exist. Raises UnavailableError where locking memory is not allowed."""
    try:
        checked(driver.cuMemHostRegister(address, size, _REGISTER), "cuMemHostRegister")
    except CudaError as error:
        if error.code in _REFUSED:
            raise UnavailableError(
                f"{size} bytes could not be locked ({error.code}); see ulimit -l"
            ) from None
        raise


def _pages(size: int) -> tuple[Any, int]:
    """Pages of the process's own, each touched, so that no page fault falls into a measurement."""
    try:
        pages = mmap.mmap(-1, size)
    except (OSError, ValueError, OverflowError):
        raise UnavailableError(f"{size} bytes of pageable memory were refused") from None
    view = np.frombuffer(pages, np.uint8)
    view[::4096] = 1
    return view, int(view.ctypes.data)
