"""`what-if --offload-schedule`: where the overlap of streamed layers breaks, and what a schedule makes of the run."""

from __future__ import annotations

import pytest

from busfare.advise import guess_node
from busfare.errors import InputError
from busfare.report.what_ifs import answer_what_if
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.offload_schedule import offload_schedule
from busfare.timeline.edit import Applied
from busfare.trace import Trace
from tests.streamed_programs import SIZE, Written, one_stream, two_streams


def scheduled(trace: Trace, depth: int) -> tuple[float, float, Applied]:
    """Seconds of the run before and after."""
    run = timeline(trace)
    done = offload_schedule(depth).apply(run, Setting(guess_node(trace)))
    return play(run).makespan_seconds, play(done.timeline).makespan_seconds, done


def steps_of(done: Applied) -> list[str]:
    return [step.title for step in done.steps]


@pytest.mark.parametrize(("copy_us", "kernel_us"), [(400.0, 150.0), (200.0, 150.0), (150.0, 300.0)])
def test_copies_in_the_stream_of_the_kernels_come_beside_them(copy_us: float, kernel_us: float) -> None:
    layers, passes = 6, 4
    run = one_stream(layers, passes, copy_us=copy_us, kernel_us=(kernel_us, kernel_us))
    before, after, done = scheduled(run, 1)
    compute = 2 * kernel_us
    units = layers * passes
    assert before == pytest.approx(units * (copy_us + compute) * 1e-6, rel=0.02)
    # The recurrence of two buffers: the longer of both all along, and the other once.
    assert after == pytest.approx((units * max(copy_us, compute) + min(copy_us, compute)) * 1e-6, rel=0.02)
    assert "copy in a stream of its own" in steps_of(done)
    assert ("bound by the bus" in steps_of(done)) == (copy_us > compute)
    assert sum(step.gain_seconds or 0.0 for step in done.steps) == pytest.approx(before - after)
    assert (done.count, done.bytes) == (units, units * SIZE)


def test_depth_nought_copies_and_computes_in_turns() -> None:
    before, after, done = scheduled(one_stream(), 0)
    assert after == before and done.count == 0
    assert steps_of(done)[0] == "no effect"


def test_pageable_copies_are_pinned_first() -> None:
    before, after, done = scheduled(one_stream(memory="pageable", copy_us=2000.0), 2)
    first = done.steps[0]
    assert first.title == "copy from pinned memory, without waiting"
    assert first.evidence == "the host stages 24 of 24 copies, and waits for them"
    assert first.gain_seconds == max(step.gain_seconds or 0.0 for step in done.steps)
    assert after < 0.25 * before
    assert any("pinned once" in condition for condition in done.rests_on)
    assert any("3 buffers" in condition for condition in done.rests_on)


def late(layers: int = 24) -> Trace:
    """A stream for copies, but each is submitted when it is needed, and the host waits for it."""
    run = Written()
    for _ in range(layers):
        run.copy(8)
        run.wait(8)
        run.compute()
        run.wait(7)
    return run.trace()


def test_copies_on_demand_are_submitted_ahead() -> None:
    before, after, done = scheduled(late(), 1)
    assert steps_of(done) == ["submit 1 layer ahead", "bound by the bus"]
    assert "23 of 24 layers were sent after" in done.steps[0].evidence
    assert "waited 47 times" in done.steps[0].evidence, "but for the last, behind which no layer comes"
    assert before == pytest.approx(24 * 700e-6, rel=0.05)
    assert after == pytest.approx((24 * 400 + 300) * 1e-6, rel=0.03)


def test_a_program_that_streams_ahead_already_gains_nothing() -> None:
    before, after, done = scheduled(two_streams(copy_us=250.0), 1)
    assert (after, done.count) == (before, 0)
    assert steps_of(done) == ["no effect"]
    assert "of the copies' time lies beside kernels already" in done.steps[0].evidence


def test_a_layer_waits_for_the_buffer_that_it_takes() -> None:
    """Layers of which every fourth computes for long: more buffers carry over what two cannot."""
    run = Written(copy_us=400.0)
    for number in range(40):
        run.copy()
        run.kernel_us = (600.0, 600.0) if number % 4 == 0 else (10.0, 10.0)
        run.compute()
    made = run.trace()
    after = [scheduled(made, depth)[1] for depth in (1, 2, 4)]
    # Per four layers: the copies take 1600, the kernels 1260; with two buffers a long layer holds the copies up.
    assert after[0] > after[1] > after[2]
    assert after[2] == pytest.approx(40 * 400e-6, rel=0.05)
    assert after[0] == pytest.approx(10 * (1200 + 3 * 400) * 1e-6, rel=0.05)


def test_bound_by_the_bus_says_what_would_do() -> None:
    *_, done = scheduled(one_stream(layers=6, copy_us=600.0), 1)
    bound = done.steps[-1]
    assert bound.gain_seconds is None
    assert "copies take 3.60 ms a pass and kernels 1.80 ms" in bound.evidence
    assert "3 of 6 layers kept on the GPU would, or 2.0 times the tokens" in bound.evidence


def test_the_answer_names_the_steps_and_refuses_what_streams_nothing() -> None:
    made = one_stream()
    result, _ = answer_what_if(made, [offload_schedule(1)], Setting(guess_node(made)), True)
    assert [step.title for step in result.steps or ()] == [
        step.title for step in result.changes[0].steps or ()
    ]
    assert result.gain_seconds > 0
    with pytest.raises(InputError, match="give 0 to 64"):
        offload_schedule(65)
    idle = Written()
    for _ in range(4):
        idle.compute()
    with pytest.raises(InputError, match="nothing is copied"):
        scheduled(idle.trace(), 1)
