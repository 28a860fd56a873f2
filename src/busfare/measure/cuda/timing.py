"""Work in streams, held until all of it is submitted, and timed by events.

```
host    hold ──▶ lead-in ──▶ event ──▶ work ──▶ event ──▶ release ─────────────▶ wait
                                      └─API time─┘
stream  [blocking kernel ……………………………………………………] [lead-in] |start| [work] |end|
                                                               └─device time─┘
```
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from busfare.measure.cases import Samples
from busfare.measure.cuda.driver import Module, checked, driver, record, seconds, synchronise, wait
from busfare.measure.device import StalledError, UnavailableError

if TYPE_CHECKING:
    from busfare.measure.cuda.board import Board

#: No submission of ours takes a tenth of this; a queue that is full never ends, and must not hang the GPU.
LIMIT_S = 3.0
_LIMIT_NS = int(LIMIT_S * 1e9)
#: Up to here the copy before the first event is as long as the measured one: beyond it every copy takes the same engine.
LEAD_IN_BYTES = 1 << 16
#: Threads a multiprocessor of the kernel beside a copy: as few as fill a link by Little's law (16 bytes each, 1 µs of
#: latency, 132 multiprocessors: 68 GB/s). More would only queue up, and starve the copy by their number.
_TRAFFIC_THREADS = 32
_MAPPED = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
_CAPTURE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

#: Puts work into the streams that it is given.
Issue = Callable[[Sequence[Any]], None]


class Flags:
    """A few words of pinned memory through which the host and a running kernel speak."""

    def __init__(self, kernels: Module) -> None:
        self._kernels = kernels
        self.address = int(checked(driver.cuMemHostAlloc(64, _MAPPED), "cuMemHostAlloc"))
        self._words = (ctypes.c_uint32 * 16).from_address(self.address)

    def hold(self, stream: Any) -> None:
        """From here on `stream` waits for `release`: a blocking kernel, which gives up after LIMIT_S, aloud."""
        self._words[0] = self._words[1] = 0
        self._kernels.launch("block", stream, (self.address, self.address + 4, _LIMIT_NS))

    def release(self) -> None:
        """Lets the held stream go."""
        self._words[0] = 1

    def verify(self) -> None:
        """Raises StalledError where the kernel gave up before `release`. Call it after synchronising."""
        if self._words[1]:
            raise StalledError(
                f"the blocking kernel waited {LIMIT_S:g} s and gave up: a launch queue was full or the host "
                "stalled; this case was thrown away"
            )

    def start_traffic(self, stream: Any, mapped: int, size: int, reads: bool, blocks: int) -> None:
        """A kernel that reads or writes `size` bytes of mapped memory over and over until `stop_traffic`; `blocks`: one a
        multiprocessor.
        """
        self._words[2] = 0
        arguments = (mapped, size // 16, self.address + 8, _LIMIT_NS, int(reads))
        self._kernels.launch("stream16", stream, arguments, blocks, _TRAFFIC_THREADS)

    def stop_traffic(self) -> None:
        """Ends the traffic after its pass."""
        self._words[2] = 1

    def close(self) -> None:
        checked(driver.cuMemFreeHost(self.address), "cuMemFreeHost")


class Step(NamedTuple):
    """What puts an operation into the stream of a number, behind the steps `after` of other streams."""

    stream: int
    work: Callable[[Any], object]
    after: Sequence[int] = ()


def in_order(board: Board, steps: Sequence[Step]) -> Issue:
    """Steps in their order, with events between them where others wait."""
    awaited = sorted({other for step in steps for other in step.after})
    marks = dict(zip(awaited, board.marks(len(awaited)), strict=True))
    calls: list[tuple[int, Callable[[Any], object]]] = []
    for n, step in enumerate(steps):
        calls += [(step.stream, partial(wait, event=marks[other])) for other in step.after]
        calls.append((step.stream, step.work))
        if n in marks:
            calls.append((step.stream, partial(record, marks[n])))

    def issue(streams: Sequence[Any]) -> None:
        for stream, call in calls:
            call(streams[stream])

    return issue


class Timed:
    """Work of some streams of one GPU.

    Where the first stream leads (there is one alone, or the others wait for what is in it), it is held itself, and a
    short copy, the lead-in, goes before the clock starts: the copy engine then holds the stream, and the way from the
    blocking kernel to it is not in the time. Otherwise all streams wait for one event. `beside` is work of one more
    stream, which begins at the same time and must outlast the measured work.
    """

    def __init__(
        self, board: Board, issue: Issue, streams: int = 1, *, led: bool = False,
        lead_in: Callable[[Any], None] | None = None, beside: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        self.board, self._issue, self._lead_in, self._beside = board, issue, lead_in, beside
        self._led = led or (streams == 1 and beside is None)
        board.enter()
        self._first, *others = board.streams(streams + (0 if self._led else 2))
        self.streams = [self._first, *others] if self._led else others[:streams]
        self._aside = others[-1] if beside else None
        self._start, self._last, *self._ends = board.events(streams + 2)

    def submit(self, held: bool = True) -> float:
        """Submits everything; seconds that the calls of the measured work took."""
        self.board.enter()
        if held:
            self.board.flags.hold(self._first)
        if self._lead_in and self._led:
            self._lead_in(self._first)
        record(self._start, self._first)
        for stream in () if self._led else (*self.streams, *((self._aside,) if self._aside else ())):
            wait(stream, self._start)
        if self._beside:
            self._beside(self._aside)
            record(self._last, self._aside)
        before = time.perf_counter()
        self._issue(self.streams)
        taken = time.perf_counter() - before
        for end, stream in zip(self._ends, self.streams, strict=True):
            record(end, stream)
        return taken

    def synchronise(self) -> None:
        """Waits until all of it is done."""
        self.board.enter()
        for stream in (*self.streams, *((self._aside,) if self._aside else ())):
            synchronise(stream)

    def ends_s(self) -> tuple[float, ...]:
        """Seconds from the start to each stream's end, once done. Raises UnavailableError where `beside` ended first."""
        found = tuple(seconds(self._start, end) for end in self._ends)
        if self._beside and seconds(self._start, self._last) < max(found):
            raise UnavailableError("what ran the other way ended first: one direction is far faster")
        return found

    def call(self) -> None:
        """The measured work alone, as a program itself would call it."""
        self._issue(self.streams)


