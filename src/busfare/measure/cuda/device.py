"""A machine with NVIDIA GPUs, measured through the driver API."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from busfare.errors import NoGpuError
from busfare.measure.case import Case, Direction, Samples
from busfare.measure.cuda import facts, submit
from busfare.measure.cuda.beside import beside_gpu
from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.bound import bound_to
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.cuda.memory import allocate, register
from busfare.measure.device import UnavailableError

__all__ = ["CudaDevice", "gpu_count", "open_cuda"]

#: Copies whose data the host itself moves: a blocking kernel would wait for them for ever.
_HOST_MOVED = ("pageable",)
#: Up to here the lead-in is as long as the copy: beyond it every copy takes the same engine.
_LEAD_IN_BYTES = 1 << 16
#: Untimed pageable copies of each visit, besides its first one; longer ones than this fit no cache.
_CACHE_FILLS, _CACHE_BYTES = 2, 1 << 28
#: The longest copy by a bound processor, and room for the steps between chunks.
_NEAR_BYTES = (1 << 26) + (1 << 20)
#: Threads a processor of the kernel beside a copy: as few as fill a link by Little's law (16 bytes each, 1 µs of
#: latency, 132 processors: 68 GB/s). More would only queue up, and starve the copy by their number.
_TRAFFIC_THREADS = 32
#: Copies beside a kernel on mapped memory: they outlast it even where it takes three times as long as they do.
_COPIES_BESIDE = 4
#: Time for the traffic kernel to fill the GPU before a copy starts beside it.
_TRAFFIC_START_S = 5e-4


def gpu_count(command: str = "probe") -> int:
    """How many GPUs the driver shows. Raises NoGpuError, with what was looked for, where there is none; `command` is
    what would run on a virtual node.
    """
    try:
        checked(driver.cuInit(0), "cuInit")
        count = int(checked(driver.cuDeviceGetCount(), "cuDeviceGetCount"))
    except (CudaError, RuntimeError) as error:
        raise NoGpuError(
            f"no GPU: looked for NVIDIA's driver (libcuda.so.1) and a device in it: {error}; "
            f"try `busfare {command} --virtual h100-sxm`"
        ) from None
    if count == 0:
        raise NoGpuError(
            "no GPU: NVIDIA's driver is there, but shows no device (is CUDA_VISIBLE_DEVICES empty?)"
        )
    return count


def open_cuda() -> CudaDevice:
    """The machine's GPUs. Raises NoGpuError, with what was looked for, where there is none."""
    return CudaDevice(gpu_count())


