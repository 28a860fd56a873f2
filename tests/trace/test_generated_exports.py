"""Generated exports of every shape are read as SQLite itself gives them, and reported."""

from pathlib import Path

import polars as pl
import pytest

from benchmarks import nsys_export
from busfare.answers.report import summarise
from busfare.trace import read
from tests.trace.test_sqlite_tables import unlike


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_generated_export_is_sound(interleaved: bool, tmp_path: Path) -> None:
    path = nsys_export.write(tmp_path / "t.sqlite", 2_700, interleaved)
    trace = read(path)
    kinds = dict(trace.operations["kind"].value_counts().iter_rows())
    assert (kinds, trace.calls.height, trace.omissions) == ({"kernel": 800, "copy": 400}, 1_500, [])
    assert [unlike(path, table) for table in nsys_export.COLUMNS] == [[], [], []]


@pytest.mark.parametrize("shape", nsys_export.SHAPES)
def test_every_shape_is_reported_whole(shape: str, tmp_path: Path) -> None:
    path = nsys_export.write(tmp_path / "t.sqlite", 27_000, shape=shape)
    report, trace = summarise(read(path)), read(path)
    assert [unlike(path, table) for table in nsys_export.COLUMNS] == [[], [], []]
    copies = dict(trace.operations.filter(pl.col("kind") == "copy")["direction"].value_counts().iter_rows())
    assert (report.kernels.count, sum(copies.values())) == (8_000, 4_000)
    assert report.transfers.count == 4_000 - copies["d2d"]
    assert trace.operations["start_ns"].is_sorted() and trace.calls["start_ns"].is_sorted()
    orphans = {omission.id: omission.count for omission in report.omissions}.get("cut-window", 0)
    assert orphans == {"unmatched": 12_000, "orphans": orphans}.get(shape, 0)
    assert (orphans > 0) == (shape in ("unmatched", "orphans"))
