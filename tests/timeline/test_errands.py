"""What one thread does for another, and for copies alone, is gone when they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from busfare.nodes import load_node
from busfare.timeline import play, timeline
from busfare.timeline.build.wakes import WOKEN
from busfare.timeline.changes import Setting, apply_all
from busfare.timeline.changes.removal import remove
from busfare.timeline.edit import ERRANDS, Applied, taken_out
from busfare.trace import Trace
from tests.traces import call, copy, kernel, made, run, woken

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
    wakes = [woken(2, 1, 100, 310, 320), woken(1, 2, 315, 610, 615)]
    recorded = run(
        made(kernel(10, 50), 0, 60),
        (copy(462, 550, MIB, "d2h"), call(460, 470, "cuMemcpyDtoHAsync_v2") | {"thread": 2}),
        made(kernel(675, 750), 670, 674, "cuLaunchKernel"),
        call(674, 760, "cuCtxSynchronize", "device"),
        wakes=wakes if told else [],
    )
    assert lasts(without(recorded, "d2h")) == pytest.approx(760 - spared, abs=11)


def test_who_woke_a_thread_is_believed_before_who_called_last() -> None:
    recorded = run(
        made(kernel(10, 300), 0, 60),
        (kernel(320, 400), call(310, 320, "cuLaunchKernel") | {"thread": 3}),
        (kernel(520, 600), call(510, 520, "cuLaunchKernel") | {"thread": 2}),
        wakes=[woken(2, 1, 20, 110, 112)],
    )
    assert timeline(recorded).columns["call_after"].tolist() == [-1, 0, 0]
    assert play(timeline(recorded)).makespan_ns == 600_000


#: Threads of a program as JAX has them: its own, two helpers, one that the driver wakes, and the driver's own.
PROGRAM, HELPER, OTHER, WOKEN_BY_DRIVER, DRIVER = 1, 2, 3, 4, 9


def _brought_back() -> Trace:
    """The program has a helper fetch what a kernel made; the driver's thread says that it is there, and another thread
    unpacks it for 200 µs before the program goes on: it hands two errands out at once and goes on behind each.
    """
    fetched = run(
        made(kernel(10, 50), 0, 60),
        (copy(112, 200, MIB, "d2h"), call(110, 116, "cuMemcpyDtoHAsync_v2") | {"thread": HELPER}),
        call(118, 120, "cuLaunchHostFunc") | {"thread": HELPER},
        (copy(502, 540, MIB, "h2d"), call(500, 504, "cuMemcpyHtoDAsync_v2") | {"thread": HELPER}),
        call(515, 518, "cuStreamWaitEvent"),
        (copy(702, 790, 8 * MIB, "h2d"), call(700, 704, "cuMemcpyHtoDAsync_v2") | {"thread": OTHER}),
        made(kernel(795, 850), 720, 730),
        call(732, 860, "cuCtxSynchronize", "device"),
        wakes=[
            woken(HELPER, PROGRAM, 0, 95, 100),
            woken(WOKEN_BY_DRIVER, DRIVER, 0, 205, 210),
            woken(PROGRAM, WOKEN_BY_DRIVER, 97, 410, 420),
            woken(HELPER, PROGRAM, 125, 440, 445),
            woken(OTHER, PROGRAM, 0, 450, 455),
            woken(PROGRAM, HELPER, 460, 506, 510),
            woken(PROGRAM, OTHER, 520, 706, 710),
        ],
    )
    return replace(fetched, operations=fetched.operations.with_columns(stream=pl.int_range(pl.len())))


def test_a_thread_that_the_end_of_work_woke_waits_for_that_work() -> None:
    found = timeline(_brought_back())
    names = [found.call_names[name] for name in found.call_name]
    woken = names.index(WOKEN)
    assert found.calls["thread"][woken] == PROGRAM
    assert found.waiting("given").nonzero()[0].tolist() == [woken]
    fetched = found.operations[int(found.columns["call_wait_key"][woken])]
    assert (fetched["direction"][0], fetched["bytes"][0]) == ("d2h", MIB)
    assert found.columns["call_wait_lag"][woken] == 220_000  # from the copy's end until the program went on
    # Both errands were handed out then, side by side.
    of = [int(at) for at in np.flatnonzero(np.isin(found.calls["start_ns"], [500_000, 700_000]))]
    assert found.columns["call_after"][of].tolist() == [woken, woken]
    assert play(found).makespan_ns == 860_000


@pytest.mark.parametrize(
    ("what", "over", "spared"), [("d2h", 0, 323), ("h2d", 2 * MIB, 202), ("h2d", 0, 250)], ids=str
)
def test_of_errands_side_by_side_what_lasts_longest_counts(what: str, over: int, spared: float) -> None:
    """Without the copy back nobody waits for its unpacking; without the longer errand the shorter one is waited for."""
    found = timeline(_brought_back())
    gone = found.copies(what) & (found.sizes > over)
    assert lasts(taken_out(found, gone)) == pytest.approx(860 - spared, abs=6)


def test_wakes_of_threads_alone_change_nothing() -> None:
    recorded = _brought_back()
    nobody = replace(recorded, calls=recorded.calls[:0])
    assert timeline(nobody).calls.is_empty()
    elsewhere = replace(recorded, wakes=recorded.wakes.with_columns(process=pl.col("process") + 1))
    assert timeline(elsewhere).calls.height == recorded.calls.height


def test_what_helpers_do_between_their_waits_is_nobodys_time() -> None:
    """A helper that the end of a kernel woke fetches its result; it waited from long before the run on."""
    fetched = run(
        made(kernel(10, 50), 0, 20),
        call(22, 24, "cuLaunchHostFunc"),
        (copy(112, 200, MIB, "d2h"), call(110, 116, "cuMemcpyDtoHAsync_v2") | {"thread": HELPER}),
        made(kernel(1000, 1050), 990, 995),
        (copy(1112, 1200, MIB, "d2h"), call(1110, 1116, "cuMemcpyDtoHAsync_v2") | {"thread": HELPER}),
        call(996, 998, "cuLaunchHostFunc"),
        wakes=[
            woken(WOKEN_BY_DRIVER, DRIVER, 0, 55, 60),
            woken(HELPER, WOKEN_BY_DRIVER, -5_000, 70, 80),
            woken(WOKEN_BY_DRIVER, DRIVER, 100, 1055, 1060),
            woken(HELPER, WOKEN_BY_DRIVER, 130, 1070, 1080),
        ],
    )
    found = timeline(fetched)
    waits = np.flatnonzero(found.waiting("given"))
    assert found.calls["thread"][waits].to_list() == [HELPER, HELPER]
    launches = [int(at) for at in np.flatnonzero(np.isin(found.calls["start_ns"], [0, 990_000]))]
    assert found.columns["call_after"][waits].tolist() == launches
    assert found.columns["call_gap"][waits].tolist() == [0, 0]
    assert play(found).makespan_ns == 1_200_000


def test_work_that_a_thread_of_the_chain_launched_meanwhile_is_what_was_waited_for() -> None:
    """A pool's thread that the end of a kernel woke wakes another before it fetches the result; that one tells of it."""
    fetched = run(
        made(kernel(10, 50), 0, 20),
        call(22, 24, "cuLaunchHostFunc"),
        (copy(112, 200, MIB, "d2h", stream=8), call(110, 116, "cuMemcpyDtoHAsync_v2") | {"thread": HELPER}),
        call(118, 120, "cuLaunchHostFunc") | {"thread": HELPER},
        made(kernel(305, 350), 300, 304),
        wakes=[
            woken(WOKEN_BY_DRIVER, DRIVER, 0, 55, 60),
            woken(HELPER, WOKEN_BY_DRIVER, 5, 70, 80),
            woken(OTHER, HELPER, 5, 90, 250),
            woken(PROGRAM, OTHER, 30, 260, 270),
        ],
    )
    found = timeline(fetched)
    its = [
        row for row in np.flatnonzero(found.waiting("given")) if found.calls["thread"][int(row)] == PROGRAM
    ]
    (key,) = found.columns["call_wait_key"][its]
    assert found.operations["direction"][int(key)] == "d2h"
    assert lasts(taken_out(found, found.copies("d2h"))) == pytest.approx(104, abs=10)


