"""Which processors are taken for what is timed: by paces that are told, on the processors that there are."""

from __future__ import annotations

import os
import subprocess

from busfare.measure.processors import SWEEPS, Processors


def test_the_quickest_processors_are_taken_and_looks_go_back_to_all() -> None:
    allowed = os.sched_getaffinity(0)
    quick = max(allowed)
    # As told by the processor that looks: the last one is twice as quick as the others.
    processors = Processors(pace=lambda: 1e-6 if os.sched_getaffinity(0) == {quick} else 2e-6)
    try:
        place = processors.place(threads=1, patience_s=0)
        assert place.own == quick and quick not in place.others
        assert processors.pace_at(place, 1) == 1e-6 <= processors.limit_s
        if place.others:
            assert processors.pace_at(place, 2) == 2e-6
        with subprocess.Popen(["sleep", "30"]) as sleeper:
            place.taken_by(sleeper.pid)
            assert os.sched_getaffinity(sleeper.pid) == {quick}
            sleeper.kill()
    finally:
        processors.all_again()
    assert os.sched_getaffinity(0) == allowed


def test_a_slow_machine_is_waited_for_while_patience_lasts() -> None:
    pauses: list[float] = []
    slow_until = 0  # so many pauses
    processors = Processors(pace=lambda: 3e-6 if len(pauses) < slow_until else 1e-6, pause=pauses.append)
    try:
        slow_until = len(pauses) + 10
        processors.place(threads=1, patience_s=60)
        assert len(pauses) >= slow_until
        slow_until, before = 1000, len(pauses)
        processors.place(threads=1, patience_s=0)
        assert len(pauses) == before + SWEEPS - 1
    finally:
        processors.all_again()


def test_a_processor_that_was_slow_lately_comes_last() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    slow_now = [True]

    def pace() -> float:
        return 2e-6 if slow_now[0] and os.sched_getaffinity(0) == {allowed[0]} else 1e-6

    processors = Processors(pace=pace, pause=lambda _: None)
    try:
        slow_now[0] = False
        place = processors.place(threads=1, patience_s=0)
        assert place.own == (allowed[1] if len(allowed) > 1 else allowed[0])
    finally:
        processors.all_again()
