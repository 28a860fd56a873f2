"""Each rule fires on what it is for, keeps quiet otherwise, and never promises more than there is to gain."""

from __future__ import annotations

import polars as pl
import pytest

from busfare.advise import Finding, findings, guess_node, rebuilt
from busfare.node import load_node
from busfare.trace import Trace, read
from tests.traces import EXAMPLES, call, copy, kernel, trace

MIB = 1 << 20
PCIE3 = load_node("pcie:3x16")


def found(recorded: Trace, rule: str) -> Finding | None:
    return next((f for f in findings(recorded, PCIE3, rebuilt(recorded, PCIE3)) if f.id == rule), None)


def test_large_pageable_copies_are_worth_pinning() -> None:
    # 64 MiB at 4 GB/s; the link gives about 12: two thirds can be saved.
    finding = found(
        trace(copy(0, 16_000, 64 * MIB, memory="pageable"), kernel(16_000, 17_000)), "pageable-copies"
    )
    assert finding is not None
    assert finding.gain_seconds is not None
    assert 0.009 < finding.gain_seconds < 0.012
    assert "repaid after" in finding.change


def test_pinned_copies_are_not_to_be_pinned() -> None:
    assert found(trace(copy(0, 16_000, 64 * MIB), kernel(16_000, 17_000)), "pageable-copies") is None


def test_small_pageable_copies_gain_nothing_from_pinning() -> None:
    copies = [copy(10 * i, 10 * i + 5, 4096, memory="pageable") for i in range(100)]
    assert found(trace(*copies), "pageable-copies") is None


def small_copies(memory: str, size: int) -> Trace:
    """A hundred copies into the GPU, 8 µs of the host's time each."""
    copies = [copy(20.0 * i + 8, 20.0 * i + 11, size, memory=memory, correlation=i) for i in range(100)]
    calls = [call(20.0 * i, 20.0 * i + 8, "cudaMemcpyAsync", correlation=i) for i in range(100)]
    return trace(*copies, calls=calls)


@pytest.mark.parametrize(
    ("memory", "size", "pays"),
    [("pageable", 32 * 1024, True), ("pageable", 64, False), ("pinned", 32 * 1024, False)],
)
def test_small_pageable_copies_are_said_to_gain_where_the_host_writes_their_bytes(
    memory: str, size: int, pays: bool
) -> None:
    recorded = small_copies(memory, size)
    small, pageable = found(recorded, "small-copies"), found(recorded, "pageable-copies")
    assert small is not None
    assert ("Pinning them gains nothing" in small.evidence) is not pays
    assert (pageable is not None) is pays
    if pageable is not None:
        assert pageable.title == "Copies from or to pageable memory"
        assert "100 copies of at most 64 KiB to the GPU" in pageable.evidence
        assert "staged" not in pageable.evidence and "stages" not in pageable.evidence
        assert pageable.by_replay and pageable.gain_seconds is not None
        # Of 8 µs a call: no more than writing 32 KiB and submitting took.
        assert 0 < pageable.gain_seconds < 800e-6


def test_a_pageable_copy_behind_a_kernel_gains_nothing() -> None:
    assert (
        found(trace(copy(0, 16_000, 64 * MIB, memory="pageable"), kernel(0, 17_000)), "pageable-copies")
        is None
    )


def test_without_a_node_the_gain_is_not_known() -> None:
    recorded = trace(copy(0, 16_000, 64 * MIB, memory="pageable"))
    (finding,) = [f for f in findings(recorded, None) if f.id == "pageable-copies"]
    assert finding.gain_seconds is None


def test_many_small_copies_are_worth_batching() -> None:
    copies = [copy(10 * i, 10 * i + 5, 64) for i in range(100)]
    finding = found(trace(*copies), "small-copies")
    assert finding is not None
    assert finding.gain_seconds is not None
    # 100 × 5 µs become one copy.
    assert 480e-6 < finding.gain_seconds < 500e-6


def test_few_small_copies_are_let_be() -> None:
    assert found(trace(*[copy(10 * i, 10 * i + 5, 64) for i in range(10)]), "small-copies") is None


