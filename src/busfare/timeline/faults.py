"""Kernels that stand still while pages of managed memory move to where they are: how long, and for which moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from busfare.timeline.build.device_work import FAULT_NS
from busfare.timeline.model import Timeline
from busfare.trace.lanes import Union
from busfare.trace.words import Words

__all__ = ["Faults", "faults", "kernels_held", "within_kernels"]

Times = NDArray[np.int64]
#: From a fault to its first move, where no move went right before: 15 to 35 µs, published for P100 to V100. Nanoseconds.
FIRST_FAULT_NS = 35_000


class Faults(NamedTuple):
    """`moved`: the moves that nobody launched, shape (operations,). Of each kernel, how long pages move while it runs
    (`moving`), and how long it stands still for them, from each fault on (`standing`); ns, shape (kernels,).
    """

    moved: NDArray[np.bool_]
    kernels: NDArray[np.int64]
    moving: Times
    standing: Times


def faults(timeline: Timeline) -> Faults:
    """The faults of a timeline's kernels, as recorded.

    Within a chain of faults a kernel stands still between the moves, too; the gap before the first is its own work.
    """
    words = Words(timeline.operations)
    moved = words.among("kind", "migration") & (timeline.columns["operation_launched"] == 0)
    starts, ends = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    kernels = np.flatnonzero(words.among("kind", "kernel"))
    order = np.flatnonzero(moved)[np.argsort(starts[moved], kind="stable")]
    begins, reached = starts[order], np.maximum.accumulate(ends[order])
    chained = np.zeros(len(order), bool)
    chained[1:] = begins[1:] - reached[:-1] <= FAULT_NS
    since = np.where(
        chained, np.minimum(begins, np.concatenate([begins[:1], reached[:-1]])), begins - FIRST_FAULT_NS
    )
    moving = Union.of(begins, ends[order]).covered_within(starts[kernels], ends[kernels])
    standing = Union.of(since, ends[order]).covered_within(starts[kernels], ends[kernels])
    return Faults(moved, kernels, moving, np.where(moving > 0, standing, 0))


def kernels_held(timeline: Timeline, duration: NDArray[Any]) -> NDArray[Any]:
    """`duration`, and where moves take another time than in `timeline`, the kernels that stand still for them with it.

    Nanoseconds, shape (operations,). Where nothing moves any more, nothing faults.
    """
    before = timeline.columns["operation_duration"]
    found = faults(timeline)
    if not found.moved.any() or np.array_equal(duration[found.moved], before[found.moved]):
        return duration
    starts, ends = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    order = np.flatnonzero(found.moved)[np.argsort(starts[found.moved], kind="stable")]
    first, last = (np.searchsorted(starts[order], times[found.kernels]) for times in (starts, ends))
    old, new = (np.concatenate([[0.0], np.cumsum(values[order])]) for values in (before, duration))
    took, takes = old[last] - old[first], new[last] - new[first]
    ratio = np.divide(takes, took, out=np.ones_like(took), where=took > 0)
    held = duration.astype(np.float64)
    saved = np.where((took > 0) & (takes == 0), found.standing, found.moving * (1 - ratio))
    held[found.kernels] = np.maximum(0.0, held[found.kernels] - saved)
    return held


def within_kernels(timeline: Timeline, duration: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The columns of a timeline whose operations last `duration`; ns, shape (operations,).

    Moves that answer faults of a kernel are a part of its time and keep their place in it, unless `duration` says how
    long they take.
    """
    columns = timeline.columns
    changed = {"operation_duration": np.rint(duration).astype(np.int64)}
    words = Words(timeline.operations)
    moves = np.flatnonzero(words.among("kind", "migration") & (columns["operation_launched"] == 0))
    kernels = np.flatnonzero(words.among("kind", "kernel"))
    if len(moves) == 0 or len(kernels) == 0:
        return changed
    starts, ends = timeline.operations["start_ns"].to_numpy(), timeline.operations["end_ns"].to_numpy()
    kernels = kernels[np.argsort(starts[kernels], kind="stable")]
    at = np.searchsorted(starts[kernels], starts[moves], side="right") - 1
    kernel = kernels[np.maximum(at, 0)]
    inside = (at >= 0) & (starts[moves] < ends[kernel])
    moves, kernel = moves[inside], kernel[inside]
    before = columns["operation_duration"]
    share = np.divide(duration[kernel], before[kernel], out=np.ones(len(kernel)), where=before[kernel] > 0)
    kept = duration[moves] == before[moves]
    changed["operation_duration"][moves] = np.rint(np.where(kept, before[moves] * share, duration[moves]))
    # Of what passes before a move, that part which lies in the kernel.
    extra = columns["operation_extra"].copy()
    own = np.minimum(extra[moves], starts[moves] - starts[kernel])
    extra[moves] = np.rint(extra[moves] - own * (1 - np.minimum(share, 1)))
    return changed | {"operation_extra": extra}
