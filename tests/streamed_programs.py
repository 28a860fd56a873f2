"""Small runs of programs that stream their layers from the host, written out with all that is known of them."""

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from busfare.trace import Trace, tables
from tests import traces
from tests.traces import call, copy, kernel, trace

SIZE = 8 << 20
STREAMS = [row | {"device": 0} for row in traces.streams({7: "non-blocking", 8: "non-blocking"})]


@dataclass
class Written:
    """What a host thread does, and what the GPU makes of it; microseconds."""

    copy_us: float = 400.0
    kernel_us: tuple[float, ...] = (150.0, 150.0)
    now: float = 0.0
    correlation: int = 0

    def __post_init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.ranges: list[dict[str, Any]] = []
        self.free = {7: 0.0, 8: 0.0}

    def call(self, name: str, us: float = 2.0, waits_for: str = "none", **more: Any) -> int:
        self.correlation += 1
        self.calls.append(
            call(self.now, self.now + us, name, waits_for, correlation=self.correlation, **more)
        )
        self.now += us
        return self.correlation

    def copy(self, stream: int = 7, memory: str = "pinned", size: int = SIZE) -> None:
        """A copy; of pageable memory its call lasts until it is done."""
        begin = max(self.now + 2.0, self.free[stream])
        end = begin + self.copy_us * size / SIZE
        blocking = memory == "pageable"
        name = "cudaMemcpy" if blocking else "cudaMemcpyAsync"
        number = self.call(name, end - self.now + 3 if blocking else 2.0, "operation" if blocking else "none")
        self.free[stream] = end
        self.operations.append(
            copy(begin, end, size, memory=memory, stream=stream, correlation=number, context=1)
        )

    def compute(self, behind: float = 0.0, names: tuple[str, ...] = ("mix", "squash")) -> None:
        for name, us in zip(names, self.kernel_us, strict=True):
            begin = max(self.now + 4.0, self.free[7], behind)
            number = self.call("cudaLaunchKernel")
            self.free[7] = begin + us
            self.operations.append(kernel(begin, begin + us, name, correlation=number, context=1))

    def event(self, kind: str, stream: int, event: int) -> None:
        number = self.call("cudaEventRecord" if kind == "record" else "cudaStreamWaitEvent", 1.0)
        self.events.append(traces.event(kind, 0, stream, number, device=0, event=event))

    def wait(self, stream: int) -> None:
        until = max(self.now + 1.0, self.free[stream] + 3.0)
        self.call("cudaStreamSynchronize", until - self.now, "stream", stream=stream)

    def result(self) -> None:
        """Copied back, and waited for."""
        begin = max(self.now + 4.0, self.free[7])
        number = self.call("cudaMemcpyAsync")
        self.free[7] = begin + 10.0
        self.operations.append(copy(begin, begin + 10.0, 4096, "d2h", correlation=number, context=1))
        self.wait(7)

    def trace(self) -> Trace:
        made = trace(
            *self.operations, calls=self.calls, events=self.events, streams=STREAMS,
            gpu="NVIDIA H100 80GB HBM3",
        )  # fmt: skip
        if not self.ranges:
            return made
        return replace(made, markers=tables.conform(pl.DataFrame(self.ranges), tables.MARKERS))


def single_stream(
    layers: int = 6, passes: int = 4, memory: str = "pinned", resident: int = 0, names: tuple[str, ...] = (),
    **more: Any,
) -> Trace:  # fmt: skip
    """Every layer's copy in front of its kernels, in their stream; a result a pass. The first layers are `resident`; each
    is in ranges of `names`, with its number, and of kernels named for it then, so that no pattern tells.
    """
    run = Written(**more)
    for iteration in range(passes):
        for layer in range(layers):
            begun = run.now
            if layer >= resident:
                run.copy(memory=memory)
            run.compute(names=(f"mix{layer}", f"squash{iteration}") if names else ("mix", "squash"))
            run.ranges += [
                {"start_ns": round(begun * 1000), "end_ns": round(run.now * 1000), "process": 1, "thread": 1,
                 "name": f"{name}{layer}"}
                for name in names
            ]  # fmt: skip
        run.result()
    return run.trace()


def two_streams(layers: int = 6, passes: int = 4, **more: Any) -> Trace:
    """One layer ahead, in a stream of its own, into two buffers; the streams wait for each other by events."""
    run = Written(**more)
    arrived: list[float] = []
    computed: list[float] = []
    total = layers * passes

    def send(number: int) -> None:
        if number >= 2:
            run.event("wait", 8, 1000 + number - 2)
            run.free[8] = max(run.free[8], computed[number - 2])
        run.copy(8)
        arrived.append(run.free[8])
        run.event("record", 8, number)

    send(0)
    for number in range(total):
        if number + 1 < total:
            send(number + 1)
        run.event("wait", 7, number)
        run.compute(arrived[number])
        run.event("record", 7, 1000 + number)
        computed.append(run.free[7])
    run.result()
    return run.trace()
