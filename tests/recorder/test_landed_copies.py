"""Fingerprints of asynchronous copies back, from programs whose copies really land: of those to pageable memory."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import busfare
from busfare.measure.record import environment
from busfare.questions import Record
from busfare.timeline.changes.fewer_copies import returned_copies
from busfare.trace import Trace, read
from busfare.trace.readers.recorded.file import Recording, read_recording

from .conftest import Built

#: Calls of the recorder's own, as the stand-in for the driver calls them back.
RECORDER_CALLS = {"cuPointerGetAttribute", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode"}


class Played(NamedTuple):
    """A program that was recorded, and how many captures were ended."""

    file: Path
    invalidated: int

    @property
    def trace(self) -> Trace:
        return read(self.file)

    @property
    def recording(self) -> Recording:
        return read_recording(self.file)

    def prints(self, direction: str) -> list[int | None]:
        """Of the copies, in the order of their calls."""
        copies = self.trace.operations.filter(direction=direction).sort("correlation")
        return copies["fingerprint"].to_list()


Play = Callable[..., Played]


@pytest.fixture
def play(built: Built, variables: dict[str, str], tmp_path: Path) -> Play:
    """Runs a scenario of hashes_program.cpp under the recorder."""

    def run(
        scenario: str, fingerprint: bool = True, more: dict[str, str] | None = None, **options: Any
    ) -> Played:
        command = [str(built.folder / "testing" / "hashes_program"), scenario]
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        settings = environment(
            f"{folder}/", Record.of(fingerprint=fingerprint, **options), command, built.library
        )
        given = variables | settings | {"FAKE_CUPTI_SYSTEM_CLOCK": "1"} | (more or {})
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done
        (file,) = folder.iterdir()
        assert read_recording(file).complete
        return Played(file, int(done.stdout))

    return run


def test_data_that_come_back_and_go_in_again_are_recognised(play: Play) -> None:
    run = play("returned")
    back = run.prints("d2h")
    assert None not in back and len(set(back)) == 6
    assert run.prints("h2d") == back
    returned, evidence = returned_copies(run.trace.operations, None)
    assert returned.all() and evidence == "fingerprint"
    (change,) = busfare.read(run.file).what_if(keep_on_gpu=True).changes
    assert change.touched == 12


def test_hashing_is_time_of_the_thread_that_called(play: Play) -> None:
    run = play("returned")
    hashed = run.recording.table("copy_addresses")["fingerprint_duration"]
    assert hashed.all()
    assert 0 < int(run.trace.calls["recorder_ns"].sum()) <= int(hashed.sum())


def test_every_stream_is_queried_about_itself(play: Play) -> None:
    """The calls of the null stream, and of the thread's own, mean the stream that the copy's call meant."""
    run = play("streams")
    assert run.prints("d2h") == run.prints("h2d")
    assert len(set(run.prints("d2h"))) == 3


def test_pinned_and_managed_memory_is_not_hashed(play: Play) -> None:
    """The copies are under way when their calls return."""
    assert play("pinned").prints("d2h") == [None, None]


def test_pageable_memory_that_the_gpu_writes_itself_is_not_hashed(play: Play) -> None:
    assert play("coherent", more={"FAKE_COHERENT": "1"}).prints("d2h") == [None]


def test_captures_are_let_be(play: Play) -> None:
    """Beside a capture, another stream's copies have their hashes; the legacy stream's, which it forbids, have none."""
    run = play("captured")
    assert run.invalidated == 0
    (sent,) = run.prints("h2d")
    assert run.prints("d2h") == [None, sent]  # what is captured is not copied


def test_without_the_option_nothing_is_hashed(play: Play) -> None:
    assert play("returned", fingerprint=False).prints("d2h") == [None] * 6


@pytest.mark.parametrize("calls", ["driver", "both"])
@pytest.mark.parametrize("scenario", ["directly", "returned"])
def test_the_recorders_calls_are_not_the_programs(play: Play, calls: str, scenario: str) -> None:
    run = play(scenario, calls=calls, kinds=("default", "all-calls"))
    names = set(run.trace.calls["name"].cast(pl.String))
    assert not names & RECORDER_CALLS
    assert names & {"cuMemcpyDtoHAsync", "cudaMemcpyAsync"}
    assert None not in run.prints("d2h")


def test_outside_of_the_window_nothing_is_hashed(play: Play) -> None:
    run = play("window", capture="profiler-calls")
    (inside,) = run.prints("d2h")
    assert inside is not None
    assert len(run.recording.table("copy_addresses")) == 1
