"""A run replayed unchanged is the run that was recorded: our own recordings from an H100 and an H200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from busfare.timeline import Played, critical_path_shares, play, timeline, unexplained_seconds
from busfare.trace import Trace, read
from tests.published import published
from tests.traces import EXAMPLES

PUBLISHED = published()
RECORDED = sorted(EXAMPLES.glob("*.json.gz"))


def as_recorded(trace: Trace) -> Played:
    played = play(timeline(trace))
    recorded = played.timeline.recorded_ns
    assert abs(played.makespan_ns - recorded) <= 0.01 * recorded
    assert busiest_error(played) <= 0.02
    return played


def busiest_error(played: Played) -> float:
    """The largest relative error of a stream's busy time."""
    operations = played.timeline.operations
    busy = (
        operations.select("stream_number", recorded=pl.col("end_ns") - pl.col("start_ns"))
        .with_columns(replayed=pl.Series(played.operation_end - played.operation_start))
        .group_by("stream_number")
        .sum()
        .filter(pl.col("recorded") > 0)
    )
    errors = (busy["replayed"] / busy["recorded"] - 1).abs()
    return float(errors.max() or 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_our_own_recordings_replay_as_they_were_and_little_of_them_stays_unexplained(path: Path) -> None:
    """Operations start when their dependencies say, and not only because the recording says so."""
    played = as_recorded(read(path))
    run = played.timeline
    shifts = np.abs(played.operation_start + run.origin_ns - run.operations["start_ns"].to_numpy())
    assert int(shifts.max()) <= 1000
    shares = critical_path_shares(run)
    assert sum(part.seconds for part in shares) == pytest.approx(played.makespan_seconds)
    assert unexplained_seconds(shares) <= 0.01 * run.recorded_ns * 1e-9


@pytest.mark.conformance
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_traces_replay_as_they_were(path: Path) -> None:
    as_recorded(read(path))


@pytest.mark.conformance
def test_there_are_published_traces() -> None:
    assert len(PUBLISHED) == 27
