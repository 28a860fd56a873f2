"""Layers of a recorded program that streams them from the host."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from busfare.planning.offload.schedule import Layers
from busfare.timeline import timeline
from busfare.timeline.layers import StreamedLayers, streamed_layers
from busfare.trace import Trace

__all__ = ["RecordedLayers", "layers_from_trace"]

NS = 1e-9
#: Layers that take so much longer, or less, in one pass than in the middle one are not one layer's.
ALIKE = 0.1


class RecordedLayers(Struct, frozen=True):
    """Where layers of a trace are from: the median over `passes`, told by the ranges or the pattern of `found_by`.

    `resident`: numbers of layers that nothing was copied for; their bytes are 0, for the trace does not tell them.
    `memory`: by kind of host memory, the bytes that were copied from it.
    `confidence`: the share of all passes' layers whose bytes are those of their layer, and whose kernels take as long
    within a tenth. `left_out_seconds` of kernels and `left_out_bytes` copied to the GPU belong to no layer.
    """

    found_by: str
    passes: int
    resident: tuple[int, ...]
    memory: dict[str, int]
    confidence: float
    left_out_seconds: float
    left_out_bytes: int
    notes: tuple[str, ...]


def layers_from_trace(trace: Trace) -> tuple[Layers, RecordedLayers]:
    """The layers of a pass in `trace`, and where they are from. Raises InputError, which says what to give instead, where
    nothing tells them.
    """
    found = streamed_layers(timeline(trace))
    whole = _whole_passes(found)
    values = {
        name: getattr(found, name)[whole].reshape(-1, int(found.number.max()) + 1).astype(np.float64)
        for name in ("bytes", "compute_ns", "back_bytes")
    }
    middle = {name: np.median(each, axis=0) for name, each in values.items()}
    same = values["bytes"] == middle["bytes"]
    same &= np.abs(values["compute_ns"] - middle["compute_ns"]) <= ALIKE * middle["compute_ns"]
    back = middle["back_bytes"]
    seconds, size = found.left_out()
    layers = Layers(
        tuple(middle["bytes"].tolist()),
        tuple((middle["compute_ns"] * NS).tolist()),
        tuple(back.tolist()) if back.any() else (),
    )
    return layers, RecordedLayers(
        found_by=found.found_by,
        passes=len(values["bytes"]),
        resident=tuple(np.flatnonzero(middle["bytes"] == 0).tolist()),
        memory=_by_memory(found),
        confidence=float(same.mean()),
        left_out_seconds=seconds,
        left_out_bytes=size,
        notes=tuple(found.notes),
    )


def _whole_passes(found: StreamedLayers) -> NDArray[np.int64]:
    """The units of the passes that have all layers, in order; shape (units,)."""
    sizes = np.bincount(found.turn)
    return np.flatnonzero(sizes[found.turn] == found.number.max() + 1)


def _by_memory(found: StreamedLayers) -> dict[str, int]:
    """Bytes of the layers' copies by kind of memory that they are from, most first."""
    copied = found.timeline.operations.filter(pl.Series(found.copies))
    kind = pl.col("source_memory").cast(pl.String).fill_null("unknown")
    sums = copied.group_by(kind).agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    return {str(name): int(size) for name, size in sums.iter_rows()}
