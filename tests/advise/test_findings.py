"""Each rule fires on what it is for, keeps quiet otherwise, and never promises more than there is to gain."""

import re
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

import busfare
from busfare.advise import Finding, findings, guess_node, ranged, rebuilt
from busfare.advise.by_replay import priced_by_replay
from busfare.nodes import Node, load_node
from busfare.questions import WhatIf
from busfare.show.words import text
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting, apply_all, changes_of
from busfare.timeline.changes.fewer_copies import keep_on_gpu
from busfare.timeline.edit import nanoseconds_from
from busfare.trace import Trace, read, tables
from tests.traces import EXAMPLES, call, copy, kernel, made, run, trace

MIB = 1 << 20
PCIE3 = load_node("pcie:3x16")


def advice_of(recorded: Trace, rule: str, node: Node = PCIE3) -> Finding | None:
    return next((f for f in findings(recorded, node, rebuilt(recorded, node)) if f.id == rule), None)


def test_large_pageable_copies_are_worth_pinning() -> None:
    # 64 MiB at 4 GB/s; the link gives about 12: two thirds can be saved.
    recorded = trace(copy(0, 16_000, 64 * MIB, memory="pageable"), kernel(16_000, 17_000))
    finding = advice_of(recorded, "pageable-copies")
    assert 0.009 < finding.predicted_gain_seconds < 0.012
    # 64 MiB at 18 to 1.07 GB/s: 4 to 63 ms, which stands with the change where it is a tenth of the gain.
    for gain, place in ((finding.predicted_gain_seconds, "change"), (0.7, "evidence")):
        shown = ranged(replace(finding, predicted_gain_seconds=gain))
        assert "excludes the cost of pinning: 3.73 ms to 62.7 ms for" in text(getattr(shown, place))


def small_copies(memory: str, size: int) -> Trace:
    """A hundred copies into the GPU, 8 µs of the host's time each."""
    copies = [copy(at + 8, at + 11, size, memory=memory) for at in range(0, 2000, 20)]
    return run(*[made(sent, 20 * n, 20 * n + 8, "cudaMemcpyAsync") for n, sent in enumerate(copies)])


@pytest.mark.parametrize(
    ("memory", "size", "pays"),
    [("pageable", 32 * 1024, True), ("pageable", 64, False), ("pinned", 32 * 1024, False)],
)
def test_small_pageable_copies_gain_where_the_host_writes_them(memory: str, size: int, pays: bool) -> None:
    recorded = small_copies(memory, size)
    small, pageable = advice_of(recorded, "small-copies"), advice_of(recorded, "pageable-copies")
    assert ("Pinning them does not help" in text(small.evidence)) is not pays
    assert (pageable is not None) is pays
    if pageable is not None:
        assert text(pageable.title) == "Copies from or to pageable memory"
        assert "100 copies of at most 64 KiB to the GPU" in text(pageable.evidence)
        assert "staged" not in text(pageable.evidence) and "stages" not in text(pageable.evidence)
        assert pageable.by_replay
        # Of 8 µs a call: no more than writing 32 KiB and submitting took.
        assert 0 < pageable.predicted_gain_seconds < 800e-6


def test_small_pageable_copies_and_those_behind_a_kernel_gain_nothing_from_pinning() -> None:
    small = [copy(10 * i, 10 * i + 5, 4096, memory="pageable") for i in range(100)]
    behind = copy(0, 16_000, 64 * MIB, memory="pageable"), kernel(0, 17_000)
    for rows in (small, behind):
        assert advice_of(trace(*rows), "pageable-copies") is None


def test_without_a_node_the_gain_is_bounded_by_the_time_of_the_copies() -> None:
    # Two GPUs copy side by side, each for 16 ms, 4 ms of it behind a kernel.
    copies = [copy(0, 16_000, 64 * MIB, memory="pageable", device=device) for device in (0, 1)]
    recorded = trace(*copies, kernel(12_000, 17_000))
    (finding,) = [f for f in findings(recorded, None) if f.id == "pageable-copies"]
    assert finding.predicted_gain_seconds == pytest.approx(12e-3)
    # In a run of 20 s it is not worth a word.
    assert not findings(trace(*copies, kernel(12_000, 20_000_000)), None)


def test_many_small_copies_are_worth_batching() -> None:
    copies = [copy(10 * i, 10 * i + 5, 64) for i in range(100)]
    finding = advice_of(trace(*copies), "small-copies")
    # 100 × 5 µs become one copy.
    assert 480e-6 < finding.predicted_gain_seconds < 500e-6


