"""What a thread does for copies alone, once another hands it the work, goes when they do."""

from typing import Any

import pytest

from busfare.nodes import load_node
from busfare.timeline import play, timeline
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.fewer_copies import remove
from busfare.timeline.edit import FOR_COPIES, Applied
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
def test_work_for_removed_copies_goes_with_the_time_since_it_was_handed_over(
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
    changed = without(recorded, "d2h")
    assert lasts(changed) == pytest.approx(860 - spared, abs=11)
    assert (FOR_COPIES in changed.rests_on) == (spared > 400)


def test_what_the_same_thread_is_handed_next_goes_too() -> None:
    sent = [made(copy(at, at + 80, MIB, "h2d"), at - 2, at + 8, "cuMemcpyHtoDAsync_v2") for at in (512, 1012)]
    recorded = run(
        made(kernel(10, 50), 0, 60),
        *[(operation, sends | {"thread": 2}) for operation, sends in sent],
        # The first thread goes on before the other has made its last call.
        call(1025, 1030, "cuEventRecord") | {"thread": 2},
        made(kernel(1030, 1050), 1024, 1028),
        call(1029, 1060, "cuCtxSynchronize", "device"),
    )
    # From the last call before them it goes on 4 µs later, as it did behind them.
    assert lasts(without(recorded, "h2d")) == pytest.approx(1060 - 960, abs=5)


def test_what_waits_for_functions_of_the_host_may_gain_all_the_time() -> None:
    """Which threads wait for a function that a stream runs is not recorded."""
    rows = (
        made(kernel(10, 50), 0, 20),
        made(copy(60, 160, MIB, "d2h"), 22, 25, "cuMemcpyDtoHAsync_v2"),
        call(170, 180, "cuCtxSynchronize", "device"),
    )
    limited = without(run(*rows), "d2h").touched
    assert limited is not None and limited.length() == 103_000
    assert without(run(*rows, call(26, 28, "cuLaunchHostFunc")), "d2h").touched is None
