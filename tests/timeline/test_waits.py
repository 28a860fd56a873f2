"""Which work calls and streams wait for: named events, unnamed ones, and waits for part of what is named."""

from typing import Any

import numpy as np
import pytest

from busfare.answers.report import summarise
from busfare.nodes import load_node
from busfare.show.report import unexplained
from busfare.timeline import Timeline, critical_path_shares, play, timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.durations import copy_speed, kernel_times, prefetch
from busfare.timeline.changes.fewer_copies import remove
from busfare.timeline.changes.overlap import without_synchronisations
from busfare.timeline.edit import with_durations
from busfare.timeline.model import WAIT
from busfare.trace import Trace
from busfare.trace.sound import make_sound
from tests.traces import call, copy, event, kernel, made, omitted, run, streams, trace

COMPUTE, SIDE = 7, 17


def launched(start_us: float, correlation: int, **more: Any) -> dict[str, Any]:
    return call(start_us, start_us + 2, "cudaLaunchKernel", correlation=correlation, **more)


def record(start_us: float, correlation: int) -> dict[str, Any]:
    return call(start_us, start_us + 1, "cudaEventRecord", correlation=correlation)


def wait(start_us: float, correlation: int) -> dict[str, Any]:
    return call(start_us, start_us + 1, "cudaStreamWaitEvent", correlation=correlation)


def inside(within_launch: bool = False) -> Any:
    """A kernel, one of another stream behind it, and one that waits for that: each said by calls alone."""
    calls = [
        launched(0, 1), record(3, 2), wait(5, 3), launched(7, 4),
        # NCCL's own stream waits for its kernel, before the program records its event behind it.
        *([record(10, 5), wait(12, 6)] if within_launch else []),
        record(14, 7), launched(16, 8), wait(19, 9), launched(21, 10),
    ]  # fmt: skip
    kernels = [
        kernel(10, 110, correlation=1, stream=COMPUTE),
        kernel(113, 313, correlation=4, stream=SIDE),
        kernel(112, 162, correlation=8, stream=COMPUTE),
        kernel(316, 366, correlation=10, stream=COMPUTE),
    ]
    return trace(*kernels, calls=calls)


@pytest.mark.parametrize("within_launch", [False, True])
def test_streams_wait_for_what_the_order_of_calls_says(within_launch: bool) -> None:
    run = timeline(inside(within_launch))
    assert run.columns["operation_extra"].max() < 5_000, "every start is explained"
    assert omitted(run)["replay-inferred-events"] == 2
    # Twice the first kernel: all that waits for it, in both streams, comes later by that.
    duration = run.columns["operation_duration"].copy()
    duration[0] *= 2
    longer = play(run.with_columns(operation_duration=duration))
    assert longer.makespan_ns - play(run).makespan_ns == duration[0] // 2
    # And half of what runs beside: the kernel that waits for it comes sooner, the one before it does not.
    duration = run.columns["operation_duration"].copy()
    side = int(np.flatnonzero(run.operations["stream"].to_numpy() == SIDE)[0])
    duration[side] //= 2
    shorter = play(run.with_columns(operation_duration=duration))
    assert play(run).makespan_ns - shorter.makespan_ns == duration[side]


def test_a_wait_that_times_contradict_is_for_an_earlier_record() -> None:
    """Two kernels in the side stream, each with an event; what waits first began before the second had ended."""
    calls = [
        launched(0, 1), record(3, 2), launched(5, 3), record(8, 4),
        launched(10, 5), wait(13, 6), launched(15, 7), wait(18, 8), launched(20, 9),
    ]  # fmt: skip
    kernels = [
        kernel(10, 110, correlation=1, stream=SIDE),
        kernel(111, 411, correlation=3, stream=SIDE),
        kernel(18, 40, correlation=5, stream=COMPUTE),
        kernel(112, 150, correlation=7, stream=COMPUTE),
        kernel(413, 450, correlation=9, stream=COMPUTE),
    ]
    run = timeline(trace(*kernels, calls=calls))
    duration = run.columns["operation_duration"].copy()
    second = int(np.flatnonzero(run.operations["correlation"].to_numpy() == 3)[0])
    duration[second] -= 200_000
    shorter = play(run.with_columns(operation_duration=duration))
    assert play(run).makespan_ns - shorter.makespan_ns == 200_000
    first = int(np.flatnonzero(run.operations["correlation"].to_numpy() == 7)[0])
    assert shorter.operation_start[first] == play(run).operation_start[first]


