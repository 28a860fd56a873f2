"""Operations that a finding looks at: what is fetched by number of row is what their table says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from busfare.advise import chosen
from busfare.advise.chosen import Chosen, priced, rows_of
from busfare.node import load_node
from busfare.trace import read
from busfare.trace.lanes import Union, is_work
from tests.traces import EXAMPLES

NODE = load_node("pcie:3x16")
COPIES = pl.col("kind") == "copy"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.gz")), ids=lambda file: file.name)
def test_sums_prices_and_exposed_time_are_those_of_the_table(
    file: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = read(str(file))
    copies = rows_of(recorded, COPIES)
    frame = recorded.operations.filter(COPIES)
    assert copies.height == frame.height > 0
    assert copies.bytes() == frame["bytes"].sum()
    assert copies.seconds() == pytest.approx((frame["end_ns"] - frame["start_ns"]).sum() * 1e-9)
    alone = Union.of(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()).minus(
        recorded.lanes.union(is_work())
    )
    assert copies.exposed == alone * 1e-9
    for memory in (None, "pinned"):
        expected = priced(frame.select(chosen.COLUMNS), NODE, memory).tolist()
        for many in (0, 1 << 60):  # what costs alike together, and each alone
            monkeypatch.setattr(chosen, "MANY_ROWS", many)
            assert Chosen(recorded, copies.rows).repriced(NODE, memory).tolist() == expected


def test_all_of_one_direction_and_gpu_together() -> None:
    recorded = read(str(sorted(EXAMPLES.glob("*.gz"))[0]))
    copies = rows_of(recorded, COPIES)
    frame = recorded.operations.filter(COPIES)
    expected = frame.group_by("direction", "device", maintain_order=True).agg(pl.col("bytes").sum())
    assert copies.together().select("direction", "device", "bytes").rows() == expected.rows()
    assert copies.where(np.zeros(copies.height, bool)).together().is_empty()
