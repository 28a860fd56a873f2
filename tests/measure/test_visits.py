"""Which case is visited when."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest

from busfare.measure.case import Case, Samples
from busfare.measure.device import UnavailableError
from busfare.measure.host import pace, processor, processors
from busfare.measure.plan import full
from busfare.measure.raw import Measurement, Moment, Record
from busfare.measure.run import measure
from busfare.measure.virtual import VirtualDevice
from busfare.measure.visits import AGAIN_VISITS, LONG_S, MOST_VISITS, Visited, visits
from busfare.node import load_node


def visited(case: Case, sample_s: float, seen: tuple[float, ...] = ()) -> Visited:
    """A case of which `seen` are the samples, one a visit."""
    made = Visited(case)
    for seconds in seen or (1e-6,):
        made.add(Samples((seconds,), (1e-6,)), Moment(0.0, 2 * sample_s, seconds))
    return made


def pinned(bytes_: int) -> Case:
    return Case("h2d", "pinned", "copies", bytes_)


def test_a_window_is_filled_and_no_more() -> None:
    all_ = [visited(pinned(n), cost) for n, cost in enumerate((1e-4, 1e-3, 1e-2, 3e-2))]
    due = visits(all_, 0.8, random.Random(1))
    assert sum(v.cost_s for v in due) == pytest.approx(0.8, rel=0.1)
    assert max(Counter(v.case for v in due).values()) <= MOST_VISITS


def test_what_scatters_and_costs_little_is_visited_more() -> None:
    quiet = visited(pinned(1), 1e-3, (1e-6,) * 4)
    loud = visited(pinned(2), 1e-3, (1e-6, 1.03e-6, 0.97e-6, 1.06e-6))
    dear = visited(pinned(3), 5e-2, (1e-6, 1.03e-6, 0.97e-6, 1.06e-6))
    counts = Counter(v.case.bytes for v in visits([quiet, loud, dear], 0.25, random.Random(1)))
    assert counts[2] > 2 * counts[1]
    assert counts[2] > 2 * counts[3]


def test_the_visits_of_a_case_lie_all_over_the_window() -> None:
    all_ = [visited(pinned(n), 1e-3) for n in range(50)]
    due = visits(all_, 3.0, random.Random(1))
    for own in all_:
        places = [n / len(due) for n, v in enumerate(due) if v is own]
        assert len(places) >= 4
        # One in each equal part.
        assert all(abs(place - (n + 0.5) / len(places)) < 1 / len(places) for n, place in enumerate(places))


def test_each_case_has_its_second_visit_even_where_it_is_dear() -> None:
    all_ = [visited(pinned(n), 1e-3) for n in range(20)] + [visited(pinned(99), 0.3)]
    assert any(v.case.bytes == 99 for v in visits(all_, 0.5, random.Random(1), at_least_one=True))


def test_the_first_sample_of_a_visit_is_kept_apart() -> None:
    class Cold(VirtualDevice):
        def run(self, case: Case, repeats: int) -> Samples:
            first, *others = super().run(case, repeats).device_s
            return Samples((2 * first, *others), (1e-6,) * repeats)

    device = Cold(load_node("gtx-titan"))
    record = Record(True, "2026-01-01", "test", device.facts(), 0)
    cases = [
        c for c in full(0, []).fitted if c.memory == "pinned" and c.mode == "copies" and c.bytes < 1 << 20
    ]
    measure(device, cases, record, 3.0, clock=device.clock)
    for m in record.measurements:
        true = device.truth("h2d" if m.case.direction == "h2d" else "d2h", "pinned", 0)
        expected = (true.latency_overhead_s or 0) + m.case.bytes * true.pieces[-1].gap_per_byte_s
        assert max(m.of_visits) < 1.5 * expected
        assert len(m.moments) == len(m.visits)
        firsts = [v.first_s for v in m.moments if v.first_s is not None]
        assert sum(first > 1.5 * expected for first in firsts) == len(firsts) == len(m.visits)


def test_a_visit_that_fails_later_takes_nothing_from_those_before() -> None:
    class Fickle(VirtualDevice):
        runs = 0

        def run(self, case: Case, repeats: int) -> Samples:
            self.runs += 1
            if self.runs % 3 == 0 or case.bytes == 77:
                self._now += 1e-4
                raise UnavailableError("not this time")
            return super().run(case, repeats)

    device = Fickle(load_node("gtx-titan"))
    record = Record(True, "2026-01-01", "test", device.facts(), 0)
    measure(device, [pinned(1), pinned(77)], record, 0.1, clock=device.clock, warm_up=False)
    assert [m.case.bytes for m in record.measurements] == [1]
    assert len(record.measurements[0].visits) > 3
    assert [row["why"] for row in record.left_out] == ["not this time"]


def test_nvbandwidths_method_is_taken_at_moments_of_its_own() -> None:
    device = VirtualDevice(load_node("gtx-titan"))
    record = Record(True, "2026-01-01", "test", device.facts(), 0)
    again = Case("h2d", "pinned", "again", 1 << 20, 16)
    measure(device, [*(pinned(n) for n in range(1, 40)), again], record, 3.0, clock=device.clock)
    taken = record.of(again)
    assert taken is not None and taken.visits == (1,) * AGAIN_VISITS
    dates = [moment.at_s for moment in taken.moments]
    # In every window of the plan there is one.
    assert dates == sorted(dates) and dates[-1] - dates[0] > record.seconds / 3


def test_visits_are_dated_from_the_start_of_the_run() -> None:
    device = VirtualDevice(load_node("gtx-titan"))
    record = Record(True, "2026-01-01", "test", device.facts(), 0)
    measure(device, [pinned(n) for n in (1, 64, 4096)], record, 0.5, clock=device.clock)
    one = record.seconds
    measure(device, [pinned(77)], record, 0.1, clock=device.clock, warm_up=False)
    dates = [v.at_s for m in record.measurements for v in m.moments]
    assert all(0 <= at <= record.seconds for at in dates)
    assert all(v.at_s >= one for v in record.measurements[-1].moments)


def test_a_long_sample_needs_no_other_before_it() -> None:
    assert visited(pinned(1 << 30), 2 * LONG_S).next_repeats() == (1, 0)
    assert Visited(pinned(1 << 30)).next_repeats() == (1, 0)
    assert Visited(pinned(1 << 20)).next_repeats() == (1, 1)


def test_lists_of_processors_are_read() -> None:
    assert processors("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert processors(None) == processors("") == processors("none") == set()


def test_the_processor_tells_its_number_and_pace() -> None:
    where = processor()
    assert where is None or where >= 0
    assert 0 < pace() < 0.1


def test_what_moves_data_both_ways_and_what_is_short_is_due_several_visits_in_every_window() -> None:
    both = visited(Case("h2d", "pinned", "both", 16 << 20, 4), 4e-3)
    short, long = visited(pinned(1), 1e-4), visited(pinned(1 << 28), 2e-2)
    due = Counter(v.case for v in visits([both, short, long], 1e-3, random.Random(1)))
    assert due[both.case] >= 5 and due[short.case] >= 5 and due[long.case] == 1
    assert both.next_repeats() == (2, 1)


def test_pageable_memory_that_was_just_written_is_copied_once_a_visit() -> None:
    written = Case("h2d", "pageable", "written", 4 << 20)
    assert visited(written, 1e-3).next_repeats() == Visited(written).next_repeats() == (1, 0)
    # Of files that hold more samples a visit, the first one counts, which was kept apart.
    old = Measurement(written, Samples((), (3e-4,) * 4), (2, 2), "", (Moment(0, 1, 5e-4), Moment(1, 1, 6e-4)))
    assert old.counted == (5e-4, 6e-4) and old.undisturbed_s == 5e-4
    plain = dataclasses.replace(old, case=Case("h2d", "pageable", "copies", 4 << 20))
    assert plain.undisturbed_s == pytest.approx(3e-4)


def test_of_managed_memory_the_middle_visit_counts() -> None:
    touched = Case("d2h", "managed", "touch", 256 << 20)
    found = Measurement(touched, Samples((), (8.8e-2, 4.4e-2, 6.4e-2)), (1, 1, 1))
    assert found.undisturbed_s == pytest.approx(6.4e-2)
    copied = dataclasses.replace(found, case=Case("d2h", "pageable", "copies", 256 << 20))
    assert copied.undisturbed_s == pytest.approx((4.4e-2 + 6.4e-2) / 2)