@pytest.mark.parametrize(
    ("host_step", "gpu_step", "named"),
    [(4096, 1024, True), (4096, 4096, True), (1024, 1024, False), (0, 1024, False), (-4096, 1024, False)],
)
def test_rows_of_an_array_section_are_worth_a_2d_copy(host_step: int, gpu_step: int, named: bool) -> None:
    copies = [
        copy(10 * n, 10 * n + 5, 1024)
        | {"source_address": (1 << 40) + n * host_step, "destination_address": (1 << 30) + n * gpu_step}
        for n in range(60)
    ]
    finding = advice_of(trace(*copies), "small-copies")
    assert ("cudaMemcpy2DAsync" in text(finding.change)) is named
    assert ("58 copies continue array sections" in text(finding.evidence)) is named
    # The gain stays that of packing: 60 × 5 µs become one copy.
    assert 280e-6 < finding.predicted_gain_seconds < 300e-6


def symbol_copies(size: int, direction: str, name: str) -> Trace:
    copies = [copy(at + 5, at + 7, size, direction) for at in range(0, 1200, 20)]
    return run(*[made(sent, 20 * n, 20 * n + 8, name, "operation") for n, sent in enumerate(copies)])


def test_symbol_copies_in_a_loop_are_counted_by_their_calls() -> None:
    finding = advice_of(symbol_copies(64, "h2d", "cudaMemcpyToSymbol"), "symbol-copies")
    assert finding is not None and not finding.by_replay
    assert text(finding.evidence).startswith("60 copies")
    assert finding.what_if is None
    assert 400e-6 < finding.predicted_gain_seconds <= 60 * 20e-6
    # What is read from symbols is no argument of a kernel.
    assert advice_of(symbol_copies(4, "d2h", "cudaMemcpyFromSymbol"), "symbol-copies") is None


def test_blocking_copies_are_named_with_the_host_time_they_cost() -> None:
    # Between the copy and the kernel the host works for 2 ms, and could while the copy runs.
    moved = made(copy(5, 1005, 4 * MIB), 0, 1010, "cudaMemcpy", "operation")
    finding = advice_of(run(moved, made(kernel(3010, 5010), 3005, 3008)), "synchronous-copies")
    assert "1.01 ms" in text(finding.evidence)
    assert finding.by_replay
    assert finding.predicted_gain_seconds == pytest.approx(1e-3, rel=0.02)
    assert finding.what_if == WhatIf(async_="")


def test_no_more_can_hide_than_there_is_to_hide_behind() -> None:
    # 1 ms of copies one way, and kernels of 0.2 ms: at most 0.2 ms can hide.
    finding = advice_of(trace(copy(0, 1000, 8 * MIB), kernel(1000, 1200)), "exposed-copies")
    assert finding.predicted_gain_seconds == pytest.approx(0.2e-3)
    # Behind a kernel nothing is exposed.
    assert advice_of(trace(copy(0, 100, MIB), kernel(0, 100)), "exposed-copies") is None


def test_page_by_page_migration_is_worth_prefetching() -> None:
    managed = {"source_memory": "managed", "destination_memory": "managed"}
    moved = [
        copy(10 * i, 10 * i + 8, 65536, "h2d" if i % 2 else "d2h", **managed) | {"kind": "migration"}
        for i in range(100)
    ]
    finding = advice_of(trace(*moved), "managed-migrations")
    assert 0 < finding.predicted_gain_seconds < 800e-6
    assert "with 99 changes of direction" in text(finding.evidence)


def test_a_link_at_half_its_rate_is_named_and_a_healthy_link_is_not() -> None:
    # 64 MiB in 11 ms are 6 GB/s where the data sheet makes 12.
    finding = advice_of(trace(copy(0, 11_000, 64 * MIB), kernel(11_000, 12_000)), "slow-link")
    assert finding is not None and "6.1 GB/s" in text(finding.evidence)
    assert advice_of(trace(copy(0, 5_500, 64 * MIB), kernel(5_500, 6_000)), "slow-link") is None


def test_findings_that_save_next_to_nothing_are_left_out() -> None:
    recorded = trace(copy(0, 16, 64 * 1024 + 1, memory="pageable"), kernel(16, 1_000_000))
    assert findings(recorded, PCIE3) == []


def test_pinning_gains_what_it_was_measured_to_gain_on_an_h100() -> None:
    """The bound must not be below what the change saved when it was made and measured (examples/programs)."""
    before = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    after = read(EXAMPLES / "smooth-out-of-core-streams-h100.json.gz")
    spans = [(t.operations["end_ns"].max() - t.operations["start_ns"].min()) / 1e9 for t in (before, after)]  # type: ignore[operator]
    bounds = {f.id: f.predicted_gain_seconds for f in findings(before, load_node("h100-sxm"))}
    # Measured: pinned and three streams together.
    assert spans[0] - spans[1] == pytest.approx(0.135, abs=0.005)
    assert bounds["pageable-copies"] + bounds["exposed-copies"] > spans[0] - spans[1]  # type: ignore[operator]


def loop(rounds: int, **more: Any) -> Trace:
    """A blocking copy, a kernel and a wait, again and again; the copies' own columns in `more`."""
    rows: list[Any] = []
    for at in (1000.0 * number for number in range(rounds)):
        rows += [
            made(copy(at + 5, at + 105, MIB, **more), at, at + 108, "cudaMemcpy", "operation"),
            made(kernel(at + 120, at + 520), at + 110, at + 114),
            call(at + 115, at + 530, "cudaDeviceSynchronize", "device"),
        ]
    return run(*rows)


