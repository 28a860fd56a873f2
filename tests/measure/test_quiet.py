"""Quiet moments: which visits count, and how a quicker processor is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busfare.measure import quiet as module
from busfare.measure.case import Case, Memory, Samples
from busfare.measure.profile import profile
from busfare.measure.quiet import LEAST_QUIET, Processor, quiet, quiet_share
from busfare.measure.raw import Measurement, Moment, Record


def measured(memory: Memory, paces: list[float], size: int = 1 << 20) -> Measurement:
    """Two samples a visit, which name the visit: 1.0 and 1.0 of the first, and so on."""
    samples = tuple(float(n + 1) for n in range(len(paces)) for _ in range(2))
    moments = tuple(Moment(float(n), 1e-3, None, 0, pace) for n, pace in enumerate(paces))
    case = Case("h2d", memory, "copies", size)
    return Measurement(case, Samples(samples, samples), (2,) * len(paces), "time", moments)


def record_of(*measurements: Measurement) -> Record:
    return Record(False, "2026-01-01", "test", {}, 0, list(measurements))


def test_pageable_copies_count_where_the_processor_was_quick() -> None:
    paces = [4e-6, 8e-6, 4e-6, 4e-6, 9e-6, 4.2e-6]
    record = record_of(measured("pageable", paces), measured("pinned", paces))
    pageable, pinned = quiet(record).measurements
    assert pageable.samples.api_s == (1.0, 1.0, 3.0, 3.0, 4.0, 4.0, 6.0, 6.0)
    assert pageable.visits == (2, 2, 2, 2) and [v.at_s for v in pageable.moments] == [0.0, 2.0, 3.0, 5.0]
    # The GPU moves pinned memory: a processor of half the pace is quick enough to start that.
    assert pinned == record.measurements[1]
    assert quiet_share(record) == pytest.approx(4 / 6)


def test_calls_count_where_the_processor_was_quick_and_the_node_holds_its_pace() -> None:
    paces = [4e-6, 8e-6, 4e-6, 4e-6, 9e-6, 4.2e-6]
    launches = replace(measured("none", paces), case=Case("none", "none", "launch"))
    costs = {cost.call: cost for cost in profile(record_of(launches)).costs}
    assert costs["launch"].call_s == pytest.approx(3.5)
    assert costs["pace"].call_s == pytest.approx(4e-6) and costs["pace"].gpu is None
    unpaced = replace(launches, moments=tuple(replace(m, pace_s=None) for m in launches.moments))
    assert [cost.call for cost in profile(record_of(unpaced)).costs] == ["launch"]


def test_a_processor_that_hardly_ran_counts_for_nothing() -> None:
    record = record_of(measured("pinned", [4e-6] * 5 + [4e-5]))
    assert quiet(record).measurements[0].samples.device_s[-1] == 5.0


def test_of_too_few_quiet_visits_the_quickest_ones_count() -> None:
    calm = measured("pinned", [4e-6] * 20)
    busy = measured("pageable", [4e-6, 9e-6, 8e-6, 3e-5, 7e-6, 2e-5])
    found = quiet(record_of(calm, busy)).measurements[1]
    assert len(found.visits) == LEAST_QUIET
    assert sorted(set(found.samples.api_s)) == [1.0, 2.0, 3.0, 5.0]


def test_a_record_without_paces_is_left_as_it_is() -> None:
    old = Measurement(Case("h2d", "pageable", "copies", 8), Samples((), (1.0, 2.0)), (2,), "time")
    record = record_of(old)
    assert quiet(record) is record
    assert quiet_share(record) is None


class Host:
    """Processors with paces that a test sets, in the place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, paces: dict[int, float]) -> None:
        self.paces, self.here, self.now = paces, 0, 0.0
        monkeypatch.setattr(module, "pace", lambda: self.paces[self.here])
        monkeypatch.setattr(module, "processor", lambda: self.here)
        monkeypatch.setattr(module, "near", lambda number: [n for n in self.paces if n != number])
        monkeypatch.setattr(module, "move_to", self.move_to)

    def move_to(self, number: int) -> bool:
        self.here = number
        return True

    def clock(self) -> float:
        self.now += 1.0
        return self.now


def test_a_slow_processor_is_left_for_a_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {0: 4e-6, 1: 9e-6, 2: 4e-6})
    watched = Processor(host.clock)
    assert watched.ready() == (0, 4e-6) and watched.moves == 0
    host.paces[0] = 8e-6
    assert watched.ready() == (2, 4e-6) and watched.moves == 1
    # Where all are slow, the least slow one is taken.
    host.paces |= {0: 8e-6, 1: 7e-6, 2: 9e-6}
    assert watched.ready() == (1, 7e-6)


def test_a_run_that_begins_on_a_slow_processor_finds_out(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {0: 9e-6, **dict.fromkeys(range(1, 12), 4e-6)})
    assert Processor(host.clock).ready()[1] == 4e-6


def test_others_are_tried_no_more_often_than_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {0: 4e-6, 1: 4e-6})
    watched = Processor(lambda: 0.0)
    host.paces[0] = 8e-6
    assert watched.ready() == (0, 8e-6)
