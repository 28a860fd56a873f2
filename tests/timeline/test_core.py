"""The engine beside a naive one, and how much room it needs."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from busfare.timeline import _core
from tests.timeline import naive
from tests.timeline.random_columns import TIMES, Columns, only_operations, recorded, taken_apart, timelines


def arrivals(columns: Columns, played: dict[str, Any]) -> np.ndarray[Any, Any]:
    """When the last of each joint starts; behind them a 0, for those who await none."""
    starts = np.append(played["call_start"], played["operation_start"])
    sets = np.split(columns["joint_members"], columns["joint_begin"][1:-1])
    return np.array([*(starts[members].max(initial=0) for members in sets), 0])


def times(played: dict[str, Any]) -> dict[str, list[int]]:
    return {name: played[name].tolist() for name in TIMES}


@given(timelines() | timelines(joints=True))
def test_it_plays_as_the_naive_engine_does(columns: Columns) -> None:
    assert times(_core.play(columns)) == naive.play(columns)


@given(timelines(calls=80, links=True, unordered=True, squeezed=True, joints=True))
def test_time_never_goes_backwards(columns: Columns) -> None:
    played = _core.play(columns)
    assert (played["call_start"] >= 0).all() and (played["operation_start"] >= 0).all()
    assert (played["call_end"] >= played["call_start"] + columns["call_own"]).all()
    assert (played["operation_end"] >= played["operation_start"]).all()
    assert played["makespan"] == max([*played["call_end"], *played["operation_end"]])
    for thread in np.unique(columns["call_thread"]):
        calls = np.flatnonzero(columns["call_thread"] == thread)
        assert (played["call_start"][calls[1:]] >= played["call_end"][calls[:-1]]).all()


@given(timelines(calls=40, links=True))
def test_everything_waits_for_what_it_depends_on(columns: Columns) -> None:
    played, depends = _core.play(columns), naive.waits(columns)
    end = played["operation_end"]
    for operation, before in enumerate(depends.operation):
        lag = columns["operation_order_lag"][operation]
        assert all(played["operation_start"][operation] >= end[o] + lag for o in before)
    for call, waited in enumerate(depends.call):
        assert all(played["call_end"][call] >= end[o] + columns["call_wait_lag"][call] for o in waited)
    launched = columns["operation_launched"] != 0
    called = played["call_start"][columns["operation_call"][launched]]
    assert (played["operation_start"][launched] >= called + columns["operation_launch_lag"][launched]).all()
    assert (played["operation_start"] >= columns["operation_released"]).all()
    handed = columns["call_after"] >= 0
    given_at = played["call_end"][columns["call_after"][handed]]
    assert (played["call_start"][handed] >= given_at + columns["call_gap"][handed]).all()


@given(timelines(calls=60, early=False))
def test_an_engine_never_runs_more_than_it_has_room_for(columns: Columns) -> None:
    played = _core.play(columns)
    for engine, slots in enumerate(columns["engine_slots"]):
        mine = columns["operation_engine"] == engine
        starts, ends = played["operation_start"][mine], played["operation_end"][mine]
        assert all(((starts <= at) & (ends > at)).sum() <= slots for at in starts)


@given(timelines(calls=60, unordered=True))
def test_operations_last_as_long_as_they_should(columns: Columns) -> None:
    played = _core.play(columns)
    lasted = played["operation_end"] - played["operation_start"]
    assert lasted.tolist() == columns["operation_duration"].tolist()


@given(timelines(calls=60, links=True, unordered=True, squeezed=True, joints=True))
def test_the_same_timeline_plays_the_same_again(columns: Columns) -> None:
    first = times(_core.play(columns))
    assert times(_core.play(columns)) == first
    assert times(_core.play(columns, path=True)) == first


@given(timelines(calls=60, links=True, unordered=True, squeezed=True, joints=True))
def test_the_critical_path_leads_from_the_start_to_the_end_without_a_hole(columns: Columns) -> None:
    played = _core.play(columns, path=True)
    starts, ends = played["path_start"], played["path_end"]
    assert starts[0] == 0 and ends[-1] == played["makespan"]
    assert (ends[:-1] == starts[1:]).all() and (ends >= starts).all()
    operations = played["path_row"][played["path_step"] == 0]
    arrived = arrivals(columns, played)[columns["operation_awaits"][operations]]
    begun = np.maximum(played["operation_start"][operations], arrived)
    assert (starts[played["path_step"] == 0] == begun).all()


@given(timelines(calls=60, early=False))
def test_the_critical_path_holds_whole_operations(columns: Columns) -> None:
    played = _core.play(columns, path=True)
    on_path = played["path_step"] == 0
    rows = played["path_row"][on_path]
    assert (played["path_end"][on_path] == played["operation_end"][rows]).all()
    unexplained = played["path_step"] == 3
    lasted = (played["path_end"] - played["path_start"])[unexplained]
    rows = played["path_row"][unexplained]
    allowed = columns["operation_extra"][rows]
    free = (columns["operation_launched"][rows] == 0) & (played["path_start"][unexplained] == 0)
    assert (lasted <= np.where(free, np.iinfo(np.int64).max, allowed)).all()


@given(timelines(calls=60, engines=False), st.data())
def test_without_engines_a_faster_part_never_slows_the_whole(columns: Columns, data: st.DataObject) -> None:
    before = _core.play(columns)
    name = data.draw(st.sampled_from(["operation_duration", "operation_extra", "call_own", "call_gap"]))
    assume(len(columns[name]))
    row = data.draw(st.integers(0, len(columns[name]) - 1))
    faster = columns[name].copy()
    faster[row] = data.draw(st.integers(0, int(faster[row])))
    after = _core.play(columns | {name: faster})
    assert all((after[what] <= before[what]).all() for what in TIMES)


def test_no_path_starts_before_the_run() -> None:
    """The second has its engine late, though it could have run before the run began."""
    lags = {"operation_order_lag": [-90, -90], "operation_engine_lag": [5, 5]}
    single_slot = {"operation_engine": [0, 0], "engine_slots": [1], "operation_duration": [10, 10]}
    assert _core.play(only_operations(2, **single_slot, **lags), path=True)["path_start"].min() == 0


def test_with_engines_a_faster_kernel_can_make_the_run_longer() -> None:
    """A copy that is ready earlier takes the engine from a short one that a long kernel waits for."""

    def makespan(kernel: int) -> int:
        # Kernel, long copy behind it; short copy, long kernel behind it.
        rows = only_operations(
            4, operation_stream=[0, 0, 1, 1], operation_engine=[-1, 0, 0, -1],
            operation_duration=[kernel, 1000, 10, 1000], operation_released=[0, 0, 105, 0], engine_slots=[1],
        )  # fmt: skip
        return int(_core.play(rows)["makespan"])

    assert makespan(110) == 115 + 1000
    assert makespan(100) == 100 + 1000 + 10 + 1000


@given(timelines(calls=60), st.integers(1, 3))
def test_what_was_played_is_explained_and_plays_the_same(columns: Columns, classes: int) -> None:
    # Only a staged copy returns well before its end: of any other wait that is taken as a contradiction.
    staged = columns["call_wait"] == 1
    columns["call_wait_lag"] = np.where(
        staged, columns["call_wait_lag"], np.maximum(columns["call_wait_lag"], -5000)
    )
    played = _core.play(columns)
    again = _core.play(taken_apart(columns, recorded(columns, played, classes)))
    assert times(again) == times(played)


#: Each at its time, of so many slots for so long.
Work = list[tuple[int, int, int]]


def alone(slots: int, work: Work) -> Columns:
    """Operations of one engine, ready when they are released."""
    released, takes, duration = zip(*work, strict=True) if work else ([], [], [])
    return only_operations(
        len(work), operation_engine=[0] * len(work), operation_takes=takes, operation_duration=duration,
        operation_released=released, engine_slots=[slots],
    )  # fmt: skip


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
        ends = [now + left[row] / rate for row, rate in paces.items()]
        arrivals = [Fraction(at) for row, (at, _, _) in enumerate(work) if at > now]
        later = min([*ends, *arrivals])
        for row, rate in paces.items():
            left[row] -= rate * (later - now)
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


def test_small_kernels_overlap_and_so_do_a_large_and_a_small_kernel() -> None:
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
