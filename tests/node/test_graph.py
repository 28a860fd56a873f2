"""Paths through a node, and what its wires carry."""

import numpy as np
import pytest

from busfare.errors import InputError
from busfare.nodes import FabricLink, Link, NvlinkLink, PcieLink, load_node
from busfare.nodes.link import Flow


def test_a_trace_ordinal_wraps() -> None:
    node = load_node("summit")
    assert node.gpu(7).name == "gpu1"
    assert node.host_path(7) == node.host_path(1)


def test_the_nearest_memory_serves_a_gpu() -> None:
    node = load_node("summit")
    assert [link.between for link in node.host_path(5).links] == [("memory1", "cpu1"), ("cpu1", "gpu5")]


def test_peers_without_a_link_go_through_the_host_and_not_through_a_gpu() -> None:
    node = load_node("dgx-1-v100")
    assert [link.label for link in node.peer_path(0, 3).links] == ["NVLink 2 x2"]
    across = node.peer_path(0, 5)
    expected = ["PCIe 3 x16", "PCIe 3 x16", "QPI", "PCIe 3 x16", "PCIe 3 x16"]
    assert [link.label for link in across.links] == expected
    assert across.narrowest("write").label == "PCIe 3 x16"


def test_host_memory_can_be_the_narrowest_part() -> None:
    path = load_node("gh200").host_path(0)
    assert path.bandwidth("read") == pytest.approx(384e9 * 0.95)
    assert path.bandwidth("write") == pytest.approx(384e9 * 0.80)


def test_a_gpus_copy_hardware_can_be_the_narrowest_part() -> None:
    path = load_node("k80").host_path(1)
    narrowest = pytest.approx(16 * 562e6 * 128 / 148, rel=1e-3)
    assert path.bandwidth("read") == path.bandwidth("write") == narrowest
    assert path.peak() > 2 * path.bandwidth("read")


def test_an_unknown_component_is_named() -> None:
    with pytest.raises(InputError, match="no component 'gpu9'"):
        load_node("summit").route("gpu9", "cpu0")


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
        (FabricLink(between=ENDS, bandwidth_bytes_per_s=1e9, write_overhead_bytes=18), "write", 128, 128 + 2 * 18),
    ],
)  # fmt: skip
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
