"""The question that a plan answers: what moves, what is computed, and how it may be cut; and what one strategy takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["ACCESSES", "MOST_STREAMS", "Accesses", "Prediction", "Problem", "Step"]

Accesses = Literal["accesses_in", "accesses_out"]
ACCESSES: tuple[Accesses, ...] = get_args(Accesses)

#: Without levels to cut along, more streams than this are never looked at; fewer where each number is played.
MOST_STREAMS, MOST_PLAYED = 256, 128


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a pipeline: bytes copied in before its kernel, its kernel's seconds, bytes copied out after."""

    kernel_seconds: float
    h2d_bytes: float = 0.0
    d2h_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One kernel with the data that it needs from the host and gives back. Bytes and seconds.

    `kernel_seconds` is t_E with the data in device memory; None: from `flops` and `device_bytes` by the roofline.
    `accesses_*`: how often the kernel touches each element, which mapped memory pays for every time.
    `access_bytes`: how much one access of neighbouring threads takes at once; None: whole packets.
    `levels`: into how many chunks the data can be cut. `kernel_at`: t_E measured with so many chunks.
    `copies_*`: separate arrays copied each way. `chunks`: shares of unequal chunks, adding up to 1.
    `steps`: more than one kernel in the pipeline; their bytes and seconds add up to those above.
    `queues`: hardware queues; None: one a stream. `launch_seconds`: the host's time for each call.
    `copies_in_order`: chunks need their neighbours' data, so that all copies in go through one stream.
    `assumed`: which numbers of accesses nobody gave.
    """

    name: str = "kernel"
    h2d_bytes: float = 0.0
    d2h_bytes: float = 0.0
    kernel_seconds: float | None = None
    flops: float | None = None
    device_bytes: float | None = None
    accesses_in: float = 1.0
    accesses_out: float = 1.0
    access_bytes: float | None = None
    streams: int | None = None
    levels: int | None = None
    memory: Literal["pinned", "pageable"] = "pinned"
    copies_in: int = 1
    copies_out: int = 1
    kernel_at: tuple[tuple[int, float], ...] = ()
    chunks: tuple[float, ...] = ()
    steps: tuple[Step, ...] = ()
    queues: int | None = None
    concurrent_kernels: int = 1
    launch_seconds: float = 0.0
    copies_in_order: bool = False
    assumed: tuple[Accesses, ...] = ()

    @property
    def most_streams(self) -> int:
        """The largest number of streams worth looking at."""
        most = MOST_STREAMS if self.has_closed_form else MOST_PLAYED
        return len(self.chunks) or self.levels or max(most, self.streams or 1)

    @property
    def has_closed_form(self) -> bool:
        """Whether the equations leave nothing of this problem out."""
        played = (
            self.chunks or self.steps or self.queues or self.concurrent_kernels > 1 or self.launch_seconds
        )
        return not played


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy takes; `by` names the equation, or the schedule. `streams`: of `three-streams` the chunks.

    `assumes`: fields of the problem that nobody gave, and that its seconds rest on.
    """

    strategy: str
    streams: int
    seconds: float
    by: str
    assumes: tuple[str, ...] = ()
