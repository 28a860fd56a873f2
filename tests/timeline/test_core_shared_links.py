"""Copies that share links: each has its max-min fair part at every moment, and what it carries is all it should."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busfare.timeline import _core
from tests.timeline.random_columns import Columns, only_operations, recorded, taken_apart, timelines

Flows = list[int]
SLACK = 1e-9


def links_of(columns: Columns, operation: int) -> dict[int, float]:
    """The links of a copy, and how much of each a byte of it takes."""
    if not columns["operation_bytes_per_s"][operation]:
        return {}
    begin, end = columns["operation_link_begin"][operation : operation + 2]
    names = (columns[f"operation_{name}"][begin:end].tolist() for name in ("links", "link_cost"))
    return dict(zip(*names, strict=True))


def room(columns: Columns, flows: Flows) -> dict[int, float]:
    """What each link in use carries at most while these flows are under way."""
    used = {link for flow in flows for link in links_of(columns, flow)}
    return {
        link: float(
            columns["link_bytes_per_s"][link]
            * (columns["link_both"][link] if columns["link_opposite"][link] in used else 1)
        )
        for link in used
    }


def fair_rates(columns: Columns, flows: Flows) -> dict[int, float]:
    """All grow by their weights; who meets a full link, or has all it can use, stays."""
    left, rates, growing = room(columns, flows), dict.fromkeys(flows, 0.0), set(flows)
    while growing:
        weight = columns["operation_weight"]
        users = {link: sum(links_of(columns, f).get(link, 0) * weight[f] for f in growing) for link in left}
        steps = [left[link] / taken for link, taken in users.items() if taken]
        steps += [(columns["operation_bytes_per_s"][flow] - rates[flow]) / weight[flow] for flow in growing]
        step = min(steps)
        for flow in growing:
            rates[flow] += step * weight[flow]
        left = {link: rest - step * users[link] for link, rest in left.items()}
        growing = {
            flow
            for flow in growing
            if rates[flow] < columns["operation_bytes_per_s"][flow] * (1 - SLACK)
            and all(left[link] > SLACK for link in links_of(columns, flow))
        }
    return rates


def moments(columns: Columns, played: dict[str, Any]) -> list[tuple[int, int, Flows]]:
    """Stretches of time in which the same copies are under way."""
    sharing = [o for o in range(len(columns["operation_call"])) if links_of(columns, o)]
    start, end = played["operation_start"], played["operation_end"]
    times = sorted({int(at) for o in sharing for at in (start[o], end[o])})
    return [(a, b, [o for o in sharing if start[o] <= a and end[o] >= b]) for a, b in pairwise(times)]


@given(timelines(links=True, early=False))
def test_what_a_copy_gets_adds_up_to_its_bytes(columns: Columns) -> None:
    played = _core.play(columns)
    carried = np.zeros(len(columns["operation_call"]))
    changes = np.ones(len(carried))
    for begin, end, flows in moments(columns, played):
        for flow, rate in fair_rates(columns, flows).items():
            carried[flow] += rate / columns["operation_bytes_per_s"][flow] * (end - begin)
            changes[flow] += 1
    for flow in range(len(carried)):
        wanted = columns["operation_duration"][flow]
        if links_of(columns, flow):  # every change of the paces is on a whole nanosecond
            assert abs(carried[flow] - wanted) <= changes[flow]
        else:
            assert played["operation_end"][flow] - played["operation_start"][flow] == wanted


@given(timelines(links=True, early=False))
def test_no_link_is_overfull_and_shares_are_max_min_fair_by_weight(columns: Columns) -> None:
    for _, _, flows in moments(columns, _core.play(columns)):
        rates, most = fair_rates(columns, flows), room(columns, flows)
        load = {link: sum(rates[f] * links_of(columns, f).get(link, 0) for f in flows) for link in most}
        level = {flow: rates[flow] / columns["operation_weight"][flow] for flow in flows}
        assert all(load[link] <= most[link] * (1 + 1e-6) for link in most)
        for flow in flows:
            full = [link for link in links_of(columns, flow) if load[link] >= most[link] * (1 - 1e-6)]
            largest = [
                link
                for link in full
                if all(level[f] <= level[flow] * (1 + 1e-6) for f in flows if link in links_of(columns, f))
            ]
            assert largest or rates[flow] >= columns["operation_bytes_per_s"][flow] * (1 - 1e-6)


@given(timelines(links=True, early=False))
def test_the_time_alone_follows_from_when_copies_ran(columns: Columns) -> None:
    played = _core.play(columns)
    alone = _core.alone(columns, played["operation_start"], played["operation_end"])
    allowed = 1 + len(moments(columns, played))
    assert (abs(alone - columns["operation_duration"]) <= allowed).all()


@given(timelines(calls=8, links=True, early=False, engines=False), st.integers(1, 3))
def test_shared_copies_play_again_as_they_were_explained(columns: Columns, classes: int) -> None:
    """Without engines, where a nanosecond of rounding may not change who goes first."""
    played = _core.play(columns)
    trace = recorded(columns, played, classes)
    alone = taken_apart(columns, trace)
    alone["operation_duration"] = _core.alone(alone, trace["operation_start"], trace["operation_end"])
    again = _core.play(alone)
    # A link that gives the tenth of a copy's rate makes ten nanoseconds of one.
    allowed = 40 * 10 * (1 + len(moments(columns, played)))
    for name in ("call_start", "call_end", "operation_start", "operation_end"):
        assert (abs(again[name] - played[name]) <= allowed).all()


def two_copies(**links: Any) -> Columns:
    """Each of a hundred bytes at a hundred a second, at once."""
    sizes = {"operation_duration": [100, 100], "operation_bytes_per_s": [100, 100]}
    return only_operations(2, **sizes, operation_link_begin=[0, 1, 2], **links)


def test_two_directions_of_a_link_slow_down_together() -> None:
    """Rates 100 and 100, both 0.75 in use together: two copies of 100 ns take 133 ns side by side."""
    link = {"link_bytes_per_s": [100, 100], "link_both": [0.75, 0.75], "link_opposite": [1, 0]}
    two = two_copies(operation_links=[0, 1], operation_link_cost=[1, 1], **link)
    assert _core.play(two)["operation_end"].tolist() == [133, 133]
    later = two | {"operation_released": np.array([0, 100])}
    assert _core.play(later)["operation_end"].tolist() == [100, 200]


def test_a_costly_flow_fills_a_link_and_a_heavy_flow_gets_more_of_it() -> None:
    """Each byte of the second takes two of the link's 100; both get 33. With thrice the weight it gets 43 beside 14."""
    link = {"link_bytes_per_s": [100], "link_both": [1], "link_opposite": [-1]}
    two = two_copies(operation_links=[0, 0], operation_link_cost=[1, 2], **link)
    assert _core.play(two)["operation_end"].tolist() == pytest.approx([300, 300], abs=1)
    # 14 and 43 until the second is done after 233; the first has 100 then, of which it needs 67.
    heavy = two | {"operation_weight": np.array([1.0, 3.0])}
    assert _core.play(heavy)["operation_end"].tolist() == pytest.approx([300, 233], abs=1)
