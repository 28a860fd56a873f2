"""Recordings that are kept as columns of steps, and are recordings again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from busfare.trace.readers.recorded.file import Recording, read_recording
from validation import packed_recordings, stored

TIMED = ("kernels", "copies", "calls", "messages")


@pytest.fixture(scope="module")
def path() -> Path:
    return sorted((stored.unpacked("jobs-h200-x2") / "routed.bf").iterdir())[0]


def again(path: Path, tmp_path: Path, grain_ns: int = 1, without: tuple[str, ...] = ()) -> Recording:
    file = tmp_path / "again.bf"
    file.write_bytes(packed_recordings.unpack(packed_recordings.pack(path, grain_ns, without)))
    return read_recording(file)


def test_every_row_comes_back(path: Path, tmp_path: Path) -> None:
    was, now = read_recording(path), again(path, tmp_path)
    assert (now.process, now.wall_clock_ns, now.facts, now.strings) == (
        was.process, was.wall_clock_ns, was.facts, was.strings,
    )  # fmt: skip
    assert now.complete and not (now.damaged_chunks or now.missing_chunks or now.torn_bytes)
    assert len(was.tables["calls"]) > 100
    for name, table in was.tables.items():
        for column in table.columns if len(table) else ():
            assert np.array_equal(now.tables[name][column], table[column]), (name, column)


def test_times_are_rounded_and_what_lay_within_still_does(path: Path, tmp_path: Path) -> None:
    was, now = read_recording(path), again(path, tmp_path, grain_ns=1000, without=("waits",))
    assert len(was.tables["waits"]) and not len(now.tables["waits"])
    for name in TIMED:
        before, after = (
            np.array([one.tables[name].signed(column) for column in ("start", "duration")])
            for one in (was, now)
        )
        before[1] += before[0]
        after[1] += after[0]
        assert np.abs(before - after).max() <= 500
        assert np.array_equal(np.argsort(after[0], kind="stable"), np.argsort(before[0], kind="stable"))
        assert (after[1] >= after[0]).all()
