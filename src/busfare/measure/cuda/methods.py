"""S16's program on an NVIDIA GPU: a vector times a constant, with each way of getting it there and back."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.device import RANGES, MethodRun
from busfare.measure.bench.methods import BATCH, CONSTANT, HELD, VALUE
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.measure.cuda.ranges import named
from busfare.measure.device import StalledError, UnavailableError, WrongDataError

__all__ = ["CudaMethods", "expected_value"]

Ints = npt.NDArray[np.int32]
#: S16's blocks.
_THREADS = 1024
#: Managed memory stays well below what the device has free, so that nothing is evicted.
_MANAGED_SHARE = 0.4
_DEVICE_SHARE, _HOST_SHARE = 0.8, 0.3
#: Samples of the kernel alone.
_ALONE = 7
#: As long as in `probe`.
_LEAD_IN_BYTES = 1 << 16
#: Elements that one thread checks at once.
_CHECKED = 1 << 20
_HOST_KINDS = {
    "pageable": "pageable",
    "pinned": "pinned",
    "batched": "pinned",
    "registered": "registered",
    "zero-copy": "pinned",
    "managed": "managed",
    "managed-prefetch": "managed",
}


def expected_value(accesses: int) -> int:
    """What each element holds in the end, in 32 bits as the GPU reckons."""
    value = VALUE * pow(CONSTANT, accesses, 1 << 32) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


class CudaMethods:
    """Runs methods on the machine's first GPU."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._board: Board | None = None
        self._module: Any = None
        self._function: Any = None
        self._method = ""
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
        self._host: Buffer | None = None
        self._device: Buffer | None = None

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self._gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def start(self, method: str, most_elements: int) -> float:
        try:
            return self._started(method, 4 * most_elements)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _started(self, method: str, bytes_: int) -> float:
        board = self._opened()
        self._free()
        self._method = method
        if bytes_ > 8 * _HOST_SHARE * facts.roomy_bytes():
            raise UnavailableError(f"{bytes_} bytes are too much of this host's memory")
        free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
        kind = _HOST_KINDS[method]
        share = _MANAGED_SHARE if kind == "managed" else _DEVICE_SHARE
        if bytes_ > share * free:
            raise UnavailableError(
                f"{bytes_} bytes are more than {share:.0%} of the {free} that the GPU has free"
            )
        if method == "batched" and not hasattr(driver, "cuMemcpyBatchAsync"):
            raise UnavailableError("this driver has no cuMemcpyBatchAsync (CUDA 12.8 and newer have)")
        concurrent = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        if method == "managed-prefetch" and not board.attribute(concurrent):
            raise UnavailableError("this GPU and system do not prefetch managed memory")
        began = time.perf_counter()
        self._host = allocate(kind, bytes_)
        took = time.perf_counter() - began
        if kind != "managed" and method != "zero-copy":
            self._device = allocate("device", bytes_)
        if method == "managed-prefetch":
            prefer = driver.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
            checked(driver.cuMemAdvise(self._host.address, bytes_, prefer, self._place(True)), "cuMemAdvise")
        return took

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        try:
            found = [self._run(elements, accesses) for _ in range(runs + 1)]
        except CudaError as error:
            raise UnavailableError(str(error)) from None
        return found[1:]

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        if self._method not in HELD:
            return []
        try:
            return [self._held(elements, accesses) for _ in range(runs)]
        except StalledError:
            return []
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _held(self, elements: int, accesses: int) -> dict[str, float]:
        """One run whose GPU part is submitted before it begins: no gap between the host's calls is in it."""
        assert self._board is not None
        board, vector = self._board, self._vector(elements)
        (stream,), marks = board.streams(1), board.events(4)
        vector.fill(VALUE)
        into, out = (self._mover(way, 4 * elements, stream) for way in ("h2d", "d2h"))
        steps = (into, lambda: self._launch(self._at(), elements, accesses, stream), out)
        board.flags.hold(stream)
        if into is not None and self._device is not None and self._host is not None:
            # The copy engine then holds the stream, as in `probe`.
            size = min(4 * elements, _LEAD_IN_BYTES)
            first = driver.cuMemcpyHtoDAsync(self._device.address, self._host.address, size, stream)
            checked(first, "cuMemcpyHtoDAsync")
        checked(driver.cuEventRecord(marks[0], stream), "cuEventRecord")
        for step, mark in zip(steps, marks[1:], strict=True):
            if step is not None:
                step()
            checked(driver.cuEventRecord(mark, stream), "cuEventRecord")
        board.flags.release()
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        board.flags.verify()
        self._check(vector, None, accesses)
        present = dict(zip(("h2d", "kernel", "d2h"), steps, strict=True))
        spans = (_between(*pair) for pair in pairwise(marks))
        return {name: span if present[name] else 0.0 for name, span in zip(present, spans, strict=True)}

    def _vector(self, elements: int) -> Ints:
        assert self._host is not None
        return np.ctypeslib.as_array((ctypes.c_int32 * elements).from_address(self._host.address))

    def _at(self) -> int:
        """The address that the kernel is given."""
        assert self._host is not None
        return self._host.address if self._device is None else self._device.address

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        board = self._opened()
        buffer = allocate("device", 4 * elements)
        try:
            (stream,), (start, end) = board.streams(1), board.events(2)
            taken = []
            for _ in range(_ALONE):
                board.flags.hold(stream)
                checked(driver.cuEventRecord(start, stream), "cuEventRecord")
                self._launch(buffer.address, elements, accesses, stream)
                checked(driver.cuEventRecord(end, stream), "cuEventRecord")
                board.flags.release()
                checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
                board.flags.verify()
                taken.append(_between(start, end))
        finally:
            buffer.free()
        return sorted(taken)[_ALONE // 2]

    def close(self) -> None:
        self._threads.shutdown()
        if self._board is not None:
            self._board.enter()
            self._free()
            checked(driver.cuModuleUnload(self._module), "cuModuleUnload")
            self._board.close()
            self._board = None

    def _opened(self) -> Board:
        if self._board is None:
            board = Board(0)
            source = resources.files("busfare.measure.bench").joinpath("kernels.cu").read_text("utf-8")
            code = compiled(source, "kernels.cu", board.capability)
            self._module = checked(driver.cuModuleLoadData(code), "cuModuleLoadData")
            self._function = checked(
                driver.cuModuleGetFunction(self._module, b"multiply"), "cuModuleGetFunction"
            )
            self._board = board
            # What is loaded late would wait for the blocking kernel, which waits for it.
            self._launch(board.flags.address, 0, 0, board.streams(1)[0])
            checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        self._board.enter()
        return self._board

    def _launch(self, address: int, elements: int, accesses: int, stream: Any) -> None:
        values = (address, CONSTANT, elements, accesses)
        kinds = (ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong, ctypes.c_int)
        blocks = max(1, math.ceil(elements / _THREADS))
        answer = driver.cuLaunchKernel(
            self._function, blocks, 1, 1, _THREADS, 1, 1, 0, stream, (values, kinds), 0
        )
        checked(answer, "cuLaunchKernel(multiply)")

    def _place(self, gpu: bool) -> Any:
        place = driver.CUmemLocation()
        kinds = driver.CUmemLocationType
        place.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE if gpu else kinds.CU_MEM_LOCATION_TYPE_HOST
        if gpu:
            place.id = 0
        return place

    def _run(self, elements: int, accesses: int) -> MethodRun:
        assert self._board is not None
        vector, at = self._vector(elements), self._at()
        stream = self._board.streams(1)[0]
        seconds: dict[str, float] = {}
        device: dict[str, float] = {}
        total = 0

        def summed() -> None:
            nonlocal total
            total = int(vector.sum(dtype=np.int64))

        into, out = (self._mover(way, 4 * elements, stream) for way in ("h2d", "d2h"))
        steps: dict[str, Callable[[], object] | None] = {
            "initialise": lambda: vector.fill(VALUE),
            "h2d": into,
            "kernel": lambda: self._launch(at, elements, accesses, stream),
            "d2h": out,
            "sum": summed,
        }
        for name in RANGES:
            step = steps[name]
            if step is None:
                seconds[name] = 0.0
                continue
            on_gpu = name in ("h2d", "kernel", "d2h")
            with named(name):
                seconds[name] = self._timed(step, stream if on_gpu else None)
            if on_gpu:
                device[name] = _between(*self._board.events(2))
        self._check(vector, total, accesses)
        return MethodRun(seconds, device)

    def _timed(self, step: Callable[[], object], stream: Any) -> float:
        """Seconds of the host's clock until the step, and what it put into `stream`, is done."""
        assert self._board is not None
        began = time.perf_counter()
        if stream is None:
            step()
            return time.perf_counter() - began
        start, end = self._board.events(2)
        checked(driver.cuEventRecord(start, stream), "cuEventRecord")
        step()
        checked(driver.cuEventRecord(end, stream), "cuEventRecord")
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        return time.perf_counter() - began

    def _mover(self, way: str, bytes_: int, stream: Any) -> Callable[[], object] | None:
        """What moves the vector that way; None where the kernel, or a page fault, does."""
        assert self._host is not None
        host, into = self._host.address, way == "h2d"
        if self._method == "managed-prefetch":
            place = self._place(into)
            return lambda: checked(
                driver.cuMemPrefetchAsync(host, bytes_, place, 0, stream), "cuMemPrefetchAsync"
            )
        if self._device is None:
            return None
        target, source = (self._device.address, host) if into else (host, self._device.address)
        if self._method == "batched":
            return _batched(target, source, bytes_, stream)
        if into:
            return lambda: checked(
                driver.cuMemcpyHtoDAsync(target, source, bytes_, stream), "cuMemcpyHtoDAsync"
            )
        return lambda: checked(driver.cuMemcpyDtoHAsync(target, source, bytes_, stream), "cuMemcpyDtoHAsync")

    def _check(self, vector: Ints, total: int | None, accesses: int) -> None:
        """Every element, on all processors, and the sum where it was taken. Raises WrongDataError."""
        value = expected_value(accesses)
        parts = (vector[n : n + _CHECKED] for n in range(0, len(vector), _CHECKED))
        wrong = sum(self._threads.map(lambda part: int(np.count_nonzero(part != value)), parts))
        if wrong or total not in (None, value * len(vector)):
            raise WrongDataError(
                f"{wrong} of {len(vector)} elements are not {value}, the sum is {total} ({self._method})"
            )

    def _free(self) -> None:
        for buffer in (self._host, self._device):
            if buffer is not None:
                buffer.free()
        self._host = self._device = None


def _between(start: Any, end: Any) -> float:
    return float(checked(driver.cuEventElapsedTime(start, end), "cuEventElapsedTime")) * 1e-3


def _batched(target: int, source: int, bytes_: int, stream: Any) -> Callable[[], object]:
    """The vector in pieces, in one call."""
    piece = max(4, bytes_ // BATCH)
    starts = range(0, bytes_, piece)
    sizes = [min(piece, bytes_ - at) for at in starts]
    targets, sources = ([driver.CUdeviceptr(base + at) for at in starts] for base in (target, source))
    attributes = driver.CUmemcpyAttributes()
    attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    count = len(sizes)
    return lambda: checked(
        driver.cuMemcpyBatchAsync(targets, sources, sizes, count, [attributes], [0], 1, stream),
        "cuMemcpyBatchAsync",
    )
