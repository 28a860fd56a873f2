"""Work in streams, held until all of it is submitted, and timed by events; and how calls are timed, and managed memory on
its way to the other side, which have no source and target.

```
host    hold ──▶ lead-in ──▶ event ──▶ work ──▶ event ──▶ release ─────────────▶ wait
                                      └─API time─┘
stream  [blocking kernel ……………………………………………………] [lead-in] |start| [work] |end|
                                                               └─device time─┘
```
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from busfare.measure.cases import Case, Samples
from busfare.measure.cuda import driver as cuda
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.run import UnavailableError

#: Up to here the copy before the first event is as long as the measured one: beyond it every copy takes the same engine.
LEAD_IN_BYTES = 1 << 16
_CAPTURE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

#: Puts work into the streams that it is given.
Issue = Callable[[Sequence[Any]], None]


class Step(NamedTuple):
    """What puts an operation into the stream of a number, behind the steps `after` of other streams."""

    stream: int
    work: Callable[[Any], object]
    after: Sequence[int] = ()


def in_order(board: Board, steps: Sequence[Step]) -> Issue:
    """Steps in their order, with events between them where others wait."""
    awaited = sorted({earlier for step in steps for earlier in step.after})
    marks = dict(zip(awaited, board.events(len(awaited), timed=False), strict=True))
    calls: list[tuple[int, Callable[[Any], object]]] = []
    for n, step in enumerate(steps):
        calls += [(step.stream, partial(cuda.wait, event=marks[earlier])) for earlier in step.after]
        calls.append((step.stream, step.work))
        if n in marks:
            calls.append((step.stream, partial(cuda.record, marks[n])))

    def issue(streams: Sequence[Any]) -> None:
        for stream, call in calls:
            call(streams[stream])

    return issue


class Timed:
    """Work of some streams of one GPU.

    If the first stream leads (it is the only one, or the others wait for its work), the blocking kernel holds it, and a
    short copy, the lead-in, runs before the clock starts. The copy engine then serves that stream, and the switch from the
    blocking kernel is not timed. Otherwise, all streams wait for one event. `opposing`: work of one more stream, which
    begins at the same time and must outlast the measured work.
    """

    def __init__(
        self, board: Board, issue: Issue, streams: int = 1, *, led: bool = False,
        lead_in: Callable[[Any], None] | None = None, opposing: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        self.board, self.issue, self._lead_in, self._opposing = board, issue, lead_in, opposing
        self._led = led or (streams == 1 and opposing is None)
        board.enter()
        self._first, *rest = board.streams(streams + (0 if self._led else 2))
        self.streams = [self._first, *rest] if self._led else rest[:streams]
        self._aside = rest[-1] if opposing else None
        self._start, self._last, *self._ends = board.events(streams + 2)

    def submit(self, held: bool = True) -> float:
        """Submits everything; seconds that the calls of the measured work took."""
        self.board.enter()
        if held:
            self.board.flags.hold(self._first)
        if self._lead_in and self._led:
            self._lead_in(self._first)
        cuda.record(self._start, self._first)
        for stream in () if self._led else (*self.streams, *((self._aside,) if self._aside else ())):
            cuda.wait(stream, self._start)
        if self._opposing:
            self._opposing(self._aside)
            cuda.record(self._last, self._aside)
        before = time.perf_counter()
        self.issue(self.streams)
        taken = time.perf_counter() - before
        for end, stream in zip(self._ends, self.streams, strict=True):
            cuda.record(end, stream)
        return taken

    def synchronise(self) -> None:
        """Waits until all of it is done."""
        self.board.enter()
        for stream in (*self.streams, *((self._aside,) if self._aside else ())):
            cuda.synchronise(stream)

    def ends_s(self) -> tuple[float, ...]:
        """Seconds from the start to the end of each stream. Raises UnavailableError if `opposing` ended before."""
        ends = tuple(cuda.seconds(self._start, end) for end in self._ends)
        if self._opposing and cuda.seconds(self._start, self._last) < max(ends):
            raise UnavailableError("the opposite direction ended first because it is far faster")
        return ends


def once(timed: Sequence[Timed], held: bool = True) -> tuple[tuple[float, ...], list[float]]:
    """Work of one GPU or several at once, each behind its blocking kernel where it is held: seconds until each stream's end,
    and of the calls of each work. Raises StalledError where a blocking kernel gave up.
    """
    calls_s = list[float]()
    try:
        calls_s += (work.submit(held) for work in timed)
    finally:
        for work in timed:
            work.board.flags.release()
        for work in timed:
            work.synchronise()
    if held:
        for work in timed:
            work.board.flags.verify()
    return tuple(end for work in timed for end in work.ends_s()), calls_s


def sampled(
    board: Board, issue: Issue, repeats: int, streams: int = 1, held: bool = True, **more: Any
) -> Samples:
    """So many samples of work, with `more` of what a `Timed` has. Raises StalledError where the blocking kernel gave up."""
    timed = Timed(board, issue, streams, **more)
    runs = [once((timed,), held) for _ in range(repeats)]
    return Samples(tuple(max(ends) for ends, _ in runs), tuple(calls[0] for _, calls in runs))


@contextmanager
def captured(streams: Sequence[Any], issue: Issue) -> Iterator[Issue]:
    """What `issue` puts into the first of `streams`, and into those that wait for it, as a graph that a stream launches."""
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


def _managed(case: Case, board: Board, repeats: int) -> Samples:
    """Managed memory, driven to the other side before each sample: touched, or prefetched."""
    address, size = board.buffer("managed", "source", case.bytes), case.bytes
    (stream,), (start, end) = board.streams(1), board.events(2)
    to, away = (board.ordinal, None) if case.direction == "h2d" else (None, board.ordinal)
    sink, pages = board.buffer("device", "target", 16), cuda.view(address, size)
    prefetched = case.mode == "prefetch"
    # Pages that were never on a side are made there first, untimed.
    cuda.prefetch(address, size, away, stream)
    cuda.prefetch(address, size, to, stream)
    cuda.synchronise(stream)
    if prefetched:  # as `bench methods` has it; what is touched has no advice
        cuda.prefer_gpu(address, size, board.ordinal)
    device_s, api_s = [], []
    try:
        for _ in range(repeats):
            if by_host := not prefetched and case.direction == "d2h":
                # As in a program whose kernel writes it: what came by page faults goes back in smaller pieces.
                board.launch_wide("fill", stream, address, size, size, size)
            else:
                cuda.prefetch(address, size, away, stream)
            cuda.synchronise(stream)
            before = time.perf_counter()
            if by_host:
                pages[::4096].sum()
                api_s.append(time.perf_counter() - before)
                continue
            cuda.record(start, stream)
            if prefetched:
                cuda.prefetch(address, size, to, stream)
            else:
                board.launch_wide("read16", stream, address, sink, size // 16)
            cuda.record(end, stream)
            cuda.synchronise(stream)
            api_s.append(time.perf_counter() - before)
            device_s.append(cuda.seconds(start, end))
    finally:
        if prefetched:
            cuda.prefer_gpu(address, size, board.ordinal, prefer=False)
    return Samples(tuple(device_s), tuple(api_s))


def _called(make: Callable[[], Any], repeats: int, undo: Callable[[Any], Any] = lambda made: None) -> Samples:
    """The host's clock around a call, and what takes it back."""
    api_s = []
    for _ in range(repeats):
        before = time.perf_counter()
        made = make()
        api_s.append(time.perf_counter() - before)
        undo(made)
    return Samples((), tuple(api_s))


