"""The time line that XLA's profiler makes, built and read beside the profile that it is of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.trace import may_be_trace, read
from busfare.trace.readers.xla import chrome
from tests.trace.build_xla import Plane, small_planes, time_line, write_space, write_time_line


def test_it_tells_what_the_profile_tells(tmp_path: Path) -> None:
    path = write_time_line(tmp_path / "host.trace.json.gz")
    assert may_be_trace(path)
    made, profile = read(path), read(write_space(tmp_path / "host.xplane.pb"))
    assert made.format == "xla" and not made.omissions
    for table in ("operations", "calls", "markers"):
        told, known = getattr(made, table).drop("process"), getattr(profile, table).drop("process")
        assert told.equals(known), table


def test_streams_of_older_versions(tmp_path: Path) -> None:
    events = json.loads(time_line(*small_planes()))
    text = json.dumps(events).replace("Stream #", "#").replace('"/device:GPU:0"', '"/device:GPU:0 (pid 1)"')
    (tmp_path / "t.json").write_text(text)
    assert read(tmp_path / "t.json").operations["stream"].to_list() == [7, 13, 7, 13]


def test_a_time_line_of_a_million_events_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_time_line(tmp_path / "host.trace.json.gz")
    monkeypatch.setattr(chrome, "MOST_EVENTS", 13)
    [cut] = read(path).omissions
    assert cut.id == "cut" and "give the .xplane.pb" in cut.what
    monkeypatch.setattr(chrome, "MOST_EVENTS", 14)
    assert read(path).omissions == []


def test_a_file_that_ends_in_the_middle_gives_what_stands_before(tmp_path: Path) -> None:
    _, gpu, host = small_planes()
    whole = time_line(gpu, host)
    path = tmp_path / "t.json"
    path.write_text(whole[: whole.index("cuLaunchKernel")])
    trace = read(path)
    assert (trace.operations.height, trace.calls.height) == (4, 1)
    assert {omission.id for omission in trace.omissions} == {"truncated", "cut-window"}
    path.write_text(whole.replace(", {}]", ', {"ph": ]'))
    assert read(path).calls.height == 4
    path.write_text(whole.replace(", {}]", ', "text", 7]'))
    assert (read(path).calls.height, read(path).omissions) == (4, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"ts": "soon"}, {"ts": None}, {"dur": 1e300}, {"tid": {}}, {"pid": [1]}, {"name": 7}, {"args": 3},
        {"args": {"correlation_id": {}, "memcpy_details": 4}},
    ],
)  # fmt: skip
def test_events_of_wrong_types_are_no_crash(wrong: dict[str, object], tmp_path: Path) -> None:
    document = json.loads(time_line(*small_planes()))
    events = document["traceEvents"]
    events.append(next(event for event in events if event.get("name") == "MemcpyH2D") | wrong)
    (tmp_path / "t.json").write_text(json.dumps(document))
    trace = read(tmp_path / "t.json")
    assert trace.operations.height in (4, 5)
    assert trace.operations.height == 5 or trace.omissions or "args" in wrong


def test_other_time_lines_are_refused(tmp_path: Path) -> None:
    path = write_time_line(tmp_path / "t", Plane("/device:TPU:0"))
    with pytest.raises(InputError, match="1 TPU cores and no GPU"):
        read(path)
    named = {
        "ph": "M",
        "name": "process_name",
        "pid": 1,
        "args": {"name": "/job:localhost/device:CPU:0 Compute"},
    }
    path.write_text(json.dumps({"traceEvents": [named]}))
    with pytest.raises(InputError, match=r"TensorFlow 1; record .* give the .xplane.pb"):
        read(path)
