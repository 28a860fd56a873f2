"""Programs of strategies run on NVIDIA GPUs: streams, events, mapped memory, batches and graphs through the driver."""

from __future__ import annotations

import ctypes
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.program import Program, Work
from busfare.measure.bench.run import Compared, Timing
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import LONG, POINTER, Buffer, CudaError, allocate, checked, driver
from busfare.measure.cuda.issue import Gpu, prepared, spaced
from busfare.measure.cuda.timing import Timed
from busfare.measure.device import StalledError, UnavailableError
from busfare.node.arrays import FloatArray

#: Of the host's memory a benchmark takes at most this share.
_HOST_SHARE = 0.4
#: Programs of so few streams tell when each of them ended.
_FEW_STREAMS = 3

_NONE = (1 << 64) - 1
_KINDS = (POINTER, POINTER, LONG, ctypes.c_double, ctypes.c_double, POINTER)


class CudaStrategies(facts.CudaHost):
    """Runs programs on the machine's GPUs."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._opened: dict[int, Gpu] = {}
        self._loaded: set[int] = set()
        self._arena: Buffer | None = None
        self._work: Work | None = None
        self._reference: _Reference | None = None
        #: Operations in all and in one stream, of programs that did not fit the launch queues while they were held.
        self._too_many: list[tuple[int, int]] = []

    def load(self, work: Work) -> None:
        self._work = None
        self._loaded.clear()
        self._forget()
        bytes_ = _all_bytes(work)
        try:
            self._gpu(0, work)
            if self._arena is None or self._arena.size < bytes_:
                self._free_arena()
                # `roomy_bytes` is an eighth of the memory that there is.
                if bytes_ > 8 * _HOST_SHARE * facts.roomy_bytes():
                    raise UnavailableError(f"{bytes_} bytes of pinned memory are too much of this host's")
                self._arena = allocate("pinned", bytes_)
        except CudaError as error:
            raise UnavailableError(str(error)) from None
        self._work = work

    def _gpu(self, ordinal: int, work: Work) -> Gpu:
        """A GPU with the kernel of `work` and room for its arrays."""
        if ordinal not in self._opened:
            self._opened[ordinal] = Gpu(ordinal)
        gpu = self._opened[ordinal]
        if ordinal not in self._loaded:
            gpu.load(work.kernel, _all_bytes(work))
            gpu.clear(_all_bytes(work))
            self._loaded.add(ordinal)
        return gpu

    def _arrays(self, first: int, count: int) -> list[FloatArray]:
        assert self._arena is not None
        step, kind = spaced(self._of().array_bytes), ctypes.c_double * self._of().elements
        places = (self._arena.address + n * step for n in range(first, first + count))
        return [np.ctypeslib.as_array(kind.from_address(place)) for place in places]

    def inputs(self) -> list[FloatArray]:
        return self._arrays(0, self._of().kernel.inputs)

    def outputs(self) -> list[FloatArray]:
        return self._arrays(self._of().kernel.inputs, self._of().kernel.outputs)

    def _of(self) -> Work:
        assert self._work is not None, "no work was loaded"
        return self._work

    def clear(self) -> None:
        work = self._of()
        for ordinal in self._loaded:
            self._opened[ordinal].clear(_all_bytes(work))
        # The host's outputs get theirs over the link, which is faster than the processor writes.
        gpu, step = self._gpu(0, work), spaced(work.array_bytes)
        gpu.board.enter()
        stream, first = gpu.board.streams(1)[0], gpu.address + work.kernel.inputs * step
        for n, array in enumerate(self.outputs()):
            answer = driver.cuMemcpyDtoHAsync(int(array.ctypes.data), first + n * step, array.nbytes, stream)
            checked(answer, "cuMemcpyDtoHAsync")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        self._forget()
        self._reference = _Reference(self._gpu(0, self._of()).board, arrays, relative, slacks)

    def compare(self) -> Compared:
        assert self._reference is not None, "nothing is expected"
        return self._reference.compare(self.outputs())

    def _forget(self) -> None:
        if self._reference is not None:
            self._reference.free()
            self._reference = None

    def run(self, programs: Sequence[Program], repeats: int, by_host: int = 0) -> Timing:
        assert self._arena is not None
        work, host = self._of(), self._arena.address
        try:
            with ExitStack() as made:
                timed = [
                    made.enter_context(prepared(self._gpu(ordinal, work), program, host, work))
                    for ordinal, program in enumerate(programs)
                ]
                return self._timing(programs, timed, repeats, by_host)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _timing(self, programs: Sequence[Program], timed: list[Timed], repeats: int, by_host: int) -> Timing:
        longest = max(len(program.operations) for program in programs), max(map(_in_one_stream, programs))
        held = not any(longest[0] >= all_ and longest[1] >= own for all_, own in self._too_many)
        ends: list[tuple[float, ...]] = []
        while len(ends) < repeats:
            try:
                ends.append(_once(timed, held))
            except StalledError:
                # It is longer than a launch queue: gaps between the host's calls are in all of its samples then.
                self._too_many.append(longest)
                held = False
                ends.clear()
        host_s = tuple(_called(timed) for _ in range(by_host))
        few = held and len(timed) == 1 and programs[0].streams <= _FEW_STREAMS
        return Timing(tuple(max(one) for one in ends), host_s, held, tuple(ends) if few else ())

    def _free_arena(self) -> None:
        if self._arena is not None:
            self._opened[0].board.enter()
            self._arena.free()
            self._arena = None

    def close(self) -> None:
        self._work = None
        self._forget()
        self._free_arena()
        for gpu in self._opened.values():
            gpu.close()
        self._opened.clear()


def _all_bytes(work: Work) -> int:
    """Bytes of all arrays with what lies between them."""
    return (work.kernel.inputs + work.kernel.outputs) * spaced(work.array_bytes)


def _in_one_stream(program: Program) -> int:
    """The most operations that one of its streams holds."""
    return max(Counter(op.stream for op in program.operations).values())


def _once(timed: list[Timed], held: bool) -> tuple[float, ...]:
    """Seconds until each stream's end of all programs at once, each behind its GPU's blocking kernel where it is held."""
    try:
        for one in timed:
            one.submit(held)
    finally:
        for one in timed:
            one.board.flags.release()
        for one in timed:
            one.synchronise()
    if held:
        for one in timed:
            one.board.flags.verify()
    return tuple(end for one in timed for end in one.ends_s())


def _called(timed: list[Timed]) -> float:
    """Seconds of the host's clock from the first call until everything is done."""
    began = time.perf_counter()
    for one in timed:
        one.board.enter()
        one.call()
    for one in timed:
        one.synchronise()
    return time.perf_counter() - began


