"""One GPU: its context, kernels, streams, events, and buffers of every memory kind, made when first used; and what all that
measures real GPUs has of them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from busfare.measure.cuda import facts
from busfare.measure.cuda.driver import (
    LONG,
    POINTER,
    WORD,
    Buffer,
    Module,
    allocate,
    checked,
    download,
    driver,
    finish,
    source_of,
    synchronise,
    view,
)
from busfare.measure.cuda.facts import roomy_bytes
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
#: Of the host's and the GPU's free memory a benchmark takes at most these shares.
_OF_HOST, _OF_GPU = 0.4, 0.8


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
        self.kernels = Module(source_of("kernels.cu"), "kernels.cu", self.capability, _KERNELS)
        self.flags = Flags(self.kernels)
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._streams: list[Any] = []
        self._events: dict[int, list[Any]] = {_TIMED: [], _UNTIMED: []}
        self._wrong = allocate("device", 8)

    def enter(self) -> None:
        """Makes this GPU's context current."""
        checked(driver.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")

    def attribute(self, which: Any) -> int:
        return int(checked(driver.cuDeviceGetAttribute(which, self.handle), "cuDeviceGetAttribute"))

    def require_prefetch(self) -> None:
        """Raises UnavailableError where managed memory cannot be prefetched."""
        if not self.attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS):
            raise UnavailableError("this GPU and system do not prefetch managed memory")

    def streams(self, count: int) -> list[Any]:
        """`count` streams that do not wait for the default one."""
        while len(self._streams) < count:
            self._streams.append(checked(driver.cuStreamCreate(_NON_BLOCKING), "cuStreamCreate"))
        return self._streams[:count]

    def events(self, count: int, kind: int = _TIMED) -> list[Any]:
        """`count` events that hold a time."""
        made = self._events[kind]
        while len(made) < count:
            made.append(checked(driver.cuEventCreate(kind), "cuEventCreate"))
        return made[:count]

    def marks(self, count: int) -> list[Any]:
        """`count` events that hold none: what only orders work costs less so."""
        return self.events(count, _UNTIMED)

    def launch_wide(self, name: str, stream: Any, *values: Any) -> None:
        """Launches a kernel of ours on the whole GPU."""
        self.kernels.launch(name, stream, values, 4 * self.multiprocessors, 256)

    def to_its_end(self, name: str, *values: Any) -> None:
        """The same, and waits."""
        (stream,) = self.streams(1)
        self.launch_wide(name, stream, *values)
        synchronise(stream)

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
            self.to_its_end("fill", made.address, made.size, made.size, made.size)

    def poison(self, kind: str, size: int, row: int, pitch: int) -> None:
        """Overwrites a target of rows of `row` bytes, `pitch` apart, with what no copy could have left."""
        at = self.buffer(kind, "target", size // row * pitch)
        if kind == "pageable":
            target, pattern = view(at, size), view(self._pattern(), size)
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
            wrong = self.counted(lambda found: self.to_its_end("check", at, size, row, pitch, found))
        if wrong:
            raise WrongDataError(
                f"data arrived changed in {kind} memory ({wrong} places of {size} bytes); the link is not sound"
            )

    def counted(self, count: Callable[[int], None]) -> int:
        """The number that kernels add up, once they are done, at the address that `count` is given."""
        checked(driver.cuMemsetD8(self._wrong.address, 0, 8), "cuMemsetD8")
        count(self._wrong.address)
        return int.from_bytes(download(self._wrong.address, 8), "little")

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


def require_room(on_host: float, on_gpu: float) -> None:
    """Raises UnavailableError where so many bytes are too much of what the host or the current GPU has free."""
    free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
    # `roomy_bytes` is an eighth of the memory that there is.
    for what, bytes_, most in (
        ("host", on_host, _OF_HOST * 8 * roomy_bytes()),
        ("GPU", on_gpu, _OF_GPU * free),
    ):
        if bytes_ > most:
            raise UnavailableError(
                f"{bytes_:.0f} bytes are more than the {most:.0f} of the {what}'s memory to be had"
            )


class CudaHost:
    """What all that measures real GPUs has: the machine's facts, and a board a GPU, made when first used."""

    virtual = False
    #: The largest buffer of a board.
    most_bytes = MOST_BYTES

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.boards: dict[int, Board] = {}

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def clock(self) -> float:
        return time.monotonic()

    def board_of(self, ordinal: int) -> Board:
        """The GPU of a number; its context is current where this is its first use."""
        if ordinal not in self.boards:
            self.boards[ordinal] = Board(ordinal, self.most_bytes)
        return self.boards[ordinal]

    def close(self) -> None:
        for board in self.boards.values():
            board.close()
        self.boards.clear()


class FirstGpu(CudaHost):
    """What benchmarks on the first GPU have: its board and their own kernels, made when first used; and memory by name."""

    #: Of bench.cu, by the ctypes of their arguments.
    KERNELS: ClassVar[Mapping[str, Sequence[Any]]]

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self.buffers: dict[str, Buffer] = {}

    @property
    def board(self) -> Board:
        """The GPU, its context current."""
        if not self.boards:
            board = Board(0)
            self._module = Module(source_of("bench.cu"), "bench.cu", board.capability, self.KERNELS)
            self.boards[0] = board
            self.warm_up()
            finish()
        self.boards[0].enter()
        return self.boards[0]

    def warm_up(self) -> None:
        """Launches on nothing what is launched behind the blocking kernel: loaded late it would wait for that kernel, which
        waits for it.
        """

    def take(self, **wanted: tuple[str, int]) -> None:
        """Memory by name, of a kind and so many bytes, in place of the former. Raises UnavailableError."""
        self.give()
        try:
            for name, (kind, size) in wanted.items():
                self.buffers[name] = allocate(kind, size)
        except BaseException:
            self.give()
            raise

    def at(self, name: str) -> int:
        """The address of a buffer."""
        return self.buffers[name].address

    def give(self) -> None:
        """Gives the memory back."""
        for buffer in self.buffers.values():
            buffer.free()
        self.buffers.clear()

    def close(self) -> None:
        if self.boards:
            self.boards[0].enter()
            self.give()
            self._module.unload()
        super().close()
