"""One direction of a machine's host link, as a plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from busfare.plan.equations import FIRST_SHARE
from busfare.plan.line import Line
from busfare.plan.starving import LULL_S, WAIT_S

__all__ = ["EVENT_S", "JUST_WRITTEN", "Way"]

#: What a wait for an event of another stream adds (s), where a node's was not measured: of a kernel for a copy in [three
#: streams of 1 MB, three H200s 4 to 7 µs, three H100s 8 to 9], and of a copy out for a kernel [none on any].
EVENT_S: Mapping[str, float] = {"h2d": 7e-6, "d2h": 0.0}

#: What a byte takes longer that the processor has just written (s), and of how many bytes, where a node's was not
#: measured [bench methods, two H200s: 23 µs for 2 MiB, which one processor's own cache holds; staged copies what its
#: caches hold; page faults 10 to 58 ps on one machine, none on another].
JUST_WRITTEN: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "h2d": {"pinned": (1.2e-11, 2 << 20), "pageable": (3.5e-11, 64 << 20), "managed": (2e-11, 32 << 20)},
    "d2h": {"pageable": (2.5e-11, 16 << 20)},
}
#: From here on it is measured; of less, the share.
_LEAST_WRITTEN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of the host link.

    `gap` is g (s), and `gap_beside_copy` g while copies run the other way, 0 where that is not known. The slow-downs
    (≥ 1) hold while the other way moves data: of copies beside a copy, of copies beside a kernel on mapped memory, of
    mapped memory beside copies, and of a kernel that reads and writes mapped memory at once. `copy` is of pinned
    memory; `mapped` is what the kernel's own accesses take; `faulted` and `prefetched` are managed memory.
    `starving_measured`: what mapped memory does to copies was measured on the node. `lull` (s): for how long, in each
    kernel that writes mapped memory, copies go on as if it did not. `kernel_wait` (s): from a copy that such writes held to
    its own kernel. `first_share`: of the first round of a kernel's threads on mapped memory, what moves one way after the
    other. `after_copy` (s): what a copy in, a kernel and a copy out of one stream take longer, or less, than by
    themselves. `event_wait` (s): what a wait for an event of another stream adds: of a kernel for a copy in, of a copy
    out for a kernel. `beside_streams`: how much longer a byte of copies takes (≥ 1) where both ways' are in so many
    streams, a chunk each. `beside_gpu`: how much longer it takes (≥ 1) where copies go both ways on another GPU of the
    host, too; None where that is not known. `written`, by the kind of memory, are copies of what the processor has just
    written, where they were measured; by default some seconds more a byte, for so many bytes.
    """

    copy: Line
    pageable: Line
    mapped: Line
    faulted: Line
    prefetched: Line
    gap: float
    beside_copy: float
    beside_mapped: float
    mapped_both: float
    mapped_beside_copy: float
    gap_beside_copy: float = 0.0
    starving_measured: bool = False
    lull: float = LULL_S
    kernel_wait: float = WAIT_S
    first_share: float = FIRST_SHARE
    after_copy: float = 0.0
    event_wait: float = 0.0
    beside_streams: tuple[tuple[int, float], ...] = ()
    beside_gpu: float | None = None
    written: Mapping[str, Line] = field(default_factory=dict)
    written_by_default: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def just_written(self, memory: str, size: float) -> float:
        """What a copy of `size` bytes takes longer (s) where the processor has just written them, or written where they
        go: its own caches hold them then. Of managed memory, pages that are touched.
        """
        if memory not in self.written:
            per_byte, most = self.written_by_default.get(memory, (0.0, 0.0))
            return per_byte * min(size, most)
        plain = {"pinned": self.copy, "pageable": self.pageable, "managed": self.faulted}[memory]
        least = max(size, _LEAST_WRITTEN_BYTES)
        more = max(0.0, self.written[memory].seconds(least) - plain.seconds(least))
        return more * size / least
