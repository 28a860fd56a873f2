"""The simulation against times that can be reckoned by hand."""

from __future__ import annotations

import pytest

from busfare.measure.virtual_streams import Activity, Flow, Laws, simulate


def laws(setup: float = 0.0, slowed: float = 1.0) -> Laws:
    """A second a byte; `slowed` times as long while anything moves the other way."""
    return Laws(lambda activity, turn, idle: setup, lambda way, medium, opposite: slowed if opposite else 1.0)


def copy(way: str, size: float, stream: int = 0, **more: object) -> Activity:
    return Activity(way, stream, 0.0, [Flow(way, "copy", size)], **more)  # type: ignore[arg-type]


def test_one_stream_is_one_thing_after_the_other() -> None:
    activities = [copy("h2d", 3), Activity("gpu", 0, 2.0), copy("d2h", 4)]
    assert simulate(activities, laws(setup=0.5)) == pytest.approx(10.5)


def test_an_engine_does_one_copy_at_a_time_in_the_order_of_issue() -> None:
    assert simulate([copy("h2d", 3, 0), copy("h2d", 2, 1)], laws()) == pytest.approx(5)


def test_both_directions_at_once_slow_each_other_only_while_both_move() -> None:
    # Two seconds' worth each at half pace take 4; the rest of the longer one has the link to itself.
    assert simulate([copy("h2d", 2, 0), copy("d2h", 5, 1)], laws(slowed=2.0)) == pytest.approx(4 + 3)


def test_streams_overlap_copies_in_kernels_and_copies_out() -> None:
    copies_in = [copy("h2d", 1, n) for n in range(4)]
    kernels = [Activity("gpu", n, 1.0) for n in range(4)]
    copies_out = [copy("d2h", 1, n) for n in range(4)]
    assert simulate([*copies_in, *kernels, *copies_out], laws()) == pytest.approx(4 + 1 + 1)


def test_an_event_delays_what_waits_for_it() -> None:
    activities = [copy("h2d", 5, 0), Activity("gpu", 1, 1.0, after=(0,))]
    assert simulate(activities, laws()) == pytest.approx(6)


def test_a_kernel_on_mapped_memory_is_as_long_as_its_longest_part() -> None:
    for read, work, written in ((5.0, 2.0, 3.0), (1.0, 6.0, 2.0), (1.0, 2.0, 7.0)):
        kernel = Activity("gpu", 0, work, [Flow("h2d", "mapped", read), Flow("d2h", "mapped", written)])
        assert simulate([kernel], laws()) == pytest.approx(max(read, work, written))


def test_nothing_starts_before_it_is_issued() -> None:
    assert simulate([copy("h2d", 1, issued_at=10.0)], laws()) == pytest.approx(11)


def test_what_waits_for_itself_never_ends() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([Activity("gpu", 0, 1.0, after=(1,)), Activity("gpu", 1, 1.0, after=(0,))], laws())
