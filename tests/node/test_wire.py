"""Wire bytes and rates against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.node import link as wire
from busfare.node import load_node

KIB = np.array([1024.0])


@pytest.mark.parametrize(
    ("generation", "gigabytes"), [(1, 4.0), (2, 8.0), (3, 15.7538), (4, 31.5077), (5, 63.0154), (6, 118.0)]
)
def test_line_rate_of_sixteen_lanes(generation: int, gigabytes: float) -> None:
    assert wire.pcie_line_rate(generation, 16) / 1e9 == pytest.approx(gigabytes, rel=1e-4)


def test_a_write_costs_24_bytes_a_packet() -> None:
    # 1024 bytes in 128s: 8 packets of 24, and 4 in 1538 for skips
    assert wire.pcie_write_bytes(KIB, 3, 128)[0] == pytest.approx((1024 + 8 * 24) * (1 + 4 / 1538))


def test_a_flit_carries_the_frame_from_generation_6() -> None:
    assert wire.pcie_write_bytes(KIB, 6, 256)[0] == 1024 + 4 * 16


def test_a_read_pays_for_completions_and_for_the_link_layer_of_its_requests() -> None:
    # 8 completions of 20; generation 3 sends an acknowledgement and a credit for each of 2 requests, 4 only
    # the first
    assert wire.pcie_read_bytes(KIB, 3, 128, 512)[0] == pytest.approx(
        (1024 + 8 * 20 + 2 * 16) * (1 + 4 / 1538)
    )
    assert wire.pcie_read_bytes(KIB, 4, 128, 512)[0] == pytest.approx(
        (1024 + 8 * 20 + 2 * 8) * (1 + 4 / 1538)
    )


def test_a_part_packet_costs_a_whole_header() -> None:
    one, full = wire.pcie_write_bytes(np.array([1.0, 128.0]), 3, 128)
    assert full - one == pytest.approx(127 * (1 + 4 / 1538))


def test_nothing_costs_nothing() -> None:
    nothing = np.array([0.0])
    assert wire.pcie_write_bytes(nothing, 4, 128)[0] == 0
    assert wire.pcie_read_bytes(nothing, 4, 128, 128)[0] == 0
    assert wire.nvlink_bytes(nothing, 256, 1.0)[0] == 0


def test_nvlink_sends_17_flits_for_16() -> None:
    assert wire.nvlink_bytes(np.array([4096.0]), 256, 1.0)[0] == 4096 * 17 / 16
    assert wire.nvlink_line_rate(2, 3) == 75e9


@pytest.mark.parametrize(
    ("short", "read", "write"),
    [
        # n / wire bytes × line rate, for whole packets
        ("pcie:3x16", 128 / (128 + 20 + 16), 128 / (128 + 24)),
        ("pcie:4x16", 128 / (128 + 20 + 8), 128 / (128 + 24)),
        ("pcie:5x16", 256 / (256 + 20 + 8), 256 / (256 + 24)),
    ],
)
def test_bandwidth_of_a_long_copy(short: str, read: float, write: float) -> None:
    path = load_node(short).host_path(0)
    skips = 1 + 4 / 1538
    assert path.bandwidth("read") == pytest.approx(path.peak() * read / skips)
    assert path.bandwidth("write") == pytest.approx(path.peak() * write / skips)


def test_an_infinity_fabric_line_carries_its_overhead() -> None:
    assert wire.fabric_bytes(np.array([128.0]), 64, 18)[0] == 128 + 2 * 18
