"""What somebody measured on a node: the parameters of the LogGP family [W14 §V], piece by piece."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from busfare.node.arrays import FloatArray
from busfare.node.contention import UNDISTURBED, Contention, Shares
from busfare.node.curve import Curve, Direction, MemoryKind
from busfare.node.figures import Count, Difference, Name, Ordinal, Seconds, SecondsPerByte, Share, Size, Text
from busfare.node.source import Sourced

__all__ = ["Cost", "Measured", "Piece", "Row", "contention_of", "curve_of", "piecewise"]


class Piece(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stretch of sizes, up to and including `up_to_bytes` (none: all that follow): seconds = L+o + bytes
    · G.

    Where `latency_overhead_s` is left out, only long copies were measured, and L+o is in `G`.
    """

    gap_per_byte_s: SecondsPerByte
    latency_overhead_s: Seconds | None = None
    up_to_bytes: Size | None = None


def piecewise(pieces: tuple[Piece, ...], sizes: FloatArray) -> FloatArray:
    """(L+o) + k·G in seconds, with the parameters of the piece that holds each of `sizes` (bytes; same
    shape).
    """
    ends = np.array([piece.up_to_bytes or np.inf for piece in pieces], dtype=np.float64)
    fixed = np.array([piece.latency_overhead_s or 0.0 for piece in pieces], dtype=np.float64)
    slope = np.array([piece.gap_per_byte_s for piece in pieces], dtype=np.float64)
    which = np.searchsorted(ends, sizes, side="left")
    return fixed[which] + slope[which] * sizes


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`copies` equal copies at once, each in its own stream: seconds of all of them, over the bytes of one."""

    copies: Count
    pieces: tuple[Piece, ...]


class Cost(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API call takes on the host besides any copy: seconds = `call_s` + bytes · `call_per_byte_s`.

    `device_s` is what it takes on the GPU, where it does anything there; `empty` is nothing between two events, whose
    `device_s` is in all times that two events tell. `pace` is no call but a fixed piece of the host's work (a checksum
    of 16 KiB) at a quiet moment.
    """

    call: Literal[
        "empty",
        "pace",
        "launch",
        "synchronise",
        "create-stream",
        "create-event",
        "allocate-device",
        "allocate-pinned",
        "register",
    ]
    call_s: Seconds
    call_per_byte_s: Seconds | None = None
    device_s: Seconds | None = None
    gpu: Ordinal | None = None