def test_threads_that_only_ask_keep_no_run_from_ending() -> None:
    asks = [call(at, at + 1, "cudaEventQuery", thread=9) for at in (50.0, 900.0)]
    recorded = trace(kernel(10, 500, correlation=1), calls=[launched(0, 1), *asks])
    run = timeline(recorded)
    assert run.recorded_ns == 500_000 and play(run).makespan_ns == 500_000
    assert omitted(run)["replay-pollers"] == 2
    works = trace(
        kernel(10, 500, correlation=1), calls=[launched(0, 1), *asks, call(950, 960, "cudaMalloc", thread=9)]
    )
    assert timeline(works).recorded_ns == 960_000
    assert "replay-pollers" not in omitted(works)


@pytest.mark.parametrize("waits_for", ["device", "stream"])
@pytest.mark.parametrize("first_waited", [0, 1])
def test_a_wait_is_for_the_gpu_of_its_context(waits_for: str, first_waited: int) -> None:
    """A thread gives GPU 0 work of 300 µs and GPU 1 of 200, in streams of one number, and waits for each GPU, five times."""
    calls, kernels = [], []
    for step in range(5):
        at = 400.0 * step
        for gpu, end in ((0, 300), (1, 200)):
            place = {"device": gpu, "context": gpu + 1, "correlation": 2 * step + gpu}
            kernels.append(kernel(at + 10, at + end, f"g{gpu}", **place))
            calls.append(launched(at + 2 * gpu, place["correlation"]))
        first_end, last_end = ((302, 304), (202, 302))[first_waited]
        for gpu, begin, end in ((first_waited, 5, first_end), (1 - first_waited, first_end, last_end)):
            named: dict[str, Any] = {"context": gpu + 1, "stream": COMPUTE if waits_for == "stream" else None}
            calls.append(call(at + begin, at + end, "cudaSynchronize", waits_for, **named))
    run = timeline(trace(*kernels, calls=calls))
    duration = run.columns["operation_duration"].copy()
    duration[run.operations["name"].cast(str).to_numpy() == "g0"] //= 10
    faster = play(run.with_columns(operation_duration=duration))
    assert play(run).makespan_ns - faster.makespan_ns == pytest.approx(5 * 100_000, rel=0.05)


HERE = Setting(load_node("pcie:3x16"))
MIB = 1 << 20


def migration(start: float, end: float, size: int = MIB, direction: str = "h2d") -> dict[str, Any]:
    """A move of managed memory as profilers write it: of stream 0, launched by nobody."""
    return copy(start, end, size, direction, "managed", stream=0, context=1) | {"kind": "migration"}


def share(recorded: Trace, part: str) -> float:
    """How much of the critical path is of this part."""
    return next((p.share for p in critical_path_shares(timeline(recorded)) if p.part == part), 0.0)


def makespan_after(taken_apart: Timeline, row: int, to_us: float) -> float:
    """The makespan in µs when operation `row` of the trace takes `to_us`."""
    duration = taken_apart.columns["operation_duration"].copy()
    duration[taken_apart.operations["row"].to_list().index(row)] = round(to_us * 1000)
    return play(with_durations(taken_apart, duration)).makespan_ns / 1000


def faulting(moves: int = 40) -> Trace:
    """A kernel of 9 ms that faults all the time, a wait for it, and pages that come back once the host reads them."""
    into = [migration(100 + 200.0 * n, 250 + 200.0 * n) for n in range(moves)]
    back = [migration(9_100 + 50.0 * n, 9_140 + 50.0 * n, direction="d2h") for n in range(8)]
    waits = [call(6, 9_030, "cudaDeviceSynchronize", "device"), call(9_600, 9_605, "cudaFree", "device")]
    return run(made(kernel(10, 9_010, context=1), 0, 5), *into, *back, *waits)


def test_what_outlasts_a_wait_leaves_the_rest_of_it() -> None:
    """Another thread gave stream 14 more to do while the first waited for the device."""
    recorded = run(
        made(kernel(10, 1_010, stream=13, context=1), 0, 3),
        made(kernel(20, 420, stream=14, context=1), 4, 7),
        made(kernel(425, 3_000, stream=14, context=1), 8, 11),
        call(12, 1_020, "cudaDeviceSynchronize", "device"),
        call(1_030, 3_010, "cudaDeviceSynchronize", "device"),
    )
    taken_apart = timeline(recorded)
    assert play(taken_apart).makespan_ns == 3_010_000
    notes, halved = omitted(taken_apart), taken_apart.columns["operation_duration"] // 2
    assert notes["replay-narrowed"] == 1 and "replay-contradictions" not in notes
    ends = play(with_durations(taken_apart, halved)).call_end
    assert ends[3] < 600_000 and ends[4] < 1_800_000  # both waits still wait


