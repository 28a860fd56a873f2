"""The published traces: kernels, copies and omissions as their table says."""

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import cache

import polars as pl
import pytest

from busfare.show.words import text
from busfare.trace import Trace, read
from tests.published import DATA, TRACES, published
from tests.trace.test_sqlite_tables import unlike

pytestmark = pytest.mark.conformance

ROW = re.compile(
    r"\| (?P<file>(?:amd|kineto|nsys|nvprof)/\S+) \| (?P<kernels>\d+) \| (?P<copies>.*?) \| .* \|"
)
COPIES = re.compile(r"(?P<direction>\w+) (?P<count>\d+) / (?P<bytes>\d+)")


@dataclass(frozen=True)
class Listed:
    """A row of the table: a file, and what a direct query of it counts."""

    file: str
    kernels: int
    copies: dict[str, tuple[int, int]]


def listed() -> list[Listed]:
    table = DATA / "README.md"
    if not table.is_file():
        return []
    listed = []
    for line in table.read_text(encoding="utf-8").splitlines():
        if row := ROW.fullmatch(line):
            copied = COPIES.finditer(row["copies"])
            copies = {m["direction"]: (int(m["count"]), int(m["bytes"])) for m in copied}
            listed.append(Listed(row["file"], int(row["kernels"]), copies))
    return listed


ROWS = listed()
SQLITE = (".sqlite", ".nvvp", ".rpd")
#: Where the calls tell other directions than the names of copies, by which the table counts.
BY_CALLS = {"kineto/tracelens-vllm/graph_execution.json.gz": {"d2d": (1, 148), "h2d": (9, 264114)}}
#: What a reader is to be told of each file; of those not named here, nothing.
OMISSIONS: dict[str, set[str]] = {
    "amd/raptor.rpd": {"opaque-graphs", "unknown-memory", "tracer-calls"},
    "kineto/hta-negative_queue_length_values_check/rank0.json.gz": {"cut-window", "graph-nodes"},
    "kineto/tracelens-h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": {"cut-window"},
    "kineto/tracelens-vllm/graph_execution.json.gz": {"unknown-memory", "graph-nodes"},
    "nsys/pipit-saxpy-mpi-a100.sqlite": {"mpi-without-partners"},
    "nsys/nsys-ai-2xh100-after.sqlite": {"waits-without-records", "cut-window"},
    "nsys/nsys-ai-2xh100-before.sqlite": {"waits-without-records", "cut-window"},
    **{
        f"nsys/{name}.sqlite": {"profiler-warning"}
        for name in ("balinski-2xrtx3090", "fuser-h200", "pipit-cloverleaf-a100", "unified-memory-t4")
    },
    "nvprof/qcu-p100.nvvp": {"links-unlike", "unnamed-calls", "two-clocks", "clock-drift"},
}


@cache
def trace_of(file: str) -> Trace:
    return read(TRACES / file)


def test_the_table_lists_every_file() -> None:
    assert {row.file for row in ROWS} == {str(path.relative_to(TRACES)) for path in published()}
    assert len(ROWS) == 27


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_kernels_and_copies_are_those_of_the_table(row: Listed) -> None:
    operations = trace_of(row.file).operations
    assert operations.filter(kind="kernel").height == row.kernels
    copies = operations.filter(pl.col("kind").is_in(["copy", "migration"]))
    by_direction = copies.group_by("direction").agg(count=pl.len(), bytes=pl.col("bytes").sum())
    assert {direction: (count, size) for direction, count, size in by_direction.iter_rows()} == (
        BY_CALLS.get(row.file, row.copies)
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_what_is_left_out_is_what_a_reader_should_know(row: Listed) -> None:
    omissions = trace_of(row.file).omissions
    assert {omission.id for omission in omissions} == OMISSIONS.get(row.file, set())
    assert all(text(omission.what) and "\n" not in text(omission.what) for omission in omissions)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_times_start_at_nought_and_calls_have_names(row: Listed) -> None:
    trace = trace_of(row.file)
    starts = pl.concat([trace.operations.select("start_ns"), trace.calls.select("start_ns")])["start_ns"]
    assert starts.min() == 0
    assert trace.calls["name"].null_count() == 0
    assert trace.operations.filter(kind="kernel")["name"].null_count() == 0
    assert trace.calls.filter(pl.col("waits_for") != "none").height > 0 or "graph_execution" in row.file


@pytest.mark.parametrize("file", [row.file for row in ROWS if row.file.endswith(SQLITE)])
def test_every_value_of_every_table_equals_that_of_sqlite(file: str) -> None:
    path = TRACES / file
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    assert tables
    assert {table: differences for table in tables if (differences := unlike(path, table))} == {}