class CudaDevice:
    """Runs cases on real GPUs."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._boards: dict[int, Board] = {}
        #: Whether each ordered pair of GPUs that was asked for copies without the host's help.
        self._direct: dict[tuple[int, int], bool] = {}
        self._turns: dict[Case, int] = {}
        self._near: dict[int, Board] = {}
        self._most_bytes = min(MOST_BYTES, facts.roomy_bytes())

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def run(self, case: Case, repeats: int) -> Samples:
        try:
            return self._run(case, repeats)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, case: Case, repeats: int) -> Samples:
        if case.mode == "bound":
            with bound_to(facts.local_processors(case.gpu)):
                return self._run_on(self._near_board(case.gpu), case, repeats)
        return self._run_on(self._board(case.gpu), case, repeats)

    def _run_on(self, board: Board, case: Case, repeats: int) -> Samples:
        if case.mode in _COSTS:
            board.enter()
            return _COSTS[case.mode](case, board, repeats)
        if case.memory == "managed":
            board.enter()
            return _managed(case, board, repeats)
        peer = self._peer(case) if case.direction == "p2p" else None
        board.enter()
        turn = self._turns[case] = self._turns.get(case, -1) + 1
        ends = submit.ends_of(case, board, peer, turn)
        size = case.bytes if case.mode == "again" else case.total_bytes
        pitch = ends.pitch or case.bytes
        # A kernel that only reads leaves nothing to check.
        written = case.mode not in ("kernel", "kernel-beside-copies") or case.direction == "d2h"
        if written:
            ends.board.enter()
            ends.board.poison(ends.target_kind, size, case.bytes, pitch, ends.place, ends.belongs or None)
            board.enter()
        if peer is not None and not self._direct[case.gpu, peer.ordinal]:
            # The host stages them, and may wait for a stream that a blocking kernel holds.
            samples = _copies(dataclasses.replace(case, mode="unblocked"), board, ends, repeats)
        elif case.mode == "beside-gpu":
            samples = beside_gpu(case, board, self._board(case.peer or 0), ends, repeats)
        else:
            samples = _MODES[case.mode](case, board, ends, repeats)
        if written:
            ends.board.enter()
            ends.board.check(ends.target_kind, size, case.bytes, pitch, ends.place, ends.belongs or None)
        return samples

    def close(self) -> None:
        for board in (*self._near.values(), *self._boards.values()):
            board.close()
        self._near.clear()
        self._boards.clear()

    def _board(self, ordinal: int) -> Board:
        if ordinal not in self._boards:
            self._boards[ordinal] = Board(ordinal, self._most_bytes)
        return self._boards[ordinal]

    def _near_board(self, ordinal: int) -> Board:
        """The same GPU with host memory that is made by the processors next to it; call it bound to them."""
        if ordinal not in self._near:
            self._near[ordinal] = Board(ordinal, min(self._most_bytes, _NEAR_BYTES))
        return self._near[ordinal]

    def _peer(self, case: Case) -> Board:
        assert case.peer is not None
        here, there = self._board(case.gpu), self._board(case.peer)
        if (case.gpu, case.peer) not in self._direct:
            can = checked(driver.cuDeviceCanAccessPeer(here.handle, there.handle), "cuDeviceCanAccessPeer")
            here.enter()
            if can:
                checked(driver.cuCtxEnablePeerAccess(there.context, 0), "cuCtxEnablePeerAccess")
            self._direct[case.gpu, case.peer] = bool(can)
        return there


def _record(event: Any, stream: Any) -> None:
    checked(driver.cuEventRecord(event, stream), "cuEventRecord")


def _wait(stream: Any, event: Any) -> None:
    checked(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent")


def _synchronised(stream: Any) -> None:
    checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")


def _seconds(start: Any, end: Any) -> float:
    return float(checked(driver.cuEventElapsedTime(start, end), "cuEventElapsedTime")) * 1e-3


def _in_one_stream(
    issue: Callable[[Any], None],
    board: Board,
    repeats: int,
    lead_in: Callable[[Any], None] | None = None,
    blocked: bool = True,
) -> Samples:
    """Samples of work in one stream: held until all is submitted, then timed by events around it.

    `lead_in` is issued before the first event, so that the engine that will do the work holds the stream:
    without it, the time holds the way from the blocking kernel to a copy engine.
    """
    (stream,), (start, end) = board.streams(1), board.events(2)
    flags, clock = board.flags, time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        if blocked:
            flags.hold(stream)
        if lead_in:
            lead_in(stream)
        _record(start, stream)
        before = clock()
        issue(stream)
        after = clock()
        _record(end, stream)
        flags.release()
        _synchronised(stream)
        if blocked:
            flags.verify()
        device_s.append(_seconds(start, end))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))


def _lead_in(case: Case, board: Board, ends: submit.Ends) -> Callable[[Any], None]:
    """A copy of the same way and, up to a size at which nothing but length matters, of the same bytes."""
    first = submit.one(dataclasses.replace(case, bytes=min(case.bytes, _LEAD_IN_BYTES), count=1), ends, board)
    return lambda stream: first(0, stream)


def _copies(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    copy = submit.one(case, ends, board)
    if case.memory in _HOST_MOVED:
        fills = _CACHE_FILLS if case.total_bytes <= _CACHE_BYTES else 0
        return _by_the_host(copy, case.count, board, repeats, fills)

    def issue(stream: Any) -> None:
        for i in range(case.count):
            copy(i, stream)

    lead_in = None if case.mode in ("after-kernel", "unblocked") else _lead_in(case, board, ends)
    return _in_one_stream(issue, board, repeats, lead_in, blocked=case.mode != "unblocked")


def _by_the_host(
    copy: Callable[[int, Any], None], count: int, board: Board, repeats: int, fills: int
) -> Samples:
    """Pageable copies: the API time runs until the data are there, for the call may return earlier.

    `fills` copies that are not timed go before: what fits the processor's cache is in it.
    """
    (stream,), (start, end) = board.streams(1), board.events(2)
    clock = time.perf_counter
    device_s, api_s = [], []
    for n in range(-fills, repeats):
        _record(start, stream)
        before = clock()
        for i in range(count):
            copy(i, stream)
        _record(end, stream)
        _synchronised(stream)
        after = clock()
        if n >= 0:
            api_s.append(after - before)
            device_s.append(_seconds(start, end))
    return Samples(tuple(device_s), tuple(api_s))


def _streams(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A chunk a stream: all wait for one event behind the blocking kernel; the last one's end counts."""
    copy = submit.one(case, ends, board)
    first, *streams = board.streams(case.count + 1)
    start, *ended = board.events(case.count + 1)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        _record(start, first)
        for stream in streams:
            _wait(stream, start)
        before = clock()
        for i, stream in enumerate(streams):
            copy(i, stream)
        after = clock()
        for stream, end in zip(streams, ended, strict=True):
            _record(end, stream)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(max(_seconds(start, end) for end in ended))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))


