"""One thing to measure: a path, a size, and the way in which the copies are issued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MODES", "Case", "Direction", "Memory", "Mode", "Samples"]

Direction = Literal["h2d", "d2h", "d2d", "p2p", "none"]
#: `registered` is pageable memory made pinned afterwards; `none` is a cost that moves nothing.
Memory = Literal["pageable", "pinned", "registered", "write-combined", "mapped", "managed", "device", "none"]
Mode = str
#: How the copies, or the call, of a case are issued. Files of older runs hold others, which nothing reads.
MODES = {
    "copies": "`count` copies in one stream, right after another copy",
    "after-kernel": "the same right after a kernel",
    "there-and-back": "a copy in, an empty kernel, and a copy of as many bytes out, in one stream",
    "event-kernel": "a copy, and in another stream an empty kernel that waits for it",
    "streams": "a copy a stream; all wait for one event, and the last one's end counts",
    "batch": "the copies in one cudaMemcpyBatchAsync",
    "graph": "the copies captured and launched as a graph",
    "plane": "one 2D copy of `count` strided rows",
    "block": "one 3D copy of `count` strided rows",
    "both": "copies while others run the other way",
    "beside-mapped": "a copy while a kernel moves mapped memory the other way",
    "kernel": "a kernel that reads (h2d) or writes (d2h) mapped memory",
    "kernel-both": "a kernel that reads and writes mapped memory at once",
    "kernel-beside-copies": "a kernel on mapped memory while copies run the other way",
    "touch": "managed memory that moves by page faults",
    "prefetch": "managed memory that is prefetched",
    "empty": "two events with nothing between them",
    "launch": "an empty kernel",
    "synchronise": "waiting for a stream that is through",
    "allocate": "making a buffer",
    "register": "pinning pages that exist",
}


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
        pair = f"{self.gpu}→{self.peer} " if self.peer is not None else ""
        return f"{pair}{self.direction} {self.memory} {self.mode} {self.count}×{self.bytes} B"


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw samples of one case, in seconds, side by side: what the device took, and what the API calls took.

    `device_s` is empty where no device time exists (an allocation).
    """

    device_s: tuple[float, ...]
    api_s: tuple[float, ...]

    def __add__(self, other: Samples) -> Samples:
        return Samples(self.device_s + other.device_s, self.api_s + other.api_s)