def test_the_time_that_streams_were_held_up_for_fingerprints_is_taken_out() -> None:
    """A copy back whose bytes are hashed for 150 µs before the wait for its stream returns; and a kernel behind it."""
    held = {"hash_start_ns": 210_000, "hash_end_ns": 360_000}
    rows = [
        made(copy(110, 200, MIB, "d2h"), 100, 105, "cuMemcpyDtoHAsync_v2"),
        made(kernel(365, 400), 106, 108),
        call(109, 405, "cuStreamSynchronize", "stream"),
        call(410, 412, "cuEventRecord"),
    ]
    plain = run(*rows)
    hashed = replace(
        plain,
        operations=plain.operations.with_columns(
            pl.when(pl.col("kind") == "copy").then(pl.lit(time)).alias(name) for name, time in held.items()
        ),
    )
    assert play(timeline(plain)).makespan_ns == 312_000
    assert play(timeline(hashed)).makespan_ns == 162_000
    # Where threads take turns, what one waited for in vain is no time of theirs either.
    turns = run(
        (copy(110, 200, MIB, "d2h"), call(100, 105, "cuMemcpyDtoHAsync_v2") | {"thread": HELPER}),
        made(kernel(505, 550), 500, 504),
        call(0, 5, "cuEventRecord"),
    )
    also = replace(
        turns,
        operations=turns.operations.with_columns(
            pl.when(pl.col("kind") == "copy").then(pl.lit(time)).alias(name) for name, time in held.items()
        ),
    )
    assert play(timeline(turns)).makespan_ns - play(timeline(also)).makespan_ns == 150_000