def test_buffers_that_are_sent_again_unchanged_are_recognised_by_fingerprint() -> None:
    recorded = loop(20)
    assert advice_of(recorded, "repeated-copies") is None
    recorded.operations = recorded.operations.with_columns(
        fingerprint=pl.when(pl.col("kind") == "copy").then(pl.lit(7, pl.UInt64)),
        source_address=pl.lit(64, pl.UInt64),
        destination_address=pl.lit(4096, pl.UInt64),
    )
    finding = advice_of(recorded, "repeated-copies")
    assert finding is not None and finding.by_replay
    assert text(finding.evidence).startswith("19 copies to the GPU")
    # 19 times the call of 108 µs.
    assert finding.predicted_gain_seconds == pytest.approx(19 * 108e-6, rel=0.01)


def test_waits_that_nobody_needs_are_worth_what_the_replay_says() -> None:
    finding = advice_of(loop(20), "synchronisations")
    assert finding is not None and finding.by_replay
    assert 0 < finding.predicted_gain_seconds <= finding.bound_seconds


def results(steps: int, size: int = 4, wait: bool = True) -> Trace:
    """Steps of a kernel of 100 µs and a copy back of 2, which the host waits for; it sends the next 100 µs after that."""
    rows = []
    for at in range(0, 250 * steps, 250):
        rows.append(made(kernel(at + 10, at + 110), at, at + 8, "cudaLaunchKernel"))
        memory, returns, waits_for = ("pageable", 150, "operation") if wait else ("pinned", 14, "none")
        back = copy(at + 110, at + 112, size, "d2h", memory=memory)
        rows.append(made(back, at + 10, at + returns, "cudaMemcpyAsync", waits_for))
    return run(*rows)


def test_results_read_singly_cost_what_the_gpu_waits_for_the_host() -> None:
    finding = advice_of(results(20), "small-results")
    assert finding is not None and finding.by_replay and finding.what_if == WhatIf(collect_below=64 << 10)
    # No more than the calls of 140 µs.
    assert finding.bound_seconds is not None and 0.98 * finding.bound_seconds < 20 * 140e-6
    assert finding.predicted_gain_seconds <= finding.bound_seconds
    # Then the host sends a step each 110 µs, of which the GPU works for 100.
    assert finding.predicted_gain_seconds == pytest.approx(19 * 140e-6, rel=0.05)
    assert "20 copies of less than 64 KiB to the host followed 20 steps of kernels" in text(finding.evidence)
    assert "median 148 µs each" in text(finding.evidence)


def test_results_that_are_large_few_or_not_waited_for_are_let_be() -> None:
    assert advice_of(results(9), "small-results") is None
    assert advice_of(results(20, size=64 * 1024), "small-results") is None
    together = [copy(200 + 5 * at, 202 + 5 * at, 4, "d2h") for at in range(20)]
    assert advice_of(trace(kernel(0, 100), *together), "small-results") is None  # one step's
    # What is saved then is the time of the calls.
    unwaited = advice_of(results(20, wait=False), "small-results")
    assert unwaited is not None and unwaited.predicted_gain_seconds < 19 * 10e-6


def test_gains_are_ranked_by_replay_and_stay_below_their_run() -> None:
    for path in sorted(EXAMPLES.glob("*.json.gz")):
        recorded = read(path)
        node = guess_node(recorded)
        advice = findings(recorded, node, rebuilt(recorded, node))
        more = [f.predicted_gain_seconds - f.first_seconds for f in advice]
        assert more == sorted(more, reverse=True)
        assert all(0 < f.predicted_gain_seconds < 1.0 for f in advice)


def test_a_trace_without_gpu_work_promises_nothing() -> None:
    recorded = run(*[call(100 * n, 100 * n + 90, "cudaDeviceSynchronize", "device") for n in range(40)])
    assert findings(recorded, PCIE3) == []
    assert findings(recorded, PCIE3, rebuilt(recorded, PCIE3)) == []


def test_two_gpus_that_copy_at_once_at_half_rate_gain_half_of_the_run() -> None:
    # 64 MiB in 11 ms to each of two GPUs at once, where the data sheet makes 5.5 ms.
    copies = [copy(0, 11_000, 64 * MIB, device=device) for device in (0, 1)]
    finding = advice_of(trace(*copies, kernel(11_000, 11_100)), "slow-link")
    assert finding.predicted_gain_seconds == pytest.approx(11e-3 - 5.55e-3, rel=0.05)


def test_copies_that_are_most_of_the_run_are_named_without_a_node() -> None:
    copies = [copy(0, 11_000, 64 * MIB, device=device) for device in (0, 1)]
    (finding,) = findings(trace(*copies, kernel(11_000, 11_010)), None)
    assert finding.id == "mostly-copies"
    assert finding.predicted_gain_seconds == pytest.approx(11e-3)
    assert "100 % of the run" in text(finding.evidence)


