"""What copies through the processor's caches cost the host between its calls (made-up traces, no GPU)."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.node import load_node
from busfare.timeline import Timeline, timeline
from busfare.timeline.changes.change import Setting
from busfare.timeline.changes.packing import Batch
from busfare.timeline.changes.pin import Pin
from busfare.timeline.host_caches import PRIVATE_CACHE_BYTES, SCATTERED, gaps_without
from busfare.timeline.prices import packing_nanoseconds
from tests.traces import call, copy, kernel, trace

NODE = load_node("h100-probed")
FETCHED_NS = SCATTERED * float(packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], np.float64), NODE)[0])


def copy_then_launches(size: int, gap_us: float, memory: str = "pageable", thread: int = 1) -> Timeline:
    """A blocking copy of 1 ms, then 40 launches of 5 µs with `gap_us` before each, by `thread`."""
    operations = [copy(10, 1000, size, memory=memory, correlation=100)]
    calls = [call(0, 1000, "cudaMemcpy", "operation", correlation=100)]
    for n in range(40):
        start = 1000 + gap_us + n * (gap_us + 5)
        operations.append(kernel(start + 6, start + 7, correlation=n))
        calls.append(call(start, start + 5, "cudaLaunchKernel", correlation=n, thread=thread))
    return timeline(trace(*operations, calls=calls), NODE)


def saved(of: Timeline) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """ns less before each call once the copy is gone."""
    gone = of.operations["kind"].to_numpy() == "copy"
    less = of.columns["call_gap"] - gaps_without(of, gone)
    assert less.dtype == np.int64
    return less


def test_half_of_the_host_time_behind_a_large_copy_goes_until_a_cache_is_fetched() -> None:
    less = saved(copy_then_launches(64 << 20, 20))
    # 10 of 20 µs each time, as often as it goes into what fetching a cache takes, and then the rest of that.
    whole = int(FETCHED_NS // 10_000)
    assert 3 < whole < 39
    assert (less[1 : 1 + whole] == 10_000).all()
    assert less.sum() == pytest.approx(FETCHED_NS, abs=2)
    assert less[0] == 0 and (less[2 + whole :] == 0).all()


def test_a_short_host_time_goes_by_half() -> None:
    less = saved(copy_then_launches(64 << 20, 2))
    assert (less[1:] == 1_000).all()


def test_a_node_that_was_not_measured_packs_at_its_default() -> None:
    assert packing_nanoseconds(np.array([8e6]), load_node("pcie:3x16")) == pytest.approx(1e6)


@pytest.mark.parametrize(
    "of",
    [
        copy_then_launches(PRIVATE_CACHE_BYTES - 1, 20),
        copy_then_launches(64 << 20, 20, "pinned"),
        copy_then_launches(64 << 20, 20, thread=2),
    ],
    ids=["smaller than a cache", "pinned", "another thread"],
)
def test_other_copies_leave_the_caches_alone(of: Timeline) -> None:
    assert not saved(of).any()


def test_a_copy_that_stays_keeps_what_it_costs() -> None:
    of = copy_then_launches(64 << 20, 20)
    assert (gaps_without(of, np.zeros(of.operations.height, bool)) == of.columns["call_gap"]).all()


def rows_of_copies(count: int, size: int, gap_us: float = 20, memory: str = "pageable") -> Timeline:
    """Twice `count` copies of `size` right behind each other, 5 µs between them, and 8 launches, `gap_us` before each."""
    operations, calls, at, number = [], [], 0.0, 0
    for _ in range(2):
        for kind in ["copy"] * count + ["kernel"] * 8:
            at += 5 if kind == "copy" else gap_us
            name = "cudaMemcpyAsync" if kind == "copy" else "cudaLaunchKernel"
            calls.append(call(at, at + 4, name, correlation=number))
            there = (at + 5, at + 6)
            operations.append(
                copy(*there, size, memory=memory, correlation=number)
                if kind == "copy"
                else kernel(*there, correlation=number)
            )
            at, number = at + 4, number + 1
    return timeline(trace(*operations, calls=calls), NODE)


def test_small_copies_right_behind_each_other_fill_the_caches_like_a_large_one() -> None:
    less = saved(rows_of_copies(64, PRIVATE_CACHE_BYTES // 64))
    # The code that goes from one copy to the next stays; what follows the row pays.
    assert (less[:64] == 0).all() and (less[65 + 8 : 64 + 8 + 64] == 0).all()
    assert (less[64 : 64 + 8] == 10_000).all()
    assert FETCHED_NS > 8 * 10_000
    # The first copy of the next row comes from other code.
    assert less[64 + 8] == 2_500


def test_a_row_of_fewer_bytes_leaves_the_caches_alone() -> None:
    assert not saved(rows_of_copies(63, PRIVATE_CACHE_BYTES // 64)).any()


def test_a_row_that_loses_a_part_pays_as_long_as_the_rest_fills_a_cache() -> None:
    of = rows_of_copies(96, PRIVATE_CACHE_BYTES // 64)
    gone = of.operations["kind"].to_numpy() == "copy"
    gone[np.flatnonzero(gone)[::3]] = False  # 32 of 96 stay
    assert (of.columns["call_gap"] - gaps_without(of, gone))[96 : 96 + 8].sum() == 8 * 10_000
    gone[np.flatnonzero(gone)[::2]] = False  # 64 of 96
    assert (of.columns["call_gap"] == gaps_without(of, gone)).all()


def test_copies_packed_into_one_still_pass_through_the_caches() -> None:
    of = rows_of_copies(64, PRIVATE_CACHE_BYTES // 64)
    launches = np.arange(64 + 1, 64 + 8)
    packed = Batch(64 << 10).apply(of, Setting(NODE)).timeline
    assert (packed.columns["call_gap"][launches] == of.columns["call_gap"][launches]).all()
    pinned = Pin().apply(of, Setting(NODE)).timeline
    assert (pinned.columns["call_gap"][launches] == of.columns["call_gap"][launches] - 10_000).all()
