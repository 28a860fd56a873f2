"""What a recorder cost, taken out of runs whose cost is known."""

from __future__ import annotations

import pytest

from busfare.timeline import play, timeline
from busfare.timeline.recording_cost import LEAST_KNOWN_NS, MOST_BY_PACE, MOST_KNOWN_NS, MOST_NS, unrecorded
from busfare.trace import Trace
from tests.traces import call, copy, kernel, trace


def launches(call_us: float, gap_us: float, count: int = 1000) -> Trace:
    """A host that launches one short kernel after the other, and waits for none."""
    step = call_us + gap_us
    return trace(
        *[kernel(n * step + call_us, n * step + call_us + 1, correlation=n) for n in range(count)],
        calls=[call(n * step, n * step + call_us, "cudaLaunchKernel", correlation=n) for n in range(count)],
    )


def test_the_same_is_taken_out_of_every_call() -> None:
    # 2 µs a call and 3 µs between two, of which the recorder is 1 µs each time.
    taken = unrecorded(timeline(launches(2, 3)), play(timeline(launches(1.5, 2.5))).makespan_ns)
    assert taken.call_ns == pytest.approx(1000, abs=10)
    assert taken.makespan_ns == pytest.approx(4000 * 1000, rel=0.001)
    assert (taken.timeline.columns["call_own"][1:] == 1500).all()
    assert (taken.timeline.columns["call_gap"][1:] == 2500).all()


def test_what_a_call_lacks_the_gap_before_it_gives() -> None:
    taken = unrecorded(timeline(launches(0.5, 9.5)), 5_000_000)
    assert (taken.timeline.columns["call_own"] == 500).all()
    assert taken.makespan_ns == pytest.approx(5_000_000, rel=0.001)


def test_no_more_is_taken_than_a_recorder_can_cost() -> None:
    recorded = timeline(launches(50, 50))
    taken = unrecorded(recorded, 1_000_000)
    assert taken.call_ns == pytest.approx(MOST_NS)
    assert taken.makespan_ns == pytest.approx(70_000_000, rel=0.001)


def test_nothing_is_taken_out_of_a_host_that_waits_for_the_gpu() -> None:
    recorded = trace(
        kernel(10, 1000, correlation=1),
        calls=[
            call(0, 5, "cudaLaunchKernel", correlation=1),
            call(6, 1005, "cudaDeviceSynchronize", "device"),
        ],
    )
    taken = unrecorded(timeline(recorded), 500_000)
    assert taken.makespan_ns > 990_000
    assert taken.call_ns < 12_000


def test_a_run_that_was_not_slower_recorded_stays_as_it_is() -> None:
    recorded = timeline(launches(2, 3))
    taken = unrecorded(recorded, recorded.recorded_ns)
    assert taken.timeline is recorded and taken.call_ns == 0


def test_what_recording_took_inside_of_a_waiting_call_goes_too() -> None:
    """Kernels waited for one by one: 10 µs to the start, 5 to the return; a recorder that takes 2 µs took half of each."""

    def steps(launch_us: float, wake_us: float, gap_us: float) -> Trace:
        step = launch_us + 20 + wake_us + gap_us
        operations, calls = [], []
        for n in range(500):
            start = n * step
            operations.append(kernel(start + launch_us, start + launch_us + 20, correlation=n))
            calls.append(call(start, start + 4, "cudaLaunchKernel", correlation=n))
            end = start + launch_us + 20 + wake_us
            calls.append(call(start + 4, end, "cudaDeviceSynchronize", "device"))
        return trace(*operations, calls=calls)

    recorded, bare = timeline(steps(10, 5, 3)), timeline(steps(9.5, 4.5, 2)).recorded_ns
    taken = unrecorded(recorded, bare)
    assert taken.makespan_ns == pytest.approx(bare, rel=0.001)
    assert 1_000 <= taken.call_ns <= 3_000
    lag, wake = taken.timeline.columns["operation_launch_lag"], taken.timeline.columns["call_wait_lag"]
    assert 9_000 <= lag.max() < 10_000 and 4_000 <= wake.max() < 5_000


def staged_copies(copy_us: float, size: int = 1 << 20) -> Trace:
    """Blocking copies of pageable memory, each followed by 20 µs of host time with a launch in it."""
    operations, calls = [], []
    for n in range(100):
        start = n * (copy_us + 20)
        operations.append(copy(start + 5, start + 5 + copy_us, size, memory="pageable", correlation=2 * n))
        calls.append(call(start, start + 8 + copy_us, "cudaMemcpy", "operation", correlation=2 * n))
        operations.append(kernel(start + 16 + copy_us, start + 18 + copy_us, correlation=2 * n + 1))
        calls.append(
            call(start + 10 + copy_us, start + 14 + copy_us, "cudaLaunchKernel", correlation=2 * n + 1)
        )
    return trace(*operations, calls=calls)


@pytest.mark.parametrize("bare_us", [900, 1000, 1100])
def test_what_recording_does_not_explain_is_how_fast_the_host_staged(bare_us: int) -> None:
    recorded, bare = timeline(staged_copies(1000)), timeline(staged_copies(bare_us)).recorded_ns
    taken = unrecorded(recorded, bare)
    assert taken.makespan_ns == pytest.approx(bare, rel=0.001)
    assert LEAST_KNOWN_NS <= taken.call_ns <= MOST_KNOWN_NS
    assert taken.pace == pytest.approx(bare_us / 1000, rel=0.02)
    copies = recorded.operations["kind"].to_numpy() == "copy"
    durations = taken.timeline.columns["operation_duration"]
    assert durations[copies] == pytest.approx(taken.pace * 1_000_000, abs=1)
    assert (durations[~copies] == 2_000).all()


def test_a_pace_differs_by_no_more_than_was_seen() -> None:
    recorded = timeline(staged_copies(1000))
    assert unrecorded(recorded, recorded.recorded_ns // 2).pace == pytest.approx(
        1 / (1 + MOST_BY_PACE), abs=1e-4
    )
    assert unrecorded(recorded, recorded.recorded_ns * 2).pace == pytest.approx(1 + MOST_BY_PACE, abs=1e-4)


def test_a_run_that_hardly_stages_keeps_its_pace() -> None:
    # Copies so small are handed over with their calls.
    recorded = timeline(staged_copies(1000, size=4096))
    assert unrecorded(recorded, recorded.recorded_ns // 2).pace == 1
    assert unrecorded(recorded, recorded.recorded_ns * 2).timeline is recorded
