"""The calibrated model: the recorded run on its own node, each share's way to another, and each part of a copy's time
between two measured nodes, written out by hand.
"""

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.cost import model
from busfare.cost.copies import SERIAL_BYTES, copy_ratio, copying_seconds_per_byte, staged_seconds
from busfare.cost.models import how_staged
from busfare.errors import InputError
from busfare.nodes import Curve, Node, load_node
from busfare.nodes.transfers import Direction, MemoryKind
from busfare.show.words import text

MIB = 1 << 20
OLD, NEW = load_node("v100-pcie"), load_node("h100-pcie")


def trace(
    sizes: list[int], nanoseconds: list[int], memory: str = "pinned", direction: str = "h2d"
) -> pl.DataFrame:
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
            "start_ns": 5,
            "end_ns": [n + 5 for n in nanoseconds],
        }
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, 10**9)), min_size=1, max_size=20),
    st.sampled_from(["pinned", "pageable", "managed"]),
)
def test_on_its_recording_node_a_trace_costs_what_it_cost(copies: list[tuple[int, int]], memory: str) -> None:
    table = trace([size for size, _ in copies], [time for _, time in copies], memory)
    seconds = model("calibrated", recorded_on=OLD).seconds(table, OLD)
    wanted = np.array([time for _, time in copies]) * 1e-9
    sized = np.array([size for size, _ in copies]) > 0
    np.testing.assert_allclose(seconds[sized], wanted[sized], rtol=1e-9, atol=1e-15)


def large_copy() -> tuple[int, float, float]:
    """256 MiB, and what the links of the two nodes need for them."""
    size = 1 << 28
    old, new = (node.host_path(0).seconds(np.array([float(size)]), "read")[0] for node in (OLD, NEW))
    return size, old, new


def test_the_overhead_stays_and_the_link_share_follows_the_link() -> None:
    size, link_old, link_new = large_copy()
    table = trace([8, size], [1500, 1500 + round(link_old * 1e9)])
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)
    assert seconds[1] == pytest.approx(1.5e-6 + link_new, rel=1e-5)
    assert seconds[0] == pytest.approx(1.5e-6, rel=1e-2)


def test_the_host_share_follows_the_hosts_memory() -> None:
    size, link_old, link_new = large_copy()
    table = trace([8, size, size], [1000, 1000 + round(link_old * 2e9), 1000 + round(link_old * 1e9)])
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)
    assert seconds[1] == pytest.approx(1e-6 + link_new + link_old * 128e9 / 307.2e9, rel=1e-5)


def test_what_a_link_needs_beyond_its_data_sheet_is_link_time() -> None:
    sizes = np.array([1 << 28, 1 << 26, 1 << 20], float)
    old, new = (node.host_path(0).seconds(sizes, "read") for node in (OLD, NEW))
    taken = old * [1.2, 1.3, 3]
    table = trace([8, *map(int, sizes)], [1000, *(1000 + (taken * 1e9).round()).astype(int)])
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)[1:]
    host = (taken - 1.2 * old) * 128e9 / 307.2e9
    np.testing.assert_allclose(seconds, 1e-6 + 1.2 * new + host, rtol=1e-4)


@pytest.mark.parametrize("lack", [1.2, 1.9, 4.0])
def test_lanes_that_a_slow_link_lacked_are_not_counted_twice(lack: float) -> None:
    size = 1 << 28
    old, new = (node.host_path(0).seconds(np.array([float(size)]), "read")[0] for node in (NEW, OLD))
    table = trace([8, size], [1000, 1000 + round(lack * old * 1e9)])
    seconds = model("calibrated", recorded_on=NEW).seconds(table, OLD)
    assert seconds[1] == pytest.approx(1e-6 + max(lack * old, new), rel=1e-5)


@pytest.mark.parametrize(("old", "new"), [("h100-sxm", "dgx-1-p100"), ("dgx-1-p100", "h100-sxm")])
def test_a_measured_rate_is_not_held_against_a_default(old: str, new: str) -> None:
    # 9 GB/s: slower than either link, so the processor sets the pace.
    size = 256 << 20
    here, there = load_node(old), load_node(new)
    table = trace([8, size], [2000, 2000 + round(size / 9e9 * 1e9)], "pageable")
    seconds = model("calibrated", recorded_on=here).seconds(table, there)
    assert seconds[1] == pytest.approx(size / 9e9, rel=0.02)
    assert "never measured" in text(how_staged("h2d", here, there))
    assert "h100-sxm" in text(how_staged("h2d", here, there))


def test_measured_rates_of_two_nodes_are_compared() -> None:
    ac922, mi250x = load_node("ac922"), load_node("mi250x")
    sizes = np.array([float(256 << 20)])
    assert copy_ratio(sizes, mi250x, ac922)[0] == pytest.approx(3.7 / 33)
    staged = text(how_staged("d2h", mi250x, ac922))
    assert "3.7 GB/s (measured, mi250x) to 33 GB/s (measured, ac922)" in staged
    probed = load_node("h100-probed"), load_node("h200-probed")
    assert "rates measured on both" in text(how_staged("h2d", *probed))


def test_another_nodes_overhead_replaces_the_traces() -> None:
    table = trace([8], [2000])
    titan = load_node("gtx-titan")
    seconds = model("calibrated", recorded_on=OLD, latency_from=titan).seconds(table, NEW)
    assert seconds[0] == pytest.approx(9.42e-6, rel=1e-2)