def test_findings_of_the_same_copies_list_their_overlaps() -> None:
    pageable = copy(0, 16_000, 64 * MIB, memory="pageable")
    small = [copy(20_000 + 30 * at, 20_000 + 30 * at + 20, 64) for at in range(100)]
    advice = {f.id: f.overlaps_with for f in findings(trace(pageable, *small, kernel(16_000, 20_000)), PCIE3)}
    assert set(advice["exposed-copies"]) == {"pageable-copies", "small-copies"}
    # These two share no copy.
    assert advice["pageable-copies"] == advice["small-copies"] == ("exposed-copies",)


def test_streams_gain_nothing_by_copies_within_the_gpu() -> None:
    # A chunk: 1 ms within the GPU, 0.1 ms to the GPU, and a kernel of 0.9 ms.
    rows: list[Any] = []
    for at in (2100.0 * number for number in range(20)):
        rows += [
            made(copy(at + 8, at + 1000, 500_000_000, "d2d"), at, at + 5, "cudaMemcpyAsync"),
            made(copy(at + 1000, at + 1100, 5 * MIB), at + 6, at + 7, "cudaMemcpyAsync"),
            made(kernel(at + 1101, at + 2000), at + 7, at + 9),
            call(at + 10, at + 2005, "cudaDeviceSynchronize", "device"),
        ]
    finding = advice_of(run(*rows), "exposed-copies")
    assert finding is not None and finding.by_replay
    assert finding.predicted_gain_seconds == pytest.approx(2e-3, rel=0.01)


def test_streams_that_need_pinning_first_say_so_and_gain_what_their_command_gains() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    node = load_node("h100-sxm")
    rebuilt_run = rebuilt(recorded, node)
    advice = {f.id: f for f in findings(recorded, node, rebuilt_run)}
    pinned, streamed = advice["pageable-copies"], advice["exposed-copies"]
    assert streamed.what_if == WhatIf(pin="", streams=2)
    assert streamed.first_seconds == pinned.predicted_gain_seconds < streamed.predicted_gain_seconds
    assert "pinning alone saves" in text(streamed.evidence)
    assert streamed.overlaps_with == ("pageable-copies",)
    after = apply_all(rebuilt_run, changes_of(streamed.what_if, None), Setting(node)).timeline
    gain = play(rebuilt_run).makespan_seconds - play(after).makespan_seconds
    assert streamed.predicted_gain_seconds == pytest.approx(gain)


def test_a_gain_is_at_most_what_the_run_gains_without_its_copies() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    node = load_node("h100-sxm")
    before = timeline(recorded, node)
    after = apply_all(before, changes_of(WhatIf(remove=("h2d", "d2h")), None), Setting(node)).timeline
    most = play(before).makespan_seconds - play(after).makespan_seconds
    for finding in findings(recorded, node, before):
        shown = ranged(finding)
        assert 0 < shown.low_seconds < shown.predicted_gain_seconds <= shown.high_seconds <= most * 1.001
        assert shown.bound_seconds is not None and shown.high_seconds <= shown.bound_seconds


def timed_kernels(rounds: int, name: str) -> Trace:
    """Kernels that the program times by events, one after another, and waits for."""
    rows: list[Any] = []
    for at in (1000.0 * number for number in range(rounds)):
        rows += [
            made(kernel(at + 20, at + 820, name), at + 5, at + 10),
            call(at + 15, at + 830, "cudaEventSynchronize", "event"),
            call(at + 840, at + 842, "cudaEventElapsedTime"),
        ]
    return run(*rows)


def test_waits_of_autotuning_are_named_and_not_dropped() -> None:
    tuned = timed_kernels(20, "cudnn::winograd_nonfused")
    assert advice_of(tuned, "synchronisations") is None
    finding = advice_of(tuned, "autotuning")
    assert finding is not None and not finding.by_replay and finding.what_if is None
    assert finding.predicted_gain_seconds == pytest.approx(20 * 815e-6)
    assert "torch.backends.cudnn.benchmark = False" in text(finding.change)
    # A program that times its own kernels is not told to stop.
    assert advice_of(timed_kernels(20, "stencil"), "autotuning") is None


def allocating(rounds: int) -> Trace:
    """Rounds of an allocation of 100 µs, a kernel of 800 µs, and a free that waits for it and then takes 50 µs."""
    rows: list[Any] = []
    for at in (2000.0 * number for number in range(rounds)):
        rows += [
            call(at, at + 100, "cudaMalloc"),
            made(kernel(at + 120, at + 920, "stencil"), at + 105, at + 110),
            call(at + 115, at + 970, "cudaFree", "device"),
        ]
    return run(*rows)


