"""Operations that a finding looks at: what is fetched by number of row is what their table says."""

import numpy as np
import polars as pl
import pytest

from busfare import cost
from busfare.advise.finding import rows_of
from busfare.cost.models import as_copies_of
from busfare.nodes import load_node
from busfare.trace import read
from busfare.trace.lanes import Union, is_work
from tests.traces import EXAMPLES

NODE = load_node("pcie:3x16")
COPIES = pl.col("kind") == "copy"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.gz")), ids=lambda file: file.name)
def test_sums_prices_and_exposed_time_are_those_of_the_table(file: object) -> None:
    recorded = read(str(file))
    copies = rows_of(recorded, COPIES)
    frame = recorded.operations.filter(COPIES)
    assert copies.height == frame.height > 0
    assert copies.bytes() == frame["bytes"].sum()
    assert copies.seconds() == pytest.approx((frame["end_ns"] - frame["start_ns"]).sum() * 1e-9)
    spans = Union.of(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
    assert copies.exposed == spans.minus(recorded.lanes.union(is_work())) * 1e-9
    took = (frame["end_ns"] - frame["start_ns"]).to_numpy() * 1e-9
    for memory in (None, "pinned"):
        priced = cost.model("datasheet").seconds(as_copies_of(frame, memory) if memory else frame, NODE)
        expected = np.where(np.isnan(priced), took, priced)
        assert copies.repriced(NODE, memory).tolist() == expected.tolist()


def test_copies_of_a_direction_and_gpu_merge() -> None:
    recorded = read(str(sorted(EXAMPLES.glob("*.gz"))[0]))
    copies = rows_of(recorded, COPIES)
    frame = recorded.operations.filter(COPIES)
    whole = frame.group_by("direction", "device").agg(pl.exclude("bytes").first(), pl.col("bytes").sum())
    merged = np.nanmax(cost.model("datasheet").seconds(whole, NODE))
    assert copies.merged_seconds(NODE) == pytest.approx(merged)
    assert copies.where(np.zeros(copies.height, bool)).merged_seconds(NODE) == 0
