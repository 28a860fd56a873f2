"""GPU records that do not name their process get it from the calls, if these are of one only."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from busfare.trace import Trace
from busfare.trace.model import name_process
from busfare.trace.tables import CALLS, OPERATIONS, conform


@pytest.mark.parametrize(
    ("of_calls", "expected"), [([71, 71], 71), ([71, None], 71), ([71, 72], None), ([None, None], None)]
)
def test_the_process_of_the_calls(of_calls: list[int | None], expected: int | None) -> None:
    trace = Trace(Path("x"), "nvprof", "", conform(pl.DataFrame({"kind": ["kernel"]}), OPERATIONS))
    trace.calls = conform(pl.DataFrame({"process": of_calls}, schema={"process": pl.Int64}), CALLS)
    name_process(trace)
    assert trace.operations["process"].to_list() == [expected]
    assert trace.operations.schema["process"] == pl.Int64()
