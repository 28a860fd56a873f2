"""Recordings and traces that are kept as columns, and are recordings and traces again."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from busfare.trace.readers.recorded.file import Recording, read_recording
from validation import packed_columns, packed_recordings, packed_traces, stored

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
            np.array([recording.tables[name].signed(column) for column in ("start", "duration")])
            for recording in (was, now)
        )
        before[1] += before[0]
        after[1] += after[0]
        assert np.abs(before - after).max() <= 500
        assert np.array_equal(np.argsort(after[0], kind="stable"), np.argsort(before[0], kind="stable"))
        assert (after[1] >= after[0]).all()


@pytest.mark.parametrize(
    "values",
    [[], [0], [5, 6, 7, 1 << 40], [-(1 << 63), (1 << 63) - 1, 0], [-3, 300, -70000], list(range(1000))],
)
def test_every_number_comes_back(values: list[int]) -> None:
    held, columns = packed_columns.read(packed_columns.write({"a": 1}, [np.array(values, np.int64)] * 2))
    assert held == {"a": 1}
    assert [column.tolist() for column in columns] == [values] * 2


def event(
    name: str, start: float, length: float, category: str = "cuda_runtime", **arguments: Any
) -> dict[str, Any]:
    times = {"ts": start, "dur": length}
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 8, **times, "args": arguments}


TRACE = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 6117434321000.0, "args": {"name": "python"}},
        event("aten::mm", 6117434321091.123, 40.5, "cpu_op", **{"External id": 1, "Input Dims": [[2, 3], [3, 4]]}),
        event("cudaEventQuery", 6117434321092.0, 1.0, correlation=1),
        event("cudaLaunchKernel", 6117434321095.25, 5.001, correlation=2, **{"External id": 1}),
        event("gemm", 6117434321111.5, 9.75, "kernel", correlation=2, grid=[1, 2, 3], queued=0),
    ],
}  # fmt: skip


def test_a_whole_trace_comes_back() -> None:
    again = json.loads(packed_traces.unpack(packed_traces.pack(TRACE, whole=True)))
    assert again["deviceProperties"] == TRACE["deviceProperties"]
    assert sorted(again["traceEvents"], key=str) == sorted(TRACE["traceEvents"], key=str)


def test_a_trace_for_replays_keeps_calls_and_operations_and_who_launched_what() -> None:
    events = json.loads(packed_traces.unpack(packed_traces.pack(TRACE)))["traceEvents"]
    (call, kernel) = sorted(events, key=lambda event: event["ts"])
    assert (call["name"], kernel["name"]) == ("cudaLaunchKernel", "gemm")
    assert call["args"]["correlation"] == kernel["args"]["correlation"]
    assert kernel["args"]["grid"] == [1, 2, 3] and "queued" not in kernel["args"]
    assert kernel["ts"] - call["ts"] == 16.25 and kernel["dur"] == 9.75


@pytest.mark.parametrize(("whole", "events"), [(True, 5), (False, 2)])
def test_an_archive_is_unpacked_as_it_was_packed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, events: int
) -> None:
    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    trace = gzip.compress(json.dumps(TRACE).encode())
    files = {"run/one.bf": path, "run/step.json.gz": trace, "told.txt": b"as it is"}
    stored.pack(files, tmp_path / f"{whole}.tar.xz", whole=whole)
    folder = stored.unpacked(str(whole))
    assert read_recording(folder / "run/one.bf").strings == read_recording(path).strings
    assert len(json.loads((folder / "run/step.json").read_text())["traceEvents"]) == events
    assert (folder / "told.txt").read_bytes() == b"as it is"
