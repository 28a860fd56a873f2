"""One thing to measure: a path, a size, and the way in which the copies are issued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Case", "Direction", "Memory", "Mode", "Samples"]

Direction = Literal["h2d", "d2h", "d2d", "p2p", "none"]
#: `registered` is pageable memory made pinned afterwards; `none` is a cost that moves nothing.
Memory = Literal["pageable", "pinned", "registered", "write-combined", "mapped", "managed", "device", "none"]
#: `copies`: `count` copies of `bytes` each in one stream, right after another copy; `after-kernel`: the same
#: right after a kernel; `after-event`: after an event of another stream, in which a kernel went before; `event-kernel`: a
#: copy and, in another stream, an empty kernel that waits for it; `again`: the same copy over and over; `streams`: each
#: copy in its own stream, all waiting for one event; `batch`: one `cudaMemcpyBatchAsync`; `graph`: captured and launched
#: as a graph;
#: `plane` and `block`: one strided 2D or 3D copy of `count` rows; `packed`: one copy of those rows, which a
#: kernel packs on the GPU before it or takes apart after it; `both`: copies while others run the other way;
#: `beside-mapped`: a copy while a kernel moves mapped memory the other way; `beside-gpu`: copies while GPU
#: `peer` and the same host exchange as many, the same way; `both-beside-gpu`: as `both`, while GPU `peer` and the same host
#: do the same; `bound`: a copy by a thread, and of host memory, that are
#: bound to the processors next to the GPU; `unblocked`: a copy issued without the blocking kernel.
#: `written`: a copy from, or to, host memory that the processor has written just before, or pages of managed memory
#: that are touched then; `hybrid`: copies into the GPU, each in its own stream and with a kernel behind it that
#: writes as many bytes of mapped memory.
#: `there-and-back`: a copy into the GPU, an empty kernel and a copy out of as many bytes in one stream.
#: `through`: chunks that go in, through an empty kernel and out again, each in its own stream; `through-beside-gpu`:
#: while GPU `peer` does the same.
#: `touch` and `prefetch` migrate managed memory; `kernel` reads or writes mapped memory, `kernel-both` reads
#: and writes it at once, `kernel-beside-copies` reads or writes it while copies run the other way.
#: The others are costs of the API: what one call takes.
Mode = Literal[
    "copies",
    "again",
    "streams",
    "after-kernel",
    "after-event",
    "event-kernel",
    "batch",
    "graph",
    "plane",
    "block",
    "packed",
    "both",
    "beside-mapped",
    "beside-gpu",
    "both-beside-gpu",
    "bound",
    "unblocked",
    "written",
    "hybrid",
    "there-and-back",
    "through",
    "through-beside-gpu",
    "touch",
    "prefetch",
    "kernel",
    "kernel-both",
    "kernel-beside-copies",
    "empty",
    "call",
    "launch",
    "synchronise",
    "create-stream",
    "create-event",
    "allocate",
    "register",
]


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """What to measure. `bytes` is the size of each of `count` copies; a strided copy has `count` rows of it."""

    direction: Direction
    memory: Memory
    mode: Mode
    bytes: int = 0
    count: int = 1
    gpu: int = 0
    peer: int | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes that one sample moves in the measured direction."""
        return self.bytes * self.count

    def __str__(self) -> str:
        way = f"{self.gpu}→{self.peer} " if self.peer is not None else ""
        return f"{way}{self.direction} {self.memory} {self.mode} {self.count}×{self.bytes} B"


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw samples of one case, in seconds, side by side: what the device took, and what the API calls took.

    `device_s` is empty where no device time exists (an allocation).
    """

    device_s: tuple[float, ...]
    api_s: tuple[float, ...]

    def __add__(self, other: Samples) -> Samples:
        return Samples(self.device_s + other.device_s, self.api_s + other.api_s)
