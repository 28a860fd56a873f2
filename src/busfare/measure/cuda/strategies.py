"""Programs of strategies run on NVIDIA GPUs: streams, events, mapped memory, batches and graphs through the driver."""

import ctypes
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from busfare.measure.bench.kernel import ELEMENT_BYTES, Work
from busfare.measure.bench.program import Compared, Operation, Program, Timing
from busfare.measure.cuda import driver as cuda
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import LONG, POINTER, Buffer, Module, checked, driver
from busfare.measure.cuda.host import CudaHost, require_room
from busfare.measure.cuda.timing import LEAD_IN_BYTES, Step, Timed, captured, in_order, once
from busfare.measure.run import StalledError
from busfare.nodes import FloatArray

_THREADS = 256
#: Arrays start at multiples of this, as allocators give.
_PAGE = 4096
_NONE = (1 << 64) - 1


def _spaced(work: Work) -> int:
    """Bytes from the start of one array to the next."""
    return -(-work.array_bytes // _PAGE) * _PAGE


def _all_bytes(work: Work) -> int:
    """Bytes of all arrays with what lies between them."""
    return (work.kernel.inputs + work.kernel.outputs) * _spaced(work)


class _Part:
    """The GPU's part of a work: its arrays, from one address on, and its kernel."""

    def __init__(self, board: Board, work: Work) -> None:
        """Raises UnavailableError where memory does not suffice, and InputError where the kernel does not compile."""
        self.board, self.work, kernel = board, work, work.kernel
        board.enter()
        require_room(0, _all_bytes(work))
        arrays = kernel.inputs + kernel.outputs
        source, kinds = cuda.source_of("bench.cu"), (*(POINTER,) * arrays, LONG, LONG, LONG)
        options = (f"-DWORK={kernel.work}",)
        self._module = Module(
            source, f"{kernel.name}.cu", board.capability, {kernel.function: kinds}, options
        )
        self.arena = cuda.allocate("device", _all_bytes(work))
        # Launched once on nothing: what is loaded late would wait for the blocking kernel, which waits for it.
        self._launcher([self.arena.address] * arrays, 0, 0, 1)(board.streams(1)[0])
        cuda.finish()
        self.clear()

    def clear(self) -> None:
        """All bits set: NaN as doubles."""
        self.board.enter()
        checked(driver.cuMemsetD8(self.arena.address, 0xFF, self.arena.size), "cuMemsetD8")
        cuda.finish()

    @contextmanager
    def prepared(self, program: Program, host: int) -> Iterator[Timed]:
        """A program ready to be submitted, its host arrays from the address `host` on."""
        self.board.enter()
        steps = [Step(op.stream, self._work_of(op, program, host), op.after) for op in program.operations]
        if program.strategy == "graph":
            streams = self.board.streams(program.streams + 1)
            with captured(streams, in_order(self.board, _forked(steps))) as launch:
                yield Timed(self.board, launch)
            return
        op, lead_in = program.operations[0], None
        if program.led and op.kind == "h2d":
            size = min(len(op.part) * ELEMENT_BYTES, LEAD_IN_BYTES)
            lead_in = cuda.copier("h2d", *self._ends(op, op.arrays[0], host), size)
        issue = in_order(self.board, steps)
        yield Timed(self.board, issue, program.streams, led=program.led, lead_in=lead_in)

    def _work_of(self, op: Operation, program: Program, host: int) -> Callable[[Any], None]:
        """What puts an operation into a stream."""
        kernel, size = self.work.kernel, len(op.part) * ELEMENT_BYTES
        if op.kind == "kernel":
            into = host if program.mapped_in else self.arena.address
            out = host if program.mapped_out else self.arena.address
            pointers = [self._place(into, n) for n in range(kernel.inputs)]
            pointers += [self._place(out, kernel.inputs + n) for n in range(kernel.outputs)]
            return self._launcher(pointers, op.part.start, len(op.part), self.work.level)
        pairs = [self._ends(op, array, host) for array in op.arrays]
        if len(pairs) > 1:
            return cuda.batched(pairs, [size] * len(pairs))
        return cuda.copier(op.kind, *pairs[0], size)

    def _launcher(self, pointers: Sequence[int], first: int, count: int, level: int) -> Callable[[Any], None]:
        """What launches the kernel on `count` elements from `first` on."""
        values = (*pointers, first, count, level)
        return self._module.launcher(self.work.kernel.function, values, count, _THREADS)

    def _place(self, base: int, array: int, element: int = 0) -> int:
        return base + array * _spaced(self.work) + element * ELEMENT_BYTES

    def _ends(self, op: Operation, array: int, host: int) -> tuple[int, int]:
        """Target and source of a copy of one array."""
        place = array if op.kind == "h2d" else self.work.kernel.inputs + array
        here, there = (self._place(base, place, op.part.start) for base in (host, self.arena.address))
        return (there, here) if op.kind == "h2d" else (here, there)

    def free(self) -> None:
        self.board.enter()
        self._module.unload()
        self.arena.free()


def _forked(steps: Sequence[Step]) -> list[Step]:
    """The same behind a first step of one more stream, and before a last one: what is captured hangs on one stream."""
    last: dict[int, int] = {}
    forked = [Step(0, lambda stream: None)]
    for number, step in enumerate(steps, 1):
        after = [0] * (step.stream not in last) + [1 + awaited for awaited in step.after]
        last[step.stream] = number
        forked.append(Step(1 + step.stream, step.work, after))
    return [*forked, Step(0, lambda stream: None, tuple(last.values()))]


class CudaStrategies(CudaHost):
    """Runs programs on the machine's first GPU."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._part: _Part | None = None
        #: Pinned memory of all arrays; and in the GPU's memory what is found, and each array as it should be.
        self._host: Buffer | None = None
        self._wanted: list[Buffer] = []
        self._allowed: tuple[float, Sequence[float]] = (0.0, ())
        #: Operations in all and in one stream, of programs that did not fit the launch queues while they were held.
        self._too_many: list[tuple[int, int]] = []

    def load(self, work: Work) -> None:
        self._forget()
        self._work = work
        self._part = _Part(self.board_of(0), work)
        require_room(_all_bytes(work), 0)
        self._host = cuda.allocate("pinned", _all_bytes(work))

    def _arrays(self, first: int, count: int) -> list[FloatArray]:
        assert self._host is not None, "no work was loaded"
        places = (self._host.address + n * _spaced(self._work) for n in range(first, first + count))
        return [cuda.view(place, self._work.elements, ctypes.c_double) for place in places]

    def inputs(self) -> list[FloatArray]:
        return self._arrays(0, self._work.kernel.inputs)

    def outputs(self) -> list[FloatArray]:
        return self._arrays(self._work.kernel.inputs, self._work.kernel.outputs)

    def clear(self) -> None:
        assert self._part is not None, "no work was loaded"
        self._part.clear()
        # The host's outputs get theirs over the link, which is faster than the processor writes.
        for n, array in enumerate(self.outputs(), self._work.kernel.inputs):
            source = self._part.arena.address + n * _spaced(self._work)
            cuda.copier("d2h", int(array.ctypes.data), source, array.nbytes)(self._part.board.streams(1)[0])
        cuda.finish()

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        """A GPU keeps the expected results and compares them at the link's rate: the processor would take a second."""
        self.board_of(0).enter()
        self._allowed = relative, tuple(slacks)
        self._wanted.append(cuda.allocate("device", 24))
        for array in arrays:
            self._wanted.append(cuda.allocate("device", array.nbytes))
            cuda.upload(self._wanted[-1].address, array)

    def compare(self) -> Compared:
        board, (relative, slacks) = self.board_of(0), self._allowed
        board.enter()
        counters, *wanted = (buffer.address for buffer in self._wanted)
        wrong, worst, first = 0, 0.0, None
        for array, want, slack in zip(self.outputs(), wanted, slacks, strict=True):
            cuda.upload(counters, np.array([0, 0, _NONE], np.uint64))
            board.to_its_end("differ", int(array.ctypes.data), want, array.size, relative, slack, counters)
            count, largest, place = struct.unpack("<QdQ", cuda.download(counters, 24))
            wrong, worst = wrong + count, max(worst, largest)
            first = place if count and first is None else first
        return Compared(wrong, worst, first)

    def run(self, program: Program, repeats: int, by_host: int = 0) -> Timing:
        assert self._part is not None and self._host is not None, "no work was loaded"
        with self._part.prepared(program, self._host.address) as timed:
            return self._timing(program, timed, repeats, by_host)

    def _timing(self, program: Program, timed: Timed, repeats: int, by_host: int) -> Timing:
        in_streams = Counter(op.stream for op in program.operations)
        longest = in_streams.total(), max(in_streams.values())
        held = not any(longest[0] >= all_ and longest[1] >= by_stream for all_, by_stream in self._too_many)
        device_s: list[float] = []
        while len(device_s) < repeats:
            try:
                device_s.append(max(once((timed,), held)[0]))
            except StalledError:
                # It is longer than a launch queue: gaps between the host's calls are in all of its samples then.
                self._too_many.append(longest)
                held = False
                device_s.clear()
        return Timing(tuple(device_s), tuple(_called(timed) for _ in range(by_host)), held)

    def _forget(self) -> None:
        """Gives back what the work took."""
        if self.boards:
            self.boards[0].enter()
            for buffer in (*self._wanted, *((self._host,) if self._host else ())):
                buffer.free()
        if self._part:
            self._part.free()
        self._wanted.clear()
        self._part = self._host = None

    def close(self) -> None:
        self._forget()
        super().close()


def _called(timed: Timed) -> float:
    """Seconds of the host's clock from the first call until everything is done."""
    began = time.perf_counter()
    timed.board.enter()
    timed.issue(timed.streams)
    timed.synchronise()
    return time.perf_counter() - began
