"""Exports hold what the trace held."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import otf2
import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace import read
from busfare.trace.write import TABLES, export
from tests.traces import EXAMPLES, call, copy, kernel, trace


def test_parquet_tables_come_back_as_they_were(tmp_path: Path) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    export(recorded, "parquet", tmp_path / "tables")
    for table in ("operations", "calls", "events", "markers", "devices", "streams"):
        back = pl.read_parquet(tmp_path / "tables" / f"{table}.parquet")
        assert back.height == getattr(recorded, table).height, table
        assert back.columns == getattr(recorded, table).columns, table
    back = pl.read_parquet(tmp_path / "tables" / "operations.parquet")
    assert back["bytes"].sum() == recorded.operations["bytes"].sum()


def test_csv_holds_the_same_tables(tmp_path: Path) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    export(recorded, "csv", tmp_path / "tables")
    back = pl.read_csv(tmp_path / "tables" / "operations.csv", infer_schema_length=None)
    assert back.columns == recorded.operations.columns
    for column in ("start_ns", "end_ns", "bytes", "stream"):
        assert back[column].to_list() == recorded.operations[column].to_list()
    assert {file.stem for file in (tmp_path / "tables").iterdir()} == {*TABLES, "omissions"}


Spans = Counter[tuple[str, int, int]]


def spans_of(archive: Path) -> tuple[Spans, int]:
    """By the reader of OTF2's makers: name, start and end of every span, and the bytes of all."""
    spans, moved, inside = Spans(), 0, dict[Any, list[Any]]()
    with otf2.reader.open(str(archive / "traces.otf2")) as reader:
        assert reader.timer_resolution == 1_000_000_000
        for location, event in reader.events:
            if isinstance(event, otf2.events.Enter):
                inside.setdefault(location, []).append(event)
                moved += sum((event.attributes or {}).values())
            else:
                entered = inside[location].pop()
                spans[entered.region.name, entered.time, event.time] += 1
    assert not any(inside.values())
    return spans, moved


def test_an_otf2_archive_holds_every_operation_and_call(tmp_path: Path) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-streams-h100.json.gz")
    export(recorded, "otf2", tmp_path / "archive")
    spans, moved = spans_of(tmp_path / "archive")
    assert spans.total() == recorded.operations.height + recorded.calls.height
    origin = min(recorded.operations["start_ns"].min(), recorded.calls["start_ns"].min())  # type: ignore[type-var]
    kernels = recorded.operations.filter(pl.col("kind") == "kernel")
    for name, start, end in kernels.select("name", "start_ns", "end_ns").iter_rows():
        assert spans[name, start - origin, end - origin]
    assert moved == recorded.operations.filter(pl.col("kind") == "copy")["bytes"].sum()


def test_what_overlaps_in_a_stream_and_calls_in_calls_keep_their_times_in_otf2(tmp_path: Path) -> None:
    within = [call(0, 50, "outer"), call(10, 20, "inner"), call(30, 50, "second"), call(60, 60, "short")]
    export(
        trace(copy(10, 20, 4096), kernel(15, 40, "work"), kernel(40, 41, "work"), calls=within),
        "otf2",
        tmp_path / "a",
    )
    spans, moved = spans_of(tmp_path / "a")
    assert moved == 4096
    assert spans == Counter(
        {
            ("h2d pinned → device", 10_000, 20_000): 1, ("work", 15_000, 40_000): 1, ("work", 40_000, 41_000): 1,
            ("outer", 0, 50_000): 1, ("inner", 10_000, 20_000): 1, ("second", 30_000, 50_000): 1,
            ("short", 60_000, 60_000): 1,
        }
    )  # fmt: skip


def test_without_the_library_of_otf2_what_to_install_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busfare.trace.write.otf2.find_spec", lambda _: None)
    with pytest.raises(InputError, match="pip install otf2"):
        export(trace(kernel(30, 40, "work")), "otf2", tmp_path / "archive")
    assert not (tmp_path / "archive").exists()


def test_a_time_line_holds_every_operation_and_call(tmp_path: Path) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    export(recorded, "perfetto", tmp_path / "line.json")
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == recorded.operations.height + recorded.calls.height
    assert sum(e["args"].get("bytes", 0) for e in spans) == recorded.operations["bytes"].sum()


def test_a_time_line_reads_back_as_microseconds(tmp_path: Path) -> None:
    export(trace(copy(10, 20, 4096), kernel(30, 40, "work")), "perfetto", tmp_path / "line.json")
    spans = [e for e in json.loads((tmp_path / "line.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [(e["ts"], e["dur"], e["name"]) for e in spans] == [
        (10, 10, "h2d pinned → device"),
        (30, 10, "work"),
    ]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        export(trace(), "parquet", tmp_path / "file" / "tables")
