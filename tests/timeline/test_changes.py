"""Each change on a run small enough to say beforehand what it makes of it; and two programs changed for real."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from busfare.answers.what_if import WhatIf, answer_what_if
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.show.predictions import what_if_document
from busfare.show.terminal import render
from busfare.show.words import text
from busfare.timeline import critical_path_shares, play, timeline
from busfare.timeline.changes import Change, Setting, apply_all
from busfare.timeline.changes.durations import copy_speed, host_times, kernel_times, on_node, prefetch
from busfare.timeline.changes.fewer_copies import batch, collect, dedupe, loop_nanoseconds, remove
from busfare.timeline.changes.overlap import pin, streams, without_synchronisations, without_waiting
from busfare.timeline.changes.pipelines import chunks
from busfare.timeline.edit import COPY_CALL_NS, SCATTERED
from busfare.trace import Trace, read
from tests.traces import EXAMPLES, call, copy, kernel, made, run, trace

MIB = 1 << 20
PCIE3 = load_node("pcie:3x16")
HERE = Setting(PCIE3)


def predicted(recorded: Trace, *changes: Change, setting: Setting = HERE) -> float:
    """The makespan in µs after all of `changes`."""
    return play(apply_all(timeline(recorded), changes, setting).timeline).makespan_ns / 1000


def test_pinning_makes_a_large_copy_as_fast_as_the_link() -> None:
    # 64 MiB in 16 ms from pageable memory; pinned the link takes 5.1 ms.
    large = copy(10, 16_010, 64 * MIB, memory="pageable")
    recorded = run(made(large, 0, 16_015, "cudaMemcpy", "operation"))
    assert 4_900 < predicted(recorded, pin()) < 5_700
    with pytest.raises(InputError, match="`pin` 'no such buffer': this regular expression matches nothing"):
        predicted(recorded, pin("no such buffer"))
    assert predicted(recorded, pin("h2d pageable")) < 5_700


def test_when_a_change_touches_something() -> None:
    small = [made(copy(at + 10, at + 12, 4096), at, at + 8) for at in (20_000, 20_030, 20_060)]
    recorded = run(
        made(copy(10, 16_010, 64 * MIB, memory="pageable"), 0, 16_015, "cudaMemcpy", "operation"),
        *small,
        call(30_000, 30_001, "cudaDeviceSynchronize", "device"),
    )

    def touched(*changes: Change) -> tuple[list[int], list[int]] | None:
        touched_times = apply_all(timeline(recorded), changes, HERE).touched
        return None if touched_times is None else (touched_times.starts.tolist(), touched_times.ends.tolist())

    pinned = touched(pin())
    assert pinned is not None and pinned[1][0] - pinned[0][0] == 16_015_000
    # And what of the host's time between calls goes, where its caches keep what it works with.
    assert [end - start for start, end in zip(*pinned, strict=True)][1:] == [11_000, 11_000]
    assert touched(pin(), without_waiting()) == pinned  # the same copy: once
    # Of copies that are packed, with the host's time between their calls.
    assert touched(batch(64 << 10)) == ([20_000_000, 20_070_000], [20_068_000, 20_072_000])
    together = touched(pin(), batch(64 << 10))
    assert together is not None and together[0][:2] == [0, 20_000_000] and together[1][0] == 16_015_000
    assert touched(host_times(2.0)) is None


def shown_of(result: WhatIf) -> str:
    return " ".join(str(line) for line in render(what_if_document(result), 200))


def test_what_several_changes_touch_counts_once() -> None:
    """Twelve blocking copies: pinned, they can be asynchronous, too; they stay twelve copies."""
    starts = [20_000.0 * number for number in range(12)]
    copies = [
        made(copy(at + 10, at + 16_010, MIB, memory="pageable"), at, at + 16_015, "cudaMemcpy", "operation")
        for at in starts
    ]
    kernels = [made(kernel(at + 16_030, at + 19_000), at + 16_020, at + 16_025) for at in starts]
    recorded = run(*[row for pair in zip(copies, kernels, strict=True) for row in pair])
    changes = [pin(), without_waiting()]
    result, _ = answer_what_if(recorded, changes, HERE, False)
    assert [row.touched for row in result.changes] == [12, 12]
    assert (result.touched, result.bytes) == (12, 12 * MIB)
    assert result.changes[1].gain_seconds == 0
    shown = shown_of(result)
    assert "has an effect only after the changes before it" in shown
    assert "nothing to change" not in shown
    # Without copies of pageable memory nothing is left to add, and kernels count beside copies.
    result, _ = answer_what_if(recorded, [without_waiting(), kernel_times(0.5)], HERE, False)
    assert (result.touched, result.bytes) == (12, 0)
    assert "copy asynchronously: nothing to change" in shown_of(result)
    result, _ = answer_what_if(recorded, [pin(), kernel_times(0.5), remove("h2d")], HERE, False)
    assert (result.touched, result.bytes) == (24, 12 * MIB)


def test_pinning_lets_an_asynchronous_copy_run_while_the_host_goes_on() -> None:
    def recorded(*looks: float) -> Trace:
        return run(
            made(copy(10, 16_010, 64 * MIB, memory="pageable"), 0, 16_000, "cudaMemcpyAsync"),
            *[call(at, at + 1, "cudaGetLastError") for at in looks],
            call(36_000, 36_010, "cudaDeviceSynchronize", "device"),
        )

    # 20 ms of the host's own, which now hide the copy. One stretch so long is work on data of its own; in short ones
    # it had to fetch the 2 MiB of its cache again.
    assert predicted(recorded(), pin()) == pytest.approx(20_010, abs=20)
    fetched = SCATTERED * 2 * MIB / 8e9 * 1e6
    assert predicted(recorded(*range(16_100, 36_000, 100)), pin()) == pytest.approx(20_010 - fetched, abs=20)


def test_a_wait_behind_a_copy_back_holds_once_the_copy_no_longer_does() -> None:
    """PyTorch's `.cpu()`: the staged copy has waited already, and the wait behind it finds nothing; pinned, it waits."""
    back = copy(20_006, 20_106, MIB, "d2h", memory="pageable")
    recorded = run(
        made(kernel(5, 20_005), 0, 4),
        made(back, 6, 20_110, "cudaMemcpyAsync", "operation"),
        call(20_111, 20_113, "cudaStreamSynchronize", "stream"),
        call(25_000, 25_001, "cudaGetLastError"),
    )
    assert predicted(recorded, pin()) == pytest.approx(25_001, abs=40)


