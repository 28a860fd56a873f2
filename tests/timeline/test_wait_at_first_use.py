"""Waits that move to the host's first use of what came back."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.advise import findings, rebuilt
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.timeline import play, timeline
from busfare.timeline.changes import Applied, Setting, apply_all
from busfare.timeline.changes.first_use import FIRST_SEEN, wait_at_first_use
from busfare.timeline.changes.holding import pin
from busfare.trace import Trace
from tests.traces import call, copy, kernel, made, run, used

MIB = 1 << 20
HERE = Setting(load_node("pcie:3x16"))


def back(start_us: float, end_us: float, memory: str = "pinned", place: int = 4096) -> dict[str, Any]:
    return copy(start_us, end_us, 10 * MIB, "d2h", memory, destination_address=place)


def moved(recorded: Trace) -> tuple[float, Applied]:
    """The makespan in µs with waits at the first use, and what was done for it."""
    applied = apply_all(timeline(recorded), [wait_at_first_use()], HERE)
    return play(applied.timeline).makespan_ns / 1000, applied


def blocking(used_us: float | None, memory: str = "pinned", **more: Any) -> Trace:
    """A copy back of 1 ms that holds the host up, 2 ms of the host's own, and a kernel of 1 ms."""
    return run(
        made(back(10, 1010, memory), 0, 1015, "cudaMemcpy", "operation"),
        made(kernel(3030, 4030), 3015, 3020),
        call(3020, 4035, "cudaDeviceSynchronize", "device"),
        first_uses=[] if used_us is None else [used(0, used_us) | more],
    )


def test_what_the_host_does_until_the_first_use_hides_the_copy() -> None:
    # Used at the end of the 2 ms: the launch comes 1 ms sooner, but for the asynchronous call's own time.
    makespan, applied = moved(blocking(3010))
    assert (applied.count, applied.bytes) == (1, 10 * MIB) and FIRST_SEEN in applied.rests_on
    assert makespan == pytest.approx(4035 - 1010, abs=10)
    # Used 0.4 ms behind the wait: so much is hidden, and the rest is waited for then.
    assert moved(blocking(1415))[0] == pytest.approx(4035 - 400, abs=10)


@pytest.mark.parametrize(
    "recorded",
    [
        blocking(1015),  # at once
        blocking(3010, thread=2),  # by another thread, of which nothing tells when it got the bytes
        blocking(3010, "pageable"),  # which the host itself stages
        blocking(3010, until="copied-over"),  # and nothing is known of any use
        blocking(3010, correlation=7),  # of another copy
    ],
)
def test_a_wait_that_may_be_needed_stays(recorded: Trace) -> None:
    makespan, applied = moved(recorded)
    assert applied.count == 0 and makespan == pytest.approx(4035, abs=1)


def test_pinning_comes_first() -> None:
    applied = apply_all(timeline(blocking(3010, "pageable")), [pin(), wait_at_first_use()], HERE)
    assert play(applied.timeline).makespan_ns / 1000 < 3100


def rounds(*uses: float | None) -> Trace:
    """Rounds of 4 ms: a kernel and a copy back of 1 ms each, a wait for both, and the use so many µs behind it."""
    rows: list[Any] = []
    for number in range(len(uses)):
        at = 4000.0 * number
        rows += [
            made(kernel(at + 10, at + 1010), at, at + 5),
            made(back(at + 1010, at + 2010), at + 5, at + 10, "cudaMemcpyAsync"),
            call(at + 10, at + 2015, "cudaStreamSynchronize", "stream", stream=7),
        ]
    seen = [
        used(3 * number + 1, 4000.0 * number + 2015 + use)
        for number, use in enumerate(uses)
        if use is not None
    ]
    return run(*rows, call(4000 * len(uses), 4000 * len(uses) + 5, "cudaGetLastError"), first_uses=seen)


def test_copies_alike_are_used_as_early_as_the_earliest_that_was_watched() -> None:
    makespan, applied = moved(rounds(1900, None, 700, None))
    assert applied.count == 4
    # Each round's wait comes 0.7 ms later: so much of the host's 2 ms runs beside the GPU.
    assert makespan == pytest.approx(16_005 - 4 * 700, abs=20)


def test_a_wait_for_a_copy_that_nothing_is_known_of_stays() -> None:
    recorded = run(
        made(back(10, 1010), 0, 5, "cudaMemcpyAsync"),
        made(back(1010, 2010, place=8192), 5, 10, "cudaMemcpyAsync"),
        call(10, 2015, "cudaStreamSynchronize", "stream", stream=7),
        call(4000, 4005, "cudaGetLastError"),
        first_uses=[used(0, 3900)],
    )
    assert moved(recorded)[1].count == 0


def test_a_trace_without_first_uses_says_how_to_get_them() -> None:
    with pytest.raises(InputError, match="--first-use"):
        moved(blocking(None))


def test_the_finding_gains_what_the_replay_does_and_no_more_than_its_bound() -> None:
    recorded = rounds(*[1900.0] * 5)
    (found,) = [
        f
        for f in findings(recorded, HERE.recorded_on, rebuilt(recorded, HERE.recorded_on))
        if f.id == "early-waits"
    ]
    makespan = moved(recorded)[0]
    assert found.by_replay and found.what_if == ("--wait-at-first-use",) and FIRST_SEEN in found.rests_on
    assert found.predicted_gain_seconds == pytest.approx((20_005 - makespan) * 1e-6, abs=1e-5)
    assert found.bound_seconds == pytest.approx(5 * 1900e-6)
    assert "5 waits for 5 copies" in found.evidence and "1.9 ms later" in found.evidence
    late = rounds(*[0.0] * 5)
    assert not [f for f in findings(late, None, rebuilt(late, None)) if f.id == "early-waits"]
