"""A recorded copy carried from one measured node to another: each part of its time as what was measured of it there.

What keeps a copy engine busy is measured from pinned memory: a start, and bytes. Two events around a copy also
hold their own time, which differs from machine to machine by more than the starts do; it is measured with nothing
between them and taken out. A pageable copy that took no longer than that was staged before or after (its recorded
time is the engine's alone); a longer one was staged within it, at the processor's pace.
"""

from __future__ import annotations

import numpy as np

from busfare.cost.batch import Batch
from busfare.node import Measured, Node
from busfare.node.arrays import FloatArray

__all__ = ["carried_seconds", "measured_on_both"]

#: Bytes that cost less than this share of what the smallest copy takes are lost in it.
LEAST_SHARE = 0.1
#: Two probes of one machine differ by up to half of this in the start of a copy (results/probe).
LEAST_START_S = 0.25e-6
#: A pageable copy that took less than so many times what its engine needs was staged outside of it.
STAGED_OUTSIDE = 1.3
#: Buffers of this size lie in the cache of every processor seen: by their pace, a processor copies.
CACHED_BYTES = float(8 << 20)


def carried_seconds(
    batch: Batch, recorded: FloatArray, overhead: FloatArray, old: Node, new: Node
) -> FloatArray | None:
    """Seconds on `new` of copies recorded on `old`, shape (rows,); None where the path was not measured on both.

    `recorded` and `overhead` are seconds of each row: all of it, and its part that no byte causes. What happened to one
    copy among its like (of the same path and size) does not happen to the same one elsewhere: each takes their mean.
    """
    if batch.kind not in ("copy", "migration"):
        return None
    recorded, overhead = (_mean_of_their_size(batch, seconds) for seconds in (recorded, overhead))
    engines = _both(batch, _engine_memory(batch), old, new)
    if engines is None:
        return None
    starts = batch.copies * _start_difference(batch, engines, old, new)
    rest = (recorded - overhead) * _bytes_ratio(batch.sizes, *engines)
    by_engine = np.maximum(overhead + starts + rest, LEAST_SHARE * recorded)
    if batch.kind == "migration" or batch.memory != "pageable" or batch.direction not in ("h2d", "d2h"):
        return by_engine
    paces = _both(batch, "pageable", old, new)
    if paces is None:
        return None
    staged = recorded > STAGED_OUTSIDE * engines[0].seconds(np.maximum(batch.sizes, 1.0))
    return np.where(staged, recorded + _staging_difference(batch.sizes, recorded, *paces), by_engine)


def _mean_of_their_size(batch: Batch, seconds: FloatArray) -> FloatArray:
    """The mean of `seconds` over the rows that have a time and are of the same size; NaN where a row has none."""
    _, alike = np.unique(np.stack([batch.sizes, batch.copies]), axis=1, return_inverse=True)
    alike = alike.reshape(-1)
    timed = np.isfinite(seconds)
    sums = np.bincount(alike, np.where(timed, seconds, 0.0))
    means: FloatArray = sums / np.maximum(np.bincount(alike, timed), 1)
    return np.where(timed, means[alike], np.nan)


def _engine_memory(batch: Batch) -> str:
    if batch.direction not in ("h2d", "d2h"):
        return "device"
    return "pinned" if batch.memory in ("pageable", "managed") or batch.kind == "migration" else batch.memory


def _both(batch: Batch, memory: str, old: Node, new: Node) -> tuple[Measured, Measured] | None:
    peer = batch.peer if batch.peer >= 0 else None
    return measured_on_both(batch.direction, memory, batch.device, peer, old, new)


def measured_on_both(
    direction: str, memory: str, device: int, peer: int | None, old: Node, new: Node
) -> tuple[Measured, Measured] | None:
    """What was measured of one path on both nodes; None where the pieces of either are missing."""
    found = [node.measurement(direction, memory, device, peer) for node in (old, new)]
    here, there = found
    return None if here is None or there is None or not here.pieces or not there.pieces else (here, there)


def _start_difference(batch: Batch, engines: tuple[Measured, Measured], old: Node, new: Node) -> float:
    """How much later than on `old` a copy without bytes ends on `new`; 0 where the two probes do not tell, seconds."""
    starts = []
    for measured, node in zip(engines, (old, new), strict=True):
        empty = next(
            (c.device_s for c in node.costs if c.call == "empty" and c.gpu in (None, batch.device)), None
        )
        if empty is None or measured.timing != "device":
            return 0.0
        starts.append(float(measured.seconds(np.ones(1))[0]) - empty)
    difference = starts[1] - starts[0]
    return difference if abs(difference) >= LEAST_START_S else 0.0


def _bytes_ratio(sizes: FloatArray, here: Measured, there: Measured) -> FloatArray:
    """What the bytes of such a copy were measured to take on the new node, over what they did on the old one."""
    sizes = np.maximum(sizes, 1.0)
    first = [one.seconds(np.ones(1)) for one in (here, there)]
    old, new = (one.seconds(sizes) - start for one, start in zip((here, there), first, strict=True))
    # Of a few bytes the difference of two latencies would say nothing.
    return np.divide(new, old, out=np.ones_like(old), where=(new > 0) & (old > LEAST_SHARE * first[0]))


def _staging_difference(
    sizes: FloatArray, recorded: FloatArray, here: Measured, there: Measured
) -> FloatArray:
    """What copies that are staged while they run take longer on the new node (s), less than nothing where it is quicker: as
    long as the two processors take over what they have in their caches.

    What a copy took beyond that, in a cold cache or beside others' traffic, stays as it was: no probe of a quiet moment
    tells of it. Where one measurement leaves the cache and the other does not yet says nothing of the program's buffers.
    """
    sizes = np.maximum(sizes, 1.0)
    cached = np.minimum(sizes, CACHED_BYTES)
    old, new = (one.seconds(cached) * sizes / cached for one in (here, there))
    difference: FloatArray = (new / old - 1) * np.minimum(old, recorded)
    return difference