def test_a_later_wait_is_for_what_outlasted_an_earlier_wait_though_its_stream_has_gone_on() -> None:
    """By the times, what came behind it in its stream did not wait for it: the newest work there does not stand for it."""
    taken_apart = timeline(
        trace(
            kernel(4.5, 94.5, stream=13, correlation=4),
            kernel(68.5, 68.5, stream=13),
            calls=[
                call(2.5, 2.5, "cudaLaunchKernel", correlation=4),
                call(3, 3, "cudaDeviceSynchronize", "device"),
                call(4.5, 93.5, "cudaDeviceSynchronize", "device"),
                call(128.5, 128.5, "cudaLaunchKernel"),
            ],
        )
    )
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns == 126_000
    assert omitted(taken_apart)["replay-narrowed"] == 1


@pytest.mark.parametrize(("launching_us", "waits"), [(40, True), (8, False)])
def test_clocks_may_differ_by_as_much_as_the_quickest_launch(launching_us: float, waits: bool) -> None:
    """Each kernel ends 30 µs after the wait for it returned; a GPU's clock that far ahead shows in every launch."""
    times = range(0, 10_000, 500)
    kernels = [made(kernel(at + launching_us, at + 330, context=1), at, at + 4) for at in times]
    taken_apart = timeline(
        run(*kernels, *[call(at + 5, at + 300, "cudaDeviceSynchronize", "device") for at in times])
    )
    kept = taken_apart.columns["call_wait"][taken_apart.calls["waits_for"].cast(str).to_numpy() == "device"]
    # Without the last kernel each wait still has those before it, which ended long before.
    assert (kept != WAIT["none"]).all() == waits
    assert ("replay-contradictions" in omitted(taken_apart)) != waits


def test_an_event_of_the_null_stream_stands_for_work_of_blocking_streams() -> None:
    """Timing as in tutorials: the null stream runs nothing itself, and its events wait for every blocking stream."""
    recorded = run(
        made(kernel(10, 1_010, stream=13, context=1), 0, 3),
        made(kernel(20, 2_020, stream=14, context=1), 4, 7),
        call(8, 9, "cudaEventRecord", correlation=30),
        call(10, 2_030, "cudaEventSynchronize", "event", event=3),
        events=[event("record", 8, 7, 30)],
        streams=streams({7: "null", 13: "blocking", 14: "blocking"}),
    )
    assert share(recorded, "kernels") > 0.95
    assert makespan_after(timeline(recorded), 1, 100) == pytest.approx(1_020, abs=25)


def test_work_queued_before_the_trace_began_comes_before_what_was_issued_later() -> None:
    """Ten kernels without a call run first, though the calls of the next ten were already made."""
    queued = [kernel(100.0 * n, 100.0 * n + 99, stream=7, context=1) for n in range(1, 11)]
    later = [made(kernel(100.0 * n, 100.0 * n + 99, context=1), 5.0 * n, 5.0 * n + 3) for n in range(11, 21)]
    recorded = run(*queued, *later, call(110, 2_105, "cudaDeviceSynchronize", "device"))
    taken_apart = timeline(recorded)
    assert "replay-contradictions" not in omitted(taken_apart)
    assert share(recorded, "kernels") > 0.9
    assert makespan_after(taken_apart, 3, 9) == pytest.approx(taken_apart.recorded_ns / 1000 - 90, abs=2)


def test_a_report_says_how_much_of_the_run_nothing_explains() -> None:
    first = made(kernel(10, 110, context=1), 0, 3)
    result = summarise(run(first, made(kernel(900, 1_000, context=1), 5, 8)))
    assert result.unexplained_seconds == pytest.approx(785e-6, rel=0.02)
    line = unexplained(result)
    assert line is not None and "(78 % of the run)" in line
    assert unexplained(summarise(run(first))) is None


def test_moves_of_a_prefetch_are_not_faults() -> None:
    """A prefetch made 200 moves while no kernel ran."""
    moved = [migration(50 + 100.0 * n, 149 + 100.0 * n, 2 * MIB) for n in range(200)]
    recorded = run(
        *moved,
        made(kernel(20_100, 20_700, context=1), 41, 45),
        call(0, 40, "cudaMemPrefetchAsync", correlation=1),
        call(46, 20_710, "cudaDeviceSynchronize", "device"),
    )
    assert prefetch().apply(timeline(recorded), HERE).count == 0


def test_faults_hold_their_kernel_and_prefetching_frees_it() -> None:
    taken_apart = timeline(faulting())
    before = play(taken_apart).makespan_ns

    def after(change: Any) -> float:
        return play(change.apply(taken_apart, HERE).timeline).makespan_ns / 1000

    # 40 MiB in 6 ms of moves and 2 ms between them; in one piece over this link 3.4 ms.
    assert after(prefetch()) == pytest.approx(before / 1000 - 8_000 + 3_400, abs=500)
    assert after(copy_speed(2.0)) == pytest.approx(before / 1000 - 3_000, abs=150)
    assert after(remove("migration")) < after(copy_speed(2.0)) - 3_000


