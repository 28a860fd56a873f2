"""The calibrated model: the recorded run on its own node, and each share's way to another."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.cost import model
from busfare.cost.calibrated import how_staged
from busfare.cost.pageable import SERIAL_BYTES, copy_ratio, copying_seconds_per_byte, staged_seconds
from busfare.errors import InputError
from busfare.node import load_node

OLD, NEW = load_node("v100-pcie"), load_node("h100-pcie")


def trace(
    sizes: list[int], nanoseconds: list[int], memory: str = "pinned", direction: str = "h2d"
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "kind": "copy",
            "direction": direction,
            "bytes": sizes,
            "source_memory": memory,
            "destination_memory": "device",
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
def test_on_its_own_node_a_trace_costs_what_it_cost(copies: list[tuple[int, int]], memory: str) -> None:
    table = trace([size for size, _ in copies], [time for _, time in copies], memory)
    seconds = model("calibrated", recorded_on=OLD).seconds(table, OLD)
    wanted = np.array([time for _, time in copies]) * 1e-9
    sized = np.array([size for size, _ in copies]) > 0
    np.testing.assert_allclose(seconds[sized], wanted[sized], rtol=1e-9, atol=1e-15)


def test_the_overhead_stays_and_the_link_share_follows_the_link() -> None:
    size = 1 << 28
    link_old = OLD.host_path(0).seconds(np.array([float(size)]), "read")[0]
    link_new = NEW.host_path(0).seconds(np.array([float(size)]), "read")[0]
    table = trace([8, size], [1500, 1500 + round(link_old * 1e9)])
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)
    assert seconds[1] == pytest.approx(1.5e-6 + link_new, rel=1e-5)
    assert seconds[0] == pytest.approx(1.5e-6, rel=1e-2)


def test_the_host_share_follows_the_hosts_memory() -> None:
    size = 1 << 28
    link_old = OLD.host_path(0).seconds(np.array([float(size)]), "read")[0]
    link_new = NEW.host_path(0).seconds(np.array([float(size)]), "read")[0]
    table = trace([8, size], [1000, 1000 + round(link_old * 2e9)])
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)
    assert seconds[1] == pytest.approx(1e-6 + link_new + link_old * 128e9 / 307.2e9, rel=1e-5)


@pytest.mark.parametrize(("old", "new"), [("h100-sxm", "dgx-1-p100"), ("dgx-1-p100", "h100-sxm")])
def test_a_measured_rate_is_not_held_against_a_default(old: str, new: str) -> None:
    # 9 GB/s: slower than either link, so the processor sets the pace.
    size = 256 << 20
    here, there = load_node(old), load_node(new)
    table = trace([8, size], [2000, 2000 + round(size / 9e9 * 1e9)], "pageable")
    seconds = model("calibrated", recorded_on=here).seconds(table, there)
    assert seconds[1] == pytest.approx(size / 9e9, rel=0.02)
    assert "not measured" in how_staged("h2d", here, there)
    assert "h100-sxm" in how_staged("h2d", here, there)


def test_rates_measured_on_both_nodes_are_held_against_each_other() -> None:
    ac922, mi250x = load_node("ac922"), load_node("mi250x")
    sizes = np.array([float(256 << 20)])
    assert copy_ratio(sizes, mi250x, ac922)[0] == pytest.approx(3.7 / 33)
    assert "3.7 GB/s (measured, mi250x) to 33 GB/s (measured, ac922)" in how_staged("d2h", mi250x, ac922)
    assert "measured of them on both" in how_staged("h2d", load_node("h100-probed"), load_node("h200-probed"))


def test_another_nodes_overhead_replaces_the_traces() -> None:
    table = trace([8], [2000])
    titan = load_node("gtx-titan")
    seconds = model("calibrated", recorded_on=OLD, latency_from=titan).seconds(table, NEW)
    assert seconds[0] == pytest.approx(9.42e-6, rel=1e-2)


def test_a_copy_that_never_ended_has_no_price() -> None:
    table = trace([8, 8, 8], [1000, 1000, -10]).with_columns(end_ns=pl.Series([1005, None, 0]))
    seconds = model("calibrated", recorded_on=OLD).seconds(table, NEW)
    assert np.isfinite(seconds).tolist() == [True, False, False]


def test_without_the_old_node_it_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="--from"):
        model("calibrated")


@settings(max_examples=200, deadline=None)
@given(
    st.floats(1, 64 * SERIAL_BYTES),
    st.floats(1e-12, 1e-8),
    st.floats(1e-12, 1e-8),
)
def test_the_staging_pace_is_the_inverse_of_staging(size: float, link: float, copy: float) -> None:
    sizes, links, paces = np.array([size]), np.array([link]), np.array([copy])
    seconds = staged_seconds(sizes, links, paces)
    again = staged_seconds(sizes, links, copying_seconds_per_byte(sizes, seconds, links))
    assert again[0] == pytest.approx(seconds[0], rel=1e-9)


def test_the_datasheet_takes_a_recorded_traces_latency() -> None:
    table = trace([8, 16, 1 << 20], [1000, 1200, 90_000])
    recorded = model("datasheet", recorded_on=OLD).seconds(table, NEW)
    link = NEW.host_path(0).seconds(np.array([float(1 << 20)]), "read")[0]
    assert recorded[2] == pytest.approx(1.1e-6 + link)
