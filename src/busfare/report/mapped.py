"""Kernels that were given memory of the host: what they can reach of it, and what the link takes for that."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from busfare.errors import InputError
from busfare.node import Node
from busfare.plan.machine import machine_of
from busfare.trace.model import Trace

NS = 1e-9
MOST_KERNELS = 10
#: A kernel that takes so many times what the link takes for all that it reaches, or less, may well be waiting for the link:
#: predictions of kernels on mapped memory are off by less.
NEAR = 1.25
#: Beyond, the link is not what it waits for, unless it asks for the same few bytes again and again.
FAR = 100.0
#: A kernel that takes a smaller share of what the link takes for all that it reaches is not shown: structures hold addresses
#: that nobody reads, as those of PyTorch's fused optimizers do.
LEAST_SHARE = 0.02


class MappedKernel(Struct):
    """Launches of a kernel whose arguments reach pinned memory of the host: `reached_bytes` of all launches, as far as each
    pointer's buffer goes, and `once_seconds`, predicted: what the link takes at least to carry each byte once; None where
    the machine is not known.
    """

    name: str
    count: int
    seconds: float
    reached_bytes: int
    once_seconds: float | None

    @property
    def meaning(self) -> str:
        """What the two times say of the kernel."""
        if self.once_seconds is None or self.seconds <= 0:
            return "not known"
        ratio = self.seconds / self.once_seconds
        if ratio < 1 / NEAR:
            return f"takes {ratio:.0%} of it at most"
        if ratio <= NEAR:
            return "as long as the link"
        return f"{ratio:.3g} × the link" if ratio < FAR else "far longer than the link"


def mapped_kernels(trace: Trace, node: Node | None) -> list[MappedKernel] | None:
    """By name, those that took longest first, without those that take next to nothing of it (LEAST_SHARE); None where the
    trace does not say what memory kernels were given.
    """
    if "mapped_bytes" not in trace.operations.columns:
        return None
    given = trace.operations.filter((pl.col("kind") == "kernel") & (pl.col("mapped_bytes") > 0))
    sums = given.group_by(pl.col("name").cast(pl.String)).agg(
        count=pl.len(),
        seconds=(pl.col("end_ns") - pl.col("start_ns")).sum() * NS,
        reached_bytes=pl.col("mapped_bytes").sum(),
    )
    once = pl.lit(_gap(node), pl.Float64) * pl.col("reached_bytes")
    rows = sums.with_columns(once_seconds=once).filter(
        pl.col("once_seconds").is_null() | (pl.col("seconds") >= LEAST_SHARE * pl.col("once_seconds"))
    )
    rows = rows.sort("seconds", "name", descending=[True, False])[:MOST_KERNELS]
    return [MappedKernel(**row) for row in rows.to_dicts()]


def _gap(node: Node | None) -> float | None:
    """Seconds a byte of mapped memory takes over the link, in its faster direction; None where nobody knows."""
    try:
        machine = machine_of(node) if node else None
    except InputError:
        return None
    if machine is None:
        return None
    return min(curves.mapped.long_gap_per_byte_s for curves in (machine.h2d, machine.d2h))
