"""Hybrids: what each wait, lull and copy of a cycle costs."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.plan import starving
from busfare.plan.equations import Cut
from busfare.plan.starving import (
    AFTER_WRITES_S,
    CHANGE_S,
    FIRST_WRITES_SHARE,
    FREE_WAIT_S,
    LEAST_HELD,
    MARK_S,
    PAUSE_S,
    QUEUED_STREAMS,
    QUEUES,
    WAIT_SCATTER_S,
    Writes,
    starved,
)


def cut(streams: float, h2d: float, kernel: float, d2h: float, gap: float = 0.0, slow: float = 5.0) -> Cut:
    """A hybrid whose copies take `slow` times as long beside nothing but writes."""
    terms = (streams, h2d, kernel, d2h, 0.0, 0.0, gap, 0.0, slow, 1.0)
    return Cut(*(np.asarray(t) for t in terms))


def writes(reads: float = 0.0, rounds: float = 1e9, copies: float = 1.0, lull: float = 0.0) -> Writes:
    return Writes(np.asarray(reads), np.asarray(rounds), np.asarray(copies), lull)


def seconds(work: Cut, told: Writes) -> float:
    return float(starved(work, told))


def test_copies_starve_beside_mapped_writes() -> None:
    work = cut(4.0, h2d=8.0, kernel=0.0, d2h=4.0)
    # Three of four chunks are written while copies go on, at a fifth of their pace.
    assert seconds(work, writes()) == pytest.approx(8 + 4 - 3 / 5)
    # Reads of as many bytes take READS_SHARE of a write's place in the queue: 1 + 4 / 1.4.
    assert seconds(work, writes(reads=1.0)) == pytest.approx(8 + 4 - 3 / (1 + 4 / 1.4))
    # What is read again takes more of it: 1 + 4 / (1 + 0.4 + 2 · 0.85).
    thrice = writes(reads=1.0)._replace(again=np.asarray(2.0))
    assert seconds(work, thrice) == pytest.approx(8 + 4 - 3 / (1 + 4 / 3.1))
    # In a lull of a quarter of a second in each kernel copies lose nothing; it is no longer than the writing.
    assert seconds(work, writes(lull=0.25)) == pytest.approx(8 + 4 - 3 * (0.25 + 0.75 / 5))
    assert seconds(work, writes(lull=9.0)) == pytest.approx(8 + 4 - 3)


def test_one_chunk_hides_nothing() -> None:
    work = cut(1.0, h2d=8.0, kernel=2.0, d2h=4.0)
    assert seconds(work, writes(rounds=4.0)) == pytest.approx(8 + 2 / 4 + 4)
    # The start of a kernel is in the way out's L+o already.
    assert seconds(work, writes(rounds=4.0)._replace(start=0.5)) == pytest.approx(8 + 1.5 / 4 + 4)
    # A kernel that computes for longer than it writes hides its writes.
    assert seconds(work._replace(kernel=np.asarray(10.0)), writes(rounds=100.0)) == pytest.approx(8 + 10)
    # Nothing written, nothing waited for: copies and kernels overlap.
    assert seconds(cut(4.0, h2d=8.0, kernel=2.0, d2h=0.0), writes()) == pytest.approx(8 + 2 / 4)
    assert seconds(cut(4.0, h2d=0.0, kernel=8.0, d2h=0.0), writes()) == pytest.approx(8)


def test_short_chunks_cost_their_writing_and_the_wait_before_it() -> None:
    # Copies of 20 µs, kernels that write for 30: all of a copy would fit beside its kernel, but it ends with the writes.
    number = 8.0
    work = cut(number, h2d=20e-6 * number, kernel=0.0, d2h=30e-6 * number)
    found = seconds(work, writes(lull=30e-6))
    assert found == pytest.approx(20e-6 + (number - 1) * (starving.WAIT_S + 30e-6) + 30e-6)
    # Another wait is another time, as much longer for each chunk but the last.
    longer = seconds(work, writes(lull=30e-6)._replace(wait=starving.WAIT_S + 1.6e-6))
    assert longer - found == pytest.approx((number - 1) * 1.6e-6)
    # First threads compute before they write; the others write meanwhile.
    first = seconds(work._replace(kernel=np.asarray(8e-6 * number)), writes(rounds=1.0, lull=30e-6))
    assert first - found == pytest.approx((number - 1) * FIRST_WRITES_SHARE * 8e-6 + 8e-6)


def test_kernels_wait_longer_for_copies_that_writes_held() -> None:
    # Beside writes of 30 µs, all of which a copy may hide: it ends with them, a little later, or long after.
    number, later = 8.0, starving.WAIT_S + 1e-8
    shares = []
    for copy in (20e-6, 44e-6, 100e-6):
        work = cut(number, h2d=copy * number, kernel=0.0, d2h=30e-6 * number)
        told = writes(lull=30e-6)
        more = seconds(work, told._replace(wait=np.asarray(later))) - seconds(work, told)
        shares.append(more / ((number - 1) * 1e-8))
    held, between, free = shares
    assert held == pytest.approx(1) and 0 < between < 1 and free == pytest.approx(0)


def test_a_lull_is_longer_where_first_threads_compute() -> None:
    work = cut(4.0, h2d=8.0, kernel=2.0, d2h=8.0)
    lull = 1e-6 * (1 + 0.5 / PAUSE_S)
    found = seconds(work, writes(rounds=4.0, lull=1e-6))
    # The copy is long enough for all that passes before the first write.
    assert found == pytest.approx(8 + 8 + 0.5 - 3 * (lull + (2 - lull) / 5))


def test_further_copies_of_a_chunk_follow_its_writes() -> None:
    # Two copies of 50 µs, kernels that write for 40 with a lull of all of it: one copy runs beside them, and ends later.
    number = 8.0
    one = seconds(cut(number, h2d=100e-6 * number, kernel=0.0, d2h=40e-6 * number), writes(lull=40e-6))
    two = seconds(
        cut(number, h2d=100e-6 * number, kernel=0.0, d2h=40e-6 * number), writes(lull=40e-6, copies=2.0)
    )
    assert one == pytest.approx(100e-6 * number + 40e-6)
    # The first copy is under way for 50 µs less the wait, which is less or more by chance: what is less hides nothing.
    waits = [FREE_WAIT_S + WAIT_SCATTER_S * ((2 * n + 1) / 8 - 1) for n in range(8)]
    cycle = sum(w + 40e-6 + max(10e-6 - w, 0.0) for w in waits) / 8 + 50e-6 + AFTER_WRITES_S
    assert two == pytest.approx(100e-6 + (number - 1) * cycle + 40e-6)


def test_whole_chunks_that_are_over_share_a_wait() -> None:
    number = float(QUEUED_STREAMS)
    work = cut(number, h2d=1e-6 * number, kernel=0.0, d2h=2e-6 * number)
    # Each further chunk takes no less than its writing, and far less than that and a wait.
    cycle = (seconds(work, writes()) - 3e-6) / (number - 1)
    assert 2e-6 < cycle < 2e-6 + starving.WAIT_S / 4


def test_each_change_of_the_copies_queue_costs() -> None:
    number = 148.0
    work = cut(number, h2d=40e-6 * number, kernel=0.0, d2h=30e-6 * number)
    told = writes(lull=10e-6)
    plain = 40e-6 * number + 30e-6 * number - (number - 1) * (10e-6 + 20e-6 / 5)
    stopped = CHANGE_S * (number - QUEUED_STREAMS)
    alone = stopped / 40e-6 * (10e-6 + 20e-6 / 5)
    assert seconds(work, told) == pytest.approx(plain + (QUEUES - 1) * alone)
    # In one stream there is one queue, and an event behind each chunk's copies.
    ordered = told._replace(in_order=True)
    marked = 40e-6 + MARK_S
    alone = stopped / marked * (10e-6 + 20e-6 / 5)
    assert seconds(work, ordered) == pytest.approx(plain + (number - 1) * MARK_S + alone)


def test_writes_that_hardly_slow_copies_hold_none_back() -> None:
    number = 100.0
    work = cut(number, h2d=20e-6 * number, kernel=0.0, d2h=30e-6 * number, slow=LEAST_HELD - 0.5)
    # A copy of 20 µs gets on by two thirds of it in those 30, and waits for nothing.
    assert seconds(work, writes()) == pytest.approx(20e-6 + (number - 1) * 30e-6 + 30e-6)
    longer = work._replace(h2d=np.asarray(40e-6 * number))
    assert seconds(longer, writes()) == pytest.approx(40e-6 + (number - 1) * (40e-6 + 10e-6) + 30e-6)
    held = longer._replace(h2d_slowdown=np.asarray(LEAST_HELD))
    assert seconds(held, writes()) > seconds(longer, writes())


@pytest.mark.parametrize("copies", [1.0, 2.0, 3.0])
def test_no_hybrid_beats_its_copies_or_its_writes(copies: float) -> None:
    numbers = np.arange(1.0, 257.0)
    work = cut(1.0, h2d=3e-3, kernel=1e-4, d2h=3e-3)._replace(streams=numbers)
    found = starved(work, writes(reads=1.0, copies=copies, lull=1e-5))
    assert found.shape == numbers.shape
    assert np.all(found >= 3e-3) and np.all(found <= 6.1e-3 + numbers * 12e-6)
