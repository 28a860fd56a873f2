"""First uses: programs whose copies really land, and that say themselves when they touch what came."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from busfare.advise import findings, rebuilt
from busfare.errors import InputError
from busfare.measure.lines import _chunk
from busfare.measure.record import environment
from busfare.trace import Trace, read
from busfare.trace.readers.recorded.file import read_recording
from busfare.trace.readers.recorded.first_use import ALL
from tests.traces import omitted

from .conftest import SOURCE, Built

#: Between the program's stamps, and between clocks.
SLACK_NS = 200_000


class Stamp(NamedTuple):
    """A touch as the program tells of it; ns since the Unix epoch."""

    correlation: int
    thread: int
    before: int
    after: int


class Touching(NamedTuple):
    """A program that was recorded."""

    trace: Trace
    stamps: list[Stamp]
    error: str

    @property
    def seen(self) -> str:
        """What of first uses this machine shows."""
        said = omitted(self.trace)
        return "none" if "no-first-uses" in said else "program" if "first-uses-of-program" in said else "all"

    def touches(self) -> dict[int, tuple[int, int]]:
        """By correlation, of what was touched: when, in ns since the Unix epoch, and by which thread."""
        touched = self.trace.first_uses.filter(pl.col("until") == "touched")
        rows = touched.select("correlation", pl.col("end_ns") + self.trace.origin_ns, "thread").rows()
        return {correlation: (time, thread) for correlation, time, thread in rows}


Play = Callable[..., Touching]


@pytest.fixture
def play(built: Built, variables: dict[str, str], tmp_path: Path) -> Play:
    """Runs a scenario recorded and not, which must make no difference to what it computes."""

    def run(scenario: str, *around: str, refused: str = "") -> Touching:
        program = str(built.folder / "testing" / "first_use_program")
        stamps, output = tmp_path / "stamps", tmp_path / "run"
        recorded = environment(f"{output}/", (program, scenario), library=built.library, first_use=True)
        if refused:
            recorded |= {
                "LD_PRELOAD": str(built.folder / "testing" / "libperf_refused.so"),
                "PERF_REFUSED": refused,
            }
        ended = [
            subprocess.run(
                [*around, program, scenario, str(stamps)],
                env=variables | {"FAKE_CUPTI_SYSTEM_CLOCK": "1"} | more,
                capture_output=True,
                text=True,
                timeout=60,
            )
            for more in ({}, recorded)
        ]
        plain, watched = ((each.returncode, each.stdout) for each in ended)
        assert plain == watched and plain[0] == 0, ended
        lines = [Stamp(*map(int, line.split())) for line in stamps.read_text("utf-8").splitlines()]
        return Touching(read(output), lines, ended[1].stderr)

    return run


@pytest.mark.parametrize(
    "scenario",
    [
        "pinned",
        "at-once",
        "written",
        "backwards",
        "pageable",
        "beside",
        "small",
        "fork",
        "handler",
        "threads",
    ],
)
def test_the_first_touch_is_when_the_program_makes_it(play: Play, scenario: str) -> None:
    run = play(scenario)
    if run.seen == "none":
        assert run.trace.first_uses.is_empty()
        return
    (stamp,) = run.stamps
    ((correlation, (time, thread)),) = run.touches().items()
    assert (correlation, thread) == (stamp.correlation, stamp.thread)
    assert stamp.before - SLACK_NS <= time <= stamp.after + SLACK_NS
    assert omitted(run.trace)["first-uses"] == 1


def test_a_small_destination_is_watched_whole_and_nothing_beside_it(play: Play) -> None:
    run = play("small")
    assert run.trace.first_uses["watched_bytes"].to_list() == ([13] if run.seen != "none" else [])


def test_a_system_call_that_takes_the_bytes_is_a_use_where_it_can_be_seen(play: Play) -> None:
    run = play("system-call")
    if run.seen == "all":
        ((time, _),) = run.touches().values()
        assert run.stamps[0].before - SLACK_NS <= time <= run.stamps[0].after + SLACK_NS
    else:
        assert {"no-first-uses", "first-uses-of-program"} & omitted(run.trace).keys()


@pytest.mark.parametrize(
    ("scenario", "until"),
    [
        ("free-pinned", {"freed"}),
        ("twice", {"copied-over"}),
        ("sent", {"sent"}),
        ("never", {"stopped"}),
    ],
)
def test_what_is_not_touched_says_why_it_was_watched_no_longer(
    play: Play, scenario: str, until: set[str]
) -> None:
    run = play(scenario)
    first = run.trace.first_uses.head(1)
    assert run.seen == "none" or (set(first["until"].to_list()) <= until and first.height == 1)
    assert first["thread"].null_count() == first.height


@pytest.mark.parametrize("scenario", ["free", "realloc", "replaced"])
def test_what_is_touched_in_other_memory_at_the_same_place_is_no_use_of_the_copy(
    play: Play, scenario: str
) -> None:
    """Whether malloc gives the place away again differs, and whether it is seen before it is touched."""
    run = play(scenario)
    if run.seen != "none":
        until = run.trace.first_uses["until"].to_list()
        assert until in (["freed"], ["stopped"], []), until
        assert until or omitted(run.trace)["first-uses-lost"] == 1


@pytest.mark.parametrize("scenario", ["polled", "begun"])
def test_a_watch_that_may_have_missed_the_first_touch_says_nothing(play: Play, scenario: str) -> None:
    run = play(scenario)
    assert run.trace.first_uses.is_empty()
    assert run.seen == "none" or omitted(run.trace)["first-uses-lost"] == 1


def test_a_program_that_closes_every_file_goes_on(play: Play) -> None:
    play("closed")


def test_of_many_copies_a_sample_is_watched_and_each_of_it_is_right(play: Play) -> None:
    run = play("many")
    by_copy = {stamp.correlation: stamp for stamp in run.stamps}
    assert len(by_copy) == 300
    touches = run.touches()
    assert run.seen == "none" or 0 < len(touches) < 300
    for correlation, (time, _) in touches.items():
        stamp = by_copy[correlation]
        assert stamp.before - SLACK_NS <= time <= stamp.after + SLACK_NS
    # What setting watchpoints held the program up is told, and in all is about 1 % of its time at most.
    held = run.trace.calls["recorder_ns"].sum() if run.seen != "none" else 0
    assert held <= 0.05 * run.trace.makespan_seconds * 1e9


def test_a_program_that_waits_long_before_it_uses_what_came_is_told_so(play: Play) -> None:
    run = play("late")
    found = [f for f in findings(run.trace, None, rebuilt(run.trace, None)) if f.id == "early-waits"]
    if run.seen == "none":
        assert not found
        return
    # Of each round 5 ms of copy, which 10 ms of the host's own can hide.
    ((least, most),) = [
        (0.5 * each.bound_seconds, each.bound_seconds) for each in found if each.bound_seconds
    ]
    assert found[0].by_replay and 0.05 < least <= found[0].predicted_gain_seconds <= 1.05 * most
    assert "20 waits for 20 copies" in found[0].evidence


def test_where_only_the_programs_own_touches_can_be_seen_that_is_said(play: Play) -> None:
    # The system call takes the bytes unseen: when the program's own sum comes says nothing of the first use.
    run = play("system-call", refused="kernel")
    assert run.seen == "program" and run.trace.first_uses.is_empty()
    assert omitted(run.trace)["first-uses-lost"] == 1
    run = play("pinned", refused="kernel")
    ((time, _),) = run.touches().values()
    assert run.stamps[0].before - SLACK_NS <= time <= run.stamps[0].after + SLACK_NS


def test_where_nothing_can_be_seen_that_is_said_and_all_else_is_recorded(play: Play) -> None:
    run = play("pinned", refused="all")
    assert run.seen == "none" and run.trace.first_uses.is_empty()
    assert run.trace.operations.height == 1 and run.trace.calls.height == 2
    assert "Permission denied" in next(o.what for o in run.trace.omissions if o.id == "no-first-uses")
    assert run.error.count("\n") == 1 and "first uses cannot be seen here (perf_event_open: " in run.error


@pytest.mark.parametrize(("name", "kept"), [("MPI_Isend", False), ("ncclAllReduce", True)])
def test_a_call_of_mpi_before_the_first_touch_may_have_taken_the_bytes(
    play: Play, name: str, kept: bool
) -> None:
    run = play("pinned")
    (file,) = run.trace.path.iterdir()
    number, sequence = 1_000_000, int(read_recording(file).table("end")["chunks"][-1]) + 1
    called = (run.stamps[0].before - 10_000_000, 1000, 1, number, 0, 4096, 1, 0, 0, 0)
    with file.open("ab") as more:
        more.write(_chunk("strings", [(number, len(name))], sequence, name.encode()))
        more.write(_chunk("messages", [called], sequence + 1))
    assert read(run.trace.path).first_uses.height == (kept and run.seen != "none")


def test_a_thread_that_cannot_be_watched_makes_a_watch_say_nothing(play: Play) -> None:
    """With room for eight open files, not every thread gets its watchpoints."""
    run = play("pinned", "prlimit", "--nofile=8")
    assert run.trace.first_uses.is_empty() and run.trace.operations.height == 1
    assert run.seen == "none" or omitted(run.trace)["first-uses-lost"] == 1


def test_without_being_asked_for_there_are_none(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    program = str(built.folder / "testing" / "first_use_program")
    asked = environment(f"{tmp_path}/run/", (program,), library=built.library)
    subprocess.run(
        [program, "pinned", str(tmp_path / "stamps")],
        env=variables | asked | {"FAKE_CUPTI_SYSTEM_CLOCK": "1"},
        check=True,
        timeout=60,
    )
    trace = read(tmp_path / "run")
    assert trace.first_uses.is_empty() and not trace.omissions and "recorder_ns" not in trace.calls.columns


def test_addresses_are_needed(built: Built) -> None:
    with pytest.raises(InputError, match="addresses"):
        environment("x/", library=built.library, first_use=True, kinds=("copies",))
    assert environment("x/", library=built.library, first_use=True)["BUSFARE_RECORD_FIRST_USE"] == "1"


def test_the_words_of_the_fact_are_the_recorders() -> None:
    assert f'"{ALL}"' in (SOURCE / "source" / "first_use.cpp").read_text("utf-8")
