"""The driver API with codes as exceptions; memory of every kind; CUDA source compiled by NVRTC, without a toolkit."""

import ctypes
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from cuda.bindings import driver as driver  # what every module here calls
from cuda.bindings import nvrtc

from busfare.errors import BusfareError, InputError
from busfare.measure.run import UnavailableError

POINTER, LONG, INT, WORD = ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_int, ctypes.c_uint
_PORTABLE = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
_REGISTER = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
_LOCKED = "could not lock memory: see ulimit -l"
_FIX = {"CUDA_ERROR_OPERATING_SYSTEM": _LOCKED, "CUDA_ERROR_NOT_PERMITTED": _LOCKED}
#: A compiler that stumbles once tends to go on; what comes first says what is wrong.
_MOST_LOG = 1500


class CudaError(UnavailableError, BusfareError):
    """A CUDA call failed, and with it the case that it was made for."""

    def __init__(self, code: str, call: str) -> None:
        fix = _FIX.get(code, "see the driver's log (dmesg)")
        super().__init__(f"CUDA call {call} failed with {code}; {fix}")


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
    if kind == "device":
        at, free = checked(driver.cuMemAlloc(size), f"cuMemAlloc({size})"), driver.cuMemFree
    elif kind == "managed":
        attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
        at = checked(driver.cuMemAllocManaged(size, attach), f"cuMemAllocManaged({size})")
        free = driver.cuMemFree
    else:
        at = checked(driver.cuMemHostAlloc(size, _PORTABLE), f"cuMemHostAlloc({size}, {kind})")
        free = driver.cuMemFreeHost
    return Buffer(int(at), size, lambda: checked(free(int(at)), f"freeing {kind} memory"))


def register(address: int, size: int) -> None:
    """Pins pages that exist. Raises UnavailableError where locking memory is not allowed."""
    checked(driver.cuMemHostRegister(address, size, _REGISTER), f"cuMemHostRegister({size})")


def _pages(size: int) -> tuple[Any, int]:
    """Pages of the process's own, each touched, so that no page fault falls into a measurement."""
    try:
        pages = mmap.mmap(-1, size)
    except (OSError, ValueError, OverflowError):
        raise UnavailableError(f"{size} bytes of pageable memory could not be allocated") from None
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
    location, kinds = driver.CUmemLocation(), driver.CUmemLocationType
    location.type = kinds.CU_MEM_LOCATION_TYPE_HOST if gpu is None else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = gpu or 0
    return location


def record(event: Any, stream: Any) -> None:
    """An event where `stream` stands now."""
    checked(driver.cuEventRecord(event, stream), "cuEventRecord")


def wait(stream: Any, event: Any) -> None:
    """What `stream` is given from now on waits for `event`."""
    checked(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent")


def seconds(start: Any, end: Any) -> float:
    """Between two events that have passed."""
    return float(checked(driver.cuEventElapsedTime(start, end), "cuEventElapsedTime")) * 1e-3


def synchronise(stream: Any) -> None:
    """Waits for a stream."""
    checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")


def finish() -> None:
    """Waits for all that the current GPU was given."""
    checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")


def copy_of(direction: str) -> Callable[..., Any]:
    """The driver's call that copies in a direction: target, source, bytes and stream."""
    calls: dict[str, Callable[..., Any]] = {
        "h2d": driver.cuMemcpyHtoDAsync,
        "d2h": driver.cuMemcpyDtoHAsync,
        "d2d": driver.cuMemcpyDtoDAsync,
    }
    return calls[direction]


def copier(direction: str, target: int, source: int, size: int) -> Callable[[Any], None]:
    """What puts a copy into a stream."""
    copy = copy_of(direction)
    return lambda stream: checked(copy(target, source, size, stream), f"{direction} copy")


def batched(pairs: Sequence[tuple[int, int]], sizes: Sequence[int]) -> Callable[[Any], None]:
    """What issues copies of (target, source) in one call. Raises UnavailableError where the driver has none."""
    if not hasattr(driver, "cuMemcpyBatchAsync"):
        raise UnavailableError("this driver lacks cuMemcpyBatchAsync (CUDA 12.8 and newer have it)")
    targets, sources = ([driver.CUdeviceptr(pair[n]) for pair in pairs] for n in (0, 1))
    attributes = driver.CUmemcpyAttributes()
    attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    count, lengths = len(pairs), list(sizes)

    def issue(stream: Any) -> None:
        answer = driver.cuMemcpyBatchAsync(targets, sources, lengths, count, [attributes], [0], 1, stream)
        checked(answer, "cuMemcpyBatchAsync")

    return issue


def upload(address: int, array: np.ndarray) -> None:
    """Copies an array to the device, and waits: a copy of pageable memory may return before the data are there."""
    if array.nbytes:
        checked(driver.cuMemcpyHtoD(address, int(array.ctypes.data), array.nbytes), "cuMemcpyHtoD")
        finish()


def download(address: int, size: int) -> bytearray:
    """Bytes of device memory, once they are here."""
    content = bytearray(size)
    checked(driver.cuMemcpyDtoH(content, address, size), "cuMemcpyDtoH")
    return content


def view(address: int, count: int, kind: Any = ctypes.c_uint8) -> np.ndarray:
    """Host memory as an array of `count` numbers of a ctype."""
    return np.ctypeslib.as_array((kind * count).from_address(address))


class Module:
    """Kernels of one source, compiled and loaded in the current context."""

    def __init__(
        self, source: str, file: str, capability: tuple[int, int], kernels: Mapping[str, Sequence[Any]],
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`kernels`: by name, the ctypes of their arguments. Raises InputError where the source does not compile."""
        code = compiled(source, file, capability, options)
        self._module = checked(driver.cuModuleLoadData(code), "cuModuleLoadData")
        # At once: what is loaded late would wait for the blocking kernel, which waits for it.
        self._functions = {
            name: (checked(driver.cuModuleGetFunction(self._module, name.encode()), name), tuple(kinds))
            for name, kinds in kernels.items()
        }

    def launch(
        self, name: str, stream: Any, values: Sequence[Any] = (), blocks: int = 1, threads: int = 1
    ) -> None:
        """Launches a kernel with its arguments."""
        function, kinds = self._functions[name]
        arguments = (tuple(values), kinds) if values else 0
        answer = driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0)
        checked(answer, f"cuLaunchKernel({name})")

    def launcher(
        self, name: str, values: Sequence[Any], elements: int, threads: int
    ) -> Callable[[Any], None]:
        """What launches a kernel, a thread an element, into a stream."""
        blocks, values = max(1, math.ceil(elements / threads)), tuple(values)
        return lambda stream: self.launch(name, stream, values, blocks, threads)

    def unload(self) -> None:
        checked(driver.cuModuleUnload(self._module), "cuModuleUnload")


def source_of(file: str) -> str:
    """The text of a source beside this module."""
    return resources.files("busfare.measure.cuda").joinpath(file).read_text("utf-8")


def compiled(source: str, name: str, capability: tuple[int, int], options: Sequence[str] = ()) -> bytes:
    """The machine code of `source` for a compute capability. Raises InputError with the compiler's log where it refuses the
    source, and BusfareError where it cannot start.
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
