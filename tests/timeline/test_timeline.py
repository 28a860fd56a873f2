"""What waits for what, on traces worked out by hand: shorten one thing, and see what moves."""

from pathlib import Path
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.timeline import UNEXPLAINED, critical_path_shares, part_seconds, play, timeline
from busfare.timeline.model import LONGEST_NS
from busfare.trace import Trace, read
from tests.traces import EXAMPLES, call, copy, event, kernel, made, omitted, run, streams, trace
from validation.stored import unpacked


def after_shortening(recorded: Trace, row: int, to_us: float) -> dict[str, Any]:
    """Start and end of every operation, and the makespan, in µs, when operation `row` of the trace takes `to_us`."""
    taken_apart = timeline(recorded)
    unchanged = play(taken_apart)
    assert unchanged.makespan_ns == taken_apart.recorded_ns
    order = taken_apart.operations["row"].to_list()
    duration = taken_apart.columns["operation_duration"].copy()
    duration[order.index(row)] = round(to_us * 1000)
    played = play(taken_apart.with_columns(operation_duration=duration))
    starts = {r: played.operation_start[at] / 1000 for at, r in enumerate(order)}
    return {"starts": starts, "makespan": played.makespan_ns / 1000}


def launched(*work: tuple[float, float, int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Kernels of (start, end, stream), each launched 5 µs apart from time 0 on."""
    operations = [
        kernel(start, end, stream=stream, context=1, correlation=at)
        for at, (start, end, stream) in enumerate(work)
    ]
    calls = [call(5 * at, 5 * at + 3, "cudaLaunchKernel", correlation=at) for at in range(len(work))]
    return operations, calls


@pytest.mark.parametrize(("stream", "starts", "makespan"), [(13, 61, 161), (14, 111, 211)])
def test_a_stream_keeps_its_order_and_waits_for_no_second(stream: int, starts: int, makespan: int) -> None:
    operations, calls = launched((10, 110, 13), (111, 211, stream))
    if stream != 13:
        calls[1] |= {"start_ns": 108_000, "end_ns": 110_000}
    played = after_shortening(trace(*operations, calls=calls), 0, 50)
    assert (played["starts"][1], played["makespan"]) == (starts, makespan)


def test_a_launch_is_not_earlier_than_its_call() -> None:
    operations, calls = launched((10, 30, 7), (31, 51, 7))
    calls[1] |= {"start_ns": 20_000, "end_ns": 23_000}
    played = after_shortening(trace(*operations, calls=calls), 0, 1)
    assert 20 < played["starts"][1] <= 31


@pytest.mark.parametrize(("second", "waits"), [("blocking", True), ("non-blocking", False)])
def test_the_default_stream_stands_between_blocking_streams(second: str, waits: bool) -> None:
    # The last two run side by side: one kernel at a time is not what keeps the second waiting. Nor does it begin as the
    # first ends where nothing says that it waits for that.
    late = 0 if waits else 30
    operations, calls = launched((10, 110, 7), (111 + late, 211 + late, 13), (300, 400, 14), (310, 390, 15))
    for row, at in ((2, 290), (3, 300)):
        calls[row] |= {"start_ns": at * 1000, "end_ns": (at + 3) * 1000}
    kinds = streams({7: "null", 13: second, 14: "non-blocking", 15: "non-blocking"})
    played = after_shortening(trace(*operations, calls=calls, streams=kinds), 0, 50)
    assert played["starts"][1] == (61 if waits else 141)


def test_the_default_stream_waits_for_blocking_streams() -> None:
    operations, calls = launched((10, 110, 13), (12, 52, 14), (111, 211, 7))
    kinds = streams({7: "null", 13: "blocking", 14: "blocking"})
    played = after_shortening(trace(*operations, calls=calls, streams=kinds), 0, 20)
    assert played["starts"][2] == 53  # now behind stream 14


@pytest.mark.parametrize("named_by", ["last record", "correlation", "sync number"])
def test_a_stream_waits_for_an_event_of_another(named_by: str) -> None:
    operations, calls = launched((10, 110, 13), (111, 211, 14))
    calls[1] |= {"start_ns": 9_000, "end_ns": 9_500}
    calls += [
        call(4, 4.5, "cudaEventRecord", correlation=100),
        call(7, 7.5, "cudaStreamWaitEvent", correlation=101),
    ]
    more = {"correlation": {"record_correlation": 100}, "sync number": {"event_sync": 9}}.get(named_by, {})
    events = [
        event("record", 4, 13, 100, **({"event_sync": 9} if named_by == "sync number" else {})),
        event("wait", 7, 14, 101, **more),
    ]
    played = after_shortening(trace(*operations, calls=calls, events=events), 0, 50)
    assert played["starts"][1] == 61


def test_an_event_recorded_behind_a_wait_passes_it_on() -> None:
    """Stream 14 records an event right after it was told to wait: who waits for that event waits for stream 13."""
    operations, calls = launched((10, 110, 13), (111, 211, 15))
    calls[1] |= {"start_ns": 9_000, "end_ns": 9_200}
    names = ("cudaEventRecord", "cudaStreamWaitEvent") * 2
    calls += [call(4 + at, 4.5 + at, name, correlation=100 + at) for at, name in enumerate(names)]
    operations.append(kernel(1, 2, stream=14, context=1, correlation=99))
    calls.append(call(0.2, 0.4, "cudaLaunchKernel", correlation=99))
    events = [
        event("record", 4, 13, 100), event("wait", 5, 14, 101, record_correlation=100),
        event("record", 6, 14, 102, event=4), event("wait", 7, 15, 103, event=4, record_correlation=102),
    ]  # fmt: skip
    played = after_shortening(trace(*operations, calls=calls, events=events), 1, 50)
    assert played["starts"][2] == 61


@pytest.mark.parametrize(
    ("name", "waits_for", "more"),
    [
        ("cudaDeviceSynchronize", "device", {}),
        ("cudaStreamSynchronize", "stream", {"stream": 7}),
        ("cudaStreamSynchronize", "stream", {}),
    ],
)
def test_the_host_waits_until_the_gpu_is_done(name: str, waits_for: str, more: dict[str, int]) -> None:
    operations, calls = launched((10, 110, 7), (130, 230, 7))
    calls[1] |= {"start_ns": 120_000, "end_ns": 123_000}
    calls.append(call(4, 113, name, waits_for, **more))
    played = after_shortening(trace(*operations, calls=calls), 0, 50)
    assert played["starts"][1] == 80
    assert played["makespan"] == 180


def test_a_wait_for_a_stream_is_none_for_another() -> None:
    operations, calls = launched((10, 110, 13), (12, 40, 14))
    calls.append(call(9, 43, "cudaStreamSynchronize", "stream", stream=14))
    calls.append(call(50, 51, "cudaGetLastError"))
    played = after_shortening(trace(*operations, calls=calls), 1, 8)
    assert played["starts"][0] == 10
    assert played["makespan"] == 110


@pytest.mark.parametrize(
    ("name", "waits_for", "memory", "returns"),
    [
        ("cudaMemcpy", "operation", "pinned", 113),
        # Staged by the host, and back a little before the copy's end: what is left is on its way from the staging buffer.
        ("cudaMemcpyAsync", "none", "pageable", 105),
    ],
)
def test_a_copy_that_blocks_or_is_staged_holds_the_host_up(
    name: str, waits_for: str, memory: str, returns: float
) -> None:
    moved = made(copy(10, 110, 1 << 20, memory=memory), 0, returns, name, waits_for)
    recorded = run(moved, made(kernel(130, 230), 120, 123))
    assert after_shortening(recorded, 0, 50)["starts"][1] == 80


def test_driver_calls_inside_runtime_calls_count_once() -> None:
    operations, calls = launched((10, 110, 7), (111, 211, 7))
    calls.append(call(1, 2, "cuLaunchKernel", correlation=0))
    taken_apart = timeline(trace(*operations, calls=calls))
    assert taken_apart.calls.height == 2
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns


@pytest.mark.parametrize(("at", "starts"), [(1510, 1020), (510, 520)])
def test_alternating_threads_hand_work_over_and_concurrent_threads_do_not(at: float, starts: float) -> None:
    """As PyTorch's backward pass does: shorten the first thread's wait, and the second starts earlier; but not one that
    worked meanwhile.
    """
    work, launch = made(kernel(at + 10, at + 110, stream=14), at, at + 4)
    recorded = run(
        made(kernel(10, 1010, stream=13), 0, 4),
        call(5, 1013, "cudaStreamSynchronize", "stream", stream=13),
        (work, launch | {"thread": 2}),
    )
    assert after_shortening(recorded, 0, 500)["starts"][1] == starts


def test_copies_of_a_direction_share_an_engine_and_of_two_do_not() -> None:
    recorded = run(
        made(copy(10, 110, 1 << 20, stream=13), 0, 2, "cudaMemcpyAsync"),
        made(copy(111, 211, 1 << 20, stream=14), 3, 5, "cudaMemcpyAsync"),
        made(copy(20, 120, 1 << 20, "d2h", stream=15), 6, 8, "cudaMemcpyAsync"),
    )
    played = after_shortening(recorded, 0, 50)
    assert played["starts"] == {0: 10, 1: 20, 2: 61}  # the copy back is the second to start


def test_a_launch_that_waited_for_room_in_the_queue_waits_less_when_kernels_are_quicker() -> None:
    length, rows, end = 100.0, list[Any](), 0.0
    for at in range(1500):
        start = 5.0 * at if at < 1000 else end + 1
        # From the thousandth on, each launch waits until the kernel a thousand before it has ended.
        end = start + 3 if at < 1000 else max(start + 3, 10 + length * (at - 1000) + length + 1)
        rows.append(made(kernel(10 + length * at, 10 + length * at + length - 1), start, end))
    recorded = timeline(run(*rows))
    assert play(recorded).makespan_ns == recorded.recorded_ns
    quicker = recorded.with_columns(operation_duration=recorded.columns["operation_duration"] // 10)
    assert play(quicker).call_end[-1] < 0.3 * end * 1000


def test_a_graph_launch_keeps_the_order_that_was_observed() -> None:
    operations = [
        kernel(10, 110, correlation=1, stream=7, graph_node=1),
        kernel(111, 211, correlation=1, stream=8, graph_node=2),
    ]
    recorded = trace(*operations, calls=[call(0, 5, "cudaGraphLaunch", correlation=1)])
    assert after_shortening(recorded, 0, 50)["starts"][1] == 61
    assert "replay-graphs" in omitted(timeline(recorded))


def test_without_calls_the_observed_order_stays() -> None:
    recorded = trace(kernel(0, 100, stream=13), kernel(101, 201, stream=14))
    assert after_shortening(recorded, 0, 50)["starts"][1] == 51
    assert [o.count for o in timeline(recorded).omissions if o.id == "replay-launches"] == [2]


def test_what_the_recording_contradicts_is_left_out_and_counted() -> None:
    operations, calls = launched((10, 110, 7), (50, 150, 7))
    recorded = trace(*operations, calls=calls)
    taken_apart = timeline(recorded)
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns
    assert "replay-contradictions" in omitted(taken_apart)


def test_a_wait_that_nothing_explains_is_kept_and_called_unexplained() -> None:
    operations, calls = launched((10, 110, 7), (400, 500, 7))
    taken_apart = timeline(trace(*operations, calls=calls))
    extra = int(taken_apart.columns["operation_extra"].sum()) * 1e-9
    unexplained = part_seconds(critical_path_shares(taken_apart), UNEXPLAINED)
    assert 250e-6 < extra == pytest.approx(unexplained)


def test_the_critical_path_names_what_the_run_waited_for() -> None:
    recorded = run(
        made(copy(10, 1010, 1 << 20), 0, 4, "cudaMemcpyAsync"),
        made(kernel(1015, 1115), 5, 8),
        call(9, 1120, "cudaDeviceSynchronize", "device"),
    )
    parts = {part.part: part.seconds for part in critical_path_shares(timeline(recorded))}
    assert parts["copies"] == pytest.approx(1e-3) and parts["kernels"] == pytest.approx(100e-6)
    assert sum(parts.values()) == pytest.approx(1120e-6)


@pytest.mark.parametrize(("end", "part"), [(1900, "CPU wake-up"), (21000, "CPU time in API calls")])
def test_a_call_that_works_on_after_its_wait_is_not_waking_up(end: int, part: str) -> None:
    recorded = run(made(kernel(10, 1010), 0, 5), call(20, end, "hipFree", "device"))
    parts = {row.part: row.seconds for row in critical_path_shares(timeline(recorded))}
    assert parts[part] >= (end - 1010) * 1e-6
    assert part == "CPU wake-up" or "CPU wake-up" not in parts


def test_a_trace_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to replay"):
        timeline(trace())


def test_times_of_a_broken_clock_replay_too() -> None:
    far = 2.0**61 / 1000
    unused = call(-0.001, 0, "cudaLaunchKernel", correlation=7)
    taken_apart = timeline(trace(kernel(0, 0), kernel(0, far), kernel(far, far), calls=[unused]))
    assert play(taken_apart).makespan_ns == taken_apart.recorded_ns == LONGEST_NS
    assert omitted(taken_apart)["replay-late"] == 2


def test_host_functions_in_streams_are_named_as_what_the_trace_does_not_tell() -> None:
    """JAX's waits of one thread for another, between calls, recorded on an H200; programs without have none of it."""
    folder = unpacked("unseen/h200-2026-11-22-2137")
    for name, functions in (("jax_regression", 360), ("graph_inference", 0)):
        replayed = timeline(read(folder / f"{name}-before.bf"))
        assert omitted(replayed).get("replay-host-functions", 0) == functions


def test_hashing_what_is_copied_is_out_of_the_gap_in_which_another_thread_hands_over() -> None:
    """Recorded with the hashes of what was copied, a run of JAX, whose threads copy by turns, took twice as long."""
    folder = unpacked("unseen/h200-2026-11-22-2137")
    hashed = read(folder / "jax_regression-before-fingerprint.bf")
    without = play(timeline(hashed)).makespan_ns
    hashed.calls = hashed.calls.drop("recorder_ns")
    assert without < 0.7 * play(timeline(hashed)).makespan_ns


def test_a_trace_cut_before_anything_has_times_is_refused_and_says_that_it_was_cut(tmp_path: Path) -> None:
    """The first bytes of a real recording."""
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((EXAMPLES / "train-images-h100.json.gz").read_bytes()[:20000])
    with pytest.raises(InputError, match=r"nothing in this trace has times.*\(.*(cut|end|trunc)"):
        timeline(read(cut))


def test_work_that_came_within_anothers_time_does_not_free_their_engine() -> None:
    inside = [kernel(1.5, 1.5), kernel(2, 2)]
    run = timeline(trace(kernel(0.5, 0.5), kernel(1, 3), *inside, kernel(2.5, 92.5, stream=13)))
    assert play(run).makespan_ns == run.recorded_ns


def test_work_that_a_skewed_clock_tells_of_late_was_there_before_what_began_since() -> None:
    # The first call returns before its own kernel ends, as clocks that are a little off have it.
    early = [kernel(0.5 * n, 0.5 * n) for n in range(1, 7)]
    late = [kernel(0.5 * n, 0.5 * n) for n in range(8, 16)]
    launched = [kernel(8, 8, correlation=7, context=1), copy(3.5, 3.5, None, correlation=8)]
    calls = [
        call(3, 3, "cudaMemcpy", "operation", correlation=7),
        call(3.5, 3.5, "cudaMemcpyAsync", correlation=8),
    ]
    run = timeline(trace(*early, *launched, *late, calls=calls))
    assert play(run).makespan_ns == run.recorded_ns


def test_work_does_not_wait_for_an_engine_that_another_had_for_long_after() -> None:
    copies = [copy(0.5, 90.5, None), copy(2, 2, None, stream=13), copy(6, 6, None, stream=13, correlation=7)]
    calls = [call(0, 10, "cudaMemcpyAsync", correlation=7)]
    run = timeline(trace(kernel(0, 90), *copies, kernel(6.5, 96.5), calls=calls))
    assert play(run).makespan_ns == run.recorded_ns