def test_without_the_old_node_it_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="`recorded_on`"):
        model("calibrated")


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 64 * SERIAL_BYTES), st.floats(1e-12, 1e-8), st.floats(1e-12, 1e-8))
def test_the_rate_of_staging_is_the_inverse_of_staging(size: float, link: float, copy: float) -> None:
    sizes, links, paces = np.array([size]), np.array([link]), np.array([copy])
    seconds = staged_seconds(sizes, links, paces)
    again = staged_seconds(sizes, links, copying_seconds_per_byte(sizes, seconds, links))
    assert again[0] == pytest.approx(seconds[0], rel=1e-9)


def test_the_datasheet_takes_a_recorded_traces_latency() -> None:
    table = trace([8, 16, 1 << 20], [1000, 1200, 90_000])
    recorded = model("datasheet", recorded_on=OLD).seconds(table, NEW)
    link = NEW.host_path(0).seconds(np.array([float(1 << 20)]), "read")[0]
    assert recorded[2] == pytest.approx(1.1e-6 + link)


def engine(direction: Direction, start_s: float, per_byte_s: float, memory: MemoryKind = "pinned") -> Curve:
    return Curve(
        direction=direction, memory=memory, latency_overhead_s=(start_s,), gap_per_byte_s=(per_byte_s,)
    )


def node(*curves: Curve) -> Node:
    return dataclasses.replace(load_node("h100-sxm"), curves=curves)


def copies(sizes: list[int], seconds: list[float], memory: str = "pinned") -> pl.DataFrame:
    return trace(sizes, [round(s * 1e9) for s in seconds], memory)


def carried(table: pl.DataFrame, old: Node, new: Node) -> np.ndarray:
    return model("calibrated", recorded_on=old).seconds(table, new)


def test_bytes_follow_the_engine() -> None:
    old, new = node(engine("h2d", 3.5e-6, 4e-11)), node(engine("h2d", 3.5e-6, 2e-11))
    seconds = carried(copies([4, 64 * MIB], [1e-6, 2700e-6]), old, new)
    assert seconds[1] == pytest.approx(1e-6 + 2699e-6 / 2)


def test_a_pageable_copy_staged_before_it_ran_follows_the_engine_and_a_long_copy_the_host() -> None:
    host = [engine("h2d", 10e-6, gap, "pageable") for gap in (8e-11, 4e-11)]
    old, new = (node(engine("h2d", 3.5e-6, 2e-11), curve) for curve in host)
    seconds = carried(copies([32 << 10, 32 * MIB], [3e-6, 2700e-6], "pageable"), old, new)
    assert seconds[0] == pytest.approx(3e-6)
    assert seconds[1] == pytest.approx(1370e-6, rel=0.02)


def test_what_a_pageable_copy_lost_to_a_cold_cache_it_loses_on_the_new_node_too() -> None:
    """Of 32 MiB the processors' own pace explains 2,720 and 1,380 µs; a probe of quiet moments tells of no more."""
    host = [engine("h2d", 10e-6, gap, "pageable") for gap in (8e-11, 4e-11)]
    old, new = (node(engine("h2d", 3.5e-6, 2e-11), curve) for curve in host)
    whole = [carried(copies([32 * MIB], [s], "pageable"), old, new)[0] for s in (2724e-6, 4000e-6)]
    assert whole[1] - whole[0] == pytest.approx(4000e-6 - 2724e-6, rel=1e-3)
    back = carried(copies([32 * MIB], [whole[1]], "pageable"), new, old)[0]
    assert back == pytest.approx(4000e-6, rel=1e-6)


def test_a_knee_that_a_single_measurement_puts_elsewhere_changes_nothing() -> None:
    old_host = Curve(
        direction="h2d", memory="pageable", up_to_bytes=(16 * MIB,), latency_overhead_s=(1e-5, 0.0),
        gap_per_byte_s=(8e-11, 14e-11),
    )  # fmt: skip
    old = node(engine("h2d", 3.5e-6, 2e-11), old_host)
    new = node(engine("h2d", 3.5e-6, 2e-11), engine("h2d", 1e-5, 8e-11, "pageable"))
    assert carried(copies([24 * MIB], [2e-3], "pageable"), old, new)[0] == pytest.approx(2e-3)


def test_copies_of_equal_size_take_their_mean_and_the_sum_stays() -> None:
    old, new = node(engine("h2d", 3.5e-6, 2e-11)), node(engine("h2d", 3.4e-6, 2e-11))
    table = copies([MIB, MIB, MIB, 4096], [20e-6, 30e-6, 40e-6, 2e-6])
    seconds = carried(table, old, new)
    np.testing.assert_allclose(seconds, [30e-6, 30e-6, 30e-6, 2e-6], rtol=1e-9)


def test_a_copy_that_never_ended_has_no_price_and_changes_no_price() -> None:
    old, new = node(engine("h2d", 3.5e-6, 2e-11)), node(engine("h2d", 3.4e-6, 2e-11))
    table = trace([MIB] * 3, [0] * 3).with_columns(end_ns=pl.Series([20_005, None, 0]))
    seconds = carried(table, old, new)
    assert seconds[0] == pytest.approx(20e-6)
    for priced in (seconds, carried(table, OLD, NEW)):
        assert np.isfinite(priced).tolist() == [True, False, False]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(1, 10**9)), min_size=1, max_size=20),
    st.sampled_from(["pinned", "pageable", "managed"]),
    st.sampled_from(["h2d", "d2h"]),
)
def test_between_two_probed_gpus_every_copy_has_a_time_and_on_its_gpu_the_recorded_time(
    recorded: list[tuple[int, int]], memory: str, direction: str
) -> None:
    table = trace([size for size, _ in recorded], [ns for _, ns in recorded], memory, direction)
    old, new = load_node("h100-probed"), load_node("h200-x2-probed")
    assert (carried(table, old, new) > 0).all()
    np.testing.assert_allclose(carried(table, old, old), [ns * 1e-9 for _, ns in recorded], rtol=1e-9)
