"""What host threads did between API calls: read from traces, and the name that covers most of it."""

from pathlib import Path

import polars as pl
import pytest

from busfare.trace import read
from busfare.trace.activity import deepest, most_sampled
from busfare.trace.tables import ACTIVITY, conform
from tests.trace import build_kineto
from tests.trace.build_nsys import global_pid, small_export

Span = tuple[int, int | None, str, str | None]


def spans(*rows: Span) -> pl.DataFrame:
    """Spans of thread 1: start, end, kind, name."""
    frame = pl.DataFrame(list(rows), schema=["start_ns", "end_ns", "kind", "name"], orient="row")
    return conform(frame.with_columns(process=1, thread=1), ACTIVITY)


def gaps(*times: tuple[int, int], thread: int = 1) -> pl.DataFrame:
    schema = {"process": pl.Int32, "thread": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame([(1, thread, *ends) for ends in times], schema=schema, orient="row")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Most of the time, two levels down.
        ([(0, 100, "range", "step"), (5, 80, "operator", "adam"), (10, 20, "operator", "mul")], ("adam", 0.75)),
        # No operator covers most of the range: the range it is.
        ([(0, 80, "range", "load"), (0, 30, "operator", "a"), (30, 60, "operator", "b")], ("load", 0.8)),
        # A range of everything explains nothing: the largest inside does.
        ([(0, 100, "range", "main"), (0, 40, "range", "read"), (40, 70, "range", "parse")], ("read", 0.4)),
        # Ranges that differ in their number are one name.
        ([(0, 50, "range", "batch 1"), (50, 95, "range", "batch 2")], ("batch #", 0.95)),
        # The function that opens a range crosses it, and is left out.
        ([(0, 4, "function", "push"), (2, 90, "range", "epoch")], ("epoch", 0.88)),
        # What only calls another function owns nothing.
        ([(0, 90, "function", "train.py:3 step"), (0, 80, "function", "m.py:9 _call_impl")], ("train.py:3 step", 0.9)),
    ],
)  # fmt: skip
def test_the_innermost_name_that_covers_most(rows: list[Span], expected: tuple[str, float]) -> None:
    activity = deepest(spans(*rows), gaps((0, 100)))
    assert activity is not None and activity.name == expected[0]
    assert activity.share == pytest.approx(expected[1])


def test_only_gaps_of_the_span_s_thread_count() -> None:
    rows = spans((0, 100, "range", "step"))
    assert deepest(rows, gaps((0, 100), thread=2)) is None
    activity = deepest(rows, gaps((0, 10), (90, 110)))
    assert activity is not None and activity.share == pytest.approx(20 / 30)


def test_samples_count_where_they_fall_into_gaps() -> None:
    sampled = {5: "fill", 6: "fill", 7: None, 50: "x"}
    frame = spans(*((at, None, "sample", name) for at, name in sampled.items()))
    activity = most_sampled(frame, gaps((0, 10)))
    assert activity is not None and (activity.name, activity.share) == ("fill", pytest.approx(2 / 3))
    assert most_sampled(frame, gaps((20, 30))) is None


def test_nsys_tells_of_system_calls_and_samples(tmp_path: Path) -> None:
    export = small_export()
    thread = global_pid() + 5
    export.add("OSRT_API", start=100, end=900, globalTid=thread, nameId=export.text("poll"), nestingLevel=0)
    export.add("COMPOSITE_EVENTS", id=1, start=400, globalTid=thread)
    export.add("COMPOSITE_EVENTS", id=2, start=500, globalTid=thread)
    stack = [("std::sort<int>()", "/home/me/app"), ("prepare(int)", "/home/me/app"), ("main", "/home/me/app")]
    for depth, (symbol, module) in enumerate(stack):
        names = {"symbol": export.text(symbol), "module": export.text(module)}
        export.add("SAMPLING_CALLCHAINS", id=1, **names, stackDepth=depth)
    file = export.write(tmp_path / "export.sqlite")
    assert read(file).activity.is_empty()
    activity = read(file, activity=True).activity.sort("start_ns")
    expected = [("os-call", "poll"), ("sample", "prepare(int) (app)"), ("sample", None)]
    assert activity.select("kind", "name").rows() == expected
    assert (activity["end_ns"] - activity["start_ns"]).to_list() == [800, None, None]


def test_kineto_tells_of_operators_and_functions(tmp_path: Path) -> None:
    events = [
        *build_kineto.small_events(),
        build_kineto.event("cpu_op", "aten::addmm", 60, 30),
        build_kineto.function("train.py(42): step", 55, 40),
        build_kineto.function("<built-in function len>", 56, 1),
    ]
    file = build_kineto.write_kineto(tmp_path / "trace.json", events)
    assert read(file).activity.is_empty()
    activity = read(file, activity=True).activity
    assert set(activity.select(pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)).rows()) == {
        ("operator", "aten::copy_"),
        ("operator", "aten::addmm"),
        ("function", "train.py:42 step"),
    }