def test_symbol_copies_in_a_loop_are_found_by_their_calls() -> None:
    copies = [copy(20 * i + 5, 20 * i + 7, 64, correlation=i + 1) for i in range(60)]
    calls = [
        call(20 * i, 20 * i + 8, "cudaMemcpyToSymbol", "operation", correlation=i + 1) for i in range(60)
    ]
    finding = found(trace(*copies, calls=calls), "symbol-copies")
    assert finding is not None
    assert finding.evidence.startswith("60 copies")


def test_blocking_copies_are_named_with_the_host_time_they_cost() -> None:
    recorded = trace(
        copy(5, 1005, 4 * MIB, correlation=1),
        kernel(3010, 5010, correlation=2),
        # Between the copy and the kernel the host works for 2 ms, and could while the copy runs.
        calls=[
            call(0, 1010, "cudaMemcpy", "operation", correlation=1),
            call(3005, 3008, "cudaLaunchKernel", correlation=2),
        ],
    )
    finding = found(recorded, "synchronous-copies")
    assert finding is not None
    assert "1.01 ms" in finding.evidence
    assert finding.by_replay
    assert finding.gain_seconds == pytest.approx(1e-3, rel=0.02)
    assert finding.what_if == ("--async",)


def test_a_blocking_copy_that_its_kernel_needs_at_once_is_left_alone() -> None:
    recorded = trace(
        copy(5, 1005, 4 * MIB, correlation=1),
        kernel(1016, 3016, correlation=2),
        calls=[
            call(0, 1008, "cudaMemcpy", "operation", correlation=1),
            call(1010, 1013, "cudaLaunchKernel", correlation=2),
        ],
    )
    assert found(recorded, "synchronous-copies") is None


def test_asynchronous_copies_hold_nobody_up() -> None:
    recorded = trace(
        copy(5, 1005, 4 * MIB, correlation=1), calls=[call(0, 2, "cudaMemcpyAsync", correlation=1)]
    )
    assert found(recorded, "synchronous-copies") is None


def test_copies_beside_kernels_are_not_exposed() -> None:
    assert found(trace(copy(0, 100, MIB), kernel(0, 100)), "exposed-copies") is None


def test_no_more_can_hide_than_there_is_to_hide_behind() -> None:
    # 1 ms of copies one way, and kernels of 0.2 ms: at most 0.2 ms can hide.
    finding = found(trace(copy(0, 1000, 8 * MIB), kernel(1000, 1200)), "exposed-copies")
    assert finding is not None
    assert finding.gain_seconds == pytest.approx(0.2e-3)


def test_page_by_page_migration_is_worth_prefetching() -> None:
    moved = [
        copy(
            10 * i,
            10 * i + 8,
            65536,
            "h2d" if i % 2 else "d2h",
            source_memory="managed",
            destination_memory="managed",
        )
        | {"kind": "migration"}
        for i in range(100)
    ]
    finding = found(trace(*moved), "managed-migrations")
    assert finding is not None
    assert finding.gain_seconds is not None
    assert 0 < finding.gain_seconds < 800e-6
    assert "turning round 99 times" in finding.evidence


def test_a_link_at_half_its_rate_is_named() -> None:
    # 64 MiB in 11 ms are 6 GB/s where the data sheet makes 12.
    finding = found(trace(copy(0, 11_000, 64 * MIB), kernel(11_000, 12_000)), "slow-link")
    assert finding is not None
    assert "6.1 GB/s" in finding.evidence


def test_a_healthy_link_is_let_be() -> None:
    assert found(trace(copy(0, 5_500, 64 * MIB), kernel(5_500, 6_000)), "slow-link") is None


def test_what_could_save_next_to_nothing_is_not_said() -> None:
    recorded = trace(copy(0, 16, 64 * 1024 + 1, memory="pageable"), kernel(16, 1_000_000))
    assert findings(recorded, PCIE3) == []