def test_a_copy_that_traveled_with_the_commands_holds_the_engine_when_pinned() -> None:
    node = load_node("h200-probed")
    copies = [copy(10 * n, 10 * n + 1, 1024, memory="pageable") for n in range(20)]
    recorded = run(*[made(o, 2 * n - 50, 2 * n - 49, "cudaMemcpyAsync") for n, o in enumerate(copies)])
    changed = pin().apply(timeline(recorded, node), Setting(node)).timeline
    alone = node.curve("h2d", "pinned")
    cycle = float(alone.seconds(1024.0)) * 1e9
    gaps = changed.columns["operation_order_lag"] + changed.columns["operation_duration"]
    assert (gaps[1:] >= cycle - 2).all()


def test_pinning_without_a_node_says_what_is_missing() -> None:
    recorded = trace(copy(0, 16_000, 64 * MIB, memory="pageable"))
    with pytest.raises(InputError, match="`recorded_on`"):
        predicted(recorded, pin(), setting=Setting(None))


@pytest.mark.parametrize("pytorch", [False, True])
def test_a_copy_that_waits_no_longer_overlaps_the_host(pytorch: bool) -> None:
    """PyTorch's blocking copy is asynchronous, with a wait for its stream right behind it, which goes with it."""
    moved = copy(5, 1005, 4 * MIB)
    wait = call(5, 1010, "cudaStreamSynchronize", "stream", stream=7)
    recorded = run(
        made(moved, 0, 4, "cudaMemcpyAsync") if pytorch else made(moved, 0, 1010, "cudaMemcpy", "operation"),
        *[wait] * pytorch,
        made(kernel(3010, 5010), 3005, 3008),
        call(3009, 5015, "cudaDeviceSynchronize", "device"),
    )
    assert predicted(recorded, without_waiting()) == pytest.approx(5015 - 1005, abs=10)


