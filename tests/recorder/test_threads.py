"""Threads that wait for each other: who woke whom is recorded, where that is asked for."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.measure.record import environment, recording
from busfare.timeline.build.wakes import calls_with_wakes
from busfare.trace import Trace, read

from .conftest import Built, Launch, Recorded

BELLS = {"condition": "0", "semaphore": "1", "futex": "2"}
#: What each thread of the program does before and after its calls, at least.
WORK_NS = 20_000_000


@pytest.fixture(params=BELLS)
def errand(request: pytest.FixtureRequest, recorded: Recorded) -> Trace:
    run = recorded("errand", BELLS[request.param], threads=True, extra={"FAKE_CUPTI_SYSTEM_CLOCK": "1"})
    assert run.status == 0, run.error
    return read(run.files[0])


def test_each_thread_goes_on_after_the_call_behind_which_it_was_woken(errand: Trace) -> None:
    calls = calls_with_wakes(errand)
    before, copied, after = calls[2], calls[3], calls[4]
    assert calls["thread"].n_unique() == 2
    assert calls["woken_after"].to_list() == [
        None, None, None, before["correlation"].item(), copied["correlation"].item(), None, None,
    ]  # fmt: skip
    for last, next_ in ((before, copied), (copied, after)):
        awake = next_["awake_ns"].item()
        assert awake >= WORK_NS
        assert next_["start_ns"].item() - last["end_ns"].item() - awake >= WORK_NS
    assert errand.markers.is_empty()


def test_nothing_is_noted_unless_it_is_asked_for(recorded: Recorded, launch: Launch) -> None:
    run = recorded("errand", "0")
    assert run.status == 0
    assert read(run.files[0]).wakes.is_empty()
    assert launch("-o", "none.bf", "--threads", "--kinds", "calls").returncode == 2


def test_what_cannot_note_the_waits_of_threads_is_refused(built: Built, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add it"):
        environment("run.bf", kinds=["calls"], threads=True, library=built.library)
    with pytest.raises(InputError, match="from the start"), recording(tmp_path / "run.bf", threads=True):
        pass
    elsewhere = tmp_path / built.library.name
    elsewhere.touch()
    with pytest.raises(InputError, match="missing"):
        environment("run.bf", threads=True, library=elsewhere)
    assert "libbusfare_threads" not in environment("run.bf", library=built.library)["LD_PRELOAD"]


def test_many_threads_that_wait_for_each_other_all_the_time_are_recorded_whole(recorded: Recorded) -> None:
    run = recorded("threads", "2000", threads=True)
    calls = read(run.files[0]).calls
    assert run.status == 0
    assert calls.height == 8 * 3 * 2000
    assert calls.filter(pl.col("start_ns").is_null()).is_empty()
