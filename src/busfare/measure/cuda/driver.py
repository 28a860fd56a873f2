"""The driver API with its return codes as exceptions; memory of every kind; and CUDA source compiled at run time (NVRTC
needs no toolkit on the user's machine).
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import driver as driver  # what every module here calls
from cuda.bindings import nvrtc

from busfare.errors import BusfareError, InputError
from busfare.measure.device import UnavailableError

POINTER, LONG, INT = ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_int
_PORTABLE = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
_REGISTER = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
_REFUSED = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OPERATING_SYSTEM", "CUDA_ERROR_NOT_PERMITTED"}
#: A compiler that stumbles once tends to go on; what comes first says what is wrong.
_MOST_LOG = 1500


class CudaError(BusfareError):
    """A CUDA call failed; `code` is the name of the driver's result."""

    def __init__(self, code: str, call: str) -> None:
        super().__init__(f"CUDA call {call} failed with {code}; see the driver's log (dmesg)")
        self.code = code


def checked(answer: tuple[Any, ...], call: str = "") -> Any:
    """What a driver call returned besides its code: None, a value or a tuple. Raises CudaError."""
    code, *rest = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(code.name, call)
    if not rest:
        return None
    return rest[0] if len(rest) == 1 else tuple(rest)


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


def prefetch(address: int, size: int, gpu: int | None, stream: Any) -> None:
    """Moves managed memory to a GPU, or to the host. Raises CudaError."""
    checked(driver.cuMemPrefetchAsync(address, size, _place(gpu), 0, stream), "cuMemPrefetchAsync")


def prefer_gpu(address: int, size: int, gpu: int, prefer: bool = True) -> None:
    """Advises managed memory to live on a GPU, or takes that back. Raises CudaError."""
    name = f"CU_MEM_ADVISE_{'SET' if prefer else 'UNSET'}_PREFERRED_LOCATION"
    checked(driver.cuMemAdvise(address, size, getattr(driver.CUmem_advise, name), _place(gpu)), "cuMemAdvise")


def _place(gpu: int | None) -> Any:
    """A place of managed memory: a GPU's, or the host's."""
    found, kinds = driver.CUmemLocation(), driver.CUmemLocationType
    found.type = kinds.CU_MEM_LOCATION_TYPE_HOST if gpu is None else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    found.id = gpu or 0
    return found


class Module:
    """Kernels of one source, compiled and loaded in the current context."""

    def __init__(
        self, source: str, file: str, capability: tuple[int, int], names: Sequence[str], options: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """Raises InputError where the source does not compile."""
        code = compiled(source, file, capability, options)
        self._module = checked(driver.cuModuleLoadData(code), "cuModuleLoadData")
        # At once: what is loaded late would wait for the blocking kernel, which waits for it.
        self._functions = {
            name: checked(
                driver.cuModuleGetFunction(self._module, name.encode()), f"cuModuleGetFunction({name})"
            )
            for name in names
        }

    def launch(
        self, name: str, stream: Any, values: Sequence[Any] = (), kinds: Sequence[Any] = (),
        blocks: int = 1, threads: int = 1,
    ) -> None:  # fmt: skip
        """Launches a kernel with its arguments and their ctypes."""
        arguments = (tuple(values), tuple(kinds)) if values else 0
        function = self._functions[name]
        answer = driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0)
        checked(answer, f"cuLaunchKernel({name})")

    def launcher(
        self, name: str, values: Sequence[Any], kinds: Sequence[Any], elements: int, threads: int
    ) -> Callable[[Any], None]:
        """What launches a kernel, a thread an element, into a stream."""
        blocks, values, kinds = max(1, math.ceil(elements / threads)), tuple(values), tuple(kinds)
        return lambda stream: self.launch(name, stream, values, kinds, blocks, threads)

    def unload(self) -> None:
        checked(driver.cuModuleUnload(self._module), "cuModuleUnload")


def compiled(source: str, name: str, capability: tuple[int, int], options: Sequence[str] = ()) -> bytes:
    """The machine code of `source` for a compute capability.

    Raises InputError with the compiler's log where it refuses the source, and BusfareError where it cannot start.
    """
    code, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BusfareError(f"NVRTC could not start ({code.name}); install the nvidia-cuda-nvrtc package")
    flags = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode(), *(o.encode() for o in options)]
    try:
        (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise InputError(f"{name}: NVRTC refused it ({code.name}): {_log(program)}")
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin: bytes = b" " * size
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(program: object) -> str:
    """The compiler's log, a '|' between its lines: an error of ours is one line."""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    lines = [line.strip() for line in log.rstrip(b"\0").decode(errors="replace").splitlines()]
    text = " | ".join(line for line in lines if line)
    return text if len(text) <= _MOST_LOG else f"{text[:_MOST_LOG]} …"
