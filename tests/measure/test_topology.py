"""The graph of a machine, from what NVML and the system say of it."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.measure.node_file import bare_node
from busfare.measure.raw import Record
from busfare.nodes.link import NvlinkLink

#: As NVML numbers the far ends of links: another GPU, a switch, not told.
GPU, SWITCH, UNKNOWN = 0, 2, 255


def record_of(links: list[list[dict[str, Any]]]) -> Record:
    """A machine of H200s with these NVLinks each."""
    gpus = [
        {
            "name": "NVIDIA H200", "bus_id": f"0000:0{n}:00.0", "compute_capability": [9, 0], "multiprocessors": 132,
            "copy_engines": 3, "memory_bytes": 150 << 30, "memory_clock_hz": 3_201_000_000, "memory_bus_bits": 6144,
            "clock_hz": 1_980_000_000, "coherent": False, "integrated": False, "nvlinks": own,
            "link_width": 16, "link_speed": "32.0 GT/s PCIe",
        }
        for n, own in enumerate(links)
    ]  # fmt: skip
    return Record(False, "2026-01-01", "test", {"gpus": gpus, "cores": 32}, 0)


@pytest.mark.parametrize(("kind", "far"), [(SWITCH, "0000:07:00.0"), (UNKNOWN, None), (None, None)])
def test_gpus_on_a_switch_reach_each_other(kind: int | None, far: str | None) -> None:
    links = [{"link": n, "version": 7, "remote": far, "remote_type": kind} for n in range(18)]
    node = bare_node(record_of([links, links]))
    assert {link.between for link in node.links if isinstance(link, NvlinkLink)} == {
        ("nvswitch", "gpu0"), ("nvswitch", "gpu1")
    }  # fmt: skip
    assert node.peer_path(0, 1).bandwidth("write") == pytest.approx(450e9, rel=0.15)


def test_gpus_that_are_joined_directly_have_links_of_their_own() -> None:
    to = [
        [{"link": n, "version": 7, "remote": f"0000:0{other}:00.0", "remote_type": GPU} for n in range(4)]
        for other in (1, 0)
    ]
    node = bare_node(record_of(to))
    (link,) = (link for link in node.links if isinstance(link, NvlinkLink))
    assert (link.between, link.links) == (("gpu1", "gpu0"), 4)


def test_gpus_without_nvlink_meet_at_the_host() -> None:
    node = bare_node(record_of([[], []]))
    assert not any(isinstance(link, NvlinkLink) for link in node.links)
    assert node.peer_path(0, 1).bandwidth("write") < 64e9
