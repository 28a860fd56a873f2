"""Traces whose calls record events and wait for them without naming any: what streams wait for is found all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from busfare.timeline import play, timeline
from tests.traces import call, kernel, omitted, trace

COMPUTE, SIDE = 7, 17


def launched(start_us: float, correlation: int, **more: Any) -> dict[str, Any]:
    return call(start_us, start_us + 2, "cudaLaunchKernel", correlation=correlation, **more)


def record(start_us: float, correlation: int) -> dict[str, Any]:
    return call(start_us, start_us + 1, "cudaEventRecord", correlation=correlation)


def wait(start_us: float, correlation: int) -> dict[str, Any]:
    return call(start_us, start_us + 1, "cudaStreamWaitEvent", correlation=correlation)


def beside(within_launch: bool = False) -> Any:
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
    run = timeline(beside(within_launch))
    assert run.columns["operation_extra"].max() < 5_000, "every start is explained"
    notes = {omission.id: omission.count for omission in run.omissions}
    assert notes["replay-inferred-events"] == 2
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
    one = trace(kernel(10, 500, correlation=1), calls=[launched(0, 1), *asks])
    run = timeline(one)
    assert run.recorded_ns == 500_000 and play(run).makespan_ns == 500_000
    assert {omission.id: omission.count for omission in run.omissions}["replay-pollers"] == 2
    works = trace(
        kernel(10, 500, correlation=1), calls=[launched(0, 1), *asks, call(950, 960, "cudaMalloc", thread=9)]
    )
    assert timeline(works).recorded_ns == 960_000
    assert "replay-pollers" not in omitted(works)