def _event_kernel(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy, and an empty kernel of another stream that waits for it."""
    copy, lead_in = submit.one(case, ends, board), _lead_in(case, board, ends)
    (first, other), (start, copied, end) = board.streams(2), board.events(3)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        lead_in(first)
        _record(start, first)
        before = clock()
        copy(0, first)
        _record(copied, first)
        _wait(other, copied)
        board.kernels.launch("nothing", other)
        after = clock()
        _record(end, other)
        board.flags.release()
        _synchronised(other)
        board.flags.verify()
        device_s.append(_seconds(start, end))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))


def _batch(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    if not hasattr(driver, "cuMemcpyBatchAsync"):
        raise UnavailableError("this driver has no cuMemcpyBatchAsync (CUDA 12.8 and newer have)")
    return _in_one_stream(submit.batch(case, ends), board, repeats, _lead_in(case, board, ends))


def _written(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy from, or to, host memory that this thread has written just before: the processor's own caches hold it."""
    copy = submit.one(case, ends, board)
    at = ends.source if case.direction == "h2d" else ends.target
    words = np.ctypeslib.as_array((ctypes.c_uint64 * (case.bytes // 8)).from_address(at))
    lead_in = _lead_in(case, board, ends)
    samples = Samples((), ())
    for _ in range(repeats):
        # Every word is written, and none is changed.
        np.bitwise_or(words, 0, out=words)
        if case.memory in _HOST_MOVED:
            samples += _by_the_host(copy, 1, board, 1, 0)
        else:
            samples += _in_one_stream(lambda stream: copy(0, stream), board, 1, lead_in)
    return samples


def _hybrid(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A chunk a stream: copies in, then kernels that write as many bytes of mapped memory; the last one's end counts."""
    copy = submit.one(case, ends, board)
    mapped = board.buffer("pinned", "target", case.count * ends.pitch)
    first, *streams = board.streams(case.count + 1)
    start, *ended = board.events(case.count + 1)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        _record(start, first)
        for stream in streams:
            _wait(stream, start)
        before = clock()
        for i, stream in enumerate(streams):
            copy(i, stream)
        for i, stream in enumerate(streams):
            at = i * ends.pitch
            arguments = (ends.target + at, mapped + at, case.bytes // 16)
            board.kernels.launch_wide("copy16", stream, arguments, (pointer, pointer, long))
        after = clock()
        for stream, end in zip(streams, ended, strict=True):
            _record(end, stream)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(max(_seconds(start, end) for end in ended))
        api_s.append(after - before)
    return Samples(tuple(device_s), tuple(api_s))


def _graph(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    copy = submit.one(case, ends, board)
    stream = board.streams(1)[0]
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    checked(driver.cuStreamBeginCapture(stream, relaxed), "cuStreamBeginCapture")
    for i in range(case.count):
        copy(i, stream)
    graph = checked(driver.cuStreamEndCapture(stream), "cuStreamEndCapture")
    runnable = checked(driver.cuGraphInstantiate(graph, 0), "cuGraphInstantiate")
    try:
        launch = lambda s: checked(driver.cuGraphLaunch(runnable, s), "cuGraphLaunch")  # noqa: E731
        return _in_one_stream(launch, board, repeats, _lead_in(case, board, ends))
    finally:
        checked(driver.cuGraphExecDestroy(runnable), "cuGraphExecDestroy")
        checked(driver.cuGraphDestroy(graph), "cuGraphDestroy")


def _strided(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    return _in_one_stream(submit.strided(case, ends), board, repeats, _lead_in(case, board, ends))


def _packed(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    return _in_one_stream(submit.packed(case, ends, board), board, repeats, _lead_in(case, board, ends))


def _both(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """The measured direction's copies while more of the same size run the other way until past their end."""
    copy = submit.one(case, ends, board)
    away: Direction = "d2h" if case.direction == "h2d" else "h2d"
    opposite = Case(away, case.memory, case.mode, case.bytes, case.count, case.gpu)
    back = submit.one(opposite, submit.ends_of(opposite, board, None), board)
    first, there, here = board.streams(3)
    start, end, last = board.events(3)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        _record(start, first)
        _wait(there, start)
        _wait(here, start)
        for n in range(2 * case.count + 2):
            back(n % case.count, here)
        _record(last, here)
        before = clock()
        for i in range(case.count):
            copy(i, there)
        after = clock()
        _record(end, there)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(_seconds(start, end))
        api_s.append(after - before)
        if _seconds(start, last) < device_s[-1]:
            raise UnavailableError("the opposite copies ended first: one direction is over twice as fast")
    return Samples(tuple(device_s), tuple(api_s))


def _beside_mapped(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A copy while a kernel reads or writes mapped memory the other way, as hybrid strategies do [W14]."""
    copy = submit.one(case, ends, board)
    reads = case.direction == "d2h"
    side = "source" if reads else "target"
    mapped = board.buffer("pinned", side, case.total_bytes)
    # Small enough that a pass, and so the wait for its end, is short; large enough to fill the link.
    span = min(board.most("pinned"), 1 << 25)
    _, aside = board.streams(2)
    lead_in = _lead_in(case, board, ends)

    def issue(stream: Any) -> None:
        for i in range(case.count):
            copy(i, stream)

    samples = Samples((), ())
    for _ in range(repeats):
        board.flags.start_traffic(aside, mapped, span, reads, _TRAFFIC_THREADS)
        time.sleep(_TRAFFIC_START_S)
        try:
            samples += _in_one_stream(issue, board, 1, lead_in)
        finally:
            board.flags.stop_traffic()
            _synchronised(aside)
    return samples


def _kernel(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A kernel that reads mapped memory (h2d), writes it (d2h), or does both at once (kernel-both)."""
    if case.bytes % 16:
        raise UnavailableError("mapped memory is read sixteen bytes at a time")
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    name = "read16" if case.direction == "h2d" and case.mode == "kernel" else "copy16"
    arguments = (ends.source, ends.target, case.bytes // 16)

    def issue(stream: Any) -> None:
        board.kernels.launch_wide(name, stream, arguments, (pointer, pointer, long))

    return _in_one_stream(issue, board, repeats)


def _kernel_beside_copies(case: Case, board: Board, ends: submit.Ends, repeats: int) -> Samples:
    """A kernel that reads or writes mapped memory while copies run the other way until past its end."""
    away: Direction = "d2h" if case.direction == "h2d" else "h2d"
    opposite = Case(away, "pinned", "copies", case.bytes, 1, case.gpu)
    back = submit.one(opposite, submit.ends_of(opposite, board, None), board)
    name = "read16" if case.direction == "h2d" else "copy16"
    arguments = (ends.source, ends.target, case.bytes // 16)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    first, there, here = board.streams(3)
    start, end, last = board.events(3)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        board.flags.hold(first)
        _record(start, first)
        _wait(there, start)
        _wait(here, start)
        for _ in range(_COPIES_BESIDE):
            back(0, here)
        _record(last, here)
        before = clock()
        board.kernels.launch_wide(name, there, arguments, (pointer, pointer, long))
        after = clock()
        _record(end, there)
        board.flags.release()
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        board.flags.verify()
        device_s.append(_seconds(start, end))
        api_s.append(after - before)
        if _seconds(start, last) < device_s[-1]:
            raise UnavailableError("the opposite copies ended before the kernel did")
    return Samples(tuple(device_s), tuple(api_s))


def _managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address = board.buffer("managed", "source", case.bytes)
    (stream,), (start, end) = board.streams(1), board.events(2)
    host, gpu = driver.CUmemLocation(), driver.CUmemLocation()
    host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    gpu.type, gpu.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, board.ordinal
    to, away = (gpu, host) if case.direction == "h2d" else (host, gpu)
    sink = board.buffer("device", "target", 16)
    pointer, long = ctypes.c_void_p, ctypes.c_ulonglong
    view = np.ctypeslib.as_array((ctypes.c_uint8 * case.bytes).from_address(address))
    words = view.view(np.uint64)
    # Pages that were never on a side are made there first: not timed, for a program's second time shows its pace.
    for place in (away, to):
        checked(driver.cuMemPrefetchAsync(address, case.bytes, place, 0, stream), "cuMemPrefetchAsync")
    _synchronised(stream)
    clock = time.perf_counter
    device_s, api_s = [], []
    for _ in range(repeats):
        checked(driver.cuMemPrefetchAsync(address, case.bytes, away, 0, stream), "cuMemPrefetchAsync")
        _synchronised(stream)
        if case.mode == "written":
            # The processor maps every page, as a program does that fills its array: the GPU has to unmap them.
            np.bitwise_or(words, 0, out=words)
        before = clock()
        if case.mode == "touch" and case.direction == "d2h":
            view[::4096].sum()
            api_s.append(clock() - before)
            continue
        _record(start, stream)
        if case.mode == "prefetch":
            checked(driver.cuMemPrefetchAsync(address, case.bytes, to, 0, stream), "cuMemPrefetchAsync")
        else:
            arguments = (address, sink, case.bytes // 16)
            board.kernels.launch_wide("read16", stream, arguments, (pointer, pointer, long))
        _record(end, stream)
        _synchronised(stream)
        api_s.append(clock() - before)
        device_s.append(_seconds(start, end))
    return Samples(tuple(device_s), tuple(api_s))


def _empty(case: Case, board: Board, repeats: int) -> Samples:
    """Two events with nothing between them: what every device time holds besides its copy."""
    return _in_one_stream(lambda stream: None, board, repeats)


def _call(case: Case, board: Board, repeats: int) -> Samples:
    """The cheapest call there is: what Python's binding adds to every API time."""
    return _timed(driver.cuDriverGetVersion, repeats)


def _launch(case: Case, board: Board, repeats: int) -> Samples:
    return _in_one_stream(lambda s: board.kernels.launch("nothing", s), board, repeats)


def _synchronise(case: Case, board: Board, repeats: int) -> Samples:
    stream = board.streams(1)[0]
    return _timed(lambda: driver.cuStreamSynchronize(stream), repeats)


def _create_stream(case: Case, board: Board, repeats: int) -> Samples:
    return _made(lambda: driver.cuStreamCreate(1), driver.cuStreamDestroy, repeats)


def _create_event(case: Case, board: Board, repeats: int) -> Samples:
    return _made(lambda: driver.cuEventCreate(0), driver.cuEventDestroy, repeats)


def _allocate(case: Case, board: Board, repeats: int) -> Samples:
    if case.bytes > board.most(case.memory):
        raise UnavailableError(f"{case.bytes} bytes are more than is left for {case.memory} memory")
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        made = allocate(case.memory, case.bytes)
        api_s.append(clock() - before)
        made.free()
    return Samples((), tuple(api_s))


def _register(case: Case, board: Board, repeats: int) -> Samples:
    """Pinning pages that exist and are resident."""
    at = board.buffer("pageable", "target", case.bytes)
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        register(at, case.bytes)
        api_s.append(clock() - before)
        checked(driver.cuMemHostUnregister(at), "cuMemHostUnregister")
    return Samples((), tuple(api_s))


def _timed(call: Callable[[], Any], repeats: int) -> Samples:
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        call()
        api_s.append(clock() - before)
    return Samples((), tuple(api_s))


def _made(make: Callable[[], Any], destroy: Callable[[Any], Any], repeats: int) -> Samples:
    clock = time.perf_counter
    api_s = []
    for _ in range(repeats):
        before = clock()
        answer = make()
        api_s.append(clock() - before)
        checked(destroy(checked(answer)))
    return Samples((), tuple(api_s))


_MODES: dict[str, Callable[[Case, Board, submit.Ends, int], Samples]] = {
    "copies": _copies,
    "unblocked": _copies,
    "bound": _copies,
    "again": _copies,
    "after-kernel": _copies,
    "after-event": _streams,
    "event-kernel": _event_kernel,
    "streams": _streams,
    "batch": _batch,
    "graph": _graph,
    "written": _written,
    "hybrid": _hybrid,
    "plane": _strided,
    "block": _strided,
    "packed": _packed,
    "both": _both,
    "beside-mapped": _beside_mapped,
    "kernel": _kernel,
    "kernel-both": _kernel,
    "kernel-beside-copies": _kernel_beside_copies,
}
_COSTS: dict[str, Callable[[Case, Board, int], Samples]] = {
    "empty": _empty,
    "call": _call,
    "launch": _launch,
    "synchronise": _synchronise,
    "create-stream": _create_stream,
    "create-event": _create_event,
    "allocate": _allocate,
    "register": _register,
}