def _allocate(case: Case, board: Board, repeats: int) -> Samples:
    if case.bytes > board.most(case.memory):
        raise UnavailableError(f"{case.bytes} bytes are more than is left for {case.memory} memory")
    return _called(lambda: cuda.allocate(case.memory, case.bytes), repeats, lambda made: made.free())


def _register(case: Case, board: Board, repeats: int) -> Samples:
    """Pinning pages that exist and are resident."""
    at = board.buffer("pageable", "target", case.bytes)
    undo = partial(driver.cuMemHostUnregister, at)
    return _called(lambda: cuda.register(at, case.bytes), repeats, lambda _: checked(undo()))


#: What is measured of each mode of a case; of `empty`, what every device time holds besides its copy.
CALLS: dict[str, Callable[[Case, Board, int], Samples]] = {
    "touch": _managed,
    "prefetch": _managed,
    "empty": lambda case, board, repeats: sampled(board, lambda streams: None, repeats),
    "launch": lambda case, board, repeats: sampled(
        board, lambda streams: board.kernels.launch("nothing", streams[0]), repeats
    ),
    "synchronise": lambda case, board, repeats: _called(
        partial(driver.cuStreamSynchronize, board.streams(1)[0]), repeats
    ),
    "allocate": _allocate,
    "register": _register,
}
