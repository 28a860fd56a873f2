"""Hosts that wait for the GPU without a call that blocks: loops of queries, and reads of mapped memory."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.durations import kernel_times
from busfare.trace import Trace
from busfare.trace.sound import make_sound
from tests.report.test_verdict import verdict
from tests.traces import call, kernel, made, omitted, run


def polling(
    every_us: float, until_us: float = 912, query: str = "cudaEventQuery", record: bool = True
) -> Trace:
    """Eight kernels of 900 µs; behind the launch of each, queries until `until_us` after it."""
    rows: list[Any] = []
    for at in (1000.0 * n for n in range(8)):
        rows.append(made(kernel(at + 10, at + 910), at, at + 5))
        rows += [call(at + 6, at + 7, "cudaEventRecord")] * record
        asks = range(round((until_us - 8) / every_us) + 1)
        rows += [call(at + 8 + n * every_us, at + 9 + n * every_us, query) for n in asks]
    return run(*rows)


def with_results(recorded: Trace, done_after_us: float) -> Trace:
    """Its queries return 600 before so many µs of each kernel's millisecond have passed."""
    time, asks = pl.col("start_ns") % 1_000_000, pl.col("name").cast(str).str.ends_with("Query")
    result = pl.when(asks & (time < done_after_us * 1000)).then(600).otherwise(0).cast(pl.Int32)
    recorded.calls = recorded.calls.with_columns(result=result)
    make_sound(recorded)
    return recorded


def gained_ms(recorded: Trace) -> float:
    """What kernels of half the time gain."""
    before = timeline(recorded)
    return (
        play(before).makespan_ns - play(kernel_times(0.5).apply(before, Setting()).timeline).makespan_ns
    ) / 1e6


@pytest.mark.parametrize("query", ["cudaEventQuery", "hipStreamQuery"])
def test_a_loop_of_queries_is_a_wait_for_the_kernel_that_ends_with_it(query: str) -> None:
    recorded = polling(4, query=query)
    assert gained_ms(recorded) == pytest.approx(8 * 0.45, rel=0.01)
    assert play(timeline(recorded)).makespan_ns == timeline(recorded).recorded_ns
    assert "The largest single item is the kernel `work`: 7.2 ms" in verdict(recorded)[1]


def test_what_queries_returned_decides_where_it_is_recorded() -> None:
    few = polling(226)  # the last of five, at 912 µs, says that work is done
    assert gained_ms(few) < 0.5
    assert gained_ms(with_results(few, 910)) == pytest.approx(8 * 0.45, rel=0.01)
    assert gained_ms(with_results(polling(4), 0)) == pytest.approx(8 * 0.45, rel=0.01)  # no 600: not recorded
    gives_up = with_results(polling(226), 2000)
    assert "not_ready" in gives_up.calls.columns and gained_ms(gives_up) < 0.5


def test_queries_that_stop_while_the_gpu_works_are_no_wait() -> None:
    assert gained_ms(polling(4, until_us=400)) < 0.5
    assert timeline(polling(4, until_us=400)).calls.height == 8 * 101


@pytest.mark.parametrize(("rounds", "kernel_us", "spins"), [(6, 900, 6), (2, 900, 0), (6, 100, 0)])
def test_a_host_may_wait_without_a_call(rounds: int, kernel_us: int, spins: int) -> None:
    """The next call comes 3 µs behind the kernel: again and again; twice; or long after it, at 913 µs."""
    rows = [
        made(kernel(at + 10, at + 10 + kernel_us), at, at + 5) for at in (913.0 * n for n in range(rounds))
    ]
    recorded = run(*rows, call(913.0 * rounds, 913.0 * rounds + 2, "cudaGetLastError"))
    assert omitted(timeline(recorded)).get("replay-spins", 0) == spins
    assert ("The CPU may be waiting for the GPU without an API call" in verdict(recorded)[1]) == bool(spins)
