"""Wire bytes and rates against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.nodes import FabricLink, Link, NvlinkLink, PcieLink, load_node
from busfare.nodes.link import Flow

ENDS = ("cpu0", "gpu0")
#: 4 bytes in 1538 keep the clocks together.
SKIPS = 1 + 4 / 1538


def pcie(generation: int, **sizes: int) -> PcieLink:
    return PcieLink(between=ENDS, generation=generation, lanes=16, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("generation", "gigabytes"), [(1, 4.0), (2, 8.0), (3, 15.7538), (4, 31.5077), (5, 63.0154), (6, 118.0)]
)
def test_line_rate_of_sixteen_lanes(generation: int, gigabytes: float) -> None:
    assert pcie(generation).line_rate / 1e9 == pytest.approx(gigabytes, rel=1e-4)


@pytest.mark.parametrize(
    ("link", "flow", "size", "wire"),
    [
        # 1024 bytes in 128s: 8 packets of 24
        (pcie(3), "write", 1024, (1024 + 8 * 24) * SKIPS),
        # from generation 6 a flit carries the frame
        (pcie(6), "write", 1024, 1024 + 4 * 16),
        # 8 completions of 20; generation 3 sends an acknowledgement and a credit for each of 2 requests, 4 only the first
        (pcie(3, read_request_bytes=512), "read", 1024, (1024 + 8 * 20 + 2 * 16) * SKIPS),
        (pcie(4, read_request_bytes=512), "read", 1024, (1024 + 8 * 20 + 2 * 8) * SKIPS),
        # a part of a packet costs a whole header
        (pcie(3), "write", 1, (1 + 24) * SKIPS),
        (pcie(4), "write", 0, 0),
        (pcie(4), "read", 0, 0),
        (NvlinkLink(between=ENDS, generation=2, links=3), "write", 4096, 4096 * 17 / 16),
        (NvlinkLink(between=ENDS, generation=4, links=3), "read", 4096, 4096 * 18 / 16),
        (NvlinkLink(between=ENDS, generation=2, links=3), "read", 0, 0),
        (
            FabricLink(between=ENDS, bandwidth_bytes_per_s=1e9, write_overhead_bytes=18),
            "write",
            128,
            128 + 2 * 18,
        ),
    ],
)
def test_bytes_on_the_wire(link: Link, flow: Flow, size: int, wire: float) -> None:
    assert link.wire_bytes(np.array([float(size)]), flow)[0] == pytest.approx(wire, rel=1e-12)


def test_links_of_nvlink_add_up() -> None:
    assert NvlinkLink(between=ENDS, generation=2, links=3).line_rate == 75e9


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
    assert path.bandwidth("read") == pytest.approx(path.peak() * read / SKIPS)
    assert path.bandwidth("write") == pytest.approx(path.peak() * write / SKIPS)