def test_a_wait_for_the_device_is_for_nothing_where_only_pages_moved() -> None:
    recorded = trace(migration(10, 20), calls=[call(0, 30, "cudaDeviceSynchronize", "device")])
    taken_apart = timeline(recorded)
    assert play(taken_apart).makespan_ns == 30_000
    assert omitted(taken_apart)["replay-waits-unknown"] == 1


def test_long_chains_of_moves_are_taken_out_at_once() -> None:
    """Each move follows the one before: a look at every link of the chain for every link would take minutes."""
    count = 60_000
    moved = [migration(20.0 + 10 * n, 28.0 + 10 * n) for n in range(100)]
    recorded = trace(kernel(10, 10.0 * count, context=1, correlation=1), *moved,
                     calls=[call(0, 5, "cudaLaunchKernel", correlation=1)])  # fmt: skip
    repeated = recorded.operations[1:2]
    at = np.arange(count, dtype=np.int64) * 10_000 + 20_000
    long = repeated[[0] * count].with_columns(start_ns=at, end_ns=at + 8_000)
    recorded.operations = recorded.operations[:1].vstack(long)
    taken_apart = timeline(recorded)
    after = remove("migration").apply(taken_apart, HERE)
    assert after.count == count and after.timeline.operations.height == 1


def test_waits_in_a_row_that_return_before_the_work_leave_it_to_the_wait_that_lasted() -> None:
    """The GPU's clock is 4 µs ahead of the host's, as its launches show; the host asks five times, then waits."""
    launched = [
        made(kernel(100.0 * n, 100.0 * n + 1, context=1), 100.0 * n - 4, 100.0 * n - 3) for n in range(1, 9)
    ]
    last = made(kernel(1_000, 1_010, context=1), 995, 996)
    waits = [call(997.0 + n, 997.5 + n, "cudaDeviceSynchronize", "device") for n in range(6)]
    recorded = run(*launched, last, *waits, call(1_010.5, 1_010.5, "cudaDeviceSynchronize", "device"))
    taken_apart = timeline(recorded)
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns


def test_a_blocking_copy_without_its_record_leaves_the_waits_of_namesakes() -> None:
    """Ten kernels of 20 ms, a blocking copy behind each; the record of the sixth was lost: its call keeps its time."""
    rows: list[Any] = []
    for n, at in enumerate(np.arange(10) * 22_000.0):
        called = at + 20, at + 20_035, "cudaMemcpy", "operation"
        copied = call(*called) if n == 5 else made(copy(at + 20_020, at + 20_030, 4096, "d2h"), *called)
        rows += [made(kernel(at + 15, at + 20_015), at, at + 10), copied]
    recorded = timeline(run(*rows))
    quicker = kernel_times(0.5).apply(recorded, HERE).timeline
    assert recorded.recorded_ns - play(quicker).makespan_ns == pytest.approx(9 * 10_000_000, rel=0.02)


def test_removing_pages_that_moved_out_of_order_makes_no_run_longer() -> None:
    """The wait is for the stream: its kernel ended last, though the moves were asked for behind it."""
    moves = [copy(at, at + 5, 4096) | {"kind": "migration", "stream": 0} for at in (30, 40)]
    recorded = run(
        made(kernel(200, 1_000), 0, 5),
        call(8, 10, "cudaMemPrefetchAsync"),
        *moves,
        call(12, 1_010, "cudaStreamSynchronize", "stream"),
        made(kernel(1_020, 1_050), 1_012, 1_015),
    )
    rebuilt = timeline(recorded)
    applied = remove("migration").apply(rebuilt, Setting())
    assert applied.count == 2
    assert play(applied.timeline).makespan_ns <= play(rebuilt).makespan_ns == rebuilt.recorded_ns


def test_waits_for_kernels_without_a_record_keep_their_time_and_are_no_advice() -> None:
    calls = [launched(1000 * n, n) for n in range(40)]
    calls += [call(1000 * n + 2, 1000 * n + 990, "cudaDeviceSynchronize", "device") for n in range(40)]
    kernels = [kernel(1000 * n + 10, 1000 * n + 985, correlation=n) for n in range(40) if n % 4]
    run = trace(*kernels, calls=calls, gpu="NVIDIA H100 80GB HBM3")
    make_sound(run)
    assert omitted(run)["launches-not-recorded"] == 10
    result = summarise(run, load_node("h100-sxm"))
    assert "synchronisations" not in {finding.id for finding in result.findings}
    assert result.unexplained_seconds == pytest.approx(10 * 988e-6, rel=0.05)
    without = without_synchronisations().apply(timeline(run), Setting()).timeline
    assert play(timeline(run)).makespan_seconds - play(without).makespan_seconds < 1e-3
