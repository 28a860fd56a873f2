"""A program on one GPU: its arrays and kernel, and one prepared call an operation."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

from busfare.measure.bench.kernel import Kernel, source_text
from busfare.measure.bench.program import Operation, Program
from busfare.measure.bench.work import ELEMENT_BYTES, Work
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.events import record, wait
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.measure.device import UnavailableError

__all__ = ["Gpu", "Issue", "spaced"]

_THREADS = 256
#: Arrays start at multiples of this, as allocators give.
_PAGE = 4096
#: Of the device memory that is free, a benchmark takes at most this share.
_DEVICE_SHARE = 0.8
#: As long as in `probe`.
_LEAD_IN_BYTES = 1 << 16
_NO_TIME = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
_CAPTURE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def spaced(bytes_: int) -> int:
    """Bytes from the start of one array to the next."""
    return -(-bytes_ // _PAGE) * _PAGE


class Gpu:
    """One GPU's part: its arrays, the kernel, and events that mark what others wait for."""

    def __init__(self, ordinal: int) -> None:
        self.board = Board(ordinal)
        self._arena: Buffer | None = None
        self._marks: list[Any] = []
        self._module: Any = None
        self.function: Any = None

    def load(self, kernel: Kernel, bytes_: int) -> int:
        """Loads the kernel and makes room for all arrays; the address of the first one."""
        self.board.enter()
        if self._arena is None or self._arena.size < bytes_:
            self._free_arena()
            free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
            if bytes_ > _DEVICE_SHARE * free:
                raise UnavailableError(f"{bytes_} bytes of device memory; {free} are free")
            self._arena = allocate("device", bytes_)
        self._unload()
        name = f"{kernel.name}.cu" if kernel.source else "kernels.cu"
        code = compiled(source_text(kernel), name, self.board.capability, (f"-DWORK={kernel.work}",))
        self._module = checked(driver.cuModuleLoadData(code), "cuModuleLoadData")
        self.function = checked(
            driver.cuModuleGetFunction(self._module, kernel.function.encode()),
            f"cuModuleGetFunction({kernel.function})",
        )
        self._once(kernel)
        return self._arena.address

    def _once(self, kernel: Kernel) -> None:
        """Launches it on nothing: what is loaded late would otherwise wait for the blocking kernel, which waits for it."""
        assert self._arena is not None
        arrays = kernel.inputs + kernel.outputs
        values = (*(self._arena.address,) * arrays, 0, 0, 1)
        kinds = (*(ctypes.c_void_p,) * arrays, *(ctypes.c_ulonglong,) * 3)
        answer = driver.cuLaunchKernel(
            self.function, 1, 1, 1, 1, 1, 1, 0, self.board.streams(1)[0], (values, kinds), 0
        )
        checked(answer, f"cuLaunchKernel({kernel.name})")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def clear(self, bytes_: int) -> None:
        """All bits set: NaN as doubles."""
        assert self._arena is not None
        self.board.enter()
        checked(driver.cuMemsetD8(self._arena.address, 0xFF, bytes_), "cuMemsetD8")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def marks(self, count: int) -> list[Any]:
        """So many events that hold no time."""
        while len(self._marks) < count:
            self._marks.append(checked(driver.cuEventCreate(_NO_TIME), "cuEventCreate"))
        return self._marks[:count]

    def _unload(self) -> None:
        if self._module is not None:
            checked(driver.cuModuleUnload(self._module), "cuModuleUnload")
            self._module = None

    def _free_arena(self) -> None:
        if self._arena is not None:
            self._arena.free()
            self._arena = None

    def close(self) -> None:
        self.board.enter()
        self._unload()
        self._free_arena()
        for mark in self._marks:
            checked(driver.cuEventDestroy(mark), "cuEventDestroy")
        self._marks.clear()
        self.board.close()


