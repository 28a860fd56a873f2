"""What a program's host loses to copies that pass through its processor: they push its own data out of the caches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.node import Node
from busfare.replay.prices import packing_nanoseconds
from busfare.replay.timeline import Timeline

__all__ = ["fetching_again_ns"]

PRIVATE_CACHE_BYTES = 2 << 20


def fetching_again_ns(timeline: Timeline, through_host: NDArray[np.bool_], node: Node | None) -> NDArray[np.int64]:
    columns = timeline.columns
    gap, thread = columns["call_gap"], columns["call_thread"]
    sizes = timeline.operations["bytes"].fill_null(0).to_numpy()
    moved = np.zeros(len(gap))
    chosen = through_host & (columns["operation_launched"] != 0)
    chosen &= sizes >= PRIVATE_CACHE_BYTES
    np.add.at(moved, columns["operation_call"][chosen], sizes[chosen])
    most = float(packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], float), node)[0])
    evicted = np.minimum(packing_nanoseconds(moved, node), most)
    spent = np.zeros(len(gap), np.int64)
    for one in np.unique(thread):
        left = 0.0
        for c in np.flatnonzero(thread == one).tolist():
            e = min(left, max(int(gap[c]), 0) / 2)
            spent[c] = int(e)
            left = min(left - e + evicted[c], most)
    return spent
