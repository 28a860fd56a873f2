"""What keeps the engines of each GPU busy."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from busfare.account.lanes import lanes_of
from busfare.account.totals import (
    is_communication,
    is_transfer,
    is_work,
    of_gpu,
    ordinals_of,
    unions_of_totals,
)
from busfare.trace import Trace

__all__ = ["engines", "find_lengths"]

NS = 1e-9
KERNELS = {"kernels": is_work(), "communication": is_communication()}


def engines(operations: pl.DataFrame, makespan_seconds: float) -> pl.DataFrame:
    """What keeps each GPU's engines busy: kernels, communication, and transfers of each direction, as unions of time.

    Columns: device, work (`kernels`, `communication` or a direction), busy_seconds, share_of_run, bytes_per_second (bytes
    over busy time, all streams together; null for kernels of either class). Which engine a copy took is not in any trace: a
    direction stands for it.
    """
    lanes = lanes_of(operations)
    asked = _engines(ordinals_of(lanes))
    masks = lanes.masks([of_gpu(device) & _doing(work) for device, work in asked])
    some = [(*what, mask) for what, mask in zip(asked, masks, strict=True) if mask.any()]
    sizes = lanes.groups["bytes"].to_numpy()
    rows = []
    lengths = lanes.lengths_of([mask for _, _, mask in some])
    for (device, work, mask), ns in zip(some, lengths, strict=True):
        busy = ns * NS
        moved = None if work in KERNELS or busy == 0 else float(sizes[mask].sum()) / busy
        share = busy / makespan_seconds if makespan_seconds else 0.0
        rows.append((device, work, busy, share, moved))
    kinds = {"device": pl.Int32, "work": pl.String, "busy_seconds": pl.Float64}
    kinds |= {"share_of_run": pl.Float64, "bytes_per_second": pl.Float64}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _engines(ordinals: Sequence[int | None]) -> list[tuple[int | None, str]]:
    """Each GPU with each kind of work."""
    works = (*KERNELS, "h2d", "d2h", "d2d", "p2p")
    return [(device, work) for device in ordinals for work in works]


def _doing(work: str) -> pl.Expr:
    return KERNELS[work] if work in KERNELS else is_transfer() & (pl.col("direction") == work)


def find_lengths(trace: Trace, others: Sequence[pl.Expr]) -> None:
    """Finds the lengths of all unions that totals and engines ask for, and `others`, at once: each is known then."""
    lanes = lanes_of(trace.operations)
    ordinals = ordinals_of(lanes)
    of_engines = [of_gpu(device) & _doing(work) for device, work in _engines(ordinals)]
    lanes.lengths(*unions_of_totals(ordinals), *of_engines, *others)
