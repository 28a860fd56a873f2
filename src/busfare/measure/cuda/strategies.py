"""Programs of strategies run on NVIDIA GPUs: streams, events, mapped memory, batches and graphs through the driver."""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from busfare.measure.bench.device import Compared, Timing
from busfare.measure.bench.program import Program
from busfare.measure.bench.work import Work
from busfare.measure.cuda import facts
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.cuda.issue import Gpu, Issue, spaced
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.measure.cuda.reference import Reference
from busfare.measure.device import StalledError, UnavailableError
from busfare.node.arrays import FloatArray

__all__ = ["CudaStrategies", "held_seconds"]

#: Of the host's memory a benchmark takes at most this share.
_HOST_SHARE = 0.4
#: Programs of so few streams tell when each of them ended.
_FEW_STREAMS = 3


class CudaStrategies:
    """Runs programs on the machine's GPUs."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._opened: dict[int, Gpu] = {}
        self._arena: Buffer | None = None
        self._device: dict[int, int] = {}
        self._work: Work | None = None
        self._reference: Reference | None = None
        #: Operations in all and in one stream, of programs that did not fit the launch queues while they were held.
        self._too_many: list[tuple[int, int]] = []

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def load(self, work: Work) -> None:
        self._work = None
        self._forget()
        arrays = work.kernel.inputs + work.kernel.outputs
        bytes_ = arrays * spaced(work.array_bytes)
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

    def _gpu(self, ordinal: int) -> Gpu:
        if ordinal not in self._opened:
            self._opened[ordinal] = Gpu(ordinal)
        return self._opened[ordinal]

    def _arrays(self, first: int, count: int) -> list[FloatArray]:
        assert self._arena is not None and self._work is not None
        step = spaced(self._work.array_bytes)
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
            self._opened[ordinal].clear(arrays * spaced(self._of().array_bytes))
        # The host's outputs get theirs over the link, which is faster than the processor writes.
        board, step = self._gpu(0).board, spaced(self._of().array_bytes)
        board.enter()
        stream, first = board.streams(1)[0], self._device[0] + self._of().kernel.inputs * step
        for n, array in enumerate(self.outputs()):
            answer = driver.cuMemcpyDtoHAsync(int(array.ctypes.data), first + n * step, array.nbytes, stream)
            checked(answer, "cuMemcpyDtoHAsync")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        self._forget()
        self._reference = Reference(self._gpu(0).board, arrays, relative, slacks)

    def compare(self) -> Compared:
        assert self._reference is not None, "nothing is expected"
        return self._reference.compare(self.outputs())

    def _forget(self) -> None:
        if self._reference is not None:
            self._reference.free()
            self._reference = None

    def run(self, programs: Sequence[Program], repeats: int, by_host: int = 0) -> Timing:
        try:
            return self._run(programs, repeats, by_host)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, programs: Sequence[Program], repeats: int, by_host: int) -> Timing:
        issues = [self._issue(ordinal, program) for ordinal, program in enumerate(programs)]
        longest = max(len(program.operations) for program in programs), max(map(_in_one_stream, programs))
        held = not any(longest[0] >= all_ and longest[1] >= own for all_, own in self._too_many)
        try:
            device_s, ends_s = [], []
            few = len(issues) == 1 and programs[0].streams <= _FEW_STREAMS
            for _ in range(repeats):
                if held:
                    try:
                        device_s.append(held_seconds(issues))
                        if few:
                            ends_s.append(issues[0].ends())
                        continue
                    except StalledError:
                        self._too_many.append(longest)
                        held = False
                        device_s.clear()
                        ends_s.clear()
                device_s.append(_free(issues))
            host_s = tuple(_called(issues) for _ in range(by_host))
        finally:
            for issue in issues:
                issue.close()
        return Timing(tuple(device_s), host_s, held, tuple(ends_s))

    def _issue(self, ordinal: int, program: Program) -> Issue:
        work = self._of()
        assert self._arena is not None
        if ordinal not in self._device:
            arrays = work.kernel.inputs + work.kernel.outputs
            bytes_ = arrays * spaced(work.array_bytes)
            self._device[ordinal] = self._gpu(ordinal).load(work.kernel, bytes_)
            self._opened[ordinal].clear(bytes_)
        return Issue(self._gpu(ordinal), program, self._arena.address, self._device[ordinal], work)

    def _free_arena(self) -> None:
        if self._arena is not None:
            self._gpu(0).board.enter()
            self._arena.free()
            self._arena = None

    def close(self) -> None:
        self._work = None
        self._forget()
        self._free_arena()
        for gpu in self._opened.values():
            gpu.close()
        self._opened.clear()


def _in_one_stream(program: Program) -> int:
    """The most operations that one of its streams holds."""
    return max(Counter(op.stream for op in program.operations).values())


def held_seconds(issues: list[Issue]) -> float:
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


def _free(issues: list[Issue]) -> float:
    """The same without holding them: gaps between the host's calls are in it."""
    for issue in issues:
        issue.board.enter()
        issue.submit()
    _finished(issues)
    return max(issue.seconds() for issue in issues)


def _called(issues: list[Issue]) -> float:
    """Seconds of the host's clock from the first call until everything is done."""
    began = time.perf_counter()
    for issue in issues:
        issue.board.enter()
        issue.call()
    _finished(issues)
    return time.perf_counter() - began


def _finished(issues: list[Issue]) -> None:
    for issue in issues:
        issue.board.enter()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
