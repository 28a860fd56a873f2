"""When GPUs ran nothing, and what the host did then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.account.call_names import names_of
from busfare.account.lanes import lanes_of
from busfare.account.totals import of_gpu, ordinals_of
from busfare.trace import Trace
from busfare.trace.summed import summed_of

__all__ = ["IdleGap", "idle_gaps"]

NS = 1e-9


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A time in which a GPU ran nothing, and the API call that the host spent most of it in."""

    device: int | None
    start_ns: int
    seconds: float
    call: str | None
    call_seconds: float


def idle_gaps(trace: Trace, most: int) -> list[IdleGap]:
    """The longest gaps between operations of a GPU, longest first."""
    found: list[tuple[int, int, int | None]] = []
    lanes = lanes_of(trace.operations)
    devices = ordinals_of(lanes)
    gaps_of = lanes.longest_gaps([of_gpu(device) for device in devices], most)
    for device, gaps in zip(devices, gaps_of, strict=True):
        found += [(end - start, start, device) for start, end in gaps]
    found.sort(key=lambda gap: -gap[0])
    summed = summed_of(trace.operations)
    return [
        _explained(
            trace.calls if summed is None else summed.calls.during(start, start + length),
            device,
            start,
            length,
        )
        for length, start, device in found[:most]
    ]


def _explained(calls: pl.DataFrame, device: int | None, start: int, length: int) -> IdleGap:
    # Calls stand in order of their start.
    end = start + length
    begun = int(calls["start_ns"].search_sorted(end))
    starts, ends = (calls[name].slice(0, begun).to_numpy() for name in ("start_ns", "end_ns"))
    within = np.flatnonzero(ends > start)
    if not len(within):
        return IdleGap(device, start, length * NS, None, 0.0)
    inside = np.minimum(ends[within], end) - np.maximum(starts[within], start)
    names = names_of(calls)
    number_of = names.of[within]
    present = np.unique(number_of)
    spent = {names.texts[number]: int(inside[number_of == number].sum()) for number in present}
    # Of those as long the first by name, and no name before any.
    name = min(spent, key=lambda text: (-spent[text], text is not None, text or ""))
    return IdleGap(device, start, length * NS, name, spent[name] * NS)
