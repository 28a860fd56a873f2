"""Joints: who waits for whom across ranks, the path through them, circles, and how much work they are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from busfare.timeline import _core
from busfare.timeline.model import at_rest
from tests.timeline.random_columns import Columns, only_operations, timelines

OPERATION, LAUNCH, QUEUE, UNEXPLAINED, HOST_GAP, CALL, _ = range(7)


def collectives(released: np.ndarray[Any, Any], transfer: int) -> Columns:
    """Ranks whose n-th operations await each other; `released`, shape (ranks, operations), when each may start."""
    ranks, count = released.shape
    rows = np.arange(released.size).reshape(released.shape)
    return only_operations(
        released.size, operation_stream=rows.ravel() // count, operation_released=released.ravel(),
        operation_duration=[transfer] * released.size, call_awaits=[], operation_awaits=rows.ravel() % count,
        joint_begin=ranks * np.arange(count + 1), joint_members=rows.T.ravel(),
    )  # fmt: skip


def calls(count: int, operations: int = 0, **given: Any) -> Columns:
    """So many calls, each on a thread of its own, and operations."""
    joints = {"call_awaits": [-1] * count, "operation_awaits": [-1] * operations}
    return at_rest(count, operations, operations, call_thread=range(count), **joints | given)


def test_a_transfer_begins_once_the_last_rank_is_there() -> None:
    played = _core.play(collectives(np.array([[100, 0], [700, 2000]]), 50))
    assert played["operation_start"].tolist() == [100, 750, 700, 2000]
    assert played["operation_end"].tolist() == [750, 2050, 750, 2050]


def test_buffered_messages_hold_up_the_receiver_alone() -> None:
    def ends(sent: int, received: int) -> list[int]:
        rows = collectives(np.array([[sent], [received]]), 50)
        sender_alone = {"operation_awaits": np.array([-1, 0], np.int32)}
        members = {"joint_begin": np.array([0, 1]), "joint_members": np.array([0], np.int32)}
        return list(_core.play(rows | sender_alone | members)["operation_end"].tolist())

    assert ends(100, 700) == [150, 750]
    assert ends(700, 100) == [750, 750]


def test_a_call_returns_its_duration_after_the_last_arrival_and_an_empty_joint_holds_nobody_up() -> None:
    barrier = {"joint_begin": [0, 3, 3], "joint_members": [0, 1, 2], "call_awaits": [0, 0, -1, 1]}
    played = _core.play(calls(4, call_gap=[5, 90, 30, 7], call_own=[1, 2, 40, 3], **barrier))
    assert played["call_end"].tolist() == [91, 92, 70, 10]


def path_of(columns: Columns) -> list[tuple[int, ...]]:
    """Step, row, start and end of every stretch of the critical path that lasts."""
    played = _core.play(columns, path=True)
    stretches = zip(*(played[f"path_{of}"].tolist() for of in ("step", "row", "start", "end")), strict=True)
    return [stretch for stretch in stretches if stretch[3] > stretch[2]]


def test_the_critical_path_goes_from_a_transfer_to_the_slow_rank() -> None:
    # Both second transfers start as the first ones end, which the second rank held up.
    expected = [(UNEXPLAINED, 2, 0, 700), (OPERATION, 0, 700, 750), (OPERATION, 1, 750, 800)]
    assert path_of(collectives(np.array([[100, 0], [700, 0]]), 50)) == expected
    joint = {"call_awaits": [0, -1], "joint_begin": [0, 1], "joint_members": [1]}
    rows = calls(2, call_gap=[5, 90], call_own=[10, 2], **joint)
    assert path_of(rows) == [(HOST_GAP, 1, 0, 90), (CALL, 0, 90, 100)]


def test_the_critical_path_goes_through_what_made_the_slow_rank_late() -> None:
    rows = calls(
        2, call_gap=[0, 300], operations=3, operation_call=[0, 1, 1], operation_launched=[1, 1, 1],
        operation_stream=[0, 1, 1], operation_duration=[60, 100, 50], operation_launch_lag=[10] * 3,
        operation_order_lag=[3] * 3, operation_awaits=[0, -1, 0], joint_begin=[0, 2], joint_members=[2, 4],
    )  # fmt: skip
    late = [(HOST_GAP, 1, 0, 300), (LAUNCH, 1, 300, 310), (OPERATION, 1, 310, 410), (QUEUE, 2, 410, 413)]
    assert path_of(rows) == [*late, (OPERATION, 0, 413, 473)]


@given(timelines(calls=40, links=True, joints=True))
def test_nobody_goes_on_before_the_last_has_arrived(columns: Columns) -> None:
    played = _core.play(columns)
    starts = np.append(played["call_start"], played["operation_start"])
    sets = np.split(columns["joint_members"], columns["joint_begin"][1:-1])
    for joint, members in enumerate(sets if len(columns["joint_begin"]) > 1 else []):
        arrived = starts[members].max(initial=0)
        mine = columns["operation_awaits"] == joint
        begins = np.maximum(played["operation_start"][mine], arrived)
        assert (played["operation_end"][mine] == begins + columns["operation_duration"][mine]).all()
        mine = columns["call_awaits"] == joint
        assert (played["call_end"][mine] >= arrived + columns["call_own"][mine]).all()


def test_ranks_that_wait_in_a_circle_are_refused() -> None:
    rows = collectives(np.zeros((2, 2), np.int64), 50)
    # The second rank does the two in the other order.
    orders = {"operation_awaits": [0, 1, 1, 0], "joint_members": [0, 3, 1, 2]}
    crossed = {name: np.array(order, np.int32) for name, order in orders.items()}
    with pytest.raises(ValueError, match="column joint_members: ranks wait for each other in a circle"):
        _core.play(rows | crossed)


def test_a_thousand_ranks_play_as_their_slowest_does() -> None:
    chance = np.random.default_rng(4)
    released = np.cumsum(chance.integers(0, 3000, (1000, 300)), axis=1)
    played = _core.play(collectives(released, 400), path=True)
    ends = 0
    for joint, last in enumerate(released.max(axis=0).tolist()):
        ends = max(ends, last) + 400
        assert (played["operation_end"].reshape(released.shape)[:, joint] == ends).all()
    assert played["makespan"] == ends
