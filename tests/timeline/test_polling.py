"""Hosts that wait for the GPU without a call that blocks: loops of queries, and reads of mapped memory."""

from typing import Any

import polars as pl
import pytest

from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.durations import kernel_times
from busfare.trace import Trace
from busfare.trace.sound import make_sound
from busfare.trace.tables import MARKERS, conform
from tests.report.test_verdict import verdict
from tests.traces import call, kernel, made, omitted, run


def polling(
    every_us: float, until_us: float = 912, query: str = "cudaEventQuery", record: bool = True,
    period_us: float = 1000,
) -> Trace:  # fmt: skip
    """Eight kernels of 900 µs; behind the launch of each, queries until `until_us` after it."""
    rows: list[Any] = []
    for at in (period_us * n for n in range(8)):
        rows.append(made(kernel(at + 10, at + 910), at, at + 5))
        rows += [call(at + 6, at + 7, "cudaEventRecord")] * record
        asks = range(round((until_us - 8) / every_us) + 1)
        rows += [call(at + 8 + n * every_us, at + 9 + n * every_us, query) for n in asks]
    return run(*rows)


def with_results(recorded: Trace, done_after_us: float, period_us: int = 1000) -> Trace:
    """Its queries return 600 before so many µs of each kernel's period have passed."""
    time, asks = pl.col("start_ns") % (period_us * 1000), pl.col("name").cast(str).str.ends_with("Query")
    result = pl.when(asks & (time < done_after_us * 1000)).then(600).otherwise(0).cast(pl.Int32)
    recorded.calls = recorded.calls.with_columns(result=result)
    make_sound(recorded)
    return recorded


def gained_ms(recorded: Trace) -> float:
    """What kernels of half the time gain."""
    before = timeline(recorded)
    after = kernel_times(0.5).apply(before, Setting()).timeline
    return (play(before).makespan_ns - play(after).makespan_ns) / 1e6


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


@pytest.mark.parametrize("done_after_us", [None, 910])
def test_a_loop_ends_at_the_first_query_that_reports_the_end_of_work(done_after_us: float | None) -> None:
    """Six more follow within 24 µs; where many more follow, the CPU does not wait."""
    for until_us, gain in ((936, 8 * 0.45), (1100, 0.0)):
        recorded = polling(4, until_us, record=False, period_us=1200)
        recorded = with_results(recorded, done_after_us, 1200) if done_after_us else recorded
        assert gained_ms(recorded) == pytest.approx(gain, rel=0.01, abs=0.5)


@pytest.mark.parametrize("every_us", [902, 452, 60])
def test_cpu_work_between_queries_is_no_wait(every_us: float) -> None:
    """Two or three queries whose results are recorded; 16 whose are not."""
    recorded = polling(every_us)
    assert gained_ms(with_results(recorded, 910) if every_us > 60 else recorded) < 0.5


def test_a_range_between_queries_is_cpu_work() -> None:
    recorded = with_results(polling(226), 910)
    assert gained_ms(recorded) == pytest.approx(8 * 0.45, rel=0.01)
    ranges = [{"start_ns": at, "end_ns": at + 200_000} for at in range(240_000, 8_000_000, 1_000_000)]
    asking = recorded.calls.select("process", "thread").head(1)
    recorded.markers = conform(pl.DataFrame(ranges).join(asking, how="cross"), MARKERS)
    assert gained_ms(recorded) < 0.5


@pytest.mark.parametrize(("rounds", "kernel_us", "spins"), [(6, 900, 6), (2, 900, 0), (6, 100, 0)])
def test_a_host_may_wait_without_a_call(rounds: int, kernel_us: int, spins: int) -> None:
    """The next call comes 3 µs behind the kernel: again and again; twice; or long after it, at 913 µs."""
    starts = [913.0 * n for n in range(rounds)]
    rows = [made(kernel(at + 10, at + 10 + kernel_us), at, at + 5) for at in starts]
    recorded = run(*rows, call(913.0 * rounds, 913.0 * rounds + 2, "cudaGetLastError"))
    assert omitted(timeline(recorded)).get("replay-spins", 0) == spins
    assert ("The CPU may be waiting for the GPU without an API call" in verdict(recorded)[1]) == bool(spins)
