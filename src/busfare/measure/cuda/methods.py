"""S16's program on an NVIDIA GPU: a vector times a constant, with each way of getting it there and back."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.methods import BATCH, CONSTANT, HELD, VALUE
from busfare.measure.bench.run import RANGES, MethodRun
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import batched
from busfare.measure.cuda.driver import (
    INT,
    LONG,
    POINTER,
    Buffer,
    CudaError,
    Module,
    allocate,
    checked,
    driver,
    prefer_gpu,
    prefetch,
)
from busfare.measure.cuda.timing import LEAD_IN_BYTES, record, seconds
from busfare.measure.device import StalledError, UnavailableError, WrongDataError

try:
    import nvtx
except ImportError:
    nvtx = None

Ints = npt.NDArray[np.int32]
#: What puts a part of the program into a stream; None where nothing is to be done.
Step = Callable[[Any], None] | None
#: S16's blocks.
_THREADS = 1024
#: Managed memory stays well below what the device has free, so that nothing is evicted.
_MANAGED_SHARE = 0.4
_DEVICE_SHARE, _HOST_SHARE = 0.8, 0.3
#: Samples of the kernel alone.
_ALONE = 7
#: Elements that one thread checks at once.
_CHECKED = 1 << 20
_GPU_RANGES = ("h2d", "kernel", "d2h")
#: The host memory of each method; the others have that of their own name.
_HOST_KINDS = {"batched": "pinned", "zero-copy": "pinned", "managed-prefetch": "managed"}


def expected_value(accesses: int) -> int:
    """What each element holds in the end, in 32 bits as the GPU reckons."""
    value = VALUE * pow(CONSTANT, accesses, 1 << 32) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


class CudaMethods(facts.CudaHost):
    """Runs methods on the machine's first GPU."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._method = ""
        self._board: Board | None = None
        self._module: Module | None = None
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
        self._host: Buffer | None = None
        self._device: Buffer | None = None

    def start(self, method: str, most_elements: int) -> float:
        try:
            return self._started(method, 4 * most_elements)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _started(self, method: str, bytes_: int) -> float:
        board = self._opened()
        self._free()
        self._method, kind = method, _HOST_KINDS.get(method, method)
        if bytes_ > 8 * _HOST_SHARE * facts.roomy_bytes():
            raise UnavailableError(f"{bytes_} bytes are too much of this host's memory")
        free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
        share = _MANAGED_SHARE if kind == "managed" else _DEVICE_SHARE
        if bytes_ > share * free:
            raise UnavailableError(
                f"{bytes_} bytes are more than {share:.0%} of the {free} that the GPU has free"
            )
        concurrent = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        if method == "managed-prefetch" and not board.attribute(concurrent):
            raise UnavailableError("this GPU and system do not prefetch managed memory")
        began = time.perf_counter()
        self._host = allocate(kind, bytes_)
        took = time.perf_counter() - began
        if kind != "managed" and method != "zero-copy":
            self._device = allocate("device", bytes_)
        if method == "managed-prefetch":
            prefer_gpu(self._host.address, bytes_, 0)
        return took

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        try:
            return [self._run(elements, accesses) for _ in range(runs + 1)][1:]
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, elements: int, accesses: int) -> MethodRun:
        """One run, its ranges by the host's clock, and those of the GPU by events too."""
        vector, steps = self._vector(elements), self._steps(elements, accesses)
        total: list[int] = []
        host_steps: dict[str, Callable[[], object]] = {
            "initialise": lambda: vector.fill(VALUE),
            "sum": lambda: total.append(int(vector.sum(dtype=np.int64))),
        }
        taken, device = dict.fromkeys(RANGES, 0.0), {}
        for name in RANGES:
            with nullcontext() if nvtx is None else nvtx.annotate(name, domain="busfare"):
                began = time.perf_counter()
                if name in host_steps:
                    host_steps[name]()
                elif steps[name] is not None:
                    device[name] = self._spans({name: steps[name]})[name]
                else:
                    continue
                taken[name] = time.perf_counter() - began
        self._check(vector, total[0], accesses)
        return MethodRun(taken, device)

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        if self._method not in HELD:
            return []
        vector, steps = self._vector(elements), self._steps(elements, accesses)
        found: list[Mapping[str, float]] = []
        try:
            for _ in range(runs):
                vector.fill(VALUE)
                spans = self._spans(steps, held=True)
                self._check(vector, None, accesses)
                found.append({name: spans[name] if steps[name] else 0.0 for name in _GPU_RANGES})
        except StalledError:
            return []
        except CudaError as error:
            raise UnavailableError(str(error)) from None
        return found

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        self._opened()
        buffer = allocate("device", 4 * elements)
        step = {"kernel": self._launcher(buffer.address, elements, accesses)}
        try:
            taken = [self._spans(step, held=True)["kernel"] for _ in range(_ALONE)]
        finally:
            buffer.free()
        return sorted(taken)[_ALONE // 2]

    def _spans(self, steps: Mapping[str, Step], held: bool = False) -> dict[str, float]:
        """Seconds of each step by events; `held`: all are submitted before the first one begins, behind a short copy where
        that is a copy, so that the copy engine holds the stream as in `probe`.
        """
        assert self._board is not None
        board = self._board
        (stream,), marks = board.streams(1), board.events(len(steps) + 1)
        if held:
            board.flags.hold(stream)
            if self._host is not None and self._device is not None and steps.get("h2d"):
                size = min(self._host.size, LEAD_IN_BYTES)
                first = driver.cuMemcpyHtoDAsync(self._device.address, self._host.address, size, stream)
                checked(first, "cuMemcpyHtoDAsync")
        record(marks[0], stream)
        for step, mark in zip(steps.values(), marks[1:], strict=True):
            if step is not None:
                step(stream)
            record(mark, stream)
        board.flags.release()
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        if held:
            board.flags.verify()
        return {name: seconds(*pair) for name, pair in zip(steps, pairwise(marks), strict=True)}

    def _steps(self, elements: int, accesses: int) -> dict[str, Step]:
        """What the GPU does in each range; None where the kernel, or a page fault, moves the data."""
        assert self._host is not None
        at = self._host.address if self._device is None else self._device.address
        into, out = (self._mover(direction, 4 * elements) for direction in ("h2d", "d2h"))
        return {"h2d": into, "kernel": self._launcher(at, elements, accesses), "d2h": out}

    def _mover(self, direction: str, bytes_: int) -> Step:
        """What moves the vector in one direction."""
        assert self._host is not None
        host, into = self._host.address, direction == "h2d"
        if self._method == "managed-prefetch":
            return lambda stream: prefetch(host, bytes_, 0 if into else None, stream)
        if self._device is None:
            return None
        target, source = (self._device.address, host) if into else (host, self._device.address)
        if self._method == "batched":
            piece = max(4, bytes_ // BATCH)
            starts = range(0, bytes_, piece)
            return batched(
                [(target + n, source + n) for n in starts], [min(piece, bytes_ - n) for n in starts]
            )
        copy = driver.cuMemcpyHtoDAsync if into else driver.cuMemcpyDtoHAsync
        return lambda stream: checked(copy(target, source, bytes_, stream), f"{direction} copy")

    def _launcher(self, address: int, elements: int, accesses: int) -> Callable[[Any], None]:
        assert self._module is not None
        values, kinds = (address, CONSTANT, elements, accesses), (POINTER, INT, LONG, INT)
        return self._module.launcher("multiply", values, kinds, elements, _THREADS)

    def _vector(self, elements: int) -> Ints:
        assert self._host is not None
        return np.ctypeslib.as_array((ctypes.c_int32 * elements).from_address(self._host.address))

    def _check(self, vector: Ints, total: int | None, accesses: int) -> None:
        """Every element, on all processors, and the sum where it was taken. Raises WrongDataError."""
        value = expected_value(accesses)
        parts = (vector[n : n + _CHECKED] for n in range(0, len(vector), _CHECKED))
        wrong = sum(self._threads.map(lambda part: int(np.count_nonzero(part != value)), parts))
        if wrong or total not in (None, value * len(vector)):
            raise WrongDataError(
                f"{wrong} of {len(vector)} elements are not {value}, the sum is {total} ({self._method})"
            )

    def _opened(self) -> Board:
        if self._board is None:
            board = Board(0)
            source = resources.files("busfare.measure.bench").joinpath("kernels.cu").read_text("utf-8")
            self._module = Module(source, "kernels.cu", board.capability, ("multiply",))
            self._board = board
            # What is loaded late would wait for the blocking kernel, which waits for it.
            self._launcher(board.flags.address, 0, 0)(board.streams(1)[0])
            checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        self._board.enter()
        return self._board

    def _free(self) -> None:
        for buffer in (self._host, self._device):
            if buffer is not None:
                buffer.free()
        self._host = self._device = None

    def close(self) -> None:
        self._threads.shutdown()
        if self._board is not None:
            self._board.enter()
            self._free()
            if self._module is not None:
                self._module.unload()
            self._board.close()
            self._board = None
