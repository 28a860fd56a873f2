"""What one thread does for another, and for copies alone, is gone when they are."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.node import load_node
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.removal import remove
from busfare.timeline.edit import ERRANDS, Applied
from busfare.trace import Trace
from tests.traces import call, copy, kernel, made, run

MIB = 1 << 20


def without(recorded: Trace, what: str) -> Applied:
    return apply_all(timeline(recorded), [remove(what)], Setting(load_node("pcie:3x16")))


def lasts(applied: Applied) -> float:
    """µs."""
    return play(applied.timeline).makespan_ns / 1000


@pytest.mark.parametrize(
    ("worker", "last", "spared"),
    [
        (2, call(521, 525, "cuEventRecord"), 465),
        (1, call(521, 525, "cuEventRecord"), 10),
        (2, call(521, 605, "cuCtxSynchronize", "device"), 95),
    ],
    ids=["another thread's", "the program's own", "one that waits for what stays, too"],
)
def test_an_errand_for_what_is_gone_goes_with_the_time_since_it_was_handed_over(
    worker: int, last: dict[str, Any], spared: float
) -> None:
    """As JAX's threads do: one copies into a buffer of its own for 450 µs and then sends that, another goes on behind it."""
    sent, sends = made(copy(512, 600, MIB, "d2h"), 510, 520, "cuMemcpyDtoHAsync_v2")
    recorded = run(
        made(kernel(10, 50), 0, 60),
        (sent, sends | {"thread": worker}),
        last | {"thread": worker},
        made(kernel(805, 850), 800, 804),
        call(804, 860, "cuCtxSynchronize", "device"),
    )
    found = without(recorded, "d2h")
    assert lasts(found) == pytest.approx(860 - spared, abs=11)
    assert (ERRANDS in found.rests_on) == (spared > 400)


def test_one_errand_after_another_of_the_same_thread_goes_too() -> None:
    sent = [made(copy(at, at + 80, MIB, "h2d"), at - 2, at + 8, "cuMemcpyHtoDAsync_v2") for at in (512, 1012)]
    recorded = run(
        made(kernel(10, 50), 0, 60),
        *[(operation, sends | {"thread": 2}) for operation, sends in sent],
        # Woken before the other thread has said all that it says.
        call(1025, 1030, "cuEventRecord") | {"thread": 2},
        made(kernel(1030, 1050), 1024, 1028),
        call(1029, 1060, "cuCtxSynchronize", "device"),
    )
    # From the last call before them it goes on 4 µs later, as it did behind them.
    assert lasts(without(recorded, "h2d")) == pytest.approx(1060 - 960, abs=5)


@pytest.mark.parametrize(("told", "spared"), [(True, 300), (False, 410)])
def test_of_an_errand_whose_waits_are_recorded_only_its_own_time_goes(told: bool, spared: float) -> None:
    """The first thread wakes the other 250 µs after its call, and goes on 60 µs after it is woken; or nobody tells."""
    sends, goes_on = (
        {"awake_ns": awake if told else None, "woken_after": of if told else None}
        for awake, of in ((150_000, 0), (60_000, 1))
    )
    recorded = run(
        made(kernel(10, 50), 0, 60),
        (copy(462, 550, MIB, "d2h"), call(460, 470, "cuMemcpyDtoHAsync_v2") | sends | {"thread": 2}),
        (kernel(675, 750), call(670, 674, "cuLaunchKernel") | goes_on),
        call(674, 760, "cuCtxSynchronize", "device"),
    )
    assert lasts(without(recorded, "d2h")) == pytest.approx(760 - spared, abs=11)


def test_who_woke_a_thread_is_believed_before_who_called_last() -> None:
    woken = {"awake_ns": 400_000, "woken_after": 0}
    recorded = run(
        made(kernel(10, 300), 0, 60),
        (kernel(320, 400), call(310, 320, "cuLaunchKernel") | {"thread": 3}),
        (kernel(520, 600), call(510, 520, "cuLaunchKernel") | woken | {"thread": 2}),
    )
    assert timeline(recorded).columns["call_after"].tolist() == [-1, 0, 0]
    assert play(timeline(recorded)).makespan_ns == 600_000