class _Reference:
    """What the results should be, in the memory of a GPU, which compares: at the link's rate, where the processor would take
    a second for what was measured in milliseconds.
    """

    def __init__(
        self, board: Board, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]
    ) -> None:
        """Raises UnavailableError where the GPU has no room for them."""
        self._board, self._relative, self._slacks = board, relative, tuple(slacks)
        self._buffers: list[Buffer] = []
        board.enter()
        try:
            self._buffers.append(allocate("device", 24))
            for array in arrays:
                self._buffers.append(allocate("device", array.nbytes))
                _upload(self._buffers[-1].address, array)
        except BaseException:
            self.free()
            raise

    def compare(self, outputs: Sequence[FloatArray]) -> Compared:
        """All elements of pinned `outputs`, array by array."""
        self._board.enter()
        stream, (found, *wanted) = self._board.streams(1)[0], [b.address for b in self._buffers]
        wrong, worst, first = 0, 0.0, None
        for array, want, slack in zip(outputs, wanted, self._slacks, strict=True):
            _upload(found, np.array([0, 0, _NONE], np.uint64))
            values = (int(array.ctypes.data), want, array.size, self._relative, slack, found)
            self._board.launch_wide("differ", stream, values, _KINDS)
            checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
            answer = bytearray(24)
            checked(driver.cuMemcpyDtoH(answer, found, len(answer)), "cuMemcpyDtoH")
            count, largest, place = struct.unpack("<QdQ", answer)
            wrong, worst = wrong + count, max(worst, largest)
            first = place if count and first is None else first
        return Compared(wrong, worst, first)

    def free(self) -> None:
        """Gives the memory back."""
        self._board.enter()
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()


def _upload(address: int, array: FloatArray | npt.NDArray[np.uint64]) -> None:
    """Copies an array to the device, and waits: a copy of pageable memory may return before the data are there, and our
    streams do not wait for it.
    """
    checked(driver.cuMemcpyHtoD(address, int(array.ctypes.data), array.nbytes), "cuMemcpyHtoD")
    checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
