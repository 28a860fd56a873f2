"""Files that another thread reads ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from busfare.advise import findings, rebuilt
from busfare.errors import InputError
from busfare.timeline import play, timeline
from busfare.timeline.changes import Applied, Setting
from busfare.timeline.changes.read_ahead import KNOWN, ROOM, read_ahead
from busfare.trace import Trace
from tests.traces import call, copy, kernel, made, run, stored, trace

MIB = 1 << 20


def ahead(recorded: Trace) -> tuple[float, Applied]:
    """The makespan in µs with files read ahead, and what was done for it."""
    applied = read_ahead().apply(timeline(recorded), Setting())
    return play(applied.timeline).makespan_ns / 1000, applied


def steps(count: int, read_us: float, kernel_us: float, **of_reads: Any) -> Trace:
    """Steps that read 8 MiB, do 100 µs of the host's own, send it (200 µs), compute, and wait."""
    rows: list[Any] = [call(0, 1, "cudaMalloc")]
    reads, at = [], 1.0
    for _ in range(count):
        reads.append(stored(at, at + read_us, 8 * MIB, **of_reads))
        at += read_us + 100
        sent = at + 205
        done = sent + kernel_us
        rows += [
            made(
                copy(
                    at + 5, sent, 8 * MIB, "h2d", "pinned", source_address=4096, destination_address=1 << 30
                ),
                at,
                at + 2,
                "cudaMemcpyAsync",
            ),
            made(kernel(sent, done), at + 2, at + 4),
            call(at + 4, done + 3, "cudaDeviceSynchronize", "device"),
        ]
        at = done + 3
    return run(*rows, storage=reads)


def test_what_the_gpu_does_hides_the_reading_of_the_next_step() -> None:
    recorded = steps(10, 1000, 2000)
    makespan, applied = ahead(recorded)
    # The first read is waited for, as there is nothing to do before.
    assert makespan == pytest.approx(recorded.makespan_seconds * 1e6 - 9 * 1000, abs=5)
    assert (applied.count, applied.bytes) == (10, 80 * MIB) and applied.rests_on == [KNOWN, ROOM]


def test_of_one_read_nothing_is_gained_and_nothing_lost() -> None:
    recorded = run(call(0, 10, "cudaMalloc"), call(2000, 2010, "cudaFree"), storage=[stored(900, 1400, MIB)])
    assert ahead(recorded)[0] == pytest.approx(2010, abs=0.01)


def test_a_run_is_no_shorter_than_its_reading() -> None:
    makespan, _ = ahead(steps(10, 5000, 500))
    assert makespan == pytest.approx(1 + 10 * 5000 + 100 + 205 + 500 + 3, abs=5)


def test_the_unchanged_run_plays_as_recorded() -> None:
    recorded = steps(3, 1000, 500)
    assert play(timeline(recorded)).makespan_ns == round(recorded.makespan_seconds * 1e9)


@pytest.mark.parametrize(
    "recorded",
    [
        steps(1, 1000, 2000),  # nothing is done before it
        steps(5, 1000, 2000, thread=9),  # another thread reads already
        steps(5, 1000, 2000, process=7),
        steps(5, 1000, 2000, kind="write"),
    ],
)
def test_reads_from_which_nothing_is_gained(recorded: Trace) -> None:
    assert ahead(recorded)[0] == pytest.approx(recorded.makespan_seconds * 1e6, abs=1)


def test_reads_before_the_run_and_longer_than_there_is_time() -> None:
    """Times that contradict each other take no time that is not there."""
    recorded = run(
        call(100, 200, "cudaMalloc"),
        call(300, 400, "cudaFree"),
        storage=[
            stored(-500, -100, MIB),
            stored(250, 9000, MIB),
            stored(150, 160, MIB),
            stored(500, 600, MIB),
        ],
    )
    makespan, applied = ahead(recorded)
    assert applied.count == 1 and 200 <= makespan <= 9000
    assert (applied.timeline.columns["call_gap"] >= 0).all()


def test_threads_read_each_for_themselves() -> None:
    rows: list[Any] = []
    reads = []
    for thread in (1, 2):
        for step in range(4):
            at = 1000.0 * step + 450 * thread  # side by side: neither hands over to the other
            reads.append(stored(at, at + 400, MIB, thread=thread))
            rows.append(call(at + 500, at + 990, "cudaDeviceSynchronize", thread=thread))
    recorded = run(*rows, storage=reads)
    makespan, applied = ahead(recorded)
    assert applied.count == 6  # the first ones lie before the run
    threads = applied.timeline.columns["call_thread"]
    assert len(np.unique(threads)) == 4 and threads.max() == 3
    assert makespan < recorded.makespan_seconds * 1e6


def test_a_trace_without_storage_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match="record --storage"):
        ahead(run(call(0, 10, "cudaMalloc")))


def advised(recorded: Trace, replay: bool = True) -> Any:
    found = findings(recorded, None, rebuilt(recorded, None) if replay else None)
    return {finding.id: finding for finding in found}.get("exposed-reads")


def test_the_finding_has_the_gain_of_the_replay() -> None:
    recorded = steps(10, 1000, 2000)
    finding = advised(recorded)
    assert finding.by_replay and finding.what_if == ("--read-ahead",)
    assert finding.predicted_gain_seconds == pytest.approx(9e-3, rel=0.01)
    assert finding.bound_seconds == pytest.approx(10e-3)
    assert (
        "10 reads of 1 file brought 83.9 MB in 10 ms; for 10 ms of the run the GPU did nothing"
        in finding.evidence
    )
    assert "83.9 MB went into pinned memory from which copies to the GPU came" in finding.evidence
    assert "cuFile" in finding.change


def test_without_a_replay_the_finding_is_what_is_exposed_at_most() -> None:
    finding = advised(steps(10, 1000, 2000), replay=False)
    assert not finding.by_replay and finding.predicted_gain_seconds == pytest.approx(10e-3)


def test_cufile_is_advised_only_where_reads_feed_copies() -> None:
    finding = advised(steps(10, 1000, 2000, address=1 << 40))
    assert "cuFile" not in finding.change and "copies to the GPU came" not in finding.evidence


def test_reads_beside_the_gpus_work_are_no_finding() -> None:
    rows = [made(kernel(10, 9000), 0, 5), call(6, 9003, "cudaDeviceSynchronize", "device")]
    assert advised(run(*rows, storage=[stored(100, 8000, MIB, thread=2)])) is None
    assert advised(trace(kernel(0, 5))) is None
