"""Operations that take several slots of an engine: they share it, nobody loses what it has, and no work is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from busfare.timeline import _core
from tests.timeline.random_columns import Columns, only_operations, timelines

#: Each at its time, of so many slots for so long.
Work = list[tuple[int, int, int]]


def alone(slots: int, work: Work) -> Columns:
    """Operations of one engine, ready when they are released."""
    released, takes, duration = zip(*work, strict=True) if work else ([], [], [])
    return only_operations(
        len(work),
        operation_engine=[0] * len(work),
        operation_takes=takes,
        operation_duration=duration,
        operation_released=released,
        engine_slots=[slots],
    )


def slowly(slots: int, work: Work) -> list[tuple[Fraction, Fraction]]:
    """Start and end of each, shared out anew whenever something happens: first come, first served."""
    left = [Fraction(duration) for _, _, duration in work]
    start: dict[int, Fraction] = {}
    end: dict[int, Fraction] = {}
    queue: list[int] = []
    now = Fraction(0)
    while len(end) < len(work):
        coming = {row for row, (at, _, _) in enumerate(work) if at <= now and row not in queue} - end.keys()
        # Whoever has begun goes before those who wait, of whom the first row goes first.
        begun = sorted((row for row in queue if row in start), key=queue.index)
        queue = [*begun, *sorted((set(queue) | coming) - set(begun))]
        free, paces = slots, {}
        for row in queue:
            if free == 0:
                break
            has = min(free, work[row][1])
            free -= has
            paces[row] = Fraction(has, work[row][1])
            start.setdefault(row, now)
        ends = [now + left[row] / pace for row, pace in paces.items()]
        arrivals = [Fraction(at) for row, (at, _, _) in enumerate(work) if at > now]
        later = min([*ends, *arrivals])
        for row, pace in paces.items():
            left[row] -= pace * (later - now)
            if left[row] == 0:
                end[row] = later
        queue = [row for row in queue if row not in end]
        now = later
    return [(start[row], end[row]) for row in range(len(work))]


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 12), st.integers(1, 3000)), max_size=12),
)
def test_slots_are_shared_first_come_first_served(slots: int, work: Work) -> None:
    work = [(at, min(takes, slots), duration) for at, takes, duration in work]
    played = _core.play(alone(slots, work))
    expected = slowly(slots, work)
    # Who comes as another ends is before or behind those who wait, as that end was rounded.
    assume(all(abs(end - at) > 1 for _, end in expected for at, _, _ in work))
    # Each end is rounded to a nanosecond, and others begin with it.
    for row, (start, end) in enumerate(expected):
        assert played["operation_start"][row] == pytest.approx(float(start), abs=len(work))
        assert played["operation_end"][row] == pytest.approx(float(end), abs=len(work))


def test_small_kernels_run_side_by_side_and_a_large_one_beside_a_small_one() -> None:
    played = _core.play(alone(10, [(0, 1, 1000), (0, 1, 1000), (0, 1, 1000)]))
    assert played["makespan"] == 1000
    # Nine tenths of its pace for 900, so 810 are done; all of it afterwards.
    played = _core.play(alone(10, [(0, 1, 900), (0, 10, 1000)]))
    assert played["operation_end"].tolist() == [900, 900 + 190]


@given(timelines(calls=60, early=False, squeezed=True))
def test_no_work_is_lost_and_none_gained(columns: Columns) -> None:
    played = _core.play(columns)
    lasted = played["operation_end"] - played["operation_start"]
    takes, duration = columns["operation_takes"], columns["operation_duration"]
    assert (lasted >= duration).all()
    for engine, slots in enumerate(columns["engine_slots"]):
        mine = columns["operation_engine"] == engine
        starts, ends = played["operation_start"][mine], played["operation_end"][mine]
        # Between any two times an engine does no more than its slots can.
        for first in starts:
            for last in ends:
                inside = (starts >= first) & (ends <= last)
                done = int((takes[mine] * duration[mine])[inside].sum())
                assert done <= slots * max(int(last - first), 0) + slots * inside.sum()


@pytest.mark.parametrize("takes", [0, -1, 3, 2**31 - 1])
def test_more_or_less_than_an_engine_has_is_refused(takes: int) -> None:
    columns = alone(2, [(0, 1, 10), (0, 1, 10)])
    columns["operation_takes"][1] = takes
    with pytest.raises(ValueError, match="operation_takes, row 1"):
        _core.play(columns)


def test_a_kernel_squeezed_for_decades_is_refused() -> None:
    columns = alone(1 << 30, [(0, (1 << 30) - 1, 1 << 59), (0, 1 << 30, 1 << 59)])
    with pytest.raises(ValueError, match="operation_takes"):
        _core.play(columns)