def test_device_memory_that_is_freed_and_allocated_again_comes_from_a_pool() -> None:
    finding = advice_of(allocating(20), "device-allocations")
    assert finding is not None and finding.by_replay and finding.what_if == WhatIf(pool=True)
    assert "38 calls took " in text(finding.evidence)
    # Of 19 rounds: 85 µs of the allocation, 35 of the free, and the host no longer waits for the kernel.
    assert 19 * 100e-6 < finding.predicted_gain_seconds <= finding.bound_seconds
    assert any("wait of cudaFree" in text(words) for words in finding.rests_on)
    # Libraries free once or twice as they start.
    assert advice_of(allocating(5), "device-allocations") is None
    # `cudaFree(0)` on many GPUs creates contexts; ten frees at once, and then allocations, are no loop.
    contexts = [call(100.0 * n, 100.0 * n + 90, "cudaFree", "device") for n in range(12)]
    first = [call(2000 + 100.0 * n, 2090 + 100.0 * n, "cudaMalloc") for n in range(12)]
    later = [call(4000 + 10.0 * n, 4005 + 10.0 * n, "cudaFree", "device") for n in range(12)]
    more = [call(5000 + 100.0 * n, 5090 + 100.0 * n, "cudaMalloc") for n in range(12)]
    last = made(kernel(7000, 7100), 6990, 6995)
    assert advice_of(run(*contexts, *first, last), "device-allocations") is None
    assert advice_of(run(*first, *later, *more, last), "device-allocations") is None


@pytest.mark.parametrize(("longer_us", "shorter_us"), [(100, 100), (600, 461.4)])
def test_a_pool_shortens_copies_by_what_the_node_says_of_frees(longer_us: float, shorter_us: float) -> None:
    # Copies of 200 MiB take longer behind frees: of that, at most 2.2 ps for each byte are due to the frees.
    node = load_node("h200-sxm")
    usual_us = nanoseconds_from("pinned", trace(copy(0, 1, 200 * MIB)).operations, node)[0] / 1000
    rows: list[Any] = []
    for at in (10_000.0 * number for number in range(20)):
        took = usual_us + longer_us * (at > 0)
        rows += [
            call(at, at + 10, "cudaMalloc"),
            made(copy(at + 30, at + 30 + took, 200 * MIB), at + 20, at + 25, "cudaMemcpyAsync"),
            call(at + 40, at + 50 + took, "cudaFree", "device"),
        ]
    recorded, change = run(*rows), changes_of(WhatIf(pool=True), node)
    changed = apply_all(timeline(recorded), change, Setting(node)).timeline
    saved = timeline(recorded).columns["operation_duration"] - changed.columns["operation_duration"]
    assert saved[0] == 0 and saved[1:] == pytest.approx(shorter_us * 1e3, rel=0.01)
    kept = apply_all(timeline(recorded), change, Setting(load_node("h100-sxm"))).timeline
    assert (kept.columns["operation_duration"] == timeline(recorded).columns["operation_duration"]).all()
    finding = advice_of(recorded, "device-allocations", node)
    assert finding is not None and "2.36 ms for each GiB (measured on h200-sxm)" in text(finding.evidence)


def test_a_gain_above_the_time_of_the_copies_says_what_else_it_saves() -> None:
    # Each copy takes 2 µs on the GPU, and 100 of the host.
    times = range(0, 12_000, 200)
    copies = [made(copy(n + 5, n + 7, 64, memory="pageable"), n, n + 100, "cudaMemcpyAsync") for n in times]
    finding = advice_of(run(*copies), "small-copies")
    assert finding is not None and finding.by_replay
    assert finding.predicted_gain_seconds > 10 * 60 * 2e-6
    sentence = r"Copies account for (.*) (.*) of the gain. The other (.*) (.*) is saved on CPU "
    parts = re.search(sentence, text(finding.evidence))
    seconds = [float(parts[at]) * {"µs": 1e-6, "ms": 1e-3}[parts[at + 1]] for at in (1, 3)]
    assert sum(seconds) == pytest.approx(finding.predicted_gain_seconds, rel=0.01)


def test_copies_whose_calls_are_not_in_the_trace_keep_their_bounds() -> None:
    copies = [copy(10.0 * at, 10.0 * at + 5, 64, correlation=9_000 + at) for at in range(100)]
    calls = [call(2000, 2010, "cudaDeviceSynchronize", "device")]
    finding = advice_of(trace(*copies, calls=calls), "small-copies")
    assert finding is not None and not finding.by_replay
    assert finding.predicted_gain_seconds < 500e-6


def test_packing_keeps_the_loop_that_makes_the_copies() -> None:
    # 4 µs of each call, and 46 of the loop between two.
    times = range(0, 10_000, 50)
    copies = [made(copy(at + 2, at + 4, 4096), at, at + 4, "cudaMemcpyAsync") for at in times]
    finding = advice_of(run(*copies), "small-copies")
    assert finding is not None and finding.what_if == WhatIf(batch_below=64 << 10)
    assert finding.predicted_gain_seconds < 0.5 * 199 * 50e-6
    assert "9.15 ms between their calls" in text(finding.evidence)


