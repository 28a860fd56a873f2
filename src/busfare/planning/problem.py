"""The question of a plan: what moves, what is computed, how it may be cut; given, or read off a trace, layers included."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from msgspec import Struct

from busfare.errors import InputError
from busfare.nodes import Curve
from busfare.planning.machine import Basis, Machine
from busfare.planning.offload.schedule import Layers
from busfare.timeline import timeline
from busfare.timeline.layers import streamed_layers
from busfare.trace import Trace
from busfare.trace.columns import matches

Accesses = Literal["accesses_in", "accesses_out"]
ACCESSES: tuple[Accesses, ...] = get_args(Accesses)

#: Without levels to cut along, more streams than this are never looked at; fewer where each number is played.
MOST_STREAMS, MOST_PLAYED = 256, 128


@dataclass(frozen=True, slots=True)
class Problem:
    """One kernel with the data that it needs from the host and gives back. Bytes and seconds.

    `kernel_seconds` is t_E with the data in device memory; None: from `flops` of numbers of `type` (None: fp32) and
    `device_bytes` by the roofline.
    `accesses_*`: how often the kernel touches each element, which mapped memory pays for every time.
    `levels`: into how many chunks the data can be cut. `kernel_at`: t_E measured with so many chunks.
    `copies_*`: separate arrays copied each way.
    `launch_seconds`: the host's time for each call.
    `copies_in_order`: chunks need chunks before them, so that copies in go through one stream; `reads_neighbours`: and the
    next one. `shared_bytes` of `h2d_bytes` are needed by every chunk, and copied before the first. `reallocate`:
    iterations allocate buffers.
    `assumed`: which numbers of accesses nobody gave.
    """

    name: str = "kernel"
    h2d_bytes: float = 0.0
    d2h_bytes: float = 0.0
    kernel_seconds: float | None = None
    flops: float | None = None
    type: str | None = None
    device_bytes: float | None = None
    accesses_in: float = 1.0
    accesses_out: float = 1.0
    streams: int | None = None
    levels: int | None = None
    memory: Literal["pinned", "pageable"] = "pinned"
    copies_in: int = 1
    copies_out: int = 1
    kernel_at: tuple[tuple[int, float], ...] = ()
    launch_seconds: float = 0.0
    copies_in_order: bool = False
    reads_neighbours: bool = False
    shared_bytes: float = 0.0
    reallocate: bool = False
    assumed: tuple[Accesses, ...] = ()

    @property
    def most_streams(self) -> int:
        """The largest number of streams worth looking at."""
        most = MOST_STREAMS if self.has_closed_form else MOST_PLAYED
        return self.levels or max(most, self.streams or 1)

    @property
    def has_closed_form(self) -> bool:
        """Whether the equations leave nothing of this problem out."""
        return not (self.launch_seconds or self.reads_neighbours or self.shared_bytes)


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


#: All bytes of some copies take this at least: no clock of a trace shows less.
LEAST_SECONDS = 1e-9


class FromTrace(Struct, frozen=True):
    """The trace's kernels that matched. `span_seconds`: from their first copy in to the end of their last copy out."""

    kernels: tuple[str, ...]
    launches: int
    streams: int
    copies_in: int
    copies_out: int
    span_seconds: float


class Recorded(NamedTuple):
    """The problem of kernels that matched, sums over all their launches; `pageable`: their pageable copies, by direction."""

    problem: Problem
    kernels: FromTrace
    pageable: Mapping[str, "Staged"]


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
        return Curve.line(copy.direction, "pageable", start, gap)


