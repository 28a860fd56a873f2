"""A program on one GPU: its arrays and kernel, and one prepared call an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from busfare.measure.bench.kernel import Kernel, source_text
from busfare.measure.bench.program import ELEMENT_BYTES, Operation, Program, Work
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import batched
from busfare.measure.cuda.driver import LONG, POINTER, Buffer, Module, allocate, checked, driver
from busfare.measure.cuda.timing import LEAD_IN_BYTES, Timed, captured, record, wait
from busfare.measure.device import UnavailableError

_THREADS = 256
#: Arrays start at multiples of this, as allocators give.
_PAGE = 4096
#: Of the device memory that is free, a benchmark takes at most this share.
_DEVICE_SHARE = 0.8
_NO_TIME = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value


def spaced(bytes_: int) -> int:
    """Bytes from the start of one array to the next."""
    return -(-bytes_ // _PAGE) * _PAGE


class Gpu:
    """One GPU's part: its arrays, the kernel, and events that mark what others wait for."""

    def __init__(self, ordinal: int) -> None:
        self.board = Board(ordinal)
        self.address = 0
        self._arena: Buffer | None = None
        self._marks: list[Any] = []
        self._module: Module | None = None
        self._function = ""

    def load(self, kernel: Kernel, bytes_: int) -> None:
        """Loads the kernel and makes room for all arrays, the first at `address`. Raises UnavailableError and InputError."""
        self.board.enter()
        if self._arena is None or self._arena.size < bytes_:
            self._free_arena()
            free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
            if bytes_ > _DEVICE_SHARE * free:
                raise UnavailableError(f"{bytes_} bytes of device memory; {free} are free")
            self._arena = allocate("device", bytes_)
        self.address = self._arena.address
        self._unload()
        file = f"{kernel.name}.cu" if kernel.source else "kernels.cu"
        options = (f"-DWORK={kernel.work}",)
        self._function = kernel.function
        self._module = Module(source_text(kernel), file, self.board.capability, (kernel.function,), options)
        # Launched once on nothing: what is loaded late would wait for the blocking kernel, which waits for it.
        pointers = [self.address] * (kernel.inputs + kernel.outputs)
        self.launcher(pointers, 0, 0, 1)(self.board.streams(1)[0])
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def launcher(self, pointers: Sequence[int], first: int, count: int, level: int) -> Callable[[Any], None]:
        """What launches the kernel on `count` elements from `first` on."""
        assert self._module is not None
        kinds = (*(POINTER,) * len(pointers), LONG, LONG, LONG)
        return self._module.launcher(self._function, (*pointers, first, count, level), kinds, count, _THREADS)

    def clear(self, bytes_: int) -> None:
        """All bits set: NaN as doubles."""
        self.board.enter()
        checked(driver.cuMemsetD8(self.address, 0xFF, bytes_), "cuMemsetD8")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def marks(self, count: int) -> list[Any]:
        """So many events that hold no time."""
        while len(self._marks) < count:
            self._marks.append(checked(driver.cuEventCreate(_NO_TIME), "cuEventCreate"))
        return self._marks[:count]

    def _unload(self) -> None:
        if self._module is not None:
            self._module.unload()
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


@contextmanager
def prepared(gpu: Gpu, program: Program, host: int, work: Work) -> Iterator[Timed]:
    """A program ready to be submitted to a GPU, its host arrays from the address `host` on."""
    gpu.board.enter()
    places = _Places(gpu, program, host, work)
    awaited = sorted(program.awaited)
    marks = dict(zip(awaited, gpu.marks(len(awaited)), strict=True))
    calls: list[tuple[int, Callable[[Any], object]]] = []
    for n, op in enumerate(program.operations):
        calls += [(op.stream, partial(wait, event=marks[other])) for other in op.after]
        calls.append((op.stream, places.work_of(op)))
        if n in marks:
            calls.append((op.stream, partial(record, marks[n])))

    def issue(streams: Sequence[Any]) -> None:
        for stream, call in calls:
            call(streams[stream])

    if not program.as_graph:
        lead_in = places.lead_in() if program.led else None
        yield Timed(gpu.board, issue, program.streams, led=program.led, lead_in=lead_in)
        return
    fork, *joins = gpu.marks(len(awaited) + 1 + program.streams)[len(awaited) :]
    first, *streams = gpu.board.streams(program.streams + 1)

    def forked(_: object) -> None:
        record(fork, first)
        for stream in streams:
            wait(stream, fork)
        issue(streams)
        for stream, join in zip(streams, joins, strict=True):
            record(join, stream)
            wait(first, join)

    with captured((first,), forked) as launch:
        yield Timed(gpu.board, launch)


class _Places:
    """Where the operations of a program find their arrays."""

    def __init__(self, gpu: Gpu, program: Program, host: int, work: Work) -> None:
        self._gpu, self._program, self._work = gpu, program, work
        self._host, self._device = host, gpu.address

    def work_of(self, op: Operation) -> Callable[[Any], None]:
        """What puts an operation into a stream."""
        if op.kind == "kernel":
            return self._kernel(op)
        pairs = [self._ends(op, array) for array in op.arrays]
        size = op.part.count * ELEMENT_BYTES
        return batched(pairs, [size] * len(pairs)) if len(pairs) > 1 else self._copy(op.kind, *pairs[0], size)

    def lead_in(self) -> Callable[[Any], None] | None:
        """A short copy of the same direction as the first operation; None where that is a kernel or goes out."""
        op = self._program.operations[0]
        if op.kind != "h2d":
            return None
        size = min(op.part.count * ELEMENT_BYTES, LEAD_IN_BYTES)
        return self._copy("h2d", *self._ends(op, op.arrays[0]), size)

    def _at(self, base: int, array: int, element: int = 0) -> int:
        return base + array * spaced(self._work.array_bytes) + element * ELEMENT_BYTES

    def _ends(self, op: Operation, array: int) -> tuple[int, int]:
        """Target and source of a copy of one array."""
        place = array if op.kind == "h2d" else self._work.kernel.inputs + array
        host, device = (self._at(base, place, op.part.first) for base in (self._host, self._device))
        return (device, host) if op.kind == "h2d" else (host, device)

    @staticmethod
    def _copy(kind: str, target: int, source: int, size: int) -> Callable[[Any], None]:
        copy = driver.cuMemcpyHtoDAsync if kind == "h2d" else driver.cuMemcpyDtoHAsync
        return lambda stream: checked(copy(target, source, size, stream), f"{kind} copy")

    def _kernel(self, op: Operation) -> Callable[[Any], None]:
        kernel, program = self._work.kernel, self._program
        into = self._host if program.mapped_in else self._device
        out = self._host if program.mapped_out else self._device
        pointers = [self._at(into, n) for n in range(kernel.inputs)]
        pointers += [self._at(out, kernel.inputs + n) for n in range(kernel.outputs)]
        return self._gpu.launcher(pointers, op.part.first, op.part.count, self._work.level)
