"""Columns that make no timeline are refused by name, whatever is wrong with them; a long play can be stopped."""

import signal
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busfare.timeline import _core
from busfare.timeline.model import at_rest
from tests.timeline.random_columns import Columns, columns, joined, only_operations, timelines

ALONE = columns(Random(7), 30, 1, links=True)
GOOD = joined(Random(7), ALONE, 1)
MOST = np.iinfo(np.int64).max
SINGLE_LINK: dict[str, Any] = {"link_bytes_per_s": [1.0], "link_both": [1.0], "link_opposite": [-1]}


def put(name: str, row: int, value: Any) -> Columns:
    changed = GOOD[name].copy()
    changed[row] = value
    return GOOD | {name: changed}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values.astype(np.float32),
        lambda values: values.astype(np.int16),
        lambda values: values.astype(values.dtype.newbyteorder(">")) if values.itemsize > 1 else values[:0],
        lambda values: values.reshape(1, -1),
        lambda values: np.repeat(values, 2)[::2],
        lambda values: values.tolist(),
        lambda values: None,
        lambda values: values.astype(str),
    ],
    ids=["float32", "int16", "byte order", "2-D", "strided", "list", "none", "text"],
)
def test_another_type_or_shape(name: str, spoil: Any) -> None:
    spoilt = spoil(GOOD[name])
    if isinstance(spoilt, np.ndarray) and spoilt.shape == (1,) and spoilt.dtype == GOOD[name].dtype:
        spoilt = spoilt.reshape(1, 1)  # one value is contiguous whatever its stride
    with pytest.raises(ValueError, match=name):
        _core.play(GOOD | {name: spoilt})


