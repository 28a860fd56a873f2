"""How much memory of the GPU kernels' arguments reach, from stand-ins."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from busfare.trace import read
from busfare.trace.readers.recorded.arguments import of_different_data
from busfare.trace.readers.recorded.counters import SHAPE
from tests.traces import omitted

from .conftest import Built, Recorded


def test_the_first_launch_reaches_each_allocation_once_from_its_first_pointer(recorded: Recorded) -> None:
    run = recorded("arguments")
    (file,) = run.files
    trace = read(file, launches=True)
    kernels = trace.operations.filter(pl.col("kind") == "kernel")
    reached = trace.launches["argument_bytes"].gather(kernels["launch"])
    # The second launch is like the first; a kernel of a graph has its own.
    given = (1 << 20) - 0x100 + 4096 - 0x80
    assert kernels["name"].cast(pl.String).to_list() == ["fake_given", "fake_given", "without()"]
    assert reached.to_list() == [given, given, 0]
    table = run.only.table("argument_memory")
    assert table["buffers"].tolist() == [2, 0]
    assert table["inside"].tolist() == [31, 0]
    assert run.only.facts["arguments"] == "first launches"


def test_memory_of_a_pool_says_nothing_of_an_array(recorded: Recorded) -> None:
    run = recorded("pooled")
    assert run.only.table("argument_memory")["inside"].tolist() == [500, 0]
    launches = read(run.files[0], launches=True).launches
    assert sorted(launches["argument_bytes"].to_list(), key=str) == [0, None]


def test_what_the_first_launch_reached_says_nothing_of_launches_on_other_data() -> None:
    """A grid of as many blocks as the GPU holds goes over data of any size."""
    times = {"loops": [10, 100, 1000], "steady": [100, 110, 199], "once_late": [*[100] * 19, 900]}
    rows = [(name, 8, 0, took) for name, each in times.items() for took in each]
    kernels = pl.DataFrame(rows, schema=["name", "grid_x", "start_ns", "end_ns"], orient="row")
    kernels = kernels.with_columns(pl.lit(1).alias(side) for side in SHAPE if side != "grid_x")
    assert of_different_data(kernels)["name"].to_list() == ["loops"]


@pytest.mark.parametrize("options", [{"arguments": False}, {"kinds": ["copies"]}])
def test_it_can_be_left_out_and_is_where_no_kernels_are_recorded(
    recorded: Recorded, options: dict[str, Any]
) -> None:
    run = recorded("arguments", **options)
    assert "arguments" not in run.only.facts
    assert not len(run.only.table("argument_memory"))
    assert read(run.files[0], launches=True).launches["argument_bytes"].drop_nulls().is_empty()


def test_both_looks_at_arguments_go_together(recorded: Recorded) -> None:
    run = recorded("mapped", mapped=True)
    assert run.only.table("mapped_arguments")["buffers"].tolist() == [2, 1, 1]
    assert run.only.table("argument_memory")["bytes"].tolist() == [1 << 20, 0]


def test_an_older_driver_is_named(recorded: Recorded, built: Built) -> None:
    older = built.search_path().replace("/driver:", "/driver-old:")
    run = recorded("arguments", extra={"LD_LIBRARY_PATH": older})
    assert run.status == 0
    trace = read(run.files[0], launches=True)
    assert "no-arguments" in omitted(trace)
    assert trace.launches["argument_bytes"].null_count() == trace.launches.height
