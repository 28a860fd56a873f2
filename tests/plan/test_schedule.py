"""The schedule: against the closed forms where both apply, and by hand where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.plan.equations import Cut, eq1, eq2, eq3, eq4, eq5, eq5_shared
from busfare.plan.schedule import Engines, Task, makespan

times = st.floats(1e-4, 1.0)
latencies = st.floats(1e-6, 2e-5)
counts = st.integers(1, 48)


def pipeline(
    n: int, h2d: float, kernel: float, d2h: float, gap: float = 0.0, latency: float = 0.0
) -> list[Task]:
    """n equal chunks, issued breadth first."""
    copies_in = [Task("h2d", h2d / n, gap, latency) for _ in range(n)]
    kernels = [Task("kernel", kernel / n, after=(k,)) for k in range(n)]
    return [*copies_in, *kernels, *(Task("d2h", d2h / n, gap, latency, (n + k,)) for k in range(n))]


def cut(n: int, h2d: float, kernel: float, d2h: float, gap: float, latency: float) -> Cut:
    return Cut(*(np.asarray(float(t)) for t in (n, h2d, kernel, d2h, latency, latency, gap, gap)))


DEVICES = {
    "implicit synchronisation": (
        Engines(one_copy_engine=True, implicit_synchronization=True),
        lambda c: max(eq1(c), eq2(c)),
    ),
    "one engine": (Engines(one_copy_engine=True), lambda c: max(eq3(c), eq4(c))),
    "two engines": (Engines(), eq5),
}


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None)
@given(counts, times, times, times, latencies, st.floats(0.05, 1))
def test_the_closed_forms_are_the_schedule(
    device: str, n: int, h2d: float, kernel: float, d2h: float, latency: float, share: float
) -> None:
    engines, closed = DEVICES[device]
    gap = latency * share
    expected = float(closed(cut(n, h2d, kernel, d2h, gap, latency)))
    assert makespan(pipeline(n, h2d, kernel, d2h, gap, latency), engines) == pytest.approx(expected, rel=0.01)


@settings(deadline=None)
@given(st.integers(8, 48), times, st.floats(0.02, 1), st.floats(0.02, 1), st.floats(1, 2), st.floats(1, 2))
def test_slowed_while_shared_is_the_schedule_where_transfers_dominate(
    n: int, longest: float, kernel: float, other: float, slow_in: float, slow_out: float
) -> None:
    h2d, d2h = longest, longest * other
    whole = cut(n, h2d, longest * kernel, d2h, 0.0, 0.0)
    closed = eq5_shared(whole._replace(h2d_slowdown=slow_in, d2h_slowdown=slow_out))
    ran = makespan(
        pipeline(n, h2d, longest * kernel, d2h), Engines(h2d_slowdown=slow_in, d2h_slowdown=slow_out)
    )
    # The first and last chunks' parts are not shared as the closed form counts them: a chunk of each way at most.
    assert ran == pytest.approx(float(closed), rel=0.01, abs=(h2d * slow_in + d2h * slow_out) / n)


def test_nothing_takes_no_time() -> None:
    assert makespan([], Engines()) == 0.0


def test_copies_back_to_back_take_a_gap_each() -> None:
    copies = [Task("h2d", 1.0, gap=0.25, latency=2.0) for _ in range(4)]
    assert makespan(copies, Engines()) == pytest.approx(2.0 + 4 * 1.0 + 3 * 0.25)


def test_a_gap_longer_than_the_latency_holds_the_engine() -> None:
    copies = [Task("h2d", 1.0, gap=3.0, latency=2.0) for _ in range(4)]
    assert makespan(copies, Engines()) == pytest.approx(2.0 + 4 * 1.0 + 3 * 3.0)


def test_both_directions_slow_each_other_only_while_both_move() -> None:
    tasks = [Task("h2d", 4.0), Task("d2h", 1.0)]
    # Out: 1 s at half speed. In: 2 s at two thirds, then the rest alone.
    engines = Engines(h2d_slowdown=1.5, d2h_slowdown=2.0)
    assert makespan(tasks, engines) == pytest.approx(2.0 + (4.0 - 2.0 / 1.5))


def test_one_engine_copies_one_way_at_a_time() -> None:
    tasks = [Task("h2d", 4.0), Task("d2h", 1.0)]
    assert makespan(tasks, Engines(one_copy_engine=True)) == pytest.approx(5.0)


def test_unequal_chunks_by_hand() -> None:
    # In 1, then 3; kernels 2 and 2; out 1 and 1: the second kernel starts at 4 and its copy out at 6.
    tasks = [
        Task("h2d", 1.0),
        Task("h2d", 3.0),
        Task("kernel", 2.0, after=(0,)),
        Task("kernel", 2.0, after=(1,)),
        Task("d2h", 1.0, after=(2,)),
        Task("d2h", 1.0, after=(3,)),
    ]
    assert makespan(tasks, Engines()) == pytest.approx(7.0)


def test_one_hardware_queue_undoes_most_of_the_overlap() -> None:
    free = pipeline(4, 4.0, 4.0, 4.0)
    queued = pipeline(4, 4.0, 4.0, 4.0)
    for task in queued:
        task.queue = 0
    assert makespan(free, Engines()) == pytest.approx(6.0)
    # The last copy in starts at 3, and so the first kernel; the last kernel at 6, and so the first copy out.
    assert makespan(queued, Engines()) == pytest.approx(10.0)


def test_kernels_side_by_side_finish_sooner() -> None:
    kernels = [Task("kernel", 1.0) for _ in range(4)]
    assert makespan(kernels, Engines()) == pytest.approx(4.0)
    assert makespan(kernels, Engines(kernels=2)) == pytest.approx(2.0)


def test_the_host_cannot_issue_faster_than_it_calls() -> None:
    kernels = [Task("kernel", 1.0) for _ in range(10)]
    assert makespan(kernels, Engines(launch=3.0)) == pytest.approx(31.0)


def test_a_blocking_copy_keeps_the_host_from_issuing() -> None:
    tasks = [Task("h2d", 1.0, blocks_host=True), Task("kernel", 1.0), Task("h2d", 2.0, blocks_host=True)]
    assert makespan(tasks, Engines()) == pytest.approx(3.0)
    assert makespan([*tasks, Task("kernel", 1.0, after=(2,))], Engines()) == pytest.approx(4.0)


def test_a_task_cannot_wait_for_a_later_one() -> None:
    with pytest.raises(ValueError, match="issued later"):
        makespan([Task("kernel", 1.0, after=(1,)), Task("kernel", 1.0)], Engines())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(times, times, times), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_a_schedule_is_between_its_longest_engine_and_its_sum(
    chunks: list[tuple[float, float, float]], one_engine: bool, implicit: bool
) -> None:
    n = len(chunks)
    tasks = [
        *(Task("h2d", chunk[0]) for chunk in chunks),
        *(Task("kernel", chunk[1], after=(k,)) for k, chunk in enumerate(chunks)),
        *(Task("d2h", chunk[2], after=(n + k,)) for k, chunk in enumerate(chunks)),
    ]
    busy = [sum(chunk[k] for chunk in chunks) for k in range(3)]
    took = makespan(tasks, Engines(one_copy_engine=one_engine, implicit_synchronization=implicit))
    assert max(busy) * (1 - 1e-9) <= took <= sum(busy) * (1 + 1e-9)