def test_findings_come_with_the_largest_gain_first() -> None:
    gains = [f.gain_seconds for f in findings(read(EXAMPLES / "smooth-out-of-core-h100.json.gz"), PCIE3)]
    assert len(gains) >= 2
    assert all(gain is not None for gain in gains)
    assert gains == sorted(gains, key=lambda gain: gain or 0.0, reverse=True)


def test_pinning_gains_what_it_was_measured_to_gain_on_an_h100() -> None:
    """The bound must not be below what the change saved when it was made and measured (examples/programs)."""
    before = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    after = read(EXAMPLES / "smooth-out-of-core-streams-h100.json.gz")
    spans = [(t.operations["end_ns"].max() - t.operations["start_ns"].min()) / 1e9 for t in (before, after)]  # type: ignore[operator]
    bounds = {f.id: f.gain_seconds for f in findings(before, load_node("h100-sxm"))}
    assert spans[0] - spans[1] == pytest.approx(
        0.135, abs=0.005
    )  # measured: pinned and three streams together
    assert bounds["pageable-copies"] + bounds["exposed-copies"] > spans[0] - spans[1]  # type: ignore[operator]


def loop(rounds: int, **more: object) -> Trace:
    """A blocking copy, a kernel and a wait, again and again; the copies' own columns in `more`."""
    operations, calls = [], []
    for at in range(rounds):
        start = 1000.0 * at
        operations += [
            copy(start + 5, start + 105, MIB, correlation=2 * at, **more),
            kernel(start + 120, start + 520, correlation=2 * at + 1),
        ]
        calls += [
            call(start, start + 108, "cudaMemcpy", "operation", correlation=2 * at),
            call(start + 110, start + 114, "cudaLaunchKernel", correlation=2 * at + 1),
            call(start + 115, start + 530, "cudaDeviceSynchronize", "device"),
        ]
    return trace(*operations, calls=calls)


def test_buffers_that_are_sent_again_unchanged_are_found_by_their_fingerprint() -> None:
    recorded = loop(20)
    assert found(recorded, "repeated-copies") is None
    recorded.operations = recorded.operations.with_columns(
        fingerprint=pl.when(pl.col("kind") == "copy").then(pl.lit(7, pl.UInt64)),
        source_address=pl.lit(64, pl.UInt64),
        destination_address=pl.lit(4096, pl.UInt64),
    )
    finding = found(recorded, "repeated-copies")
    assert finding is not None and finding.by_replay
    assert finding.evidence.startswith("19 of the copies")
    # 19 times the call of 108 µs, 5 µs of coming to it and 1 of returning from it.
    assert finding.gain_seconds == pytest.approx(19 * 114e-6, rel=0.01)


def test_waits_that_nobody_needs_are_worth_what_the_replay_says() -> None:
    finding = found(loop(20), "synchronisations")
    assert finding is not None and finding.by_replay
    assert finding.bound_seconds is not None and finding.gain_seconds is not None
    assert 0 < finding.gain_seconds <= finding.bound_seconds


def test_streams_that_gain_no_more_than_pinning_are_not_advised() -> None:
    # One copy and one kernel: nothing to spread, and the candidate with streams is pinning alone.
    recorded = trace(
        copy(5, 16_005, 64 * MIB, memory="pageable", correlation=1),
        kernel(16_020, 17_020, correlation=2),
        calls=[
            call(0, 16_006, "cudaMemcpy", "operation", correlation=1),
            call(16_008, 16_012, "cudaLaunchKernel", correlation=2),
            call(16_013, 17_025, "cudaDeviceSynchronize", "device"),
        ],
    )
    assert found(recorded, "pageable-copies") is not None
    assert found(recorded, "exposed-copies") is None


def test_gains_are_ranked_by_replay_and_stay_below_their_run() -> None:
    for path in sorted(EXAMPLES.glob("*.json.gz")):
        recorded = read(path)
        node = guess_node(recorded)
        advice = findings(recorded, node, rebuilt(recorded, node))
        gains = [f.gain_seconds for f in advice if f.gain_seconds is not None]
        assert gains == sorted(gains, reverse=True)
        assert all(0 < gain < 1.0 for gain in gains)
