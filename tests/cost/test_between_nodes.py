"""Copies carried from one measured node to another: each part of their time, on nodes written out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.cost import model
from busfare.node import Curve, Node, load_node
from busfare.node.curve import Direction, MemoryKind

MIB = 1 << 20


def engine(direction: Direction, start_s: float, per_byte_s: float, memory: MemoryKind = "pinned") -> Curve:
    return Curve(
        direction=direction, memory=memory, latency_overhead_s=(start_s,), gap_per_byte_s=(per_byte_s,)
    )


def node(*curves: Curve) -> Node:
    return dataclasses.replace(load_node("h100-sxm"), curves=curves)


def copies(sizes: list[int], seconds: list[float], memory: str, direction: str = "h2d") -> pl.DataFrame:
    ends = (memory, "device") if direction == "h2d" else ("device", memory)
    return pl.DataFrame(
        {
            "kind": "migration" if memory == "managed" else "copy",
            "direction": direction,
            "bytes": sizes,
            "source_memory": ends[0],
            "destination_memory": ends[1],
            "device": 0,
            "peer_device": None,
            "copy_count": 1,
            "start_ns": 0,
            "end_ns": [round(s * 1e9) for s in seconds],
        }
    )


def carried(table: pl.DataFrame, old: Node, new: Node) -> np.ndarray:
    return model("calibrated", recorded_on=old).seconds(table, new)


def test_bytes_follow_the_engine() -> None:
    old, new = node(engine("h2d", 3.5e-6, 4e-11)), node(engine("h2d", 3.5e-6, 2e-11))
    found = carried(copies([4, 64 * MIB], [1e-6, 2700e-6], "pinned"), old, new)
    assert found[1] == pytest.approx(1e-6 + 2699e-6 / 2)


def test_a_pageable_copy_staged_before_it_ran_follows_the_engine_and_a_long_one_the_host() -> None:
    host = [engine("h2d", 10e-6, pace, "pageable") for pace in (8e-11, 4e-11)]
    old, new = (node(engine("h2d", 3.5e-6, 2e-11), one) for one in host)
    found = carried(copies([32 << 10, 32 * MIB], [3e-6, 2700e-6], "pageable"), old, new)
    assert found[0] == pytest.approx(3e-6)
    assert found[1] == pytest.approx(1370e-6, rel=0.02)


def test_what_a_pageable_copy_lost_to_a_cold_cache_it_loses_on_the_other_node_too() -> None:
    """Of 32 MiB the processors' own pace explains 2,720 and 1,380 µs; a probe of quiet moments tells of no more."""
    host = [engine("h2d", 10e-6, pace, "pageable") for pace in (8e-11, 4e-11)]
    old, new = (node(engine("h2d", 3.5e-6, 2e-11), one) for one in host)
    whole = [
        carried(copies([32 * MIB], [seconds], "pageable"), old, new)[0] for seconds in (2724e-6, 4000e-6)
    ]
    assert whole[1] - whole[0] == pytest.approx(4000e-6 - 2724e-6, rel=1e-3)
    back = carried(copies([32 * MIB], [whole[1]], "pageable"), new, old)[0]
    assert back == pytest.approx(4000e-6, rel=1e-6)


def test_a_knee_that_one_measurement_found_elsewhere_changes_nothing() -> None:
    old_host = Curve(
        direction="h2d", memory="pageable", up_to_bytes=(16 * MIB,), latency_overhead_s=(1e-5, 0.0),
        gap_per_byte_s=(8e-11, 14e-11),
    )  # fmt: skip
    old = node(engine("h2d", 3.5e-6, 2e-11), old_host)
    new = node(engine("h2d", 3.5e-6, 2e-11), engine("h2d", 1e-5, 8e-11, "pageable"))
    assert carried(copies([24 * MIB], [2e-3], "pageable"), old, new)[0] == pytest.approx(2e-3)


def test_copies_of_one_size_take_their_mean_and_the_sum_stays() -> None:
    old, new = node(engine("h2d", 3.5e-6, 2e-11)), node(engine("h2d", 3.4e-6, 2e-11))
    table = copies([MIB, MIB, MIB, 4096], [20e-6, 30e-6, 40e-6, 2e-6], "pinned")
    found = carried(table, old, new)
    np.testing.assert_allclose(found, [30e-6, 30e-6, 30e-6, 2e-6], rtol=1e-9)


def test_a_copy_that_never_ended_has_no_price_and_spoils_no_other() -> None:
    old, new = node(engine("h2d", 3.5e-6, 2e-11)), node(engine("h2d", 3.4e-6, 2e-11))
    table = copies([MIB, MIB], [20e-6, 30e-6], "pinned").with_columns(end_ns=pl.Series([20_000, None]))
    found = carried(table, old, new)
    assert found[0] == pytest.approx(20e-6)
    assert np.isnan(found[1])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(1, 10**9)), min_size=1, max_size=20),
    st.sampled_from(["pinned", "pageable", "managed"]),
    st.sampled_from(["h2d", "d2h"]),
)
def test_between_two_probed_gpus_every_copy_has_a_time_and_on_its_own_its_own(
    recorded: list[tuple[int, int]], memory: str, direction: str
) -> None:
    table = copies([size for size, _ in recorded], [ns * 1e-9 for _, ns in recorded], memory, direction)
    old, new = load_node("h100-probed"), load_node("h200-x2-probed")
    assert (carried(table, old, new) > 0).all()
    np.testing.assert_allclose(carried(table, old, old), [ns * 1e-9 for _, ns in recorded], rtol=1e-9)