def as_recorded(machine: Machine, recorded: Recorded) -> Machine:
    """`machine`, on which the trace was recorded, with pageable copies as fast as they were there."""
    curves, basis = {"h2d": machine.h2d, "d2h": machine.d2h}, list(machine.basis)
    for direction, staged in recorded.pageable.items():
        pageable = staged.curve(curves[direction].copy)
        curves[direction] = curves[direction]._replace(pageable=pageable)
        source = f"{staged.copies} pageable copies in the trace"
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
    names = distinct.filter(matches(pattern, distinct, "`kernel_name`")).to_list()
    if not names:
        some = ", ".join(sorted({n.split("(")[0][:40] for n in distinct})[:5])
        raise InputError(
            f"`kernel_name` {pattern[:80]!r}: no kernel of {trace.path} matches; it has {some or 'none'}"
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
            f"{trace.path}: no copies between host and GPU surround these kernels, and there is nothing to plan"
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
    streams = kernels["stream"].n_unique()
    matched = FromTrace(tuple(sorted(names)), launches, streams, into.height, out.height, span * 1e-9)
    staged, seconds = {}, (pl.col("end_ns") - pl.col("start_ns")) * 1e-9
    for direction, side, copies in (("h2d", "source_memory", into), ("d2h", "destination_memory", out)):
        pageable = copies.filter(pl.col(side) == "pageable")
        pageable = pageable.select(pl.col("bytes").cast(pl.Float64), seconds=seconds)
        size, taken = pageable.filter((pl.col("bytes") > 0) & (pl.col("seconds") > 0))
        if len(size):
            figures = size.sum(), taken.sum(), taken.to_numpy().min()
            staged[direction] = Staged(len(size), *map(float, figures))
    return Recorded(problem, matched, staged)


def _belonging(copies: pl.DataFrame, kernels: pl.DataFrame, names: list[str], direction: str) -> pl.DataFrame:
    """The copies of one direction whose next (last) kernel, of their stream or else of the GPU, is a matching one."""
    directed = copies.filter(pl.col("direction") == direction)
    kept = []
    for (stream,), part in directed.group_by("stream", maintain_order=True):
        same_stream = kernels.filter(pl.col("stream").eq_missing(stream))
        order = (same_stream if same_stream.height else kernels).sort("start_ns")
        matches = order["name"].is_in(names).fill_null(False).to_numpy()
        edge = part["end_ns" if direction == "h2d" else "start_ns"].to_numpy()
        place = np.searchsorted(order["start_ns"].to_numpy(), edge) - (direction == "d2h")
        there = (place >= 0) & (place < len(matches))
        kept.append(part.filter(pl.Series(there & matches[np.clip(place, 0, len(matches) - 1)])))
    return pl.concat(kept) if kept else directed


NS = 1e-9
#: Layers that take so much longer, or less, in one pass than in the middle one are not one layer's.
ALIKE = 0.1


class RecordedLayers(Struct, frozen=True):
    """Layers of a trace: medians over `passes`, identified by the ranges or the pattern of `identified_by`.

    `resident`: numbers of layers without copies; their bytes are unknown and count as 0. `memory`: bytes copied, by kind of
    host memory. `confidence`: the share of layers over all passes with the bytes of their layer and kernel times within a
    tenth. `left_out_seconds` of kernels and `left_out_bytes` copied to the GPU belong to no layer.
    """

    identified_by: str
    passes: int
    resident: tuple[int, ...]
    memory: dict[str, int]
    confidence: float
    left_out_seconds: float
    left_out_bytes: int
    notes: tuple[str, ...]


def layers_from_trace(trace: Trace) -> tuple[Layers, RecordedLayers]:
    """The layers of a pass in `trace`, and where they are from. Raises InputError, with what to give, if none are seen."""
    streamed = streamed_layers(timeline(trace))
    last = int(streamed.number.max())
    whole = np.flatnonzero(np.bincount(streamed.pass_number)[streamed.pass_number] == last + 1)
    values = {
        name: getattr(streamed, name)[whole].reshape(-1, last + 1).astype(np.float64)
        for name in ("bytes", "compute_ns", "back_bytes")
    }
    middle = {name: np.median(column, axis=0) for name, column in values.items()}
    same = values["bytes"] == middle["bytes"]
    same &= np.abs(values["compute_ns"] - middle["compute_ns"]) <= ALIKE * middle["compute_ns"]
    back = middle["back_bytes"]
    seconds, size = streamed.left_out()
    copied = streamed.timeline.operations.filter(pl.Series(streamed.copies))
    kind = pl.col("source_memory").cast(pl.String).fill_null("unknown")
    by_memory = copied.group_by(kind).agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    layers = Layers(
        tuple(middle["bytes"].tolist()),
        tuple((middle["compute_ns"] * NS).tolist()),
        tuple(back.tolist()) if back.any() else (),
    )
    return layers, RecordedLayers(
        identified_by=streamed.evidence,
        passes=len(values["bytes"]),
        resident=tuple(np.flatnonzero(middle["bytes"] == 0).tolist()),
        memory=dict(by_memory.iter_rows()),
        confidence=float(same.mean()),
        left_out_seconds=seconds,
        left_out_bytes=size,
        notes=tuple(streamed.notes),
    )
