"""Fingerprints of asynchronous copies back, from programs whose copies really land, in streams that run host functions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import busfare
from busfare.measure.record import environment
from busfare.timeline.changes.removal import returned_copies
from busfare.trace import Trace, read
from busfare.trace.readers.recorded.file import Recording, read_recording
from tests.processes import finished

from .conftest import Built

#: Calls of the recorder's own, as the stand-in for the driver calls them back.
OWN = {
    "cuLaunchHostFunc",
    "cuPointerGetAttribute",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
}


class Played(NamedTuple):
    """A program that was recorded: how often it gave streams a host function, and how many captures were ended."""

    file: Path
    host_functions: int
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
        asked = environment(f"{folder}/", command, library=built.library, fingerprint=fingerprint, **options)
        given = variables | asked | {"FAKE_CUPTI_SYSTEM_CLOCK": "1"} | (more or {})
        done = finished(command, env=given)
        assert (done.returncode, done.stderr) == (0, ""), done
        (file,) = folder.iterdir()
        assert read_recording(file).complete
        return Played(file, *map(int, done.stdout.split()))

    return run


def test_what_comes_back_and_goes_in_again_is_found(play: Play) -> None:
    run = play("returned")
    back = run.prints("d2h")
    assert None not in back and len(set(back)) == 6
    assert run.prints("h2d") == back
    returned, known_by = returned_copies(run.trace.operations, None)
    assert returned.all() and known_by == "fingerprint"
    (change,) = busfare.read(run.file).what_if(keep_on_gpu=True).changes
    assert change.touched == 12


def test_when_the_stream_was_held_up_is_told_on_the_traces_clock(play: Play) -> None:
    run = play("streams")
    trace, recording = run.trace, run.recording
    noted = recording.table("stream_fingerprints")
    back = trace.operations.filter(direction="d2h")
    assert back["hash_start_ns"].null_count() == 0
    assert (back["end_ns"] <= back["hash_start_ns"]).all() and (
        back["hash_start_ns"] < back["hash_end_ns"]
    ).all()
    into = trace.operations.filter(direction="h2d")
    assert into["hash_start_ns"].null_count() == into["hash_end_ns"].null_count() == into.height
    by_correlation = back.sort("correlation")
    order = np.argsort(noted["correlation"])
    wall = noted["start"][order].astype(np.int64) + (recording.wall_clock_ns - recording.trace_clock_ns)
    assert (by_correlation["hash_start_ns"] + trace.origin_ns).to_list() == wall.tolist()
    lasted = by_correlation["hash_end_ns"] - by_correlation["hash_start_ns"]
    assert lasted.to_list() == noted["duration"][order].tolist()


def test_a_held_stream_is_no_held_thread(play: Play) -> None:
    """Asking for a hash takes the thread's time, hashing does not."""
    run = play("returned")
    threads = int(run.recording.table("copy_addresses")["fingerprint_duration"].sum())
    assert run.recording.table("stream_fingerprints")["duration"].all()
    assert 0 < int(run.trace.calls["recorder_ns"].sum()) <= threads


def test_bytes_are_those_of_the_copy_whatever_comes_behind_it(play: Play) -> None:
    run = play("changed")
    (back,) = run.prints("d2h")
    same, changed = run.prints("h2d")
    assert back == same != changed
    names = run.trace.calls["name"].cast(pl.String)
    assert run.host_functions == 2 and (names == "cuLaunchHostFunc").sum() == 1  # the program's own


def test_each_stream_hashes_its_own_copies(play: Play) -> None:
    """The calls of the null stream, and of the thread's own, mean the stream that the copy's call meant."""
    run = play("streams")
    assert run.prints("d2h") == run.prints("h2d")
    assert len(set(run.prints("d2h"))) == run.host_functions == 4


def test_pageable_memory_is_hashed_by_the_thread_whose_call_waited(play: Play) -> None:
    run = play("pageable")
    assert run.prints("d2h") == run.prints("h2d") != [None]
    assert run.host_functions == 0
    assert "hash_start_ns" not in run.trace.operations.columns
    assert not len(run.recording.table("stream_fingerprints"))
    assert run.recording.table("copy_addresses")["fingerprint_duration"].all()


def test_pageable_memory_that_the_gpu_writes_itself_is_hashed_in_the_stream(play: Play) -> None:
    run = play("coherent", more={"FAKE_COHERENT": "1"})
    assert run.prints("d2h") == run.prints("h2d") != [None]
    assert run.host_functions == 1


def test_managed_memory_is_left_where_it_is(play: Play) -> None:
    run = play("managed")
    assert run.prints("d2h") == [None] and run.host_functions == 0


def test_captures_are_let_be(play: Play) -> None:
    """Nothing goes into a graph; beside a capture, another stream's copies have their hashes."""
    run = play("captured")
    assert (run.host_functions, run.invalidated) == (1, 0)
    (sent,) = run.prints("h2d")
    assert run.prints("d2h") == [
        None,
        sent,
    ]  # of the legacy stream, which the capture forbids, and of another


def test_without_the_option_streams_are_let_be(play: Play) -> None:
    run = play("returned", fingerprint=False)
    assert run.host_functions == 0
    assert not len(run.recording.table("stream_fingerprints"))
    assert not {"hash_start_ns", "hash_end_ns"} & set(run.trace.operations.columns)
    assert run.prints("d2h") == [None] * 6


@pytest.mark.parametrize("calls", ["driver", "both"])
@pytest.mark.parametrize("scenario", ["directly", "returned"])
def test_the_recorders_calls_are_not_the_programs(play: Play, calls: str, scenario: str) -> None:
    run = play(scenario, calls=calls, kinds=("default", "all-calls"))
    names = set(run.trace.calls["name"].cast(pl.String))
    assert run.host_functions and not names & OWN
    assert names & {"cuMemcpyDtoHAsync", "cudaMemcpyAsync"}
    assert None not in run.prints("d2h")


def test_what_waits_when_the_window_closes_is_not_hashed(play: Play) -> None:
    """Nor once another window has opened; the second window's copy is."""
    run = play("window", capture="profiler-calls")
    first, second = run.prints("d2h")
    assert first is None and second is not None
    assert run.host_functions == 2
    assert len(run.recording.table("stream_fingerprints")) == 1


@pytest.mark.parametrize(("scenario", "most"), [("pending", 0), ("hashing", 1)])
def test_a_program_may_end_before_its_streams(play: Play, scenario: str, most: int) -> None:
    run = play(scenario)
    assert run.host_functions > 0
    assert len(run.recording.table("stream_fingerprints")) <= most


def test_processes_with_and_without_are_read_together(play: Play, tmp_path: Path) -> None:
    """As those of a recorder that had no such table."""
    folder = tmp_path / "job"
    folder.mkdir()
    for name, fingerprint in (("with", True), ("without", False)):
        shutil.copy(play("returned", fingerprint=fingerprint).file, folder / f"{name}.bf")
    operations = read(folder).operations
    assert operations.height == 24
    assert operations["hash_start_ns"].count() == operations["hash_end_ns"].count() == 6
    assert operations["fingerprint"].count() == 12
