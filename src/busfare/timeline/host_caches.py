"""What copies through the processor's caches cost the host's own work, and what that takes without them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.timeline.model import Timeline
from busfare.timeline.prices import packing_nanoseconds, pageable

__all__ = ["PRIVATE_CACHE_BYTES", "SCATTERED", "gaps_without"]

Mask = NDArray[np.bool_]
#: A core's own second-level cache: 2 MiB on the hosts of H100s and H200s, 1 to 2 on servers of these years. Copies that
#: the host moves, and that are no smaller, leave nothing of the program there; a few KiB cost it little
#: (`validation/host_caches.py --here`).
PRIVATE_CACHE_BYTES = 2 << 20
#: A program's own lines, here and there, take so many times as long to fetch as a copy's: behind a large copy CuPy and
#: PyTorch took 247 to 275 µs longer (results/pairs/h200-after), an interpreter 232 to 262 (results/host-pieces), where a
#: copy of as many bytes takes 146.
SCATTERED = 1.8


def gaps_without(timeline: Timeline, gone: Mask) -> NDArray[np.int64]:
    """The host's times between calls when the copies `gone` no longer pass through it; ns, shape (calls,).

    `gone`: shape (operations,). Those of them that are of pageable memory and as large as a core's cache, alone or with
    others right behind each other, made the host fetch again what it works with.
    """
    gap: NDArray[np.int64] = timeline.columns["call_gap"]
    staged = pageable(timeline.operations) & (timeline.columns["operation_launched"] != 0)
    if not (staged & gone).any():
        return gap
    order = np.argsort(timeline.columns["call_thread"], kind="stable")
    thread, size = timeline.columns["call_thread"][order], _staged_bytes(timeline, staged)[order]
    again = (size > 0) & np.concatenate([[False], (size[:-1] > 0) & (thread[1:] == thread[:-1])])
    left = _staged_bytes(timeline, staged & ~gone)[order]
    changed = gap.copy()
    changed[order] += _fetching(timeline, order, left, again) - _fetching(timeline, order, size, again)
    return changed


def _staged_bytes(timeline: Timeline, staged: Mask) -> NDArray[np.int64]:
    """Bytes of the copies `staged` that each call makes; shape (calls,)."""
    size = np.zeros(len(timeline.columns["call_gap"]), np.int64)
    sizes = timeline.operations["bytes"].fill_null(0).to_numpy()[staged]
    np.add.at(size, timeline.columns["operation_call"][staged], sizes)
    return size


def _fetching(
    timeline: Timeline, order: NDArray[np.int64], size: NDArray[np.int64], again: Mask
) -> NDArray[np.int64]:
    """Of the host's time before each call, what goes into fetching again behind staged copies; ns, shape (calls,).

    `order`: calls by thread, as all that follows. `size`: bytes that each stages. `again`: whether it and the one before
    it stage some; the code that goes from one to the next stays in the caches. A cache is fetched `SCATTERED` times as
    slowly as one core copies its bytes on this node, and a trace does not tell that time from the host's own: it is
    taken to be half of all time behind the copies until then, but for stretches longer than the whole cache takes: those
    are work on data of its own, as a gather from a large table.
    """
    thread, place = timeline.columns["call_thread"][order], np.arange(len(order))
    copied_ns = packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], np.float64), timeline.node)[0]
    whole = int(SCATTERED * copied_ns)
    gap = timeline.columns["call_gap"][order]
    half = np.where(again | (gap >= whole), 0, np.maximum(gap, 0) // 2)
    passed = np.cumsum(half) - half  # before each call's gap, of all threads in a row
    # The nearest such copies before each call in its thread.
    after = np.maximum.accumulate(np.where(_fills_a_cache(size, again), place, -1))
    after = np.concatenate([[-1], after[:-1]])
    known = (after >= 0) & (thread[np.maximum(after, 0)] == thread)
    since = passed - (passed + half)[np.maximum(after, 0)]
    spent: NDArray[np.int64] = np.where(known, np.clip(whole - since, 0, half), 0)
    return spent


def _fills_a_cache(size: NDArray[np.int64], again: Mask) -> Mask:
    """The last calls of those rows of copies that together have as many bytes as a cache holds; shape (calls,)."""
    last = ~np.append(again[1:], False)
    # All bytes up to the end of each row, less those up to the end of the row before it.
    together = np.diff(np.cumsum(size)[last], prepend=0)
    found = np.zeros(len(size), bool)
    found[np.flatnonzero(last)[together >= PRIVATE_CACHE_BYTES]] = True
    return found
