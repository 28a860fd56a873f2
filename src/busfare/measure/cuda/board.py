"""One GPU: its context, kernels, streams, events, and buffers of every memory kind, made when first used."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

import numpy as np

from busfare.measure.cuda.driver import LONG, POINTER, Buffer, Module, allocate, checked, driver
from busfare.measure.cuda.timing import Flags
from busfare.measure.device import UnavailableError, WrongDataError

#: The largest single copy, 1 GiB, and room for the 256-byte steps between small chunks.
MOST_BYTES = (1 << 30) + (1 << 20)
#: Kinds that no program moves gigabytes with get less, which halves the start-up.
_MOST = {"registered": 1 << 28, "write-combined": 1 << 28, "managed": 1 << 28}
#: What is inverted of a pageable target: its ends and one byte a page.
_ENDS, _PAGE = 1 << 16, 1 << 12
#: Host memory of this length is compared by so many threads: one would take longer than the copy that it checks.
_LONG, _COMPARERS = 1 << 24, 8
_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_KERNELS = ("block", "fill", "poison", "check", "differ", "read16", "copy16", "stream16", "nothing")
_NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
_DEFAULT = driver.CUevent_flags.CU_EVENT_DEFAULT.value
_ATTRIBUTE = driver.CUdevice_attribute


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
        source = resources.files("busfare.measure.cuda").joinpath("kernels.cu").read_text("utf-8")
        self.kernels = Module(source, "kernels.cu", self.capability, _KERNELS)
        self.flags = Flags(self.kernels)
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._streams: list[Any] = []
        self._events: list[Any] = []
        self._wrong = allocate("device", 8)

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

    def events(self, count: int) -> list[Any]:
        """`count` events that hold a time."""
        while len(self._events) < count:
            self._events.append(checked(driver.cuEventCreate(_DEFAULT), "cuEventCreate"))
        return self._events[:count]

    def launch_wide(self, name: str, stream: Any, values: Sequence[Any], kinds: Sequence[Any]) -> None:
        """Launches a kernel of ours on the whole GPU."""
        self.kernels.launch(name, stream, values, kinds, 4 * self.multiprocessors, 256)

    def on_bytes(self, name: str, stream: Any, address: int, *sizes: int) -> None:
        """The same of a kernel of (pointer, sizes …)."""
        self.launch_wide(name, stream, (address, *sizes), (POINTER, *(LONG for _ in sizes)))

    def most(self, kind: str) -> int:
        """The largest buffer of a kind that is made here."""
        return min(self.most_bytes, _MOST.get(kind, self.most_bytes))

    def buffer(self, kind: str, role: str, size: int) -> int:
        """The address of the `source` (filled with the pattern) or `target` buffer of a kind.

        Raises UnavailableError where it cannot hold `size` bytes.
        """
        if size > self.most(kind):
            raise UnavailableError(
                f"{size} bytes are more than the {self.most(kind)} of {kind} memory at hand"
            )
        key = (kind, role)
        if key not in self._buffers:
            made = allocate(kind, self.most(kind))
            self._buffers[key] = made
            self._fill(made, kind)
        return self._buffers[key].address

    def _fill(self, made: Buffer, kind: str) -> None:
        if kind == "pageable":
            filled = self.buffer("device", "source", made.size)
            checked(driver.cuMemcpyDtoH(made.address, filled, made.size), "cuMemcpyDtoH")
        else:
            self._on_bytes("fill", made.address, made.size, made.size, made.size)

    def poison(self, kind: str, size: int, row: int, pitch: int) -> None:
        """Overwrites a target of rows of `row` bytes, `pitch` apart, with what no copy could have left."""
        at = self.buffer(kind, "target", size // row * pitch)
        if kind == "pageable":
            target, pattern = _view(at, size), _view(self._pattern(), size)
            # A byte a page beyond the ends: inverting gigabytes before each visit would cost more than it shows.
            for part in (slice(0, _ENDS), slice(-_ENDS, None), slice(None, None, _PAGE)):
                np.invert(pattern[part], out=target[part])
        else:
            self._on_bytes("poison", at, size, row, pitch)

    def check(self, kind: str, size: int, row: int, pitch: int) -> None:
        """Raises WrongDataError where a target does not hold the pattern."""
        at = self.buffer(kind, "target", size // row * pitch)
        if kind == "pageable":
            wrong = _differences(at, self._pattern(), size)
        else:
            checked(driver.cuMemsetD8(self._wrong.address, 0, 8), "cuMemsetD8")
            self._on_bytes("check", at, size, row, pitch, self._wrong.address)
            answer = bytearray(8)
            checked(driver.cuMemcpyDtoH(answer, self._wrong.address, 8), "cuMemcpyDtoH")
            wrong = int.from_bytes(answer, "little")
        if wrong:
            raise WrongDataError(
                f"data arrived changed in {kind} memory ({wrong} places of {size} bytes); the link is not sound"
            )

    def _on_bytes(self, name: str, address: int, *sizes: int) -> None:
        """Runs a kernel of (pointer, sizes …) to its end."""
        stream = self.streams(1)[0]
        self.on_bytes(name, stream, address, *sizes)
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")

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
        for event in self._events:
            checked(driver.cuEventDestroy(event), "cuEventDestroy")
        checked(driver.cuDevicePrimaryCtxRelease(self.handle), "cuDevicePrimaryCtxRelease")


def _differences(at: int, other: int, size: int) -> int:
    """How many parts of two stretches of host memory differ; long ones are compared by several processors at once."""
    parts = _COMPARERS if size >= _LONG else 1
    step = -(-size // parts)

    def compare(start: int) -> bool:
        return int(_libc.memcmp(at + start, other + start, min(step, size - start))) != 0

    if parts == 1:
        return int(compare(0))
    with ThreadPoolExecutor(parts) as pool:
        return sum(pool.map(compare, range(0, size, step)))


def _view(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
