"""Paths: the fewest links, the widest of those, and never through a GPU."""

from __future__ import annotations

import pytest

from busfare.errors import InputError
from busfare.nodes import load_node


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
    assert [link.label for link in across.links] == [
        "PCIe 3 x16",
        "PCIe 3 x16",
        "QPI",
        "PCIe 3 x16",
        "PCIe 3 x16",
    ]
    assert across.narrowest("write").label == "PCIe 3 x16"


def test_host_memory_can_be_the_narrowest_part() -> None:
    path = load_node("gh200").host_path(0)
    assert path.bandwidth("read") == pytest.approx(384e9 * 0.95)
    assert path.bandwidth("write") == pytest.approx(384e9 * 0.80)


def test_a_gpus_own_copy_hardware_can_be_the_narrowest_part() -> None:
    path = load_node("k80").host_path(1)
    assert (
        path.bandwidth("read") == path.bandwidth("write") == pytest.approx(16 * 562e6 * 128 / 148, rel=1e-3)
    )
    assert path.peak() > 2 * path.bandwidth("read")


def test_an_unknown_component_is_named() -> None:
    with pytest.raises(InputError, match="no component 'gpu9'"):
        load_node("summit").route("gpu9", "cpu0")
