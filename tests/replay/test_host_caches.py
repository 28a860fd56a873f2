"""What copies through the processor's caches cost the host between its calls (made-up traces, no GPU)."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.node import load_node
from busfare.replay import Timeline, timeline
from busfare.replay.host_caches import PRIVATE_CACHE_BYTES, gaps_without
from busfare.replay.prices import packing_nanoseconds
from tests.traces import call, copy, kernel, trace

NODE = load_node("h100-probed")
FETCHED_NS = float(packing_nanoseconds(np.array([PRIVATE_CACHE_BYTES], np.float64), NODE)[0])


def copy_then_launches(size: int, gap_us: float, memory: str = "pageable", thread: int = 1) -> Timeline:
    """A blocking copy of 1 ms, then 20 launches of 5 µs with `gap_us` before each, by `thread`."""
    operations = [copy(10, 1000, size, memory=memory, correlation=100)]
    calls = [call(0, 1000, "cudaMemcpy", "operation", correlation=100)]
    for n in range(20):
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
    assert 3 < whole < 19
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
