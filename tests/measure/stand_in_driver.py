# ruff: noqa: N802, N815
"""A stand-in for the CUDA driver: memory is the host's, streams are queues that run at a synchronisation, in any order
that streams and events allow, and kernels are their references on the CPU. It computes; it measures nothing.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from busfare.measure.bench.kernel import Work
from busfare.measure.cuda.driver import view

OK = driver.CUresult.CUDA_SUCCESS
CAPABILITY = {"MAJOR": 9, "MINOR": 0}
#: Calls of which nothing is to be seen here.
NOTHING = (
    "cuInit", "cuDevicePrimaryCtxRelease", "cuMemHostRegister", "cuMemHostUnregister", "cuEventDestroy", "cuModuleUnload",
    "cuGraphExecDestroy", "cuGraphDestroy",
)  # fmt: skip


@dataclass(eq=False)
class Stream:
    """A queue of steps; each may say that it cannot run yet. Two empty ones are not the same."""

    steps: list[Callable[[], bool]] = field(default_factory=list)
    capturing: list[tuple[Stream, Callable[[], bool]]] | None = None


@dataclass
class Event:
    """`recorded` counts calls, `completed` those that have run; `at` is the time of the last one."""

    recorded: int = 0
    completed: int = 0
    at: float = 0.0


class StandIn:
    """The calls that the benchmarks make. `work` is the one whose kernel is launched."""

    def __init__(self, seed: int = 0, gpus: int = 1) -> None:
        self.order = random.Random(seed)
        self.gpus = gpus
        self.peers = True
        self.enabled: list[str] = []
        self.in_context = ""
        self.streams: list[Stream] = []
        self.blocks: dict[int, Any] = {}
        self.clock = 0.0
        self.held = 0
        self.work: Work | None = None
        self.calls: dict[str, int] = {}
        self.capture: list[tuple[Stream, Callable[[], bool]]] | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (*NOTHING, *(name for name in dir(self) if name.startswith("cu"))):
            monkeypatch.setattr(driver, name, self._counted(name))

    def _counted(self, name: str) -> Callable[..., tuple[Any, ...]]:
        real = getattr(self, name, lambda *_: None)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] = self.calls.get(name, 0) + 1
            answer = real(*arguments)
            return (OK,) if answer is None else (OK, *answer) if isinstance(answer, tuple) else (OK, answer)

        return call

    # Devices and contexts.
    def cuDeviceGetCount(self) -> int:
        return self.gpus

    def cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def cuDevicePrimaryCtxRetain(self, device: int) -> str:
        return f"context {device}"

    def cuDriverGetVersion(self) -> int:
        return 13000

    def cuCtxSetCurrent(self, context: str) -> None:
        self.in_context = context

    def cuDeviceGetAttribute(self, which: Any, device: int) -> int:
        return next((n for end, n in CAPABILITY.items() if which.name.endswith(end)), 4)

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> int:
        return int(self.peers)

    def cuCtxEnablePeerAccess(self, context: str, flags: int) -> None:
        assert context not in self.enabled
        self.enabled.append(context)

    def cuMemGetInfo(self) -> tuple[int, int]:
        return 1 << 30, 1 << 31

    # Memory.
    def _new(self, size: int) -> int:
        block = np.zeros(size + 64, np.uint8)
        address = int(block.ctypes.data) + -int(block.ctypes.data) % 64
        self.blocks[address] = block
        return address

    def cuMemAlloc(self, size: int, flags: int = 0) -> int:
        return self._new(size)

    cuMemHostAlloc = cuMemAllocManaged = cuMemAlloc

    def cuMemFree(self, address: int) -> None:
        del self.blocks[int(address)]

    cuMemFreeHost = cuMemFree

    def cuMemAdvise(self, address: int, size: int, advice: Any, place: Any) -> None:
        assert address in self.blocks

    def cuMemsetD8(self, address: int, value: int, size: int) -> None:
        ctypes.memset(address, value, size)

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(int(target), int(source), size)

    def cuMemcpyDtoH(self, target: Any, source: int, size: int) -> None:
        at = target if isinstance(target, int) else (ctypes.c_uint8 * size).from_buffer(target)
        ctypes.memmove(at, source, size)

    # Streams and events.
    def cuStreamCreate(self, flags: int) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def cuStreamDestroy(self, stream: Stream) -> None:
        self.streams.remove(stream)

    def cuEventCreate(self, flags: int) -> Event:
        return Event()

    def cuEventRecord(self, event: Event, stream: Stream) -> None:
        event.recorded += 1
        recording = event.recorded

        def reach() -> bool:
            event.completed, event.at = max(event.completed, recording), self.clock
            return True

        self._put(stream, reach)

    def cuStreamWaitEvent(self, stream: Stream, event: Event, flags: int) -> None:
        recording = event.recorded
        self._put(stream, lambda: event.completed >= recording)

    def cuEventElapsedTime(self, start: Event, end: Event) -> float:
        assert start.completed == start.recorded and end.completed == end.recorded, "not reached"
        return end.at - start.at

    def _put(self, stream: Stream, step: Callable[[], bool]) -> None:
        if self.capture is not None:
            self.capture.append((stream, step))
        else:
            stream.steps.append(step)

    def _run_all(self) -> None:
        while waiting := [s for s in self.streams if s.steps]:
            self.order.shuffle(waiting)
            for stream in waiting:
                if stream.steps[0]():
                    self.clock += 0.001
                    stream.steps.pop(0)
                    break
            else:
                raise AssertionError("streams wait for each other")

    def cuStreamSynchronize(self, stream: Stream | None = None) -> None:
        self._run_all()

    cuCtxSynchronize = cuStreamSynchronize

    # Work.
    def _move(self, target: int, source: int, size: int, stream: Stream) -> None:
        def move() -> bool:
            ctypes.memmove(int(target), int(source), size)
            return True

        self._put(stream, move)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: Stream) -> None:
        self._move(target, source, size, stream)

    cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpyDtoDAsync

    def cuMemcpyPeerAsync(self, target, there, source, here, size, stream):  # type: ignore[no-untyped-def]
        assert there != here
        self._move(target, source, size, stream)

    def cuMemcpyBatchAsync(self, targets, sources, sizes, count, attributes, starts, kinds, stream):  # type: ignore[no-untyped-def]
        assert len(targets) == len(sources) == len(sizes) == count
        for target, source, size in zip(targets, sources, sizes, strict=True):
            self._move(int(target), int(source), size, stream)

    def cuMemPrefetchAsync(self, address: int, size: int, place: Any, flags: int, stream: Stream) -> None:
        assert any(at <= address and address + size <= at + len(c) for at, c in self.blocks.items())
        self._put(stream, lambda: True)

    def cuModuleLoadData(self, code: bytes) -> bytes:
        assert code[:4] == b"\x7fELF", "no machine code"
        return code

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> str:
        assert name in module, f"{name!r} is not in the machine code"
        return name.decode()

    def cuLaunchKernel(self, name, bx, by, bz, tx, ty, tz, shared, stream, arguments, extra):  # type: ignore[no-untyped-def]
        values, kinds = arguments or ((), ())
        assert len(values) == len(kinds)

        def launch() -> bool:
            if name == "multiply":
                _multiply(bx * tx, *values)
            elif name in PROBING:
                PROBING[name](*values)
            elif name not in ("block", "nothing"):
                assert self.work is not None
                _compute(self.work, bx * tx, values)
            return True

        self._put(stream, launch)

    # Graphs.
    def cuStreamBeginCapture(self, stream: Stream, mode: Any) -> None:
        assert self.capture is None
        self.capture = []

    def cuStreamEndCapture(self, stream: Stream) -> Any:
        made, self.capture = self.capture, None
        return made

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return graph

    def cuGraphLaunch(self, graph: Any, stream: Stream) -> None:
        # In the order of capture, which is one of those allowed.
        stream.steps += [step for _, step in graph]


def _multiply(threads: int, address: int, constant: int, count: int, accesses: int) -> None:
    assert threads >= count
    if not count:
        return
    vector = view(address, count, ctypes.c_int32)
    with np.errstate(over="ignore"):
        for _ in range(accesses):
            vector *= np.int32(constant)


def _compute(work: Work, threads: int, values: tuple[int, ...]) -> None:
    *pointers, first, count, level = values
    if not count:
        return
    assert threads >= count and level == work.level and work.kernel.reference is not None
    arrays = [view(at, work.elements, ctypes.c_double) for at in pointers]
    inputs = [array.reshape(work.levels, level) for array in arrays[: work.kernel.inputs]]
    for k in range(first // level, -(-(first + count) // level)):
        start, end = max(first, k * level), min(first + count, (k + 1) * level)
        computed = work.kernel.reference(inputs, k)
        for out, result in zip(arrays[work.kernel.inputs :], computed, strict=True):
            out[start:end] = result[start - k * level : end - k * level]


def _pattern(size: int, place: int = 0) -> np.ndarray:
    """What `kernels.cu` of the probe calls expected, from `place` on."""
    words = np.arange(-(-size // 4), dtype=np.uint32)
    words += np.uint32(place // 4)
    words *= np.uint32(2654435761)
    return words.view(np.uint8)[:size]


def _fill(address: int, size: int, row: int, pitch: int) -> None:
    assert row == pitch == size, "one row"
    view(address, size)[:] = _pattern(size)


def _rows(size: int, row: int, pitch: int) -> range:
    return range(0, size // row * pitch, pitch)


def _poison(address: int, size: int, row: int, pitch: int) -> None:
    for at in _rows(size, row, pitch):
        view(address + at, row)[:] = ~_pattern(row, at)


def _check(address: int, size: int, row: int, pitch: int, wrong: int) -> None:
    for at in _rows(size, row, pitch):
        mismatches = int(np.count_nonzero(view(address + at, row) != _pattern(row, at)))
        ctypes.c_uint64.from_address(wrong).value += mismatches


def _copy16(source: int, target: int, count: int) -> None:
    ctypes.memmove(target, source, 16 * count)


def _differ(got: int, want: int, count: int, relative: float, slack: float, report: int) -> None:
    here, there = (view(at, count, ctypes.c_double) for at in (got, want))
    shares = np.abs(here - there) / (relative * np.abs(there) + slack + 1e-300)
    wrong = np.flatnonzero(~(shares <= 1.0))
    words = (ctypes.c_uint64 * 3).from_address(report)
    words[0] += len(wrong)
    largest = float(shares[shares <= 1.0].max(initial=0.0))
    words[1] = max(words[1], struct.unpack("<Q", struct.pack("<d", largest))[0])
    words[2] = min(words[2], int(wrong[0]) if len(wrong) else words[2])


PROBING: dict[str, Callable[..., None]] = {
    "fill": _fill,
    "poison": _poison,
    "check": _check,
    "copy16": _copy16,
    "differ": _differ,
    "read16": lambda source, sink, count: None,
    "stream16": lambda mapped, count, stop, limit, reads: None,
}