class Issue:
    """A program ready to be issued: one prepared call an operation, and what makes it wait."""

    def __init__(self, gpu: Gpu, program: Program, host: int, device: int, work: Work) -> None:
        self._gpu, self._program, self._work = gpu, program, work
        self._host, self._device = host, device
        self.board = gpu.board
        self.board.enter()
        self.first, *self._streams = self.board.streams(program.streams + 1)
        #: What runs in one stream, or behind it, follows its own start; several streams wait for an event.
        self._alone = program.led and not program.as_graph
        if self._alone:
            self._streams[0] = self.first
        self._start, *self._ended = self.board.events(program.streams + 1)
        awaited = sorted(program.awaited)
        self._mark = dict(zip(awaited, gpu.marks(len(awaited)), strict=True))
        self._calls = [call for n, op in enumerate(program.operations) for call in self._of(n, op)]
        self._graph: Any = None
        self._runnable: Any = None
        if program.as_graph:
            self._capture(gpu.marks(len(awaited) + 1 + program.streams)[len(awaited) :])

    def submit(self) -> None:
        """Everything, behind one event; each stream's end is marked."""
        if self._alone:
            self._lead_in()
        record(self._start, self.first)
        if self._runnable is not None:
            checked(driver.cuGraphLaunch(self._runnable, self.first), "cuGraphLaunch")
            record(self._ended[0], self.first)
            return
        for stream in self._streams if not self._alone else ():
            wait(stream, self._start)
        self.call()
        for stream, ended in zip(self._streams, self._ended, strict=True):
            record(ended, stream)

    def call(self) -> None:
        """What a program itself would call."""
        if self._runnable is not None:
            checked(driver.cuGraphLaunch(self._runnable, self.first), "cuGraphLaunch")
            return
        for call in self._calls:
            call()

    def _lead_in(self) -> None:
        """A short copy of the same way before the clock starts, as in `probe`: the copy engine then holds the stream, and
        the way from the blocking kernel to it is not in the time.
        """
        op = self._program.operations[0]
        if op.kind == "h2d":
            target, source = self._ends(op, op.arrays[0])
            size = min(op.part.count * ELEMENT_BYTES, _LEAD_IN_BYTES)
            checked(driver.cuMemcpyHtoDAsync(target, source, size, self.first), "cuMemcpyHtoDAsync")

    def seconds(self) -> float:
        """From the start to the end of the last stream."""
        return max(self.ends())

    def ends(self) -> tuple[float, ...]:
        """Seconds from the start to the end of each stream; of a graph, to its end."""
        ended = self._ended[:1] if self._runnable is not None else self._ended
        return tuple(
            float(checked(driver.cuEventElapsedTime(self._start, end), "cuEventElapsedTime")) * 1e-3
            for end in ended
        )

    def close(self) -> None:
        self.board.enter()
        if self._runnable is not None:
            checked(driver.cuGraphExecDestroy(self._runnable), "cuGraphExecDestroy")
            checked(driver.cuGraphDestroy(self._graph), "cuGraphDestroy")
            self._runnable = self._graph = None

    def _capture(self, marks: list[Any]) -> None:
        fork, *joins = marks
        checked(driver.cuStreamBeginCapture(self.first, _CAPTURE), "cuStreamBeginCapture")
        try:
            record(fork, self.first)
            for stream in self._streams:
                wait(stream, fork)
            for call in self._calls:
                call()
            for stream, join in zip(self._streams, joins, strict=True):
                record(join, stream)
                wait(self.first, join)
        finally:
            self._graph = checked(driver.cuStreamEndCapture(self.first), "cuStreamEndCapture")
        self._runnable = checked(driver.cuGraphInstantiate(self._graph, 0), "cuGraphInstantiate")

    def _of(self, index: int, op: Operation) -> list[Callable[[], None]]:
        """The calls of one operation: waits, the work itself, and a mark for those that wait for it."""
        stream = self._streams[op.stream]
        calls: list[Callable[[], None]] = [_waiting(stream, self._mark[other]) for other in op.after]
        if op.kind == "kernel":
            calls.append(self._kernel(op, stream))
        elif len(op.arrays) > 1:
            calls.append(self._batch(op, stream))
        else:
            calls.append(self._copy(op, stream))
        if index in self._mark:
            calls.append(_recording(self._mark[index], stream))
        return calls

    def _at(self, base: int, array: int, element: int) -> int:
        return base + array * spaced(self._work.array_bytes) + element * ELEMENT_BYTES

    def _ends(self, op: Operation, array: int) -> tuple[int, int]:
        """Target and source of a copy of one array."""
        place = array if op.kind == "h2d" else self._work.kernel.inputs + array
        host, device = (self._at(base, place, op.part.first) for base in (self._host, self._device))
        return (device, host) if op.kind == "h2d" else (host, device)

    def _copy(self, op: Operation, stream: Any) -> Callable[[], None]:
        target, source = self._ends(op, op.arrays[0])
        size = op.part.count * ELEMENT_BYTES
        if op.kind == "h2d":
            return lambda: checked(
                driver.cuMemcpyHtoDAsync(target, source, size, stream), "cuMemcpyHtoDAsync"
            )
        return lambda: checked(driver.cuMemcpyDtoHAsync(target, source, size, stream), "cuMemcpyDtoHAsync")

    def _batch(self, op: Operation, stream: Any) -> Callable[[], None]:
        if not hasattr(driver, "cuMemcpyBatchAsync"):
            raise UnavailableError("this driver has no cuMemcpyBatchAsync (CUDA 12.8 and newer have)")
        ends = [self._ends(op, array) for array in op.arrays]
        targets, sources = ([driver.CUdeviceptr(pair[n]) for pair in ends] for n in (0, 1))
        count = len(ends)
        sizes = [op.part.count * ELEMENT_BYTES] * count
        attributes = driver.CUmemcpyAttributes()
        attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        return lambda: checked(
            driver.cuMemcpyBatchAsync(targets, sources, sizes, count, [attributes], [0], 1, stream),
            "cuMemcpyBatchAsync",
        )

    def _kernel(self, op: Operation, stream: Any) -> Callable[[], None]:
        kernel, program = self._work.kernel, self._program
        into, out = (self._host if own else self._device for own in (program.mapped_in, program.mapped_out))
        pointers = [self._at(into, n, 0) for n in range(kernel.inputs)]
        pointers += [self._at(out, kernel.inputs + n, 0) for n in range(kernel.outputs)]
        values = (*pointers, op.part.first, op.part.count, self._work.level)
        kinds = (*(ctypes.c_void_p,) * len(pointers), *(ctypes.c_ulonglong,) * 3)
        function, blocks = self._gpu.function, math.ceil(op.part.count / _THREADS)
        return lambda: checked(
            driver.cuLaunchKernel(function, blocks, 1, 1, _THREADS, 1, 1, 0, stream, (values, kinds), 0),
            f"cuLaunchKernel({kernel.name})",
        )


def _recording(event: Any, stream: Any) -> Callable[[], None]:
    return lambda: record(event, stream)


def _waiting(stream: Any, event: Any) -> Callable[[], None]:
    return lambda: wait(stream, event)