def once(timed: Sequence[Timed], held: bool = True) -> tuple[tuple[float, ...], list[float]]:
    """Work of one GPU or several at once, each behind its blocking kernel where it is held: seconds until each stream's end,
    and of the calls of each work. Raises StalledError where a blocking kernel gave up.
    """
    calls_s = list[float]()
    try:
        calls_s += (one.submit(held) for one in timed)
    finally:
        for one in timed:
            one.board.flags.release()
        for one in timed:
            one.synchronise()
    if held:
        for one in timed:
            one.board.flags.verify()
    return tuple(end for one in timed for end in one.ends_s()), calls_s


def sampled(
    board: Board, issue: Issue, repeats: int, streams: int = 1, held: bool = True, **more: Any
) -> Samples:
    """So many samples of work, with `more` of what a `Timed` has. Raises StalledError where the blocking kernel gave up."""
    timed = Timed(board, issue, streams, **more)
    runs = [once((timed,), held) for _ in range(repeats)]
    return Samples(tuple(max(ends) for ends, _ in runs), tuple(calls[0] for _, calls in runs))


@contextmanager
def captured(streams: Sequence[Any], issue: Issue) -> Iterator[Issue]:
    """What `issue` puts into the first of `streams`, and into those that wait for it, as a graph: what launches it into
    the first stream that it is given.
    """
    checked(driver.cuStreamBeginCapture(streams[0], _CAPTURE), "cuStreamBeginCapture")
    try:
        issue(streams)
    finally:
        graph = checked(driver.cuStreamEndCapture(streams[0]), "cuStreamEndCapture")
    runnable = checked(driver.cuGraphInstantiate(graph, 0), "cuGraphInstantiate")
    try:
        yield lambda given: checked(driver.cuGraphLaunch(runnable, given[0]), "cuGraphLaunch")
    finally:
        checked(driver.cuGraphExecDestroy(runnable), "cuGraphExecDestroy")
        checked(driver.cuGraphDestroy(graph), "cuGraphDestroy")