def test_waits_between_kernels_go_and_those_for_results_stay() -> None:
    kernels = [made(kernel(at + 10, at + 110), at, at + 4) for at in range(0, 800, 200)]
    waits = [call(at + 5, at + 115, "cudaDeviceSynchronize", "device") for at in range(0, 800, 200)]
    recorded = run(*kernels, *waits)
    # Four kernels of 100 µs, no longer 85 µs of host work after each.
    assert predicted(recorded, without_synchronisations()) < 480
    with pytest.raises(InputError, match="matches nothing"):
        predicted(recorded, without_synchronisations("Stream"))
    waits[0] |= {"end_ns": 121_000}
    recorded = run(*kernels, *waits, made(copy(111, 116, 64, "d2h"), 4.2, 4.8, "cudaMemcpyAsync"))
    assert apply_all(timeline(recorded), [without_synchronisations()], HERE).count == 2


def test_small_copies_are_joined() -> None:
    times = range(0, 1000, 10)
    recorded = run(*[made(copy(at + 3, at + 8, 4096), at, at + 9, "cudaMemcpy", "operation") for at in times])
    # 99 calls of 9 µs are gone, the host's µs behind each stays; packing takes 51 µs, the copy 37.
    assert 187 < predicted(recorded, batch(64 * 1024)) < 195
    assert predicted(recorded, batch(4096)) == 999


def test_small_copies_with_a_kernel_between_them_stay_apart() -> None:
    times = range(0, 400, 20)
    copies = [made(copy(at + 3, at + 5, 4096), at, at + 6, "cudaMemcpy", "operation") for at in times]
    recorded = run(*copies, *[made(kernel(at + 12, at + 18), at + 7, at + 10) for at in times])
    assert apply_all(timeline(recorded), [batch(64 * 1024)], HERE).count == 0


def test_small_results_come_back_once() -> None:
    times = range(0, 2600, 130)
    back = [made(copy(n + 110, n + 112, 8, "d2h"), n + 4, n + 120, "cudaMemcpy", "operation") for n in times]
    recorded = run(*[made(kernel(at + 5, at + 105), at, at + 3) for at in times], *back)
    # Twenty kernels of 100 µs behind each other, one copy at the end.
    assert predicted(recorded, collect(64)) == pytest.approx(20 * 101 + 20, rel=0.01)
    assert predicted(recorded, collect(8)) == predicted(recorded) == 2590
    # A copy of 2 µs and two turns between units of 3.5 µs to each kernel.
    assert predicted(recorded, without_waiting("d2h")) == pytest.approx(20 * 109, rel=0.02)
    assert predicted(recorded, without_waiting()) == 2590


def pipeline(chunks_: int = 8, memory: str = "pinned", blocking: bool = True) -> Trace:
    """In 1 ms, kernel 1 ms, out 1 ms, one chunk behind the other in one stream."""
    how = ("cudaMemcpy", "operation") if blocking else ("cudaMemcpyAsync", "none")
    # When the calls of a chunk begin and end.
    spans = [(0, 1007), (1009, 1011), (1012, 3015)] if blocking else [(0, 3), (4, 6), (7, 9)]
    rows: list[Any] = []
    for at in range(chunks_):
        start, called = 3020.0 * at, (3020.0 if blocking else 10.0) * at
        into, launch, out = [(called + begin, called + end) for begin, end in spans]
        rows += [
            made(copy(start + 5, start + 1005, 12 * MIB, memory=memory), *into, *how),
            made(kernel(start + 1012, start + 2012), *launch),
            made(copy(start + 2013, start + 3013, 12 * MIB, "d2h", memory=memory), *out, *how),
        ]
    if not blocking:
        rows.append(call(10.0 * chunks_, 3020.0 * chunks_, "cudaDeviceSynchronize", "device"))
    return run(*rows)


def test_chunks_are_copies_in_kernels_and_copies_out() -> None:
    taken_apart = timeline(pipeline(3))
    assert chunks(taken_apart).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with pytest.raises(InputError, match="`kernel` 'no such kernel'"):
        chunks(taken_apart, "no such kernel")


@pytest.mark.parametrize("blocking", [True, False])
def test_three_streams_overlap_copies_in_kernels_and_copies_out(blocking: bool) -> None:
    recorded = pipeline(8, blocking=blocking)
    # Eight steps of 1 ms and the two that fill and drain the pipeline.
    assert predicted(recorded, streams(3)) == pytest.approx(10_000, rel=0.03)
    # With two buffers a chunk waits until the one before the last is out.
    assert 10_000 < predicted(recorded, streams(2)) < 16_500
    assert predicted(recorded, streams(1)) == predicted(recorded)


