"""The benchmarks' generated exports are traces like any other, however their pages lie."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks import nsys_export
from busfare.advise import rebuilding
from busfare.report.summary import summarise
from busfare.trace import read
from busfare.trace.replayed import UNUSED
from busfare.trace.tables import OPERATIONS_OF_KERNELS
from tests.trace.test_sqlite_direct import unlike


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_generated_export_is_sound(interleaved: bool, tmp_path: Path) -> None:
    path = nsys_export.write(tmp_path / "t.sqlite", 27_000, interleaved)
    trace = read(path)
    kinds = dict(trace.operations["kind"].value_counts().iter_rows())
    assert kinds == {"kernel": 8_000, "copy": 4_000}
    assert trace.calls.height == 15_000
    assert trace.omissions == []
    assert {table: unlike(path, table) for table in nsys_export.COLUMNS} == {
        key: [] for key in nsys_export.COLUMNS
    }


def test_a_report_is_the_same_without_the_columns_that_only_its_replay_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "MOST_ROWS", 1_000)  # as in a trace of millions: nothing is replayed
    path = nsys_export.write(tmp_path / "t.sqlite", 2_700)
    assert summarise(read(path, UNUSED)) == summarise(read(path))
    lean = read(path, UNUSED)
    for name in UNUSED:
        table, column = name.split(".")
        frame = getattr(lean, table)
        assert column not in frame.columns or frame[column].is_null().all()
    whole = read(path).operations
    assert lean.operations.schema == whole.drop(*OPERATIONS_OF_KERNELS).schema
    assert isinstance(lean.calls, pl.DataFrame)


def test_a_small_trace_is_read_whole_where_only_large_ones_need_not_be(tmp_path: Path) -> None:
    path = nsys_export.write(tmp_path / "t.sqlite", 2_700)
    assert read(path, UNUSED, above=1_500).calls["thread"].null_count() == 0
    assert read(path, UNUSED, above=1_499).calls["thread"].null_count() == 1_500
