"""Copies in beside kernels that write mapped memory, chunk by chunk: what a hybrid takes. Ours.

One chunk follows the other in a cycle, from the end of its copies to the end of the next one's. Every time is in seconds;
arrays broadcast as those of a `Cut` do. Nothing is raised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.plan.equations import Cut

__all__ = ["LULL_S", "WAIT_S", "Writes", "starved"]

#: A lull of the queue of mapped writes, a kernel, where a node's was not measured: on four H200s 15 to 17 µs, on four H100s
#: 9 to 12.
LULL_S = 1.3e-5
#: For how long mapped writes pause between two kernels. A lull over it is the share of their pace at which copies then
#: move, and they do so too while a first round of threads computes [compute-balanced: 25 to 31 µs in all on three H100s
#: whose lull is 9 to 12 µs, 45 on two H200s with 16].
PAUSE_S = 2.0e-5
#: Of a write's place in that queue a read of device memory takes so much [hybrids of 8 to 42 chunks with 1/3, 2/3, 1 and 3
#: bytes read for each that is written, six development runs on H100s and H200s: 0.3 to 0.5 fit alike].
READS_SHARE = 0.4
#: What is read again, from the GPU's cache, takes more [reread and buoydiff, which read each byte three times: 0.8 to 0.9].
REREADS_SHARE = 0.85
#: From a chunk's last copy to its kernel, where other streams' copies go on; and where writes held this copy until they
#: ended, if a node's was not measured: word that it is over stands behind them. From kernel to kernel this much more or
#: less. [Kernels' own clocks beside the arrival of copies, an H100 and two H200s, in 8 to 256 streams: 7 to 11 µs in the
#: mean of those that came HELD_S or more after the writes' end, 12 to 16 of those that came with it.]
FREE_WAIT_S, WAIT_S, WAIT_SCATTER_S, HELD_S = 8e-6, 1.2e-5, 6e-6, 1e-5
#: Of one round of threads, what passes before the first of them write [the same clocks, compute-balanced: 8.7 of 33 µs].
FIRST_WRITES_SHARE = 0.25
#: A copy that waited for the writes' end begins this much later than after another copy [the same: 5 to 7 µs, not 3.5].
AFTER_WRITES_S = 2.5e-6
#: Copies of one stream that others wait for stand further apart [the same: 3.5 µs, where a train's are 2.3].
MARK_S = 1.2e-6
#: Copies of many streams stand in so many queues, and one queue is worked off before the next one begins. At each such
#: change no kernel begins for so long, for each stream beyond QUEUED_STREAMS; those of one stream change once, at their
#: end [the same clocks; development runs].
QUEUES, CHANGE_S, QUEUED_STREAMS = 4, 7e-7, 45
#: Copies that mapped writes slow by less than this go on beside them, and end and begin among them: PCIe 5.0 slows them 13
#: times, PCIe 3.0 did 1.4 times [W14 tables I and II].
LEAST_HELD = 2.0
#: Waits at which a cycle is looked at.
_WAITS = tuple((2 * n + 1) / 8 - 1 for n in range(8))
_NOTHING = 1e-15


class Writes(NamedTuple):
    """What kernels that write mapped memory put on the way out, a row a problem.

    `reads`: bytes read from device memory for each that is written, `again` those that were read before. `rounds`: how
    often the threads that the GPU holds at once are replaced. `lull` (s): for how long, in each kernel, copies in go on as
    if it wrote nothing. `start` (s): what the start of a kernel takes, which L+o of the way out holds too. `gap` (s): g of
    a copy that follows another of its stream. `wait` (s): from a chunk's copy to its kernel, where writes held the copy.
    `in_order`: all copies are in one stream.
    """

    reads: FloatArray
    rounds: FloatArray
    copies_in: FloatArray
    lull: FloatArray | float = LULL_S
    again: FloatArray | float = 0.0
    start: float = 0.0
    gap: float = 0.0
    wait: float = WAIT_S
    in_order: bool = False


def starved(cut: Cut, writes: Writes) -> FloatArray:
    """Seconds of a hybrid: the first chunk's copies, a cycle for each further chunk, the last kernel.

    Writes are posted: a kernel takes the longer of computing and writing. It begins some time after its copies, for
    which the next chunk's go on. Then they starve: their read requests wait behind the writes, by `h2d_slowdown` beside
    nothing but writes, by less where reads of device memory stand among them in the same queues; but for a lull in each
    kernel, which the first threads' computing lengthens. A copy that is under way ends when the writes do at the earliest,
    and no other begins before: however short chunks are, each costs its writing and the wait before it.
    """
    queue = (np.asarray(cut.h2d_slowdown) - 1) / (
        1 + READS_SHARE * writes.reads + REREADS_SHARE * writes.again
    )
    # Copies at their full pace slow the writes by `d2h_slowdown`.
    chunk = cut.d2h * (1 + (np.asarray(cut.d2h_slowdown) - 1) / (1 + queue)) / cut.streams
    first_round = np.maximum(cut.all_kernels - writes.start, 0.0) / np.maximum(writes.rounds, cut.streams)
    lull = np.minimum(writes.lull * (1 + first_round / PAUSE_S), chunk)
    hidden = lull + (chunk - lull) / (1 + queue)
    computing = cut.all_kernels / cut.streams
    moving = np.maximum(cut.h2d / cut.streams - (writes.copies_in - 1) * writes.gap, 0.0) / writes.copies_in
    apart = writes.gap + MARK_S if writes.in_order else np.maximum(cut.h2d_gap, writes.gap)
    apart = apart * (cut.h2d > 0)
    copies = writes.copies_in * (apart + moving)
    cycle = _cycle(apart + moving, writes, chunk, hidden, FIRST_WRITES_SHARE * first_round)
    # While no kernel begins copies go on alone, and their kernels then write alone.
    changes = 1 if writes.in_order else QUEUES - 1
    alone = changes * CHANGE_S * np.maximum(cut.streams - QUEUED_STREAMS, 0.0) / np.maximum(copies, _NOTHING)
    share = np.minimum(alone / np.maximum(cut.streams - 1, 1.0), 1.0)
    cycle = cycle + share * np.maximum(copies + chunk - cycle, 0.0)
    beside = np.maximum(copies + np.maximum(chunk - hidden, 0.0), chunk)
    cycle = np.where((chunk > 0) & (np.asarray(cut.h2d_slowdown) >= LEAST_HELD), cycle, beside)
    cycle = np.maximum(cycle, computing)
    last = np.maximum(chunk + first_round * (chunk > 0), computing)
    total: FloatArray = cut.h2d_latency + cut.d2h_latency + copies - apart + (cut.streams - 1) * cycle + last
    return total


def _cycle(
    copy: FloatArray,
    writes: Writes,
    chunk: FloatArray,
    hidden: FloatArray,
    computed: FloatArray,
) -> FloatArray:
    """Seconds from the end of one chunk's copies to the end of the next one's, over all waits for a kernel.

    `copy`: of one copy with what goes before it; `hidden`: of it, while a kernel writes; `computed`: before it writes.
    """
    copies_in = writes.copies_in
    found = np.zeros(())
    for place in _WAITS:
        scatter = place * WAIT_SCATTER_S
        # How long after the writes its last copy ends is what a kernel's wait goes by: it is looked at with the mean wait.
        over, under_way, follow = _place(
            (FREE_WAIT_S + writes.wait) / 2 + scatter + computed, copy, copies_in
        )
        late = np.maximum(under_way - hidden, 0.0) + np.maximum(follow, 0.0) * copy
        held = np.clip(1 - late / HELD_S, 0.0, 1.0)
        wait = FREE_WAIT_S + (writes.wait - FREE_WAIT_S) * held
        begins = np.maximum(wait + scatter, 0.0) + computed
        over, under_way, follow = _place(begins, copy, copies_in)
        one = begins + chunk + np.maximum(under_way - hidden, 0.0)
        one = one + np.maximum(follow, 0.0) * copy + AFTER_WRITES_S * (follow > 0)
        # Where whole chunks are over their kernels begin together, and one wait is that of all.
        together = np.floor(over / copies_in)
        several = chunk + begins / (1 + together)
        found = found + np.maximum(np.where(together > 0, several, one), copies_in * copy) / len(_WAITS)
    return found


def _place(
    begins: FloatArray, copy: FloatArray, copies_in: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Where a kernel's writes begin among copies in: how many are over, seconds left of the one under way, and how many of
    its chunk follow the writes.
    """
    over = np.floor(begins / np.maximum(copy, _NOTHING))
    return over, (over + 1) * copy - begins, copies_in - 1 - over