def test_without_calls_nobody_knows_what_streams_would_wait_for() -> None:
    into = [copy(at, at + 400, 8 * MIB) for at in range(0, 4000, 1000)]
    kernels = [kernel(at + 410, at + 900) for at in range(0, 4000, 1000)]
    back = [copy(at + 910, at + 950, MIB, "d2h") for at in range(0, 4000, 1000)]
    outcome = apply_all(timeline(run(*into, *kernels, *back)), [streams(3)], HERE)
    assert outcome.count == 0 and play(outcome.timeline).makespan_ns == 3_950_000


def test_pageable_copies_do_not_overlap_by_streams_alone() -> None:
    assert predicted(pipeline(8, memory="pageable"), streams(3)) > 16_000


def test_buffers_sent_again_are_sent_once() -> None:
    times = range(0, 500, 100)
    recorded = run(*[made(copy(n + 5, n + 55, MIB), n, n + 60, "cudaMemcpy", "operation") for n in times])
    with pytest.raises(InputError, match="--fingerprint"):
        predicted(recorded, dedupe())
    recorded.operations = recorded.operations.with_columns(
        fingerprint=pl.Series([1, 1, 2, 1, 1], dtype=pl.UInt64),
        source_address=pl.Series([64, 64, 128, 64, 64], dtype=pl.UInt64),
        destination_address=pl.lit(4096, pl.UInt64),
    )
    # The second and the fifth stand there already; the fourth, too, was sent before: it stays somewhere else.
    applied = dedupe().apply(timeline(recorded), HERE)
    assert applied.count == 3 and applied.bytes == 3 * MIB
    assert any("room for 1.05 MB" in text(condition) for condition in applied.rests_on)
    assert play(applied.timeline).makespan_ns / 1e3 == 460 - 3 * 60


def test_what_is_removed_takes_its_calls_along() -> None:
    recorded = pipeline(4)
    assert predicted(recorded, remove("d2h")) == pytest.approx(predicted(recorded) - 4 * 1001, rel=0.02)
    assert predicted(recorded, remove("h2d"), remove("d2h"), remove("p2p")) < 4_200


def test_copies_twice_as_fast_take_half_their_time() -> None:
    recorded = pipeline(4)
    assert predicted(recorded, copy_speed(2)) == pytest.approx(predicted(recorded) - 4 * 1000, rel=0.001)


def test_kernels_by_rule_and_another_node() -> None:
    recorded = pipeline(4)
    assert predicted(recorded, kernel_times(0.5)) == pytest.approx(predicted(recorded) - 4 * 500, rel=0.001)
    with pytest.raises(InputError, match="`kernels` 'other'"):
        predicted(recorded, kernel_times(0.5, "other"))
    faster = predicted(recorded, on_node(load_node("pcie:4x16")))
    assert faster == pytest.approx(predicted(recorded) - 4 * 1000, rel=0.06)


def test_prefetched_pages_come_before_their_kernel_and_stall_it_no_longer() -> None:
    times = [100 + 400.0 * at for at in range(16)]
    pages = [copy(n, n + 200, 2 * MIB, memory="managed", stream=None) | {"kind": "migration"} for n in times]
    recorded = run(
        made(kernel(50, 7050), 40, 45),
        *pages,
        made(kernel(7060, 7260), 46, 49),
        call(49.5, 7265, "cudaDeviceSynchronize", "device"),
    )
    # Two runs of 200 µs, as the quiet one shows, and 32 MiB over the link.
    link = 32 * MIB / 12.3e9 * 1e6
    assert predicted(recorded, prefetch()) == pytest.approx(40 + 400 + link, rel=0.1)


def test_changes_add_up_and_the_first_run_stays() -> None:
    recorded = pipeline(8, memory="pageable")
    taken_apart = timeline(recorded)
    before = {name: values.copy() for name, values in taken_apart.columns.items()}
    together = apply_all(taken_apart, [pin(), streams(3)], HERE)
    apart = predicted(recorded, pin()), predicted(recorded, streams(3))
    assert play(together.timeline).makespan_ns / 1000 < min(apart)
    assert all(np.array_equal(taken_apart.columns[name], values) for name, values in before.items())


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_a_program_rewritten_for_streams_ran_as_foretold(gpu: str) -> None:
    """Recorded on the GPU before and after: pinned buffers and three streams in place of one."""
    node = load_node(f"{gpu}-probed")
    before = timeline(read(EXAMPLES / f"smooth-out-of-core-{gpu}.json.gz"), node)
    after = read(EXAMPLES / f"smooth-out-of-core-streams-{gpu}.json.gz")
    done = apply_all(before, [pin(), streams(3)], Setting(node))
    speedup = play(before).makespan_ns / play(done.timeline).makespan_ns
    measured = before.recorded_ns / timeline(after).recorded_ns
    assert speedup == pytest.approx(measured, rel=0.1)


