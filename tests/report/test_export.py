"""Exports hold what the trace held."""

import json
from pathlib import Path

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace import read
from busfare.trace.write import TABLES, export
from tests.traces import EXAMPLES, copy, kernel, trace


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
    expected = [(10, 10, "h2d pinned → device"), (30, 10, "work")]
    assert [(e["ts"], e["dur"], e["name"]) for e in spans] == expected


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        export(trace(), "parquet", tmp_path / "file" / "tables")


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\uff1d1", "\uff20a", "plain", "a=b"]
    recorded = trace(*(kernel(10 * n, 10 * n + 5, name) for n, name in enumerate(names)), copy(90, 95, 64))
    export(recorded, "csv", tmp_path / "csv")
    back = pl.read_csv(tmp_path / "csv" / "operations.csv")["name"].to_list()
    assert back == [*(f"'{name}" for name in names[:7]), *names[7:], None]
    export(recorded, "parquet", tmp_path / "parquet")
    assert pl.read_parquet(tmp_path / "parquet" / "operations.parquet")["name"].to_list()[:5] == names[:5]
