"""What copies through the processor's caches cost the host's own work, and what that takes without them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.replay.prices import packing_nanoseconds, pageable
from busfare.replay.timeline import Timeline

__all__ = ["PRIVATE_CACHE_BYTES", "gaps_without"]

Mask = NDArray[np.bool_]
#: A core's own second-level cache: 2 MiB on the hosts of H100s and H200s, 1 to 2 on servers of these years. A copy that
#: the host moves and that is no smaller leaves nothing of the program there.
PRIVATE_CACHE_BYTES = 2 << 20


def gaps_without(timeline: Timeline, gone: Mask) -> NDArray[np.int64]:
    """The host's times between calls when the copies `gone` no longer pass through it; ns, shape (calls,).

    `gone`: shape (operations,). Those of them that are of pageable memory and as large as a core's cache made the host
    fetch again what it works with.
    """
    gap: NDArray[np.int64] = timeline.columns["call_gap"]
    staged = pageable(timeline.operations) & (timeline.columns["operation_launched"] != 0)
    staged &= timeline.operations["bytes"].fill_null(0).to_numpy() >= PRIVATE_CACHE_BYTES
    if not (staged & gone).any():
        return gap
    return gap - _fetching(timeline, staged) + _fetching(timeline, staged & ~gone)


def _fetching(timeline: Timeline, staged: Mask) -> NDArray[np.int64]:
    """Of the host's time before each call, what goes into fetching again behind `staged` copies; ns, shape (calls,).

    A cache is fetched at the rate at which one core copies bytes on this node, which is the least that it takes, and a
    trace does not tell that time from the host's own: it is taken to be half of all time behind the copy until then.
    """
    columns = timeline.columns
    whole = int(packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], np.float64), timeline.node)[0])
    behind = np.zeros(len(columns["call_gap"]), bool)
    behind[columns["operation_call"][staged]] = True
    order = np.argsort(columns["call_thread"], kind="stable")
    half = np.maximum(columns["call_gap"], 0)[order] // 2
    passed = np.cumsum(half) - half  # before each call's gap, of all threads in a row
    place = np.arange(len(order))
    # The nearest such copy before each call in its thread.
    after = np.maximum.accumulate(np.where(behind[order], place, -1))
    after = np.concatenate([[-1], after[:-1]])
    thread = columns["call_thread"][order]
    known = (after >= 0) & (thread[np.maximum(after, 0)] == thread)
    since = passed - (passed + half)[np.maximum(after, 0)]
    spent = np.zeros(len(order), np.int64)
    spent[order] = np.where(known, np.clip(whole - since, 0, half), 0)
    return spent
