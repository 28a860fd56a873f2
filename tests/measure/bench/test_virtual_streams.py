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


def starving(way: str, medium: str, opposite: frozenset[str]) -> float:
    """A second a byte; copies take three beside a kernel that does nothing but write mapped memory."""
    return 3.0 if medium == "copy" and "mapped" in opposite else 1.0


@pytest.mark.parametrize(("queue", "pace"), [(1.0, 3.0), (0.5, 2.0), (0.0, 1.0)])
def test_copies_wait_in_the_queue_of_mapped_writes_as_long_as_it_is(queue: float, pace: float) -> None:
    kernel = Activity("gpu", 0, 0.0, [Flow("d2h", "mapped", 60, queue)])
    copies = copy("h2d", 40, 1)
    seconds = simulate([kernel, copies], Laws(lambda activity, turn, idle: 0.0, starving))
    # While the kernel writes for 60 s, copies move 60 / pace bytes; the rest goes at full pace.
    assert seconds == pytest.approx(max(60, 60 + 40 - 60 / pace))


def test_copies_go_on_in_a_lull_of_mapped_writes() -> None:
    kernel = Activity("gpu", 0, 0.0, [Flow("d2h", "mapped", 60, 1.0, lull=30)])
    seconds = simulate([kernel, copy("h2d", 90, 1)], Laws(lambda activity, turn, idle: 0.0, starving))
    # 30 s at full pace, 30 at a third, and what is left.
    assert seconds == pytest.approx(60 + 90 - 30 - 30 / 3)


def test_a_kernel_that_computes_first_writes_later() -> None:
    kernel = Activity("gpu", 0, 0.0, [Flow("d2h", "mapped", 60)], before=10)
    seconds = simulate([kernel, copy("h2d", 90, 1)], Laws(lambda activity, turn, idle: 0.0, starving))
    assert seconds == pytest.approx(10 + 60 + 90 - 10 - 60 / 3)


def test_copies_that_wait_slow_mapped_writes_the_less() -> None:
    def pace(way: str, medium: str, opposite: frozenset[str]) -> float:
        return (3.0 if medium == "copy" else 2.0) if opposite else 1.0

    kernel = Activity("gpu", 0, 0.0, [Flow("d2h", "mapped", 30)])
    seconds = simulate([kernel, copy("h2d", 10, 1)], Laws(lambda activity, turn, idle: 0.0, pace))
    # The copy takes 30 s, at a third of its pace; writes take 4/3 s a byte then, and 1 s the 7.5 bytes that are left.
    assert seconds == pytest.approx(30 + 7.5)


def test_a_kernel_mixes_its_reads_and_writes() -> None:
    kernel = Activity("gpu", 0, 0.0, [Flow("h2d", "mapped", 20), Flow("d2h", "mapped", 40)])
    # Half the load costs a quarter of what full load would, of twice the time.
    assert simulate([kernel], laws(slowed=2.0)) == pytest.approx(40 * 1.25)


def test_nothing_starts_before_it_is_issued() -> None:
    assert simulate([copy("h2d", 1, issued_at=10.0)], laws()) == pytest.approx(11)


def test_what_waits_for_itself_never_ends() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([Activity("gpu", 0, 1.0, after=(1,)), Activity("gpu", 1, 1.0, after=(0,))], laws())


def test_copies_that_follow_each_other_wait_for_the_other_ways_turns() -> None:
    both = Laws(lambda activity, turn, idle: 0.0, lambda way, medium, opposite: 1.0, lambda copy: 2.0)
    assert simulate([copy("h2d", 10, n) for n in range(3)], both) == pytest.approx(30)
    ways = [copy(way, 10, n + first) for way, first in (("h2d", 0), ("d2h", 3)) for n in range(3)]
    # The first one of each way finds its engine idle.
    assert simulate(ways, both) == pytest.approx(30 + 2 * 2)


def test_mapped_writes_hold_copies_and_their_kernels_wait() -> None:
    held = Laws(lambda activity, turn, idle: 0.0, starving, kernel_wait=lambda late: 5.0 if late < 1 else 2.0)
    copies = [copy("h2d", 10, n) for n in range(2)]
    kernels = [Activity("gpu", n, 0.0, [Flow("d2h", "mapped", 60, 0.0)]) for n in range(2)]
    # The second copy is under way when the first kernel begins, and ends with it at the earliest.
    assert simulate([*copies, *kernels], held) == pytest.approx(10 + 60 + 5 + 60)


def test_a_copy_that_ends_well_after_mapped_writes_is_waited_for_the_less() -> None:
    held = Laws(lambda activity, turn, idle: 0.0, starving, kernel_wait=lambda late: 5.0 if late < 1 else 2.0)
    copies = [copy("h2d", size, n) for n, size in enumerate((10, 100))]
    kernels = [Activity("gpu", n, 0.0, [Flow("d2h", "mapped", 60, 0.0)]) for n in range(2)]
    assert simulate([*copies, *kernels], held) == pytest.approx(10 + 100 + 2 + 60)
