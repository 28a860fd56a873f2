"""GPU times that drift away from the host's are corrected; all others stay."""

import random

import pytest

from busfare.timeline.build import timeline
from busfare.trace import Trace
from busfare.trace.sound import make_sound
from tests.traces import call, kernel, made, omitted, run

STEP_US, STEPS = 1_000, 3_000


def steps(ppm: float, offset_us: float = 0, early: float = 0, gpus: int = 1) -> Trace:
    """Steps of 1 ms with a kernel on each GPU and a wait; the clock of the last GPU drifts. Some waits return early."""
    chance, rows = random.Random(1), []
    for begin in range(0, STEPS * STEP_US, STEP_US):
        for gpu in range(gpus):
            ahead = offset_us + (begin * ppm * 1e-6 if gpu == gpus - 1 else 0)
            start, end = begin + 30 * gpu + 8 + ahead, begin + 700 + ahead
            place = {"device": gpu, "context": gpu + 1, "stream": 7}
            rows.append(made(kernel(start, end, **place), begin + 30 * gpu, begin + 30 * gpu + 5))
        for context in range(1, gpus + 1):
            returned = begin + 705 + 5 * context if chance.random() >= early else begin + 400
            rows.append(call(returned - 300, returned, "cudaDeviceSynchronize", "device", context=context))
    return run(*rows)


@pytest.mark.parametrize("ppm", [10, 53, -53, 300])
def test_a_clock_that_drifts_is_corrected_and_every_wait_keeps_its_kernel(ppm: float) -> None:
    right, drifted = steps(0), steps(ppm)
    make_sound(drifted)
    for time in ("start_ns", "end_ns"):
        assert (drifted.operations[time] - right.operations[time]).abs().max() < 20_000
    assert omitted(drifted)["clock-drift"] == STEPS
    taken_apart = timeline(drifted)
    assert not {"replay-narrowed", "replay-contradictions", "replay-launches"} & set(omitted(taken_apart))


@pytest.mark.parametrize(("offset_us", "early"), [(0, 0), (30, 0), (-30, 0), (0, 0.01), (0, 0.3), (0, 1)])
def test_times_stay_where_no_clock_drifts_though_waits_return_early(offset_us: float, early: float) -> None:
    trace = steps(0, offset_us, early)
    before = trace.operations
    make_sound(trace)
    shift = before["start_ns"][0] - trace.operations["start_ns"][0]  # of the first record to zero
    assert (before["start_ns"] - shift).equals(trace.operations["start_ns"])
    assert (before["end_ns"] - shift).equals(trace.operations["end_ns"])
    assert "clock-drift" not in omitted(trace)


def test_only_the_gpu_whose_clock_drifts_is_corrected_though_some_waits_return_early() -> None:
    right, drifted = steps(0, gpus=2), steps(53, early=0.01, gpus=2)
    make_sound(drifted)
    assert omitted(drifted)["clock-drift"] == STEPS
    wrong = drifted.operations.sort("correlation")["end_ns"] - right.operations.sort("correlation")["end_ns"]
    assert wrong.abs().max() < 20_000
    assert wrong.filter(drifted.operations.sort("correlation")["device"] == 0).abs().max() == 0