def test_a_training_program_with_pinned_buffers_ran_as_foretold() -> None:
    before = timeline(read(EXAMPLES / "train-images-h100.json.gz"))
    after = timeline(read(EXAMPLES / "train-images-pinned-h100.json.gz"))
    done = apply_all(before, [pin(), without_waiting()], Setting(load_node("h100-probed")))
    speedup = play(before).makespan_ns / play(done.timeline).makespan_ns
    assert speedup == pytest.approx(before.recorded_ns / after.recorded_ns, rel=0.1)


def small_copies(lag: float, direction: str = "h2d") -> Trace:
    """Blocking copies of 32 KiB from pageable memory, 2 µs each, that begin `lag` µs after their call.

    To the GPU the call returns 3 µs before the end, as they do; back it returns 5 µs after it.
    """
    end = lag + 2 + (-3 if direction == "h2d" else 5)
    times = range(0, 2000, 50)
    copies = [copy(at + lag, at + lag + 2, 32 << 10, direction, memory="pageable") for at in times]
    calls = [(at, at + end, "cudaMemcpy", "operation") for at in times]
    return run(*[made(operation, *how) for operation, how in zip(copies, calls, strict=True)])


def test_a_blocking_copy_of_pinned_memory_returns_after_its_end() -> None:
    # 5 µs to the copy and 2 for it; then the host wakes up 3.3 µs later, as it does behind other copies.
    for direction in ("h2d", "d2h"):
        pinned = pin().apply(timeline(small_copies(5, direction)), HERE).timeline
        played = play(pinned)
        assert (played.call_end - played.operation_end == 3300).all()


def test_an_asynchronous_copy_of_pinned_memory_begins_behind_its_call_and_is_waited_for() -> None:
    """As PyTorch copies a value back: the call returns with the copy done, and the synchronisation behind has no wait."""
    times = range(0, 2400, 60)
    copies = [copy(at + 9, at + 10, 512, "d2h", memory="pageable") for at in times]
    copying = [made(o, at, at + 14, "cudaMemcpyAsync") for at, o in zip(times, copies, strict=True)]
    recorded = run(*copying, *[call(at + 15, at + 16, "cudaStreamSynchronize", "stream") for at in times])
    pinned = pin().apply(timeline(recorded), HERE).timeline
    played = play(pinned)
    # Submitted in what probes say, for the trace has no launch; and 2 µs on the way.
    assert (played.operation_start - played.call_start[::2] == COPY_CALL_NS + 2000).all()
    assert (played.call_end[1::2] - played.operation_end == 3300).all()


def test_packed_copies_keep_the_loop_that_makes_them() -> None:
    # 20 copies, 50 µs of the host between two, 7 of them in a call of its own; then a kernel.
    times = range(0, 1000, 50)
    recorded = run(
        *[made(copy(at + 2, at + 4, 4096), at, at + 4, "cudaMemcpyAsync") for at in times],
        *[call(at + 20, at + 27, "cudaGetLastError", correlation=100 + at) for at in times],
        made(kernel(1030, 1130), 1020, 1025),
    )
    # 19 × 39 µs of the loop outside of calls; 19 calls of 4 µs go.
    assert loop_nanoseconds(timeline(recorded), 64 * 1024) == 19 * 39_000
    packed = predicted(recorded, batch(64 * 1024))
    assert predicted(recorded) - 19 * 4 <= packed < predicted(recorded)


def test_communication_is_a_separate_part_of_the_critical_path() -> None:
    recorded = run(made(kernel(10, 30), 0, 5), made(kernel(35, 95, "ncclDevKernel_SendRecv()"), 6, 9))
    parts = {row.part: row.seconds for row in critical_path_shares(timeline(recorded))}
    assert parts["kernels"] == pytest.approx(20e-6)
    assert parts["communication"] == pytest.approx(60e-6)
