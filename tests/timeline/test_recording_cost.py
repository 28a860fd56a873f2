"""Replays of what was recorded, unchanged and without what recording cost."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from busfare.timeline import UNEXPLAINED, Played, critical_path_shares, part_seconds, play, timeline
from busfare.timeline.engine import LEAST_RECORDING_NS, MOST_NS, MOST_RECORDING_NS, MOST_SLOWDOWN, unrecorded
from busfare.trace import Trace, read
from tests.published import published
from tests.traces import EXAMPLES, call, copy, kernel, made, run


def launches(call_us: float, gap_us: float, count: int = 1000) -> Trace:
    """A host that launches one short kernel after the other, and waits for none."""
    begun = [n * (call_us + gap_us) for n in range(count)]
    return run(*[made(kernel(at + call_us, at + call_us + 1), at, at + call_us) for at in begun])


def test_the_same_is_taken_out_of_every_call() -> None:
    # 2 µs a call and 3 µs between two, of which the recorder is 1 µs each time.
    taken = unrecorded([timeline(launches(2, 3))], play(timeline(launches(1.5, 2.5))).makespan_ns)
    assert taken.call_ns == pytest.approx(1000, abs=10)
    assert taken.makespan_ns == pytest.approx(4000 * 1000, rel=0.001)
    assert (taken.timelines[0].columns["call_own"][1:] == 1500).all()
    assert (taken.timelines[0].columns["call_gap"][1:] == 2500).all()


def test_what_a_call_lacks_the_gap_before_it_gives() -> None:
    taken = unrecorded([timeline(launches(0.5, 9.5))], 5_000_000)
    assert (taken.timelines[0].columns["call_own"] == 500).all()
    assert taken.makespan_ns == pytest.approx(5_000_000, rel=0.001)


def test_no_more_is_taken_than_a_recorder_can_cost() -> None:
    recorded = timeline(launches(50, 50))
    taken = unrecorded([recorded], 1_000_000)
    assert taken.call_ns == pytest.approx(MOST_NS)
    assert taken.makespan_ns == pytest.approx(70_000_000, rel=0.001)


def test_nothing_is_taken_out_of_a_host_that_waits_for_the_gpu() -> None:
    recorded = run(made(kernel(10, 1000), 0, 5), call(6, 1005, "cudaDeviceSynchronize", "device"))
    taken = unrecorded([timeline(recorded)], 500_000)
    assert taken.makespan_ns > 990_000
    assert taken.call_ns < 12_000


def test_a_run_that_was_not_slower_recorded_stays_as_it_is() -> None:
    recorded = timeline(launches(2, 3))
    taken = unrecorded([recorded], recorded.recorded_ns)
    assert taken.timelines[0] is recorded and taken.call_ns == 0


def test_what_recording_took_inside_of_a_waiting_call_goes_too() -> None:
    """Kernels waited for one by one: 10 µs to the start, 5 to the return; a recorder that takes 2 µs took half of each."""

    def steps(launch_us: float, wake_us: float, gap_us: float) -> Trace:
        held = launch_us + 20 + wake_us
        begun = [n * (held + gap_us) for n in range(500)]
        waits = [call(at + 4, at + held, "cudaDeviceSynchronize", "device") for at in begun]
        return run(*waits, *[made(kernel(at + launch_us, at + launch_us + 20), at, at + 4) for at in begun])

    recorded, bare = timeline(steps(10, 5, 3)), timeline(steps(9.5, 4.5, 2)).recorded_ns
    taken = unrecorded([recorded], bare)
    assert taken.makespan_ns == pytest.approx(bare, rel=0.001)
    assert 1_000 <= taken.call_ns <= 3_000
    lag, wake = (taken.timelines[0].columns[name] for name in ("operation_launch_lag", "call_wait_lag"))
    assert 9_000 <= lag.max() < 10_000 and 4_000 <= wake.max() < 5_000


def staged_copies(copy_us: float, size: int = 1 << 20) -> Trace:
    """Blocking copies of pageable memory, each followed by 20 µs of host time with a launch in it."""
    begun = [n * (copy_us + 20) for n in range(100)]
    copies = [copy(at + 5, at + 5 + copy_us, size, memory="pageable") for at in begun]
    copied = [at + copy_us for at in begun]
    calls = [(at, end + 8, "cudaMemcpy", "operation") for at, end in zip(begun, copied, strict=True)]
    return run(
        *[made(operation, *how) for operation, how in zip(copies, calls, strict=True)],
        *[made(kernel(end + 16, end + 18), end + 10, end + 14) for end in copied],
    )


@pytest.mark.parametrize("bare_us", [900, 1000, 1100])
def test_what_recording_does_not_explain_is_how_fast_the_host_staged(bare_us: int) -> None:
    recorded, bare = timeline(staged_copies(1000)), timeline(staged_copies(bare_us)).recorded_ns
    taken = unrecorded([recorded], bare)
    assert taken.makespan_ns == pytest.approx(bare, rel=0.001)
    assert LEAST_RECORDING_NS <= taken.call_ns <= MOST_RECORDING_NS
    assert taken.slowdown == pytest.approx(bare_us / 1000, rel=0.02)
    copies = recorded.operations["kind"].to_numpy() == "copy"
    durations = taken.timelines[0].columns["operation_duration"]
    assert durations[copies] == pytest.approx(taken.slowdown * 1_000_000, abs=1)
    assert (durations[~copies] == 2_000).all()


def test_a_host_slowdown_stays_within_those_measured() -> None:
    recorded = timeline(staged_copies(1000))
    targets = (recorded.recorded_ns // 2, recorded.recorded_ns * 2)
    slowdowns = [unrecorded([recorded], target).slowdown for target in targets]
    assert slowdowns == pytest.approx([1 / (1 + MOST_SLOWDOWN), 1 + MOST_SLOWDOWN], abs=1e-4)


def test_a_run_that_hardly_stages_keeps_its_host_times() -> None:
    # Copies so small are handed over with their calls.
    recorded = timeline(staged_copies(1000, size=4096))
    assert unrecorded([recorded], recorded.recorded_ns // 2).slowdown == 1
    assert unrecorded([recorded], recorded.recorded_ns * 2).timelines[0] is recorded


PUBLISHED = published()
RECORDED = sorted(EXAMPLES.glob("*.json.gz"))


def as_recorded(trace: Trace) -> Played:
    played = play(timeline(trace))
    recorded = played.timeline.recorded_ns
    assert abs(played.makespan_ns - recorded) <= 0.01 * recorded
    assert busiest_error(played) <= 0.02
    return played


def busiest_error(played: Played) -> float:
    """The largest relative error of a stream's busy time."""
    operations = played.timeline.operations
    busy = (
        operations.select("stream_number", recorded=pl.col("end_ns") - pl.col("start_ns"))
        .with_columns(replayed=pl.Series(played.operation_end - played.operation_start))
        .group_by("stream_number")
        .sum()
        .filter(pl.col("recorded") > 0)
    )
    errors = (busy["replayed"] / busy["recorded"] - 1).abs()
    return float(errors.max() or 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_recordings_replay_as_they_were_and_little_of_them_stays_unexplained(path: Path) -> None:
    """Operations start when their dependencies say, and not only because the recording says so."""
    played = as_recorded(read(path))
    run = played.timeline
    shifts = np.abs(played.operation_start + run.origin_ns - run.operations["start_ns"].to_numpy())
    assert int(shifts.max()) <= 1000
    shares = critical_path_shares(run)
    assert sum(part.seconds for part in shares) == pytest.approx(played.makespan_seconds)
    assert part_seconds(shares, UNEXPLAINED) <= 0.01 * run.recorded_ns * 1e-9


@pytest.mark.conformance
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_traces_replay_as_they_were(path: Path) -> None:
    as_recorded(read(path))


@pytest.mark.conformance
def test_there_are_published_traces() -> None:
    assert len(PUBLISHED) == 27
