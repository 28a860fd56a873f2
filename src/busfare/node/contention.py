"""How much of its own rate a path keeps while something else moves data: measured, or typical of the GPU's generation."""

from __future__ import annotations

from typing import Literal

import msgspec

from busfare.node.figures import Factor, Ordinal
from busfare.node.source import Sourced

__all__ = ["UNDISTURBED", "Contention", "Rung", "Shares"]

Rung = Literal["probed", "typical"]


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares (0..1] of a path's own one-way rate that remain, into the GPU and out of it.

    `low` and `high` bound both in 80 % of the machines known; None where they were measured on this one.
    """

    h2d: Factor
    d2h: Factor
    low: Factor | None = None
    high: Factor | None = None

    def of(self, direction: str) -> float:
        """The share of `direction` (h2d or d2h); 1 for any other."""
        return self.h2d if direction == "h2d" else self.d2h if direction == "d2h" else 1.0


UNDISTURBED = Shares(1.0, 1.0)


class Contention(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shares of its one-way rate that each direction keeps.

    `both`: copies both ways at once. `mapped_both`: a kernel that reads and writes mapped memory.
    `copy_beside_mapped`: copies while a kernel accesses mapped memory the other way. `mapped_beside_copy`: that kernel.
    """

    both: Shares = UNDISTURBED
    mapped_both: Shares = UNDISTURBED
    copy_beside_mapped: Shares = UNDISTURBED
    mapped_beside_copy: Shares = UNDISTURBED
    rung: Rung = "probed"
    gpu: Ordinal | None = None