@pytest.mark.parametrize("name", GOOD)
def test_a_column_is_missing(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        _core.play({key: values for key, values in GOOD.items() if key != name})


#: Whose lengths are those of their tables: all but the first of each table, which says how long it is.
FIRST = ("call_thread", "operation_call", "operation_links", "stream_device", "engine_slots", "joint_members")
FOLLOWING = [name for name in GOOD if name not in FIRST]


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("by", [-1, 1])
def test_another_length(name: str, by: int) -> None:
    resized = np.resize(GOOD[name], len(GOOD[name]) + by)
    with pytest.raises(ValueError, match="link_" if name == "link_bytes_per_s" else name):
        _core.play(GOOD | {name: resized})


LEAST, LARGE = -MOST - 1, 2**31 - 1
WRONG: dict[str, tuple[Any, ...]] = {
    "call_thread": (-1, 30, LARGE),
    "call_gap": (-1, MOST, LEAST),
    "call_own": (-1, MOST, LEAST),
    "call_after": (-2, 7, 29, LARGE),
    "call_wait": (6, 255),
    "call_wait_lag": (MOST, LEAST),
    "call_act": (3, 255),
    "operation_call": (-2, 30, LARGE),
    "operation_stream": (-1, 99, LARGE),
    "operation_engine": (-2, 99, LARGE),
    "operation_duration": (-1, MOST, LEAST),
    "operation_launch_lag": (MOST, LEAST),
    "operation_order_lag": (MOST, LEAST),
    "operation_extra": (-1, MOST),
    "operation_after": (-2, 7, LARGE),
    "operation_released": (MOST,),
    "operation_unordered": (8, 255),
    "operation_bytes_per_s": (-1.0, np.nan, np.inf, -np.inf),
    "operation_link_begin": (-1, MOST),
    "operation_links": (-1, 99, LARGE),
    "call_awaits": (-2, 99, LARGE),
    "operation_awaits": (-2, 99, LARGE),
    "joint_begin": (-1, 1, MOST),
    "joint_members": (-1, 999, LARGE),
    "engine_slots": (0, -1, -(2**31)),
    "link_bytes_per_s": (0.0, -1.0, np.nan, -np.inf),
    "link_both": (0.0, -1.0, np.nan, np.inf),
    "operation_link_cost": (0.0, -1.0, np.nan, np.inf),
    "operation_weight": (0.0, -1.0, np.nan, np.inf),
    "link_opposite": (-2, 99),
    "stream_device": (-2, 99, LARGE),
    "stream_context": (-2, 99, LARGE),
    "stream_kind": (3, 255),
}
OUT_OF_RANGE = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range(name: str, value: Any) -> None:
    row = 7 if len(GOOD[name]) > 7 else 0
    # A wait for an operation looks at that one's call first.
    seen_by = "(operation_call|call_wait_key)" if name == "operation_call" else name
    with pytest.raises(ValueError, match=f"column {seen_by}, row [0-9]"):
        _core.play(put(name, row, value))


def waiting(wait: int, key: int) -> Columns:
    """The call in row 7 waits for this."""
    return put("call_wait", 7, wait) | {"call_wait_key": put("call_wait_key", 7, key)["call_wait_key"]}


@pytest.mark.parametrize(("wait", "key"), [(2, 99), (2, -1), (3, 99), (3, -1), (4, -1), (5, -1), (5, 2**30)])
def test_a_wait_for_what_there_is_not(wait: int, key: int) -> None:
    with pytest.raises(ValueError, match="column call_wait_key, row 7"):
        _core.play(waiting(wait, key))


def test_a_wait_for_an_operation_that_comes_later() -> None:
    later = int(np.flatnonzero(GOOD["operation_call"] > 7)[0])
    with pytest.raises(ValueError, match="call_wait_key"):
        _core.play(waiting(5, later))


@pytest.mark.parametrize(
    "has",
    [
        {"operation_engine": [-1, 0]},
        {"operation_link_begin": [0, 0, 1], "operation_links": [0], "operation_link_cost": [1]},
    ],
)
def test_who_awaits_a_joint_has_no_engine_and_no_links(has: dict[str, Any]) -> None:
    joint = {"call_awaits": [], "operation_awaits": [-1, 0], "joint_begin": [0, 1], "joint_members": [0]}
    columns = only_operations(2, engine_slots=[1], **SINGLE_LINK, **joint, **has)
    with pytest.raises(ValueError, match="column operation_awaits, row 1"):
        _core.play(columns)
    assert _core.play(columns | {"operation_awaits": np.full(2, -1, np.int32)})["makespan"] == 0


def test_times_that_cannot_be_added_up() -> None:
    durations = np.full_like(GOOD["operation_duration"], 2**60)
    with pytest.raises(ValueError, match=r"column operation_duration, row [0-9]"):
        _core.play(GOOD | {"operation_duration": durations, "call_own": np.zeros_like(GOOD["call_own"])})


def test_a_copy_over_a_link_that_takes_for_ever() -> None:
    with pytest.raises(ValueError, match="link_bytes_per_s"):
        _core.play(GOOD | {"link_bytes_per_s": np.full_like(GOOD["link_bytes_per_s"], 5e-324)})


def test_recorded_times_that_run_backwards() -> None:
    played = _core.play(GOOD)
    trace = {name: played[name] for name in ("call_start", "call_end", "operation_start", "operation_end")}
    trace["call_class"] = np.zeros(len(GOOD["call_own"]), np.uint8)
    trace["operation_class"] = trace["operation_unit"] = np.zeros(len(GOOD["operation_call"]), np.uint8)
    assert len(_core.explain(GOOD, trace)["call_own"]) == len(GOOD["call_own"])
    for name in trace:
        with pytest.raises(ValueError, match=name):
            _core.explain(GOOD, trace | {name: trace[name][:-1]})
        if trace[name].dtype == np.int64:
            with pytest.raises(ValueError, match=name.partition("_")[0]):
                _core.explain(GOOD, trace | {name: np.where(trace[name] >= 0, MOST, 0)})
    with pytest.raises(ValueError, match="column start"):
        _core.alone(GOOD, trace["operation_start"].astype(np.float64), trace["operation_end"])
    with pytest.raises(ValueError, match="column end"):
        _core.alone(GOOD, trace["operation_end"] + 1, trace["operation_start"])


@given(timelines(links=True, unordered=True, joints=True), st.data())
def test_any_column_may_hold_anything(good: Columns, data: st.DataObject) -> None:
    """It plays or is refused; nothing else."""
    name = data.draw(st.sampled_from([name for name in good if len(good[name])]))
    kind = good[name].dtype
    floats = [np.nan, np.inf, -np.inf, 5e-324, 1e308]
    extreme = floats if kind == np.float64 else [np.iinfo(kind).min, np.iinfo(kind).max]
    value = data.draw(st.sampled_from(extreme) | st.integers(0, 100))
    spoilt = good[name].copy()
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = value
    try:
        _core.play(good | {name: spoilt}, path=True)
    except ValueError as complaint:
        assert "replay: column" in str(complaint)


def stopped_soon(rows: Columns) -> None:
    """Plays with a Ctrl-C that comes once the core is at work."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            # Set in here, since on a busy machine it may go off before the core is reached.
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            _core.play(rows)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_stops_a_long_play() -> None:
    stopped_soon(at_rest(2_000_000, 0, 0))


def test_ctrl_c_stops_many_copies_that_share_a_link() -> None:
    count = 30_000
    rows = only_operations(
        count, operation_duration=1_000_000_000 + np.arange(count), operation_bytes_per_s=[1e9] * count,
        operation_link_begin=range(count + 1), operation_links=[0] * count, operation_link_cost=[1.0] * count,
        **SINGLE_LINK | {"link_bytes_per_s": [1e9]},
    )  # fmt: skip
    stopped_soon(rows)


EVENT_CALLS: Columns = {
    **{name: np.zeros(3, np.int32) for name in ("thread", "process", "first_stream", "last_stream")},
    **{name: np.zeros(3, np.int64) for name in ("time", "first_start", "last_end")},
    "row": np.arange(3, dtype=np.int32),
    "kind": np.array([0, 1, 2], np.uint8),
}


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("kind", np.array([0, 1, 3], np.uint8), "column kind"),
        ("time", np.zeros(2, np.int64), "different sizes"),
        ("process", np.array([0, 0, 1], np.int32), "a thread of two processes"),
        ("last_end", np.zeros(3, np.int32), "last_end"),
    ],
)
def test_calls_of_unnamed_events(name: str, values: Any, error: str) -> None:
    assert not len(_core.unnamed_events(EVENT_CALLS)["wait"])
    with pytest.raises(ValueError, match=error):
        _core.unnamed_events(EVENT_CALLS | {name: values})


@given(st.data())
def test_any_calls_of_unnamed_events_end_in_pairs(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 40))

    def numbers(least: int, most: int, kind: type) -> Any:
        return np.array(data.draw(st.lists(st.integers(least, most), min_size=count, max_size=count)), kind)

    thread = numbers(0, 3, np.int32)
    pairs = _core.unnamed_events({
        "row": np.arange(count, dtype=np.int32), "kind": numbers(0, 2, np.uint8), "thread": thread,
        "process": thread // 2, "time": np.sort(numbers(0, 400_000, np.int64)),
        **{f"{name}_stream": numbers(-1, 3, np.int32) for name in ("first", "last")},
        "first_start": numbers(-MOST // 4, MOST // 4, np.int64), "last_end": numbers(-MOST // 4, MOST // 4, np.int64),
    })  # fmt: skip
    assert (pairs["record"] < pairs["wait"]).all()
    assert (pairs["recorded"] != pairs["waiting"]).all()
