"""One GPU: its context, kernels, streams, events and buffers, made when first used; the flags that hold its streams."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from busfare.measure.cuda import driver as cuda
from busfare.measure.cuda.driver import LONG, POINTER, WORD, Buffer, Module, checked, driver
from busfare.measure.run import StalledError, UnavailableError, WrongDataError

#: The largest single copy, 1 GiB, and room for the 256-byte steps between small chunks.
MOST_BYTES = (1 << 30) + (1 << 20)
#: The largest buffer of managed memory: less halves the start-up.
_MOST_MANAGED = 1 << 28
#: What is inverted of a pageable target: its ends and one byte a page.
_ENDS, _PAGE = 1 << 16, 1 << 12
#: Host memory of this length is compared by so many threads: one would take longer than the copy that it checks.
_LONG, _COMPARERS = 1 << 24, 8
_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
#: Kernels by the ctypes of their arguments.
_KERNELS = {
    "block": (POINTER, POINTER, LONG),
    **dict.fromkeys(("fill", "poison"), (POINTER, LONG, LONG, LONG)),
    "check": (POINTER, LONG, LONG, LONG, POINTER),
    "differ": (POINTER, POINTER, LONG, ctypes.c_double, ctypes.c_double, POINTER),
    **dict.fromkeys(("read16", "copy16"), (POINTER, POINTER, LONG)),
    "stream16": (POINTER, LONG, POINTER, LONG, WORD),
    "nothing": (),
}
_NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
_TIMED = driver.CUevent_flags.CU_EVENT_DEFAULT.value
_UNTIMED = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
_ATTRIBUTE = driver.CUdevice_attribute
#: No submission of ours takes a tenth of this; a queue that is full never ends, and must not hang the GPU.
LIMIT_S = 3.0
_LIMIT_NS = int(LIMIT_S * 1e9)
#: Threads a multiprocessor of the kernel beside a copy: as few as fill a link by Little's law (16 bytes each, 1 µs of
#: latency, 132 multiprocessors: 68 GB/s). More would only queue up, and starve the copy by their number.
_TRAFFIC_THREADS = 32
_MAPPED = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP


class Flags:
    """A few words of pinned memory through which the host and a running kernel speak."""

    def __init__(self, kernels: Module) -> None:
        self._kernels = kernels
        self.address = int(checked(driver.cuMemHostAlloc(64, _MAPPED), "cuMemHostAlloc"))
        self._words = (ctypes.c_uint32 * 16).from_address(self.address)

    def hold(self, stream: Any) -> None:
        """From here on `stream` waits for `release`: a blocking kernel, which gives up after LIMIT_S, aloud."""
        self._words[0] = self._words[1] = 0
        self._kernels.launch("block", stream, (self.address, self.address + 4, _LIMIT_NS))

    def release(self) -> None:
        """Lets the held stream go."""
        self._words[0] = 1

    def verify(self) -> None:
        """Raises StalledError where the kernel gave up before `release`. Call it after synchronising."""
        if self._words[1]:
            raise StalledError(
                f"the blocking kernel waited {LIMIT_S:g} s and gave up: a launch queue was full or the host stalled; "
                "this case was discarded"
            )

    def start_traffic(self, stream: Any, mapped: int, size: int, reads: bool, blocks: int) -> None:
        """A kernel reads or writes `size` bytes of mapped memory until `stop_traffic`; `blocks`: one a multiprocessor."""
        self._words[2] = 0
        arguments = (mapped, size // 16, self.address + 8, _LIMIT_NS, int(reads))
        self._kernels.launch("stream16", stream, arguments, blocks, _TRAFFIC_THREADS)

    def stop_traffic(self) -> None:
        """Ends the traffic after its pass."""
        self._words[2] = 1

    def close(self) -> None:
        checked(driver.cuMemFreeHost(self.address), "cuMemFreeHost")


class Board:
    """What a run needs of one GPU. Its primary context is made current by `enter`."""

    def __init__(self, ordinal: int, most_bytes: int = MOST_BYTES) -> None:
        """Raises CudaError."""
        self.ordinal, self.most_bytes = ordinal, most_bytes
        self.handle = checked(driver.cuDeviceGet(ordinal), "cuDeviceGet")
        self.context = checked(driver.cuDevicePrimaryCtxRetain(self.handle), "cuDevicePrimaryCtxRetain")
        self.enter()
        self.capability = (
            self.attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self.attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        self.multiprocessors = self.attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.kernels = Module(cuda.source_of("kernels.cu"), "kernels.cu", self.capability, _KERNELS)
        self.flags = Flags(self.kernels)
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._streams: list[Any] = []
        self._events: dict[int, list[Any]] = {_TIMED: [], _UNTIMED: []}
        self._wrong = cuda.allocate("device", 8)

    def enter(self) -> None:
        """Makes this GPU's context current."""
        checked(driver.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")

    def attribute(self, which: Any) -> int:
        return int(checked(driver.cuDeviceGetAttribute(which, self.handle), "cuDeviceGetAttribute"))

    def streams(self, count: int) -> list[Any]:
        """`count` streams that do not wait for the default one."""
        while len(self._streams) < count:
            self._streams.append(checked(driver.cuStreamCreate(_NON_BLOCKING), "cuStreamCreate"))
        return self._streams[:count]

    def events(self, count: int, timed: bool = True) -> list[Any]:
        """`count` events that hold a time, or none: what only orders work costs less so."""
        kind = _TIMED if timed else _UNTIMED
        made = self._events[kind]
        while len(made) < count:
            made.append(checked(driver.cuEventCreate(kind), "cuEventCreate"))
        return made[:count]

    def launch_wide(self, name: str, stream: Any, *values: Any) -> None:
        """Launches a kernel of ours on the whole GPU."""
        self.kernels.launch(name, stream, values, 4 * self.multiprocessors, 256)

    def to_its_end(self, name: str, *values: Any) -> None:
        """The same, and waits."""
        (stream,) = self.streams(1)
        self.launch_wide(name, stream, *values)
        cuda.synchronise(stream)

    def most(self, kind: str) -> int:
        """The largest buffer of a kind that is made here."""
        return min(self.most_bytes, _MOST_MANAGED) if kind == "managed" else self.most_bytes

    def buffer(self, kind: str, role: str, size: int) -> int:
        """The address of a `source` (with the pattern) or `target` buffer. Raises UnavailableError if it is too small."""
        if size > (most := self.most(kind)):
            raise UnavailableError(f"{size} bytes exceed the {most} bytes of available {kind} memory")
        key = (kind, role)
        if key not in self._buffers:
            made = self._buffers[key] = cuda.allocate(kind, most)
            if kind == "pageable":
                filled = self.buffer("device", "source", most)
                checked(driver.cuMemcpyDtoH(made.address, filled, most), "cuMemcpyDtoH")
            else:
                self.to_its_end("fill", made.address, most, most, most)
        return self._buffers[key].address

    def reallocated(self, size: int) -> int:
        """The address of `size` bytes of device memory: those of the last call are freed, and allocated anew."""
        if (last := self._buffers.pop(key := ("device", f"{size} bytes"), None)) is not None:
            last.free()
        self._buffers[key] = cuda.allocate("device", size)
        return self._buffers[key].address

    def poison(self, kind: str, size: int, row: int, pitch: int) -> None:
        """Overwrites a target of rows of `row` bytes, `pitch` apart, with what no copy could have left."""
        at = self.buffer(kind, "target", size // row * pitch)
        if kind == "pageable":
            target, pattern = cuda.view(at, size), cuda.view(self._pattern(), size)
            # A byte a page beyond the ends: inverting gigabytes before each visit would cost more than it shows.
            for part in (slice(0, _ENDS), slice(-_ENDS, None), slice(None, None, _PAGE)):
                np.invert(pattern[part], out=target[part])
        else:
            self.to_its_end("poison", at, size, row, pitch)

    def check(self, kind: str, size: int, row: int, pitch: int) -> None:
        """Raises WrongDataError where a target does not hold the pattern."""
        at = self.buffer(kind, "target", size // row * pitch)
        if kind == "pageable":
            wrong = _differences(at, self._pattern(), size)
        else:
            # Kernels add up the number.
            checked(driver.cuMemsetD8(self._wrong.address, 0, 8), "cuMemsetD8")
            self.to_its_end("check", at, size, row, pitch, self._wrong.address)
            wrong = int.from_bytes(cuda.download(self._wrong.address, 8), "little")
        if wrong:
            raise WrongDataError(
                f"copied data is corrupted in {kind} memory ({wrong} places of {size} bytes); the link is faulty"
            )

    def _pattern(self) -> int:
        """A host copy of the pattern that a processor reads fast."""
        return self.buffer("pageable", "source", 1)

    def close(self) -> None:
        """Frees all that was made."""
        self.enter()
        for buffer in (*self._buffers.values(), self._wrong):
            buffer.free()
        self.flags.close()
        for stream in self._streams:
            checked(driver.cuStreamDestroy(stream), "cuStreamDestroy")
        for event in (*self._events[_TIMED], *self._events[_UNTIMED]):
            checked(driver.cuEventDestroy(event), "cuEventDestroy")
        checked(driver.cuDevicePrimaryCtxRelease(self.handle), "cuDevicePrimaryCtxRelease")


def _differences(at: int, peer: int, size: int) -> int:
    """How many parts of two stretches of host memory differ; long ones are compared by several processors at once."""
    parts = _COMPARERS if size >= _LONG else 1
    step = -(-size // parts)

    def compare(start: int) -> bool:
        return int(_libc.memcmp(at + start, peer + start, min(step, size - start))) != 0

    if parts == 1:
        return int(compare(0))
    with ThreadPoolExecutor(parts) as pool:
        return sum(pool.map(compare, range(0, size, step)))
