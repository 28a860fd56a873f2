"""S16's program on an NVIDIA GPU: a vector times a constant, with each way of getting it there and back."""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.methods import BATCH, CONSTANT, GPU_RANGES, METHODS, RANGES, VALUE, MethodRun
from busfare.measure.cuda import driver as cuda
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import INT, LONG, POINTER, Buffer, Module, driver
from busfare.measure.cuda.host import CudaHost, require_room
from busfare.measure.cuda.timing import LEAD_IN_BYTES
from busfare.measure.run import StalledError, UnavailableError, WrongDataError

try:
    import nvtx
except ImportError:
    nvtx = None

Ints = npt.NDArray[np.int32]
#: What puts a part of the program into a stream; None where nothing is to be done.
Step = Callable[[Any], None] | None
#: S16's blocks.
_THREADS = 1024
#: Samples of the kernel alone.
_ALONE = 7
#: Elements that one thread checks at once.
_CHECKED = 1 << 20
_PREFETCHES = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS


def expected_value(accesses: int) -> int:
    """What each element holds in the end, in 32 bits as the GPU reckons."""
    value = VALUE * pow(CONSTANT, accesses, 1 << 32) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


class CudaMethods(CudaHost):
    """Runs methods on the machine's first GPU: a vector in `host` memory, copied to `device` memory or not."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._method = ""
        self._module: Module | None = None
        self._buffers: dict[str, Buffer] = {}
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1))

    def _board(self) -> Board:
        """The GPU, its context current and the kernel loaded."""
        board = self.board_of(0)
        board.enter()
        if self._module is None:
            kinds = {"multiply": (POINTER, INT, LONG, INT)}
            self._module = Module(cuda.source_of("bench.cu"), "bench.cu", board.capability, kinds)
            # Launched once on nothing: what is loaded late would wait for the blocking kernel, which waits for it.
            self._launcher(board.flags.address, 0, 0)(board.streams(1)[0])
            cuda.finish()
        return board

    def start(self, method: str, most_elements: int) -> float:
        board, bytes_ = self._board(), 4 * most_elements
        self._free()
        self._method, kind = method, METHODS[method].memory
        # Managed memory takes half of what others may, so that nothing is evicted.
        require_room(bytes_, bytes_ * (2 if kind == "managed" else 1))
        prefetched = method == "managed-prefetch"
        if prefetched and not board.attribute(_PREFETCHES):
            raise UnavailableError("this GPU and system cannot prefetch managed memory")
        began = time.perf_counter()
        self._buffers["host"] = cuda.allocate(kind, bytes_)
        took = time.perf_counter() - began
        if kind != "managed" and method != "zero-copy":
            self._buffers["device"] = cuda.allocate("device", bytes_)
        if prefetched:
            cuda.prefer_gpu(self._at("host"), bytes_, 0)
        return took

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        return [self._run(elements, accesses) for _ in range(runs + 1)][1:]

    def _run(self, elements: int, accesses: int) -> MethodRun:
        """One run, its ranges by the host's clock, and those of the GPU by events too."""
        vector, steps = cuda.view(self._at("host"), elements, INT), self._steps(elements, accesses)
        taken, device, total = dict.fromkeys(RANGES, 0.0), dict[str, float](), 0
        for name in RANGES:
            with nullcontext() if nvtx is None else nvtx.annotate(name, domain="busfare"):
                began = time.perf_counter()
                if name == "initialise":
                    vector.fill(VALUE)
                elif name == "sum":
                    total = int(vector.sum(dtype=np.int64))
                elif steps[name] is not None:
                    device |= self._spans({name: steps[name]})
                else:
                    continue
                taken[name] = time.perf_counter() - began
        self._check(vector, total, accesses)
        return MethodRun(taken, device)

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        if not METHODS[self._method].held:
            return []
        vector, steps = cuda.view(self._at("host"), elements, INT), self._steps(elements, accesses)
        taken: list[Mapping[str, float]] = []
        try:
            for _ in range(runs):
                vector.fill(VALUE)
                spans = self._spans(steps, held=True)
                self._check(vector, None, accesses)
                taken.append({name: spans[name] if steps[name] else 0.0 for name in GPU_RANGES})
        except StalledError:
            return []
        return taken

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        self._board()
        buffer = cuda.allocate("device", 4 * elements)
        step = {"kernel": self._launcher(buffer.address, elements, accesses)}
        try:
            taken = [self._spans(step, held=True)["kernel"] for _ in range(_ALONE)]
        finally:
            buffer.free()
        return median(taken)

    def _spans(self, steps: Mapping[str, Step], held: bool = False) -> dict[str, float]:
        """Seconds of each step by events; `held`: all are submitted before the first one begins, behind a short copy where
        that is a copy, so that the copy engine holds the stream as in `probe`.
        """
        board = self.boards[0]
        (stream,), marks = board.streams(1), board.events(len(steps) + 1)
        if held:
            board.flags.hold(stream)
            if "device" in self._buffers and steps.get("h2d"):
                size = min(self._buffers["host"].size, LEAD_IN_BYTES)
                cuda.copier("h2d", self._at("device"), self._at("host"), size)(stream)
        cuda.record(marks[0], stream)
        for step, mark in zip(steps.values(), marks[1:], strict=True):
            if step is not None:
                step(stream)
            cuda.record(mark, stream)
        board.flags.release()
        cuda.synchronise(stream)
        if held:
            board.flags.verify()
        return {name: cuda.seconds(*pair) for name, pair in zip(steps, pairwise(marks), strict=True)}

    def _steps(self, elements: int, accesses: int) -> dict[str, Step]:
        """What the GPU does in each range; None where the kernel, or a page fault, moves the data."""
        place = self._at("device" if "device" in self._buffers else "host")
        kernel = self._launcher(place, elements, accesses)
        into, out = (self._mover(direction, 4 * elements) for direction in ("h2d", "d2h"))
        return {"h2d": into, "kernel": kernel, "d2h": out}

    def _mover(self, direction: str, bytes_: int) -> Step:
        """What moves the vector in one direction."""
        host, into = self._at("host"), direction == "h2d"
        if self._method == "managed-prefetch":
            return lambda stream: cuda.prefetch(host, bytes_, 0 if into else None, stream)
        if "device" not in self._buffers:
            return None
        target, source = (self._at("device"), host) if into else (host, self._at("device"))
        if self._method == "batched":
            piece = max(4, bytes_ // BATCH)
            starts = range(0, bytes_, piece)
            pairs = [(target + start, source + start) for start in starts]
            return cuda.batched(pairs, [min(piece, bytes_ - start) for start in starts])
        return cuda.copier(direction, target, source, bytes_)

    def _launcher(self, address: int, elements: int, accesses: int) -> Callable[[Any], None]:
        assert self._module is not None, "no method was started"
        return self._module.launcher("multiply", (address, CONSTANT, elements, accesses), elements, _THREADS)

    def _at(self, name: str) -> int:
        return self._buffers[name].address

    def _check(self, vector: Ints, total: int | None, accesses: int) -> None:
        """Every element, on all processors, and the sum where it was taken. Raises WrongDataError."""
        value = expected_value(accesses)
        parts = (vector[n : n + _CHECKED] for n in range(0, len(vector), _CHECKED))
        wrong = sum(self._threads.map(lambda part: int(np.count_nonzero(part != value)), parts))
        if wrong or total not in (None, value * len(vector)):
            what = f"{wrong} of {len(vector)} elements are not {value}, the sum is {total}"
            raise WrongDataError(f"{what} ({self._method})")

    def _free(self) -> None:
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()

    def close(self) -> None:
        self._threads.shutdown()
        if self._module is not None:
            self._board()
            self._free()
            self._module.unload()
        super().close()
