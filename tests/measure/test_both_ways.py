"""Copies that go both ways at once: how their samples are read, and what that gives on recorded ones."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from busfare.measure import probe as probing
from busfare.measure.case import Case, Samples
from busfare.measure.middle import quicker
from busfare.measure.plan import THROUGH_COUNTS
from busfare.measure.profile import profile
from busfare.measure.raw import Measurement, read
from busfare.measure.through import with_streams
from busfare.measure.virtual import VirtualDevice
from busfare.node import Node, Piece, Row, load_node
from busfare.plan import Problem, machine_of, plan
from busfare.plan.machine import in_one_stream

RECORDED = Path(__file__).parents[2] / "results" / "probe"


def test_the_quicker_samples_are_those_that_nothing_disturbed() -> None:
    assert quicker([5.0, 1.0, 3.0, 9.0]) == 2.0
    assert quicker([7.0, 1.0, 2.0, 3.0, 9.0], 4) == 1.5
    with pytest.raises(ValueError, match="no samples"):
        quicker([])
    case = Case("h2d", "pinned", "both", 16 << 20, 4)
    taken = Measurement(case, Samples((1.5, 1.6, 1.7, 1.3, 1.8, 1.9, 2.0, 1.4), (0.0,) * 8), (4, 4))
    assert taken.quietest_s == pytest.approx(1.35)
    # Elsewhere the quicker half of the visits' middles.
    assert taken.undisturbed_s == pytest.approx(1.55)


def gap(path: Path) -> float:
    found = next(m for m in profile(read(path)).measured if (m.direction, m.memory) == ("h2d", "pinned"))
    assert found.both_directions_gap_per_byte_s is not None
    return found.both_directions_gap_per_byte_s


def test_two_processes_find_the_same_pace_both_ways() -> None:
    """Recorded on seven machines: an hour apart in part, with a host that was slow in between."""
    firsts = [
        p
        for p in sorted(RECORDED.glob("*-run1.json.gz"))
        if p.with_name(p.name.replace("1.j", "2.j")).exists()
    ]
    pairs = [(gap(p), gap(p.with_name(p.name.replace("run1", "run2")))) for p in firsts]
    assert len(pairs) >= 7
    apart = sorted(abs(second / first - 1) for first, second in pairs)
    assert apart[len(apart) // 2] < 0.01


def slow_by(times: tuple[float, ...]) -> Node:
    """An H100 on which a byte takes so many times as long in streams both ways as in one each way, by THROUGH_COUNTS."""
    node = load_node("h100-probed")

    def told(m: object) -> object:
        pace = getattr(m, "both_directions_gap_per_byte_s", None)
        if getattr(m, "memory", "") != "pinned" or not pace:
            return m
        rows = tuple(
            Row(copies=n, pieces=(Piece(gap_per_byte_s=pace * more),))
            for n, more in zip(THROUGH_COUNTS, times, strict=False)
        )
        return msgspec.structs.replace(m, both_directions_rows=rows)  # type: ignore[type-var]

    return dataclasses.replace(node, measured=tuple(told(m) for m in node.measured))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain() -> Node:
    """An H100 of which nothing is known in streams both ways: a byte takes as long as in one each way."""
    return slow_by(())


@pytest.fixture(scope="module")
def slow_in_streams() -> Node:
    """An H100 on which a byte takes 6, 9 and 12 % longer in so many streams both ways than in one each way."""
    return slow_by((1.06, 1.09, 1.12))


def test_what_streams_both_ways_take_longer_is_measured(plain: Node, slow_in_streams: Node) -> None:
    probed = [
        probing.probe(VirtualDevice(node, 3), fast=True, seed=3).node for node in (plain, slow_in_streams)
    ]
    for way in ("h2d", "d2h"):
        before, after = (node.measurement(way, "pinned") for node in probed)
        assert [row.copies for row in after.both_directions_rows] == [*THROUGH_COUNTS]
        times = [
            [
                row.pieces[0].gap_per_byte_s / m.both_directions_gap_per_byte_s
                for row in m.both_directions_rows
            ]
            for m in (before, after)
        ]
        assert times[0] == pytest.approx([1.0] * 3, abs=0.01)
        # Of a megabyte a stream, what each adds hides a part: of 6 and 9 %, 5.5 and 7 are seen.
        assert times[1][:2] == pytest.approx([1.055, 1.07], abs=0.015) and times[1][2] > 1.04


def test_a_record_without_such_cases_leaves_the_node_as_it_is() -> None:
    record = read(RECORDED / "h100-fourth-run1.json.gz")
    node = probing.evaluated(record).node
    assert with_streams(node, record) is node
    assert not node.measurement("h2d", "pinned").both_directions_rows


def test_plan_counts_it_in_streams_and_not_in_one_stream_each_way(plain: Node, slow_in_streams: Node) -> None:
    def streams(node: Node, number: int, ordered: bool) -> float:
        machine = machine_of(node)
        machine = in_one_stream(machine, "h2d", "d2h") if ordered else machine
        answer = plan(Problem("scale", 7e8, 7e8, 1e-4, streams=number, levels=128), machine)
        return next(p.seconds for p in answer.ranking if p.strategy == "streams")

    assert streams(slow_in_streams, 32, True) == streams(plain, 32, True)
    longer = [streams(slow_in_streams, n, False) / streams(plain, n, False) for n in (2, 8, 32, 128)]
    # What overlaps is slowed: half of it in two streams, nearly all in many.
    assert all(one < other for one, other in pairwise(longer))
    assert longer[2] == pytest.approx(1.09, abs=0.01)
    assert longer[0] < 1.02
