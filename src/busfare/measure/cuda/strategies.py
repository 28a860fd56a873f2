"""Programs of strategies run on NVIDIA GPUs: streams, events, mapped memory, batches and graphs through the driver."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from busfare.measure.bench.device import Timing
from busfare.measure.bench.kernel import Kernel, source_text
from busfare.measure.bench.program import Operation, Program
from busfare.measure.bench.work import ELEMENT_BYTES, Work
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.measure.device import StalledError, UnavailableError
from busfare.node.arrays import FloatArray

__all__ = ["CudaStrategies"]

_THREADS = 256
#: Arrays start at multiples of this, as allocators give.
_PAGE = 4096
#: Of the device memory that is free, and of host memory, a benchmark takes at most these shares.
_DEVICE_SHARE, _HOST_SHARE = 0.8, 0.4
_NO_TIME = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
_CAPTURE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def _spaced(bytes_: int) -> int:
    return -(-bytes_ // _PAGE) * _PAGE


class _Gpu:
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


class _Issue:
    """A program ready to be issued: one prepared call an operation, and what makes it wait."""

    def __init__(self, gpu: _Gpu, program: Program, host: int, device: int, work: Work) -> None:
        self._gpu, self._program, self._work = gpu, program, work
        self._host, self._device = host, device
        self.board = gpu.board
        self.board.enter()
        self.first, *self._streams = self.board.streams(program.streams + 1)
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
        _record(self._start, self.first)
        if self._runnable is not None:
            checked(driver.cuGraphLaunch(self._runnable, self.first), "cuGraphLaunch")
            _record(self._ended[0], self.first)
            return
        for stream in self._streams:
            _wait(stream, self._start)
        self.call()
        for stream, ended in zip(self._streams, self._ended, strict=True):
            _record(ended, stream)

    def call(self) -> None:
        """What a program itself would call."""
        if self._runnable is not None:
            checked(driver.cuGraphLaunch(self._runnable, self.first), "cuGraphLaunch")
            return
        for call in self._calls:
            call()

    def seconds(self) -> float:
        """From the start to the end of the last stream."""
        ended = self._ended[:1] if self._runnable is not None else self._ended
        return max(
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
            _record(fork, self.first)
            for stream in self._streams:
                _wait(stream, fork)
            for call in self._calls:
                call()
            for stream, join in zip(self._streams, joins, strict=True):
                _record(join, stream)
                _wait(self.first, join)
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
        return base + array * _spaced(self._work.array_bytes) + element * ELEMENT_BYTES

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


def _record(event: Any, stream: Any) -> None:
    checked(driver.cuEventRecord(event, stream), "cuEventRecord")


def _wait(stream: Any, event: Any) -> None:
    checked(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent")


def _recording(event: Any, stream: Any) -> Callable[[], None]:
    return lambda: _record(event, stream)


def _waiting(stream: Any, event: Any) -> Callable[[], None]:
    return lambda: _wait(stream, event)


class CudaStrategies:
    """Runs programs on the machine's GPUs."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._opened: dict[int, _Gpu] = {}
        self._arena: Buffer | None = None
        self._device: dict[int, int] = {}
        self._work: Work | None = None
        #: Programs of so many operations do not fit the launch queues while they are held.
        self._too_many = 1 << 30

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def load(self, work: Work) -> None:
        self._work = None
        arrays = work.kernel.inputs + work.kernel.outputs
        bytes_ = arrays * _spaced(work.array_bytes)
        try:
            gpu = self._gpu(0)
            self._device = {0: gpu.load(work.kernel, bytes_)}
            if self._arena is None or self._arena.size < bytes_:
                self._free_arena()
                # `roomy_bytes` is an eighth of the memory that there is.
                if bytes_ > 8 * _HOST_SHARE * facts.roomy_bytes():
                    raise UnavailableError(f"{bytes_} bytes of pinned memory are too much of this host's")
                self._arena = allocate("pinned", bytes_)
        except CudaError as error:
            raise UnavailableError(str(error)) from None
        self._work = work

    def _gpu(self, ordinal: int) -> _Gpu:
        if ordinal not in self._opened:
            self._opened[ordinal] = _Gpu(ordinal)
        return self._opened[ordinal]

    def _arrays(self, first: int, count: int) -> list[FloatArray]:
        assert self._arena is not None and self._work is not None
        step = _spaced(self._work.array_bytes)
        kind = ctypes.c_double * self._work.elements
        return [
            np.ctypeslib.as_array(kind.from_address(self._arena.address + n * step))
            for n in range(first, first + count)
        ]

    def inputs(self) -> list[FloatArray]:
        return self._arrays(0, self._of().kernel.inputs)

    def outputs(self) -> list[FloatArray]:
        return self._arrays(self._of().kernel.inputs, self._of().kernel.outputs)

    def _of(self) -> Work:
        assert self._work is not None, "no work was loaded"
        return self._work

    def clear(self) -> None:
        arrays = self._of().kernel.inputs + self._of().kernel.outputs
        for ordinal in self._device:
            self._opened[ordinal].clear(arrays * _spaced(self._of().array_bytes))

    def run(self, programs: Sequence[Program], repeats: int, host: bool = True) -> Timing:
        try:
            return self._run(programs, repeats, host)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, programs: Sequence[Program], repeats: int, host: bool) -> Timing:
        issues = [self._issue(ordinal, program) for ordinal, program in enumerate(programs)]
        longest = max(len(program.operations) for program in programs)
        held = longest < self._too_many
        try:
            device_s = []
            for _ in range(repeats):
                if held:
                    try:
                        device_s.append(_held(issues))
                        continue
                    except StalledError:
                        self._too_many, held = longest, False
                        device_s.clear()
                device_s.append(_free(issues))
            host_s = tuple(_called(issues) for _ in range(repeats)) if host else ()
        finally:
            for issue in issues:
                issue.close()
        return Timing(tuple(device_s), host_s, held)

    def _issue(self, ordinal: int, program: Program) -> _Issue:
        work = self._of()
        assert self._arena is not None
        if ordinal not in self._device:
            arrays = work.kernel.inputs + work.kernel.outputs
            bytes_ = arrays * _spaced(work.array_bytes)
            self._device[ordinal] = self._gpu(ordinal).load(work.kernel, bytes_)
            self._opened[ordinal].clear(bytes_)
        return _Issue(self._gpu(ordinal), program, self._arena.address, self._device[ordinal], work)

    def _free_arena(self) -> None:
        if self._arena is not None:
            self._gpu(0).board.enter()
            self._arena.free()
            self._arena = None

    def close(self) -> None:
        self._work = None
        self._free_arena()
        for gpu in self._opened.values():
            gpu.close()
        self._opened.clear()


def _held(issues: list[_Issue]) -> float:
    """Seconds of all programs at once, each behind its GPU's blocking kernel until everything is submitted."""
    try:
        for issue in issues:
            issue.board.enter()
            issue.board.flags.hold(issue.first)
            issue.submit()
    finally:
        for issue in issues:
            issue.board.flags.release()
        _finished(issues)
    for issue in issues:
        issue.board.flags.verify()
    return max(issue.seconds() for issue in issues)


def _free(issues: list[_Issue]) -> float:
    """The same without holding them: gaps between the host's calls are in it."""
    for issue in issues:
        issue.board.enter()
        issue.submit()
    _finished(issues)
    return max(issue.seconds() for issue in issues)


def _called(issues: list[_Issue]) -> float:
    """Seconds of the host's clock from the first call until everything is done."""
    began = time.perf_counter()
    for issue in issues:
        issue.board.enter()
        issue.call()
    _finished(issues)
    return time.perf_counter() - began


def _finished(issues: list[_Issue]) -> None:
    for issue in issues:
        issue.board.enter()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
