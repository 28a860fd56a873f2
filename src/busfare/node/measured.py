"""What somebody measured on a node: the parameters of the LogGP family [W14 §V], piece by piece."""

from __future__ import annotations

from typing import Literal

import msgspec

from busfare.node.figures import Name, Ordinal, Seconds, SecondsPerByte, Size, Text
from busfare.node.source import Sourced

__all__ = ["Direction", "Measured", "MemoryKind", "Piece"]

Direction = Literal["h2d", "d2h", "d2d", "p2p"]
MemoryKind = Literal["pageable", "pinned", "managed", "mapped", "device"]


class Piece(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stretch of sizes, up to and including `up_to_bytes` (none: all that follow): seconds = L+o + bytes
    · G.

    Where `latency_overhead_s` is left out, only long copies were measured, and L+o is in `G`.
    """

    gap_per_byte_s: SecondsPerByte
    latency_overhead_s: Seconds | None = None
    up_to_bytes: Size | None = None


class Measured(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one path and memory kind.

    `gap_s` is what each further copy, issued back to back, adds. The both-directions gaps per byte hold while
    copies run the other way; the mapped ones while a kernel reads or writes mapped memory the other way [W14
    table II]. `allocation_*` and `pinning_*` are the cost of making the host buffer: a constant and a rate.
    `timing` says what the clock held: the whole `call`, or the `device` alone.
    """

    direction: Direction
    memory: MemoryKind
    pieces: tuple[Piece, ...] = ()
    gpu: Ordinal | None = None
    gap_s: Seconds | None = None
    both_directions_gap_per_byte_s: SecondsPerByte | None = None
    mapped_gap_per_byte_s: SecondsPerByte | None = None
    allocation_s: Seconds | None = None
    allocation_per_byte_s: SecondsPerByte | None = None
    pinning_s: Seconds | None = None
    pinning_per_byte_s: SecondsPerByte | None = None
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
