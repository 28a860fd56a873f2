"""A question read off a trace: the bytes, the kernel times and the streams of kernels whose name matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.expressions import found_in
from busfare.nodes import Curve
from busfare.planning.machine import Basis, Machine
from busfare.planning.problem import ACCESSES, Problem
from busfare.trace import Trace

__all__ = ["Recorded", "Staged", "as_recorded", "recorded_problem"]

#: All bytes of some copies take this at least: no clock of a trace shows less.
LEAST_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the trace has of the kernels that matched; sums over all their launches.

    `span_seconds` runs from the first of their copies in to the end of the last copy out. `pageable` are their pageable
    copies, by direction.
    """

    problem: Problem
    kernels: tuple[str, ...]
    launches: int
    streams: int
    copies_in: int
    copies_out: int
    span_seconds: float
    pageable: Mapping[str, Staged]


@dataclass(frozen=True, slots=True)
class Staged:
    """Pageable copies of one direction as they were recorded: how many, their bytes and seconds, and the shortest's."""

    copies: int
    bytes: float
    seconds: float
    shortest: float

    def curve(self, copy: Curve) -> Curve:
        """Seconds by size of a copy that starts as the node's `copy` does, or as the shortest, and goes on as these did."""
        start = min(copy.latency_overhead_s[0], self.shortest)
        gap = max(self.seconds - self.copies * start, LEAST_SECONDS) / self.bytes
        return Curve(
            direction=copy.direction, memory="pageable", latency_overhead_s=(start,), gap_per_byte_s=(gap,)
        )


def as_recorded(machine: Machine, recorded: Recorded) -> Machine:
    """`machine`, on which the trace was recorded, with pageable copies as fast as they were there."""
    curves, basis = {"h2d": machine.h2d, "d2h": machine.d2h}, list(machine.basis)
    for direction, staged in recorded.pageable.items():
        pageable = staged.curve(curves[direction].copy)
        curves[direction] = curves[direction]._replace(pageable=pageable)
        source = f"{staged.copies} pageable copies of the trace"
        gap = pageable.long_gap_per_byte_s
        basis.append(Basis(f"G {direction} pageable", gap, "s/B", "recorded", source))
    return replace(machine, basis=tuple(basis), h2d=curves["h2d"], d2h=curves["d2h"])


def recorded_problem(trace: Trace, pattern: str) -> Recorded:
    """The problem of the kernels of `trace` whose name matches the regular expression `pattern`.

    A copy into the device belongs to the next kernel of its stream, or of its GPU where the stream has none; a copy
    out to the last one before it. The launches are the levels to cut along. Raises InputError for a bad
    expression, no match, or no copies that belong.
    """
    operations = trace.operations.with_columns(pl.col("name").cast(pl.String))
    every = operations.filter(pl.col("kind") == "kernel")
    distinct = every["name"].drop_nulls().unique(maintain_order=True)
    names = distinct.filter(found_in(pattern, distinct, "--kernel-name")).to_list()
    if not names:
        some = ", ".join(sorted({n.split("(")[0][:40] for n in distinct})[:5])
        raise InputError(
            f"--kernel-name {pattern[:80]!r}: no kernel of {trace.path} matches; it has {some or 'none'}"
        )
    matching = pl.col("name").is_in(names)
    device = every.filter(matching)["device"][0]
    every = every.filter(pl.col("device").eq_missing(device))
    kernels = every.filter(matching)
    copies = operations.filter(
        (pl.col("kind") == "copy") & pl.col("device").eq_missing(device) & pl.col("bytes").is_not_null()
    )
    into, out = (_belonging(copies, every, names, direction) for direction in ("h2d", "d2h"))
    if into.is_empty() and out.is_empty():
        raise InputError(
            f"{trace.path}: no copies between host and GPU before or after these kernels; there is nothing to plan"
        )
    launches = kernels.height
    memory = pl.concat([into["source_memory"].cast(pl.String), out["destination_memory"].cast(pl.String)])
    problem = Problem(
        name=names[0].split("(")[0][:60],
        h2d_bytes=float(into["bytes"].sum()),
        d2h_bytes=float(out["bytes"].sum()),
        kernel_seconds=max(1e-9, float((kernels["end_ns"] - kernels["start_ns"]).sum()) * 1e-9),
        levels=max(1, min(launches, 4096)),
        memory="pageable" if (memory == "pageable").sum() * 2 > len(memory) else "pinned",
        assumed=ACCESSES,
    )
    moved = pl.concat([part.select("start_ns", "end_ns") for part in (kernels, into, out)])
    span = float(moved.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item())
    return Recorded(
        problem,
        tuple(sorted(names)),
        launches,
        kernels["stream"].n_unique(),
        into.height,
        out.height,
        span * 1e-9,
        {
            direction: staged
            for direction, side, own in (("h2d", "source_memory", into), ("d2h", "destination_memory", out))
            if (staged := _staged(own.filter(pl.col(side) == "pageable")))
        },
    )


def _staged(copies: pl.DataFrame) -> Staged | None:
    """These copies, summed up; None where none of them has bytes and a time."""
    seconds = (pl.col("end_ns") - pl.col("start_ns")) * 1e-9
    copies = copies.select("bytes", seconds=seconds).filter((pl.col("bytes") > 0) & (pl.col("seconds") > 0))
    if copies.is_empty():
        return None
    size, taken = copies["bytes"], copies["seconds"]
    return Staged(copies.height, float(size.sum()), float(taken.sum()), float(taken.to_numpy().min()))


def _belonging(copies: pl.DataFrame, kernels: pl.DataFrame, names: list[str], direction: str) -> pl.DataFrame:
    """The copies of one direction whose next (last) kernel, of their stream or else of the GPU, is a matching one."""
    own = copies.filter(pl.col("direction") == direction)
    kept = []
    for (stream,), part in own.group_by("stream", maintain_order=True):
        beside = kernels.filter(pl.col("stream").eq_missing(stream))
        order = (beside if beside.height else kernels).sort("start_ns")
        matches = order["name"].is_in(names).fill_null(False).to_numpy()
        if direction == "h2d":
            place = np.searchsorted(order["start_ns"].to_numpy(), part["end_ns"].to_numpy(), side="left")
        else:
            place = (
                np.searchsorted(order["start_ns"].to_numpy(), part["start_ns"].to_numpy(), side="left") - 1
            )
        there = (place >= 0) & (place < len(matches))
        kept.append(part.filter(pl.Series(there & matches[np.clip(place, 0, len(matches) - 1)])))
    return pl.concat(kept) if kept else own