class Measured(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one path and memory kind.

    `gap_s` is what each further copy, issued back to back, adds. The both-directions gaps hold while copies run the
    other way, the one `beside_gpu` while those of another GPU of the host run both ways, too; the mapped ones while a
    kernel reads or writes mapped memory the other way [W14 table II]. `allocation_*` and `pinning_*` are the cost of
    making the host buffer: a constant and a rate.
    `timing` says what the clock held: the whole `call`, or the `device` alone; then `call_s` is what the host
    pays to submit one, and `after_kernel_s` what is added where a kernel, and no copy, goes before, `after_copy_s` what a
    copy in, a kernel and a copy out of one stream take longer than by themselves, `event_wait_s` what
    a wait for an event of another stream adds: of a kernel for a copy into the GPU, of a copy out for a kernel. `rows`
    are copies in several streams at once, and `both_directions_rows` G alone of chunks that go both ways in as many. Of
    managed memory `pieces` are prefetches, `faults` pages that move when they are touched. `written` are copies of what
    the processor has just written (pinned, pageable), or over what it has, and pages of managed memory that are touched
    then. `mapped_lull_s`: for how long, in each kernel that writes mapped memory, copies into the GPU go on as if it
    wrote nothing; `mapped_wait_s`: how long such a kernel waits for a copy that the writes held until they ended.
    `mapped_first_share`: of the first round of threads of a kernel that reads and writes mapped memory, what moves one
    way after the other.
    """

    direction: Direction
    memory: MemoryKind
    pieces: tuple[Piece, ...] = ()
    rows: tuple[Row, ...] = ()
    both_directions_rows: tuple[Row, ...] = ()
    faults: tuple[Piece, ...] = ()
    written: tuple[Piece, ...] = ()
    gpu: Ordinal | None = None
    peer: Ordinal | None = None
    gap_s: Seconds | None = None
    both_directions_gap_per_byte_s: SecondsPerByte | None = None
    both_directions_beside_gpu_gap_per_byte_s: SecondsPerByte | None = None
    both_directions_gap_s: Seconds | None = None
    mapped_gap_per_byte_s: SecondsPerByte | None = None
    mapped_lull_s: Seconds | None = None
    mapped_wait_s: Seconds | None = None
    mapped_first_share: Share | None = None
    allocation_s: Seconds | None = None
    allocation_per_byte_s: SecondsPerByte | None = None
    pinning_s: Seconds | None = None
    pinning_per_byte_s: SecondsPerByte | None = None
    call_s: Seconds | None = None
    after_kernel_s: Seconds | None = None
    after_copy_s: Difference | None = None
    event_wait_s: Seconds | None = None
    timing: Literal["call", "device"] = "call"
    from_component: Name | None = None
    tool: Text = ""
    date: Text = ""
    driver: Text = ""
    command: Text = ""

    @property
    def latency_overhead_s(self) -> float | None:
        """L+o of the shortest copy, in seconds; None where only other costs were measured."""
        return self.pieces[0].latency_overhead_s if self.pieces else None

    def seconds(self, sizes: FloatArray) -> FloatArray:
        """Seconds of one copy of each of `sizes` bytes. Raises ValueError where no pieces were measured."""
        if not self.pieces:
            raise ValueError(f"no pieces of {self.direction} {self.memory}")
        return piecewise(self.pieces, sizes)

    def row_seconds(self, copies: int, sizes: FloatArray) -> FloatArray:
        """Seconds of `copies` copies at once, one a stream, of each of `sizes` bytes (the bytes of one copy).

        Linear in the number of copies between the rows that were measured, and beyond the last one; without
        rows, each further copy adds `gap_s` and its bytes' G.
        """
        one = self.seconds(sizes)
        if copies <= 1:
            return one
        if not self.rows:
            further = self.gap_s if self.gap_s is not None else self.latency_overhead_s or 0.0
            return one + (copies - 1) * (further + sizes * self.pieces[-1].gap_per_byte_s)
        counts = [1, *(row.copies for row in self.rows)]
        curves = [one, *(piecewise(row.pieces, sizes) for row in self.rows)]
        above = min(int(np.searchsorted(counts, copies)), len(counts) - 1)
        below = above - 1
        share = (copies - counts[below]) / (counts[above] - counts[below])
        return curves[below] + share * (curves[above] - curves[below])


#: At this size the interval of several streams is read off their row.
_INTERVAL_BYTES = 65536.0


def curve_of(measured: Measured) -> Curve:
    """The same as a curve."""
    starts = tuple(piece.latency_overhead_s or 0.0 for piece in measured.pieces)
    sizes = np.array([_INTERVAL_BYTES])
    one, gap = float(measured.seconds(sizes)[0]), measured.pieces[-1].gap_per_byte_s
    intervals = {} if measured.gap_s is None else {1: measured.gap_s}
    for row in measured.rows:
        further = (float(piecewise(row.pieces, sizes)[0]) - one) / (row.copies - 1)
        intervals[row.copies] = max(further - _INTERVAL_BYTES * gap, 0.0)
    return Curve(
        direction=measured.direction, memory=measured.memory, latency_overhead_s=starts,
        gap_per_byte_s=tuple(piece.gap_per_byte_s for piece in measured.pieces),
        up_to_bytes=tuple(piece.up_to_bytes or 0 for piece in measured.pieces[:-1]),
        issue_interval_s=intervals, timing=measured.timing, gpu=measured.gpu, peer=measured.peer,
        source=measured.source,
    )  # fmt: skip


def contention_of(pinned: list[Measured | None], mapped: list[Measured | None]) -> Contention:
    """The shares that the gaps of both directions (h2d, d2h) say."""

    def shares(measured: list[Measured | None], key: str) -> Shares:
        found = []
        for one in measured:
            gap = getattr(one, key) if one else None
            found.append(min(1.0, one.pieces[-1].gap_per_byte_s / gap) if gap and one and one.pieces else 1.0)
        return Shares(*found) if min(found) < 1.0 else UNDISTURBED

    both, beside = "both_directions_gap_per_byte_s", "mapped_gap_per_byte_s"
    return Contention(
        both=shares(pinned, both),
        mapped_both=shares(mapped, beside),
        copy_beside_mapped=shares(pinned, beside),
        mapped_beside_copy=shares(mapped, both),
        source=pinned[0].source if pinned[0] else None,
    )