def integrated(recorded: Trace, flag: bool | None, name: str = "Orin") -> Trace:
    gpu = pl.DataFrame({"device": [0], "name": [name], "integrated": [flag]})
    recorded.devices = tables.conform(gpu, tables.DEVICES)
    return recorded


@pytest.mark.parametrize(
    ("flag", "name", "shared"),
    [
        (True, "a GPU of next year", True),
        (False, "NVIDIA Orin", False),
        (None, "NVIDIA Jetson AGX Thor", True),
        (None, "NVIDIA Thor", True),
        (None, "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_a_gpu_in_the_hosts_memory_is_advised_to_use_it(flag: bool | None, name: str, shared: bool) -> None:
    copies = [copy(0, 16_000, 64 * MIB, memory="pageable"), copy(20_000, 36_000, 64 * MIB)]
    recorded = integrated(trace(*copies, kernel(36_000, 37_000)), flag, name)
    advice = {f.id: f for f in findings(recorded, PCIE3)}
    assert ("one-memory" in advice) is shared
    assert ("pageable-copies" in advice) is not shared
    assert ("slow-link" in advice) is not shared
    if shared:
        assert advice["one-memory"].predicted_gain_seconds == pytest.approx(32e-3)
        assert "mapped memory" in text(advice["one-memory"].change)


def out_and_in(rounds: int, kernel_name: str, free_us: float = 10, **more: Any) -> Trace:
    """64 MiB in, a kernel, the same out, again and again; the host is free for `free_us` between out and in."""
    rows: list[Any] = []
    for at in ((33_021 + free_us) * number for number in range(rounds)):
        into = copy(at + 5, at + 16_005, 64 * MIB, memory="pageable", **more)
        back = copy(at + 17_020, at + 33_020, 64 * MIB, "d2h", "pageable", **more)
        rows += [
            made(into, at, at + 16_006, "cuMemcpyHtoD", "operation"),
            made(kernel(at + 16_010, at + 17_010, kernel_name), at + 16_007, at + 16_009, "cuLaunchKernel"),
            made(back, at + 17_015, at + 33_021, "cuMemcpyDtoH", "operation"),
        ]
    return run(*rows)


OPENMP = "nvkernel_solve_F1L204_2"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (OPENMP, "target data map(tofrom: …)"),
        ("__omp_offloading_10302_2a_main_l17", "target data map(tofrom: …)"),
        ("solve_45_gpu", "acc data copy(…)"),
    ],
)
def test_buffers_that_go_out_and_in_are_kept_on_the_gpu_before_pinning(name: str, words: str) -> None:
    recorded = out_and_in(20, name)
    advice = findings(recorded, PCIE3, rebuilt(recorded, PCIE3))
    assert [f.id for f in advice[:2]] == ["ping-pong", "pageable-copies"]
    keep = advice[0]
    assert words in text(keep.change)
    assert "19 copies to the host (up to 67.1 MB each) returned to the GPU unchanged" in text(keep.evidence)
    # 19 of 20 rounds lose both of their copies.
    assert keep.predicted_gain_seconds == pytest.approx(19 * 32e-3, rel=0.01)
    assert keep.what_if == WhatIf(keep_on_gpu=True)
    assert "sizes and order only" in text(keep.rests_on[0])
    assert "pageable-copies" in keep.overlaps_with


def test_chunks_that_pass_through_are_not_taken_for_buffers_that_come_back() -> None:
    # Sizes and order are the same; without addresses nothing tells a program's chunks from one buffer.
    assert advice_of(out_and_in(20, "smooth"), "ping-pong") is None
    # The host is free for 20 ms between: it may have written 64 MiB anew.
    assert advice_of(out_and_in(20, OPENMP, free_us=20_000), "ping-pong") is None
    unseen = keep_on_gpu().apply(timeline(out_and_in(20, OPENMP, free_us=20_000)), Setting(PCIE3))
    assert unseen.count == 0 and "record --fingerprint" in text(unseen.rests_on[0])
    # A fingerprint tells for certain, whoever was free.
    recorded = out_and_in(20, "smooth", free_us=20_000)
    is_copy = pl.col("kind") == "copy"
    for numbers, returns in ((pl.lit(7), True), (pl.int_range(pl.len()), False)):
        recorded.operations = recorded.operations.with_columns(
            fingerprint=pl.when(is_copy).then(numbers.cast(pl.UInt64)),
            source_address=pl.lit(64, pl.UInt64),
            destination_address=pl.lit(64, pl.UInt64),
        )
        assert (advice_of(recorded, "ping-pong") is not None) is returns


@pytest.mark.parametrize(
    ("node", "source"), [("h100-probed", "measured on h100-probed"), ("t4", "published: 1.07 to 18 GB/s")]
)
def test_what_pinned_memory_costs_comes_from_the_node_where_it_was_measured(node: str, source: str) -> None:
    recorded = trace(copy(0, 32_000, 64 * MIB, memory="pageable"), kernel(32_000, 33_000))
    finding = advice_of(recorded, "pageable-copies", load_node(node))
    # 67 MB at 392 ps a byte and 7 µs, or at 18 and at 1.07 GB/s.
    expected = "26.3 ms" if node == "h100-probed" else "3.73 ms to 62.7 ms"
    assert f"cost of pinning: {expected} for 67.1 MB ({source}" in text(finding.cost)


def test_a_gain_is_bounded_by_the_run_without_the_copies_that_change_and_not_without_all() -> None:
    """Each pageable copy of 1 ms lies under a pinned copy back of 1.5 ms: without the first the run is as long."""
    rows: list[Any] = []
    for at in range(0, 20_000, 2_000):
        into = copy(at + 10, at + 1_010, 8 * MIB, memory="pageable")
        back = copy(at + 12, at + 1_512, 32 * MIB, "d2h", stream=8)
        rows += [
            made(back, at, at + 3, "cudaMemcpyAsync"),
            made(into, at + 4, at + 1_011, "cudaMemcpyAsync", "operation"),
            call(at + 1_012, at + 1_515, "cudaDeviceSynchronize", "device"),
            made(kernel(at + 1_530, at + 1_900), at + 1_520, at + 1_525),
        ]
    recorded = run(*rows)
    counted = [f for f in findings(recorded, PCIE3) if f.id == "pageable-copies"]
    (replayed,) = priced_by_replay(timeline(recorded, PCIE3), PCIE3, counted)
    assert counted[0].touches is not None and counted[0].touches.seconds() == pytest.approx(10e-3)
    assert replayed.bound_seconds is not None and replayed.bound_seconds < 1e-3
    assert replayed.predicted_gain_seconds <= replayed.bound_seconds


def sent(rounds: int, addresses: range) -> Trace:
    """Pageable copies of 64 MiB from these host addresses in succession, a kernel behind each of them."""
    rows: list[Any] = []
    for number in range(rounds):
        at = 44_000 * number
        host = addresses[number % len(addresses)]
        where = {"source_address": host, "destination_address": 64}
        into = copy(at + 5, at + 40_005, 64 * MIB, memory="pageable", **where)
        rows += [
            made(into, at, at + 40_006, "cudaMemcpy", "operation"),
            made(kernel(at + 40_020, at + 41_000), at + 40_007, at + 40_009),
        ]
    return run(*rows)


def test_pinning_counts_against_the_gain_of_buffers_that_are_sent_once() -> None:
    again, once = sent(8, range(1 << 30, 2 << 30, 1 << 29)), sent(8, range(1 << 30, 9 << 30, 1 << 30))
    reused, single = advice_of(again, "pageable-copies"), advice_of(once, "pageable-copies")
    assert "pinned once" in text(reused.rests_on[0]) and reused.cost_error == (0.0, 0.0)
    assert not any("pinned once" in text(line) for line in single.rests_on)
    assert (
        "The gain includes the cost of pinning 537 MB in buffers that the program uses once: 29.8 ms to 502 ms."
        in text(single.cost)
    )
    cost = 8 * 64 * MIB / (1.07e9 * 18e9) ** 0.5
    # Some of the pinning lies beside kernels.
    assert reused.predicted_gain_seconds - cost <= single.predicted_gain_seconds
    assert single.predicted_gain_seconds < reused.predicted_gain_seconds - 0.8 * cost
    shown = ranged(single)
    assert shown.low_seconds == 0.0
    assert shown.high_seconds > single.predicted_gain_seconds + 0.5 * single.cost_error[0]


def test_no_cost_of_pinning_is_counted_without_addresses() -> None:
    recorded = sent(8, range(1 << 30, 9 << 30, 1 << 30))
    recorded.operations = recorded.operations.drop("source_address", "destination_address")
    finding = advice_of(recorded, "pageable-copies")
    assert finding is not None and "pinned once" in text(finding.rests_on[0])


@pytest.mark.parametrize(
    "changes", [{"pin": True}, {"async_": True}, {"streams": 3}, {"drop_synchronisations": True}]
)
def test_ranges_of_changes_end_where_those_of_advice_do(changes: dict[str, Any]) -> None:
    """Between an unchanged run and one without what changes, but for what runs of a program differ by."""
    recorded = sent(8, range(1 << 30, 2 << 30, 1 << 29))
    copied = 8 * 40e-3
    result = busfare.what_if(recorded, recorded_on="pcie:3x16", **changes)
    before, gain = result.baseline.replayed_seconds, result.gain_seconds or 0.0
    differ = 0.04 * before
    assert result.low_seconds >= before - max(copied, gain) - differ - 1e-4
    assert result.high_seconds <= before + max(0.0, differ - gain) + 1e-9


def copied_back(first_us: float, later_us: float, addresses: list[int] | None) -> Trace:
    """Eight copies back of 64 MiB, a kernel before each: the first of all, or into an address, takes `first_us`."""
    rows: list[Any] = []
    at, seen = 0.0, set[int]()
    for number in range(8):
        host = addresses[number] if addresses else 0
        took = later_us if host in seen else first_us
        seen.add(host)
        where = {"source_address": 64, "destination_address": host} if addresses else {}
        rows.append(made(kernel(at + 10, at + 100), at, at + 5))
        back = copy(at + 110, at + 110 + took, 64 * MIB, "d2h", "pageable", **where)
        rows.append(made(back, at + 101, at + 111 + took, "cudaMemcpy", "operation"))
        at += took + 120
    return run(*rows)


@pytest.mark.parametrize(
    ("first_us", "addresses", "firsts"),
    [
        (40_000, None, 1),  # 1.7 GB/s, then 15
        (40_000, [4096, 8192] * 4, 2),
        (40_000, list(range(4096, 4096 * 9, 4096)), 8),  # no later copy shows what it could take
        (5_000, None, 0),  # 13 GB/s
        (5_000, [4096, 8192] * 4, 0),
    ],
)
def test_first_copies_into_untouched_memory_gain_what_later_copies_are_faster(
    first_us: float, addresses: list[int] | None, firsts: int
) -> None:
    finding = advice_of(copied_back(first_us, 4_500, addresses), "first-touch")
    assert (finding is not None) is (firsts > 0)
    if finding is not None:
        least, most = (0.0, 40e-3) if firsts == 8 else (35.4e-3, 35.6e-3)
        assert firsts * least < finding.predicted_gain_seconds < firsts * most
        assert "pageable-copies" in finding.overlaps_with and not finding.by_replay
        assert ("has no addresses" in text(finding.evidence)) is (addresses is None)


def result_of(size: int, took_us: float, count: int = 1, sent_us: float | None = None) -> Trace:
    """Kernels, each with a pageable copy back of `size` behind it; and such copies to the GPU before, of `sent_us`."""
    rows: list[Any] = []
    at = 0.0
    for _ in range(count):
        if sent_us is not None:
            into = copy(at + 10, at + 10 + sent_us, size, "h2d", "pageable")
            rows.append(made(into, at, at + 11 + sent_us, "cudaMemcpy", "operation"))
            at += sent_us + 20
        rows.append(made(kernel(at + 10, at + 2000), at, at + 5))
        back = copy(at + 2001, at + 2001 + took_us, size, "d2h", "pageable")
        rows.append(made(back, at + 6, at + 2003 + took_us, "cudaMemcpy", "operation"))
        at += took_us + 2010
    return run(*rows)


@pytest.mark.parametrize(
    ("recorded", "advised"),
    [
        (result_of(400 * MIB, 320_000), True),
        (result_of(64 * MIB, 50_000, count=4), True),  # a fresh result at each step
        (result_of(64 * MIB, 50_000, count=4, sent_us=6_000), True),
        (result_of(64 * MIB, 50_000, count=4, sent_us=50_000), False),  # a slow host
        (result_of(64 * MIB, 6_000, count=4), False),
        (result_of(100_000, 80), False),  # latency
    ],
)
def test_results_into_untouched_memory_may_gain_nothing_by_pinning(recorded: Trace, advised: bool) -> None:
    touch, pinning = (advice_of(recorded, id) for id in ("first-touch", "pageable-copies"))
    assert (touch is not None) is advised
    cost = "" if pinning is None or pinning.cost is None else pinning.cost.id
    assert (cost == "pageable-copies.pinning-once") is advised
    result = busfare.what_if(recorded, recorded_on="h100-sxm", pin="")
    low, _ = result.gain_range_seconds or [0.0, 0.0]
    assert (low <= 0.0) if advised else result.gain_seconds == 0.0 or low > 0.0


def frames(host_us: float, addresses: tuple[int, ...] = ()) -> Trace:
    """Twenty frames: 4 MiB in, a kernel of as long, 4 MiB out that the host waits for, then the host works for `host_us`;
    from buffers in turn.
    """
    at, rows = 0.0, []
    for number in range(20):
        sent = addresses[number % len(addresses)] if addresses else 0
        more = {"source_address": sent, "destination_address": 7 << 30} if addresses else {}
        rows.append(made(copy(at + 2, at + 352, 4 * MIB, **more), at, at + 354, "cudaMemcpy", "operation"))
        rows.append(made(kernel(at + 360, at + 700), at + 355, at + 358))
        results = {"source_address": 7 << 30, "destination_address": (9 << 30) + number} if addresses else {}
        back = copy(at + 702, at + 1052, 4 * MIB, direction="d2h", **results)
        rows.append(made(back, at + 359, at + 1055, "cudaMemcpy", "operation"))
        at += 1056 + host_us
    return run(*rows)


@pytest.mark.parametrize(
    ("recorded", "advised"),
    [
        (frames(2), True),
        (frames(2000), False),
        (frames(2, addresses=(1 << 30, 2 << 30)), True),
        (frames(2, addresses=(1 << 30,)), False),
    ],
)
def test_streams_do_not_help_frames_made_of_the_last_result(recorded: Trace, advised: bool) -> None:
    finding = advice_of(recorded, "exposed-copies")
    assert (finding is not None and finding.by_replay) is advised
